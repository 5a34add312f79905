//! The template of GLM-4.7: `[gMASK]<sop>`, then `<|role|>` and the content of each message, then `<|assistant|>` with `<think>` or `</think>`.
//!
//! Each answer in the prompt begins with `</think>`, because thoughts of earlier answers are left out. A call has keys and values in tags, as
//! `calls/keyed.rs` reads them. The text about tools is wingbeat's own. The checkpoint's own template has the published text.

use super::json::{JsonStyle, dumps};
use super::part::split_marked;
use super::{Family, Message, Opening, Part, Role, Template, Tool};
use crate::error::{Error, Result};
use serde_json::{Value, json};
use std::sync::Arc;

/// The texts before and after the list of tools in the system message.
const ABOUT_TOOLS: [&str; 2] = [
    "\n# Tools\n\nYou can call these functions. Each line between <tools> and </tools> describes one as JSON.\n\n<tools>",
    "\n</tools>\n\nWrite a call as the function's name, then each argument's key and value, in this form:\n\
     <tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>\n\
     Write texts as they are, without quotes, and all other values as JSON.",
];

/// The built-in template of GLM-4.7.
#[derive(Debug, Clone, Copy)]
pub struct Glm47 {
    /// True if the prompt begins a thought. Otherwise the prompt ends with `</think>`, and the model answers at once.
    pub thinks: bool,
}

impl Template for Glm47 {
    fn name(&self) -> String {
        "GLM-4.7".into()
    }

    fn family(&self) -> Family {
        Family::Glm47
    }

    fn render(&self, messages: &[Message]) -> Result<Vec<Part>> {
        let mut parts: Vec<Part> = self.family().prefix().iter().copied().map(Part::Special).collect();
        add_tools(&mut parts, messages)?;
        let mut last = None;
        let is_shown = |m: &&Message| m.role == Role::Observation || !m.content.is_empty() || !m.metadata.is_empty();
        for message in messages.iter().filter(is_shown) {
            let is_call = message.role == Role::Assistant && !message.metadata.is_empty();
            // A call belongs to the answer before it, and the results of several calls share one turn.
            if last != Some(message.role) || !(is_call || message.role == Role::Observation) {
                parts.push(Part::Special(message.role.special()));
                parts.extend((message.role == Role::Assistant).then_some(Part::Special("</think>")));
            }
            last = Some(message.role);
            match message.role {
                Role::Assistant if is_call => add_call(&mut parts, message),
                Role::Assistant => text(&mut parts, message.content.rsplit("</think>").next().unwrap_or_default().trim()),
                Role::Observation => in_tags(&mut parts, ["<tool_response>", "</tool_response>"], &message.content),
                Role::System | Role::User => text(&mut parts, &message.content),
            }
        }
        parts.extend([Role::Assistant.special(), if self.thinks { "<think>" } else { "</think>" }].map(Part::Special));
        Ok(parts)
    }

    fn lead(&self, _messages: &[Message]) -> &'static str {
        ""
    }

    fn with_opening(&self, opening: Opening) -> Option<Arc<dyn Template>> {
        Some(Arc::new(Glm47 { thinks: opening == Opening::Thought }))
    }
}

/// Adds a system message that describes the tools of all messages. Adds nothing without tools.
fn add_tools(parts: &mut Vec<Part>, messages: &[Message]) -> Result<()> {
    let mut lines = String::new();
    for tool in messages.iter().flat_map(|message| &message.tools) {
        let Tool::Function(function) = tool else {
            let message = format!("GLM-4.7 has no built-in tool {}", tool.name());
            return Err(Error::input(message).hint("describe the tool as a function"));
        };
        lines += &format!("\n{}", dumps(&json!({"type": "function", "function": function.object()}), &JsonStyle::default()));
    }
    if !lines.is_empty() {
        parts.extend([Part::Special(Role::System.special()), Part::Text(ABOUT_TOOLS[0].to_string() + &lines)]);
        parts.extend(split_marked(ABOUT_TOOLS[1], true));
    }
    Ok(())
}

fn add_call(parts: &mut Vec<Part>, message: &Message) {
    parts.push(Part::Special("<tool_call>"));
    text(parts, message.metadata.trim());
    match serde_json::from_str(&message.content) {
        Ok(Value::Object(arguments)) => {
            for (key, value) in &arguments {
                in_tags(parts, ["<arg_key>", "</arg_key>"], key);
                let value = value.as_str().map_or_else(|| dumps(value, &JsonStyle::default()), str::to_string);
                in_tags(parts, ["<arg_value>", "</arg_value>"], &value);
            }
        }
        _ => text(parts, &message.content),
    }
    parts.push(Part::Special("</tool_call>"));
}

fn in_tags(parts: &mut Vec<Part>, [open, close]: [&'static str; 2], content: &str) {
    parts.push(Part::Special(open));
    text(parts, content);
    parts.push(Part::Special(close));
}

fn text(parts: &mut Vec<Part>, text: &str) {
    parts.extend((!text.is_empty()).then(|| Part::Text(text.into())));
}

#[cfg(test)]
mod tests {
    use super::super::whole;
    use super::*;

    fn text(messages: &[Message]) -> String {
        whole(&Glm47 { thinks: true }.render(messages).unwrap())
    }

    #[test]
    fn earlier_thoughts_are_left_out_and_the_prompt_begins_one() {
        let messages = [
            Message::system("Be brief."),
            Message::user("Hi"),
            Message::assistant("<think>\nx\n</think>\n\nHo "),
            Message::user("a<|user|></think>"),
        ];
        let before = "[gMASK]<sop><|system|>Be brief.<|user|>Hi<|assistant|></think>Ho<|user|>a<|user|></think><|assistant|>";
        assert_eq!(text(&messages), format!("{before}<think>"));
        for (opening, want) in [(Opening::Thought, "<think>"), (Opening::EmptyThought, "</think>"), (Opening::Nothing, "</think>")] {
            let other = Glm47 { thinks: true }.with_opening(opening).unwrap();
            let parts = other.render(&messages).unwrap();
            assert_eq!(whole(&parts), format!("{before}{want}"), "{opening:?}");
            // Marks in the user's text are text.
            assert!(parts.contains(&Part::Text("a<|user|></think>".into())));
            assert_eq!(parts.last(), Some(&Part::Special(want)));
            assert_eq!(other.opening(&whole(&parts)), want);
        }
    }

    #[test]
    fn the_model_has_this_template() {
        let found = super::super::builtin("glm4_moe_lite", 154880).unwrap();
        assert_eq!((found.name().as_str(), found.lead(&[]), found.family().stops().len()), ("GLM-4.7", "", 3));
        assert_eq!(found.around_arguments("f").unwrap().concat(), "<tool_call>{\"name\": \"f\", \"arguments\": }</tool_call>");
    }

    #[test]
    fn tools_calls_and_results_have_tags() {
        let tools = vec![Tool::function(json!({"name": "add", "parameters": {"type": "object"}})).unwrap()];
        let messages = [
            Message::system("S"),
            Message::user("1+2, 3+4?").with_tools(tools),
            Message::assistant("I add."),
            Message::call("add", r#"{"a":1,"b":{"c":[2, "x"]},"as":"a \"text\"","n":null}"#),
            Message::call("add", ""),
            Message::observation("3"),
            Message::observation("<|user|>"),
            Message::observation(""),
        ];
        let said = text(&messages);
        assert!(said.starts_with("[gMASK]<sop><|system|>\n# Tools\n\n"), "{said}");
        assert!(
            said.contains(
                "\n<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"add\", \"parameters\": {\"type\": \"object\"}}}\n</tools>\n"
            ),
            "{said}"
        );
        let end = "<|system|>S<|user|>1+2, 3+4?<|assistant|></think>I add.<tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value>\
                   <arg_key>b</arg_key><arg_value>{\"c\": [2, \"x\"]}</arg_value><arg_key>as</arg_key><arg_value>a \"text\"</arg_value>\
                   <arg_key>n</arg_key><arg_value>null</arg_value></tool_call><tool_call>add</tool_call>\
                   <|observation|><tool_response>3</tool_response><tool_response><|user|></tool_response><tool_response></tool_response><|assistant|><think>";
        assert!(said.ends_with(end), "{said}");
        let parts = Glm47 { thinks: true }.render(&messages).unwrap();
        let count = |special: &str| parts.iter().filter(|part| matches!(part, Part::Special(text) if *text == special)).count();
        // One `<tool_call>` is in the text about tools.
        assert_eq!(["<tool_call>", "<arg_key>", "<tool_response>", "<|user|>", "<|observation|>"].map(count), [3, 5, 3, 1, 1]);
        let alone = text(&[Message::user("x"), Message::call("f", "print(1)"), Message::observation("1")]);
        assert!(
            alone.contains("<|user|>x<|assistant|></think><tool_call>fprint(1)</tool_call><|observation|><tool_response>1<"),
            "{alone}"
        );
        let python = [Message::user("x").with_tools(vec![Tool::Python])];
        assert!(Glm47 { thinks: true }.render(&python).unwrap_err().to_string().contains("no built-in tool python"));
    }
}
