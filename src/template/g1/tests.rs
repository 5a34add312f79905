//! Compares prompts with the output of Python's `jinja2`. `tools/g1-prompts.py` writes the cases.

use super::super::whole;
use super::*;
use serde_json::from_value;

const TEMPLATE: &str = include_str!("../testing/rwkv-g1.jinja");

/// A conversation and its prompt.
struct Case {
    g1: G1,
    messages: Vec<Message>,
    prompt: String,
}

fn cases() -> Vec<Case> {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../testing/rwkv-g1.json")).unwrap();
    let case = |case: &Value| {
        let style = if case["style"] == "bot" { Style::Bot } else { Style::Assistant };
        let opening = if case["opening"] == "open_think" { Opening::Thought } else { Opening::EmptyThought };
        let mut messages: Vec<Message> = from_value(case["messages"].clone()).unwrap();
        let tools: Vec<Tool> = from_value(case["tools"].clone()).unwrap();
        if !tools.is_empty() {
            if messages[0].role != Role::System {
                messages.insert(0, Message::system(""));
            }
            messages[0].tools = tools;
        }
        Case { g1: G1 { style, opening, own: None }, messages, prompt: case["prompt"].as_str().unwrap().into() }
    };
    cases.iter().map(case).collect()
}

#[test]
fn built_in_texts_are_what_pythons_jinja_renders() {
    let cases = cases();
    assert!(cases.len() > 40);
    for Case { g1, messages, prompt } in cases {
        let text = whole(&g1.render(&messages).unwrap());
        assert_eq!(text, prompt, "{g1:?} {messages:?}");
        assert_eq!(g1.opening(&text), g1.opening.text());
    }
}

#[test]
fn a_folders_template_renders_what_pythons_jinja_renders() {
    let jinja = Arc::new(Jinja::parse(TEMPLATE, Family::Rwkv).unwrap());
    // Each rendering starts a thread, so only every third case is rendered.
    for Case { g1, messages, prompt } in cases().into_iter().step_by(3) {
        let g1 = G1 { own: Some(jinja.clone()), ..g1 };
        assert_eq!(whole(&g1.render(&messages).unwrap()), prompt, "{messages:?}");
        let plain = G1 { opening: Opening::Nothing, ..g1 };
        let native = G1 { own: None, ..plain.clone() };
        assert_eq!(whole(&plain.render(&messages).unwrap()), whole(&native.render(&messages).unwrap()));
    }
}

#[test]
fn the_short_form_has_a_line_per_tool() {
    let parameters = json!({"properties": {"a": {"type": "string"}, "b": {}}});
    let tools = vec![Tool::function(json!({"name": "f", "description": "Does\nit.", "parameters": parameters})).unwrap()];
    let tools = [tools, vec![Tool::function(json!({"name": "g"})).unwrap()]].concat();
    let g1 = G1 { style: Style::Short, opening: Opening::Nothing, own: None };
    let call = [Message::call("f", r#"{"a": "x"}"#), Message::observation("7")];
    let render = |first: Message| whole(&g1.render(&[vec![first, Message::user("?")], call.to_vec()].concat()).unwrap());
    let told = "Tools:\n- f(a: string, b: any): Does it.\n- g()\nReturn only a JSON function call.\n\nUser: ?\n\n\
                Assistant: ```json\n{\"name\": \"f\", \"arguments\": {\"a\": \"x\"}}\n```\n\nUser: Function output: 7\n\nAssistant:";
    assert_eq!(render(Message::system("").with_tools(tools.clone())), format!("System: {told}"));
    assert_eq!(render(Message::system("Be brief.").with_tools(tools.clone())), format!("System: Be brief.\n{told}"));
    let builtin = [Message::system("").with_tools(vec![Tool::Python])];
    assert!(g1.render(&builtin).unwrap_err().to_string().starts_with("an RWKV model has no built-in tool python"));
}

#[test]
fn each_style_has_its_stops_and_its_lead() {
    let user = [Message::user("x")];
    let tools = [Message::user("x"), Message::observation("7")];
    let of = |style: Style, messages: &[Message]| {
        let g1 = G1 { style, opening: Opening::Nothing, own: None };
        (g1.stops(messages).remove(0), g1.lead(messages))
    };
    assert_eq!(of(Style::Assistant, &user), ("\nUser:".into(), " "));
    assert_eq!(of(Style::Bot, &user), ("✿".into(), ""));
    assert_eq!(of(Style::Bot, &tools), ("\n### User".into(), "\n"));
    assert_eq!(of(Style::Short, &tools), ("\nUser:".into(), " "));
}

#[test]
fn messages_are_cleaned() {
    let text = "\n a \t\r\n\r\n\r\n b\r\rc  \n";
    assert_eq!((cleaned(text, true), cleaned(text, false)), ("a\n b\nc".into(), "a\n\n\n b\n\nc".into()));
    assert_eq!(cleaned(" \n\t\r\n", true), "");
}
