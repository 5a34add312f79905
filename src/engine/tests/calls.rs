//! Tools in requests: calls that the model writes, and calls that a request demands.
#![cfg(feature = "grammar")]

use super::*;
use crate::chat::{Message, Tool};
use serde_json::{Value, json};

fn weather() -> Tool {
    let parameters = json!({
        "type": "object",
        "properties": {"unit": {"enum": ["c", "f"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["unit", "days"],
        "additionalProperties": false,
    });
    Tool::function(json!({"name": "w", "parameters": parameters})).unwrap()
}

fn ask(choice: &str) -> Request {
    let request = Request::chat([Message::user("a")]).max_tokens(120);
    let tools = vec![weather(), Tool::function(json!({"name": "g"})).unwrap()];
    Request { tools, tool_choice: Some(choice.into()), format: Some("g1".into()), ..request }
}

/// The number of seeds of `a_demanded_call_parses`. `WINGBEAT_CALL_SEEDS` sets another number.
const SEEDS: usize = 8;

#[test]
fn a_demanded_call_parses() {
    let n_seeds = std::env::var("WINGBEAT_CALL_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    let engine = engine(8);
    let (mut units, mut n_done) = (std::collections::BTreeSet::new(), 0);
    while n_done < n_seeds {
        let n = (n_seeds - n_done).min(8);
        let generation =
            engine.submit(Request { n, close: Some(false), ..ask("w").set("seed", n_done).set("temperature", 2).set("top_p", 1) }).unwrap();
        for done in generation.wait().unwrap() {
            assert_eq!((done.calls.len(), done.text.as_str(), done.complete), (1, "", Some(true)), "{done:?}");
            assert_eq!((done.calls[0].name.as_str(), done.finish), ("w", Finish::Eos));
            let arguments: Value = serde_json::from_str(&done.calls[0].arguments).unwrap();
            let keys: Vec<&String> = arguments.as_object().unwrap().keys().collect();
            assert_eq!(keys, ["unit", "days"]);
            assert!((1..=9).contains(&arguments["days"].as_i64().unwrap()), "{arguments}");
            units.insert(arguments["unit"].as_str().unwrap().to_string());
        }
        n_done += n;
    }
    assert_eq!(units.into_iter().collect::<Vec<_>>(), ["c", "f"]);
}

#[test]
fn a_call_may_be_demanded_after_a_thought_and_of_any_tool() {
    let engine = engine(1);
    for (thinking, format) in [("fast", "g1"), ("off", "g1-tools-short"), ("fast", "g1-bot")] {
        let request = Request { thinking: Some(thinking.parse().unwrap()), format: Some(format.into()), ..ask("required") };
        let events = engine.submit(request.set("seed", 1)).unwrap().into_iter().collect::<crate::error::Result<Vec<Event>>>().unwrap();
        let Some(Event::Done(done)) = events.last() else { panic!("{events:?}") };
        let names = events.iter().filter_map(|e| if let Event::Call { name, call: 0, .. } = e { Some(name.as_str()) } else { None });
        assert_eq!(names.collect::<Vec<_>>(), [done.calls[0].name.as_str()], "{format}");
        let arguments = events.iter().filter_map(|e| if let Event::Arguments { text, .. } = e { Some(text.as_str()) } else { None });
        assert_eq!(arguments.collect::<String>(), done.calls[0].arguments);
        assert!(["w", "g"].contains(&done.calls[0].name.as_str()));
    }
}

#[test]
fn tools_select_the_style_and_the_choice_is_checked() {
    let engine = engine(1);
    let prompt = |request: Request| engine.submit(request.max_tokens(1)).unwrap().wait().unwrap()[0].usage.prompt_tokens;
    let plain = prompt(Request { tools: Vec::new(), ..ask("auto") });
    assert_eq!(prompt(ask("none")), plain, "tools are not declared");
    assert!(prompt(ask("auto")) > plain + 100);
    let with = Request { format: Some("g1-tools".into()), ..ask("auto") };
    assert_eq!(prompt(Request { thinking: Some("off".parse().unwrap()), ..with }), prompt(ask("auto")), "the style for tools is chosen");
    let refused = |request: Request| {
        let e = engine.submit(request.clone()).unwrap_err();
        (e.field_name().map(str::to_string), e.message)
    };
    for (request, want) in [
        (ask("h"), "expected the name of a declared tool, found \"h\""),
        (Request { tools: Vec::new(), ..ask("required") }, "a tool call can be required only if tools are declared"),
        (Request { input: Input::Text("x".into()), ..ask("required") }, "a tool call can be required only in an answer to messages"),
        (Request { follows: Some(Follows::Rules(Rules::Value)), ..ask("w") }, "a required tool call cannot be combined with a grammar"),
    ] {
        let (field, message) = refused(request);
        assert!(field.as_deref() == Some("tool_choice") && message.starts_with(want), "{field:?}: {message}");
    }
    // A chat format without a form of its own for tools describes the tools briefly in the prompt.
    let of_world = |tools: Vec<Tool>| prompt(Request { tools, format: Some("world".into()), ..ask("auto") });
    assert!(of_world(ask("auto").tools) > of_world(Vec::new()) + 20);
}
