//! Converts the messages of a conversation to turns, whose texts have the form of RWKV-7 G1's training data.

use super::super::{Message, Role};
use serde_json::{Map, Value, json};

/// One turn of a conversation: a message, or an answer with all its tool calls.
#[derive(Debug, Clone, PartialEq)]
pub struct CleanTurn {
    pub role: Role,
    /// The message's text after [`cleaned`], without the thought of an answer.
    pub content: String,
    /// The name and the arguments of each call.
    pub calls: Vec<(String, Value)>,
}

/// Returns a text with `\n` as line end. Removes blanks before line ends, and blanks and line ends at both ends of the text. If `folds` is true,
/// also removes empty lines.
pub fn cleaned(text: &str, folds: bool) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let lines = text.split('\n').map(|line| line.trim_end_matches([' ', '\t'])).filter(|line| !folds || !line.is_empty());
    lines.collect::<Vec<_>>().join("\n").trim_matches([' ', '\t', '\n']).to_string()
}

/// Returns the turns of a conversation. An answer and its calls are separate messages, but one turn.
pub fn turns(messages: &[Message]) -> Vec<CleanTurn> {
    let mut turns: Vec<CleanTurn> = Vec::new();
    for message in messages {
        let is_call = message.role == Role::Assistant && !message.metadata.is_empty();
        if is_call {
            let call = (message.metadata.trim().to_string(), arguments(&message.content));
            match turns.last_mut().filter(|last| last.role == Role::Assistant) {
                Some(last) => last.calls.push(call),
                None => turns.push(CleanTurn { role: Role::Assistant, content: String::new(), calls: vec![call] }),
            }
            continue;
        }
        let content = match message.role {
            Role::Assistant => message.content.rsplit("</think>").next().unwrap_or_default(),
            _ => &message.content,
        };
        let content = cleaned(content, matches!(message.role, Role::User | Role::System));
        turns.push(CleanTurn { role: message.role, content, calls: Vec::new() });
    }
    turns
}

/// Parses the arguments of a call. Returns `{}` for an empty text, and a JSON string for a text that is not JSON.
fn arguments(text: &str) -> Value {
    if text.trim().is_empty() { json!({}) } else { value(text) }
}

/// Parses a JSON text. Returns any other text as a JSON string.
fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

impl CleanTurn {
    /// Returns the content, a tool's result, as JSON. Content that is not JSON becomes a JSON string.
    pub fn result(&self) -> Value {
        value(&self.content)
    }

    /// Returns the turn as a message with the keys of OpenAI's interface. The checkpoint's own template reads such messages.
    pub fn json(&self) -> Value {
        let role = if self.role == Role::Observation { "tool" } else { self.role.name() };
        let mut message = Map::from_iter([("role".to_string(), role.into()), ("content".to_string(), self.content.as_str().into())]);
        if !self.calls.is_empty() {
            let call =
                |(name, arguments): &(String, Value)| json!({"type": "function", "function": {"name": name, "arguments": arguments}});
            message.insert("tool_calls".into(), self.calls.iter().map(call).collect());
        }
        if self.role == Role::Observation {
            message.insert("rwkv_json_content".into(), self.result());
        }
        Value::Object(message)
    }
}
