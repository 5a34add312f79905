//! Messages as OpenAI's clients send them. Unknown keys are ignored.

use crate::failure::Answer;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use utoipa::ToSchema;
use wingbeat::chat::{Message, Role};
use wingbeat::low_level::front_end::{LinkedMessage, in_call_order, with_thought};

/// A message of a conversation.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WireMessage {
    pub role: WireRole,
    pub content: Option<Content>,
    /// The thought before an assistant's answer. The model sees only the thought of a last message, which it continues.
    #[serde(alias = "reasoning")]
    pub reasoning_content: Option<String>,
    /// The tool calls in an assistant's message.
    pub tool_calls: Option<Vec<WireCall>>,
    /// OpenAI's former field for one tool call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function_call: Option<WireFunction>,
    /// The id of the call to which a tool's message is the result.
    pub tool_call_id: Option<String>,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Content {
    Text(String),
    Parts(Vec<TextPart>),
}

/// A text part. Parts of other types, such as images, are refused.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TextPart {
    Text { text: String },
    InputText { text: String },
    OutputText { text: String },
}

/// A part of any type.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnyPart {
    #[serde(alias = "input_text", alias = "output_text", alias = "reasoning_text", alias = "summary_text")]
    Text {
        text: String,
    },
    Refusal {
        refusal: String,
    },
    #[serde(alias = "input_image", alias = "image")]
    ImageUrl,
    #[serde(alias = "audio_url")]
    InputAudio,
    #[serde(alias = "input_video")]
    VideoUrl,
    #[serde(alias = "input_file")]
    File,
}

/// Written by hand: `#[serde(untagged)]` would buffer the value, and errors would then lack the path of the invalid part.
impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Content, D::Error> {
        struct ContentVisitor;
        impl<'de> Visitor<'de> for ContentVisitor {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an array of text parts")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Content, E> {
                Ok(Content::Text(text.into()))
            }

            fn visit_string<E: Error>(self, text: String) -> Result<Content, E> {
                Ok(Content::Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Content, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = all.next_element()? {
                    let refused = match part {
                        AnyPart::Text { text } | AnyPart::Refusal { refusal: text } => {
                            parts.push(TextPart::Text { text });
                            continue;
                        }
                        AnyPart::ImageUrl => "images",
                        AnyPart::InputAudio => "sounds",
                        AnyPart::VideoUrl => "videos",
                        AnyPart::File => "files",
                    };
                    return Err(A::Error::custom(format_args!("{refused} are not supported")));
                }
                Ok(Content::Parts(parts))
            }
        }
        from.deserialize_any(ContentVisitor)
    }
}

impl TextPart {
    fn text(&self) -> &str {
        match self {
            TextPart::Text { text } | TextPart::InputText { text } | TextPart::OutputText { text } => text,
        }
    }
}

/// A call of a tool.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WireCall {
    /// The id that the result of the call names.
    pub id: Option<String>,
    pub function: WireFunction,
}

/// A called function.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
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

/// Converts messages to the engine's messages. Each tool call becomes a message of its own. Results get the order of their calls.
/// With `has_earlier`, the messages follow a state, which may have calls of its own.
///
/// # Errors
/// 400 if a result names no earlier call, or if a call has two results.
pub fn read(messages: &[WireMessage], has_earlier: bool) -> Answer<Vec<Message>> {
    Ok(in_call_order(linked(messages), has_earlier, "messages", "tool_call_id")?)
}

/// Converts messages to the engine's messages, in the order in which the client sent them.
pub fn linked(messages: &[WireMessage]) -> Vec<LinkedMessage> {
    let mut all = Vec::new();
    for (i, WireMessage { role, content, reasoning_content, tool_calls, function_call, tool_call_id }) in messages.iter().enumerate() {
        let mut text = content.as_ref().map(Content::text).unwrap_or_default();
        let calls = tool_calls.iter().flatten().map(|call| (&call.id, &call.function));
        let mut calls: Vec<_> = calls.collect();
        if calls.is_empty() {
            calls.extend(function_call.iter().map(|function| (&None, function)));
        }
        if let Some(thought) = reasoning_content
            && *role == WireRole::Assistant
            && calls.is_empty()
            && i + 1 == messages.len()
        {
            text = with_thought(thought, &text);
        }
        let role = match role {
            WireRole::System | WireRole::Developer => Role::System,
            WireRole::User => Role::User,
            WireRole::Assistant => Role::Assistant,
            WireRole::Tool | WireRole::Observation | WireRole::Function => Role::Observation,
        };
        if calls.is_empty() || !text.is_empty() {
            all.push(LinkedMessage { message: Message::new(role, text), id: tool_call_id.clone(), from: i });
        }
        all.extend(calls.into_iter().map(|(id, function)| LinkedMessage {
            message: Message::call(&function.name, arguments(&function.arguments)),
            id: id.clone(),
            from: i,
        }));
    }
    all
}

/// Returns the arguments of a call as JSON text. Missing arguments are an empty object.
pub fn arguments(json: &Value) -> String {
    match json {
        Value::String(text) => text.clone(),
        Value::Null => "{}".into(),
        json => json.to_string(),
    }
}
