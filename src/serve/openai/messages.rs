//! Messages as OpenAI's clients send them. Unknown keys are ignored.

use crate::chat::{Message, Role};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// A message of a conversation.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct WireMessage {
    pub role: WireRole,
    pub content: Option<Content>,
    /// The tool calls in an assistant's message.
    pub tool_calls: Option<Vec<WireCall>>,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WireRole {
    System,
    /// Another name for `system`.
    Developer,
    User,
    Assistant,
    /// The result of a tool call.
    Tool,
    /// GLM-4's name for `tool`.
    Observation,
    /// OpenAI's former name for `tool`.
    Function,
}

/// The text of a message: a string, or a list of text parts that are joined.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "found another type than a string or an array of text parts")]
pub enum Content {
    Text(String),
    Parts(Vec<TextPart>),
}

/// A text part. Parts of other types, such as images, are refused.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TextPart {
    Text { text: String },
    InputText { text: String },
    OutputText { text: String },
}

impl TextPart {
    fn text(&self) -> &str {
        match self {
            TextPart::Text { text } | TextPart::InputText { text } | TextPart::OutputText { text } => text,
        }
    }
}

/// A call of a tool.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct WireCall {
    pub function: WireFunction,
}

/// A called function.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct WireFunction {
    pub name: String,
    /// The arguments: a string with JSON, or a JSON value.
    #[serde(default)]
    #[schema(value_type = String)]
    pub arguments: Value,
}

impl Content {
    pub fn text(&self) -> String {
        match self {
            Content::Text(text) => text.clone(),
            Content::Parts(parts) => parts.iter().map(TextPart::text).collect(),
        }
    }
}

/// Converts messages to the engine's messages. Each tool call becomes a message of its own.
pub fn read(messages: &[WireMessage]) -> Vec<Message> {
    let mut all = Vec::new();
    for WireMessage { role, content, tool_calls } in messages {
        let text = content.as_ref().map(Content::text).unwrap_or_default();
        let calls = tool_calls.as_deref().unwrap_or_default();
        let role = match role {
            WireRole::System | WireRole::Developer => Role::System,
            WireRole::User => Role::User,
            WireRole::Assistant => Role::Assistant,
            WireRole::Tool | WireRole::Observation | WireRole::Function => Role::Observation,
        };
        if calls.is_empty() || !text.is_empty() {
            all.push(Message::new(role, text));
        }
        all.extend(calls.iter().map(|call| Message::call(&call.function.name, arguments(&call.function.arguments))));
    }
    all
}

/// Returns the arguments of a call as text.
pub fn arguments(json: &Value) -> String {
    match json {
        Value::String(text) => text.clone(),
        Value::Null => "{}".into(),
        json => json.to_string(),
    }
}
