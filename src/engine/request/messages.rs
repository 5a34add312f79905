//! Reads the messages of a request. A message can have the keys of wingbeat or the keys of OpenAI's API.

use super::super::wire::{nested, of};
use crate::chat::linked::{LinkedMessage, in_call_order};
use crate::chat::{Message, Role};
use crate::error::{Error, Result, short};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The expected form of a message, for errors.
const EXPECTED: &str = "an object with role and content";

/// A call in `tool_calls`.
#[derive(Deserialize)]
struct Call {
    id: Option<String>,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    /// The arguments of the call: a JSON value, or a string that contains JSON.
    #[serde(default)]
    arguments: Value,
}

/// Reads messages. A message with the role `tool` becomes a message with the result of a tool call. Each call in the `tool_calls` of an answer
/// becomes a separate message, and so does OpenAI's former `function_call`. Results are sorted into the order of their calls. With `has_earlier`, the
/// messages follow a state, which may have calls of its own.
pub fn read(field: &str, value: &str, has_earlier: bool) -> Result<Vec<Message>> {
    let all: Vec<Box<RawValue>> = of(field, value, "an array of messages")?;
    let mut messages = Vec::new();
    let mut push = |message, id, from| messages.push(LinkedMessage { message, id, from });
    for (i, one) in all.iter().enumerate() {
        let place = format!("{field}[{i}]");
        let mut keys: Map<String, Value> = serde_json::from_str(one.get()).unwrap_or_default();
        let has_content = keys.contains_key("content");
        if let Some(content) = keys.get("content").filter(|content| !matches!(content, Value::String(_) | Value::Array(_) | Value::Null)) {
            let text = format!("expected a string or an array of text parts, found {}", short(&content.to_string(), 40));
            return Err(Error::input(text).field("content").field(&place));
        }
        let role = match keys.get("role").and_then(Value::as_str) {
            Some("tool" | "function") => Some(Role::Observation),
            Some("developer") => Some(Role::System),
            Some("system" | "user" | "assistant" | "observation") | None => None,
            Some(other) => {
                let text = format!("unknown role {:?}, expected system, user, assistant or tool", short(other, 40));
                return Err(Error::input(text).field("role").field(&place));
            }
        };
        let set = |value: &Value| !value.is_null();
        let former = keys.remove("function_call").filter(set).map(|function| json!([{ "function": function }]));
        let calls = keys.remove("tool_calls").filter(|calls| set(calls) && (former.is_none() || *calls != json!([]))).or(former);
        let mut id = None;
        let message: Message = if role.is_some() || calls.is_some() {
            if let Some(role) = role {
                keys.insert("role".into(), role.name().into());
            }
            if role == Some(Role::Observation) {
                id = keys.remove("tool_call_id").and_then(|id| id.as_str().map(str::to_owned));
                keys.remove("name");
            }
            nested(&place, &Value::Object(keys).to_string(), EXPECTED)?
        } else {
            nested(&place, one.get(), EXPECTED)?
        };
        if message.metadata.is_empty() && message.tools.is_empty() && !has_content && calls.is_none() {
            return Err(Error::input("the key content is missing").field(&place).hint("write the text of the message as content"));
        }
        let calls: Vec<Call> = calls.map_or_else(|| Ok(Vec::new()), |calls| nested(&place, &calls.to_string(), "a list of tool calls"))?;
        if calls.is_empty() || !message.content.is_empty() {
            push(message, id, i);
        }
        for Call { id, function: Function { name, arguments } } in calls {
            let arguments = match arguments {
                Value::String(text) => text,
                Value::Null => "{}".into(),
                json => json.to_string(),
            };
            push(Message::call(name, arguments), id, i);
        }
    }
    in_call_order(messages, has_earlier, field, "tool_call_id")
}
