//! The body of a request for a response.

use crate::chat::{Message, Tool};
use crate::engine::{Rules, ToolChoice};
use crate::serve::failure::{Answer, Failure};
use crate::serve::openai::extras::NamedSchema;
use crate::serve::openai::messages::{Content, WireMessage, arguments, read};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A request for a response. Sampler settings, rules and names of states are further fields of the same object.
#[derive(Debug, Deserialize, ToSchema)]
pub struct ResponseBody {
    pub input: ResponseInput,
    /// The name of a model. By default, the server's first model. A server with only one model accepts any name.
    pub model: Option<String>,
    /// The system message of this response. Later responses that continue this response do not have the system message.
    pub instructions: Option<String>,
    /// The id of the response that this response continues.
    pub previous_response_id: Option<String>,
    /// If true (the default), the server keeps the response and its state.
    pub store: Option<bool>,
    pub stream: Option<bool>,
    pub max_output_tokens: Option<u32>,
    #[schema(value_type = Vec<Object>)]
    pub tools: Option<Vec<Value>>,
    /// auto, none, required, or an object with the name of a function.
    #[schema(value_type = Object)]
    pub tool_choice: Option<Value>,
    pub text: Option<TextOptions>,
    pub reasoning: Option<Reasoning>,
    /// Any values of the caller. The response repeats these values.
    #[schema(value_type = Object)]
    pub metadata: Option<Map<String, Value>>,
}

/// Options for the text of the response.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
pub struct TextOptions {
    pub format: Option<TextFormat>,
}

#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TextFormat {
    Text,
    JsonObject,
    JsonSchema(NamedSchema),
}

/// How much the model thinks.
#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
pub struct Reasoning {
    /// none, minimal, low, medium or high.
    pub effort: Option<String>,
    /// Ignored: a response has the whole thought.
    pub summary: Option<String>,
}

/// A text, or items of a conversation.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "found another type than a string or an array of messages, calls and results of calls")]
pub enum ResponseInput {
    Text(String),
    Items(Vec<Item>),
}

/// A message, a function call, the result of a function call, or a thought.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "found neither a message (role, content) nor a function_call (name, arguments) nor a function_call_output (output)"
)]
pub enum Item {
    Message(WireMessage),
    Call {
        name: String,
        #[schema(value_type = String)]
        arguments: Value,
    },
    Output {
        output: Content,
    },
    /// A thought of an earlier answer. Ignored: the model does not see its earlier thoughts.
    Thought {
        #[expect(dead_code, reason = "its presence tells a thought from a message")]
        summary: Vec<Value>,
    },
}

impl Default for ResponseInput {
    fn default() -> ResponseInput {
        ResponseInput::Items(Vec::new())
    }
}

impl ResponseInput {
    /// Returns the input as messages.
    ///
    /// # Errors
    /// 400 if there is no message.
    pub fn messages(&self) -> Answer<Vec<Message>> {
        let items = match self {
            ResponseInput::Text(text) => return Ok(vec![Message::user(text)]),
            ResponseInput::Items(items) => items,
        };
        let messages: Vec<Message> = items
            .iter()
            .flat_map(|item| match item {
                Item::Message(message) => read(std::slice::from_ref(message)),
                Item::Call { name, arguments: json } => vec![Message::call(name, arguments(json))],
                Item::Output { output } => vec![Message::observation(output.text())],
                Item::Thought { .. } => Vec::new(),
            })
            .collect();
        match messages.is_empty() {
            true => Err(Failure::field("input", "expected at least one message, found none")),
            false => Ok(messages),
        }
    }
}

impl ResponseBody {
    /// Returns the functions that the answer may call.
    ///
    /// # Errors
    /// 400 if a tool is not a function.
    pub fn tools(&self) -> Answer<Vec<Tool>> {
        let tool = |(i, tool): (usize, &Value)| {
            let field = format!("tools[{i}]");
            match tool["type"].as_str() {
                Some("function") => {
                    // A tool in the format of `/v1/chat/completions` is accepted, too.
                    let mut described = if tool["function"].is_object() { tool["function"].clone() } else { tool.clone() };
                    described.as_object_mut().into_iter().for_each(|keys| {
                        keys.shift_remove("type");
                        keys.shift_remove("strict");
                    });
                    Tool::function(described).map_err(|e| e.field(&field).into())
                }
                found => {
                    let text = format!("expected a tool of type function, found {}", crate::error::short(found.unwrap_or("no type"), 40));
                    Err(Failure::field(&field, text))
                }
            }
        };
        self.tools.iter().flatten().enumerate().map(tool).collect()
    }

    pub fn tool_choice(&self) -> Answer<Option<ToolChoice>> {
        let Some(choice) = self.tool_choice.as_ref().filter(|choice| !choice.is_null()) else { return Ok(None) };
        let name = choice["name"].as_str().or_else(|| choice["function"]["name"].as_str());
        match (choice.as_str(), name) {
            (Some(text @ ("auto" | "none" | "required")), _) => Ok(Some(ToolChoice::from(text))),
            (None, Some(name)) => Ok(Some(ToolChoice::Tool(name.into()))),
            _ => Err(Failure::field("tool_choice", "expected auto, none, required or an object with the name of a function")),
        }
    }

    /// Returns the rules that `text.format` sets, or `None` for plain text.
    pub fn rules(&self) -> Option<Rules> {
        match self.format()? {
            TextFormat::Text => None,
            TextFormat::JsonObject => Some(Rules::Object),
            TextFormat::JsonSchema(schema) => Some(schema.rules()),
        }
    }

    /// Returns the format that the request asks for.
    pub fn format(&self) -> Option<&TextFormat> {
        self.text.as_ref()?.format.as_ref()
    }
}
