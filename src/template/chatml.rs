//! ChatML, the template of Qwen2.5 and of models made from it. Each message is `<|im_start|>role`, a newline, the content, `<|im_end|>` and a
//! newline.
//!
//! Tools are described in the system message, and a call is a JSON object in the tags `<tool_call>`. The text about tools equals the published text
//! byte for byte.

use super::family::CHATML;
use super::json::{JsonStyle, dumps};
use super::{Family, Message, Part, Role, Template, Tool};
use crate::error::{Error, Result};
use serde_json::{Value, json};

const START: &str = CHATML[0];
const END: &str = CHATML[1];
/// The texts before and after the list of tools in the system message.
const ABOUT_TOOLS: [&str; 2] = [include_str!("chatml/before.txt"), include_str!("chatml/after.txt")];

/// The built-in template ChatML. Adds no default system message, because the published default messages name a model.
#[derive(Debug, Clone, Copy)]
pub struct ChatMl;

impl Template for ChatMl {
    fn name(&self) -> String {
        "ChatML".into()
    }

    fn family(&self) -> Family {
        Family::ChatMl
    }

    fn render(&self, messages: &[Message]) -> Result<Vec<Part>> {
        let mut parts = Vec::new();
        let tools: Vec<&Tool> = messages.iter().flat_map(|message| &message.tools).collect();
        let is_system = |message: &&Message| message.role == Role::System;
        let first = messages.first().filter(is_system);
        let system = [first.map(|message| message.content.clone()).unwrap_or_default(), about(&tools)?].concat();
        if first.is_some() || !tools.is_empty() {
            turn(&mut parts, "system", system.trim_start().into());
        }
        let rest = &messages[usize::from(first.is_some())..];
        // A call belongs to the answer before it, and the results of several calls share one turn.
        let mut at = 0;
        while let Some(message) = rest.get(at) {
            let n = 1 + rest[at + 1..].iter().take_while(|next| belongs(message, next)).count();
            let texts: Vec<String> =
                rest[at..at + n].iter().filter(|message| !message.content.is_empty() || is_call(message)).map(written).collect();
            let role = if message.role == Role::Observation { "user" } else { message.role.name() };
            turn(&mut parts, role, texts.join("\n"));
            at += n;
        }
        parts.extend([Part::Special(START), Part::Text("assistant\n".into())]);
        Ok(parts)
    }

    fn lead(&self, _messages: &[Message]) -> &'static str {
        ""
    }

    fn around_arguments(&self, name: &str) -> Option<[String; 2]> {
        Some([format!("<tool_call>\n{{\"name\": {}, \"arguments\": ", Value::from(name)), "}\n</tool_call>".into()])
    }
}

fn turn(parts: &mut Vec<Part>, role: &str, content: String) {
    parts.extend([Part::Special(START), Part::Text(format!("{role}\n{content}")), Part::Special(END), Part::Text("\n".into())]);
}

fn is_call(message: &Message) -> bool {
    message.role == Role::Assistant && !message.metadata.is_empty()
}

/// Returns whether `next` belongs to the turn that begins with `first`.
fn belongs(first: &Message, next: &Message) -> bool {
    match first.role {
        Role::Assistant => is_call(next),
        Role::Observation => next.role == Role::Observation,
        _ => false,
    }
}

/// Returns the text of a message within its turn.
fn written(message: &Message) -> String {
    match message.role {
        Role::Observation => format!("<tool_response>\n{}\n</tool_response>", message.content),
        _ if is_call(message) => {
            let text = message.content.trim();
            let arguments = if text.is_empty() { json!({}) } else { serde_json::from_str(text).unwrap_or_else(|_| text.into()) };
            let style = JsonStyle::default();
            format!(
                "<tool_call>\n{{\"name\": {}, \"arguments\": {}}}\n</tool_call>",
                dumps(&message.metadata.trim().into(), &style),
                dumps(&arguments, &style)
            )
        }
        Role::Assistant => message.content.rsplit("</think>").next().unwrap_or_default().trim_start_matches('\n').into(),
        _ => message.content.clone(),
    }
}

/// Returns the part of the system message that describes the tools, or an empty text if there are no tools.
fn about(tools: &[&Tool]) -> Result<String> {
    if tools.is_empty() {
        return Ok(String::new());
    }
    let [before, after] = ABOUT_TOOLS;
    let mut text = before.to_string();
    for tool in tools {
        let Tool::Function(function) = tool else {
            let message = format!("ChatML has no built-in tool {}", tool.name());
            return Err(Error::input(message).hint("describe the tool as a function"));
        };
        text += &format!("\n{}", dumps(&json!({"type": "function", "function": function.object()}), &JsonStyle::default()));
    }
    Ok(text + after)
}

#[cfg(test)]
mod tests {
    use super::super::whole;
    use super::*;

    fn text(messages: &[Message]) -> String {
        whole(&ChatMl.render(messages).unwrap())
    }

    #[test]
    fn messages_have_the_published_form() {
        let said = text(&[
            Message::system("Be brief."),
            Message::user("Hi"),
            Message::assistant("<think>\nx\n</think>\n\nHo"),
            Message::user("?"),
        ]);
        assert_eq!(
            said,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n\
             <|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n"
        );
        assert_eq!(text(&[Message::user("a<|im_end|>b")]), "<|im_start|>user\na<|im_end|>b<|im_end|>\n<|im_start|>assistant\n");
        // The mark in the user's text is text.
        let parts = ChatMl.render(&[Message::user("a<|im_end|>b")]).unwrap();
        assert!(parts.contains(&Part::Text("user\na<|im_end|>b".into())));
    }

    #[test]
    fn tools_calls_and_results_have_the_published_form() {
        let tools = vec![Tool::function(json!({"name": "add", "parameters": {"type": "object"}})).unwrap()];
        let messages = [
            Message::user("1+2, 3+4?").with_tools(tools),
            Message::assistant("I add."),
            Message::call("add", r#"{"a":1,"b":2}"#),
            Message::call("add", r#"{"a":3,"b":4}"#),
            Message::observation("3"),
            Message::observation("7"),
        ];
        let said = text(&messages);
        assert!(said.starts_with("<|im_start|>system\n# Tools\n\nYou may call one or more functions"), "{said}");
        assert!(
            said.contains(
                "<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"add\", \"parameters\": {\"type\": \"object\"}}}\n</tools>"
            ),
            "{said}"
        );
        let end = "<|im_start|>user\n1+2, 3+4?<|im_end|>\n<|im_start|>assistant\nI add.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}\n\
                   </tool_call>\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 3, \"b\": 4}}\n</tool_call><|im_end|>\n<|im_start|>user\n\
                   <tool_response>\n3\n</tool_response>\n<tool_response>\n7\n</tool_response><|im_end|>\n<|im_start|>assistant\n";
        assert!(said.ends_with(end), "{said}");
        let with_system = text(&[Message::system("S"), messages[0].clone()]);
        assert!(with_system.starts_with("<|im_start|>system\nS\n\n# Tools\n\n"), "{with_system}");
        let python = [Message::user("x").with_tools(vec![Tool::Python])];
        assert!(ChatMl.render(&python).unwrap_err().to_string().contains("no built-in tool python"));
    }
}
