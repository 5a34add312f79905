//! The body of a request for a response.

use crate::chat::{Message, Tool};
use crate::engine::{Rules, ToolChoice};
use crate::serve::failure::{Answer, Failure};
use crate::serve::openai::extras::schema_rules;
use crate::serve::openai::messages::{Content, WireMessage, arguments, read};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// A request for a response. Sampler settings, rules and names of states are further fields of the same object.
#[derive(Debug, Deserialize, ToSchema)]
pub struct ResponseBody {
    pub input: ResponseInput,
    /// The name of a model. By default, the server's first model. A server with only one model accepts any name.
    #[serde(default)]
    pub model: Option<String>,
    /// The system message of this response. Later responses that continue this response do not have the system message.
    #[serde(default)]
    pub instructions: Option<String>,
    /// The id of the response that this response continues.
    #[serde(default)]
    pub previous_response_id: Option<String>,
    /// If true (the default), the server keeps the response and its state.
    #[serde(default)]
    pub store: Option<bool>,
    #[serde(default)]
    pub stream: Option<bool>,
    #[serde(default)]
    pub max_output_tokens: Option<u32>,
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    pub tools: Option<Vec<Value>>,
    /// auto, none, required, or an object with the name of a function.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub tool_choice: Option<Value>,
    #[serde(default)]
    pub text: Option<TextOptions>,
    #[serde(default)]
    pub reasoning: Option<Reasoning>,
    /// Values of the caller's own, which the response repeats.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub metadata: Option<Map<String, Value>>,
}

/// Options for the text of the response.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct TextOptions {
    #[serde(default)]
    pub format: Option<TextFormat>,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TextFormat {
    Text,
    JsonObject,
    JsonSchema {
        #[serde(default)]
        #[schema(value_type = Object)]
        schema: Option<Value>,
    },
}

/// How much the model thinks.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct Reasoning {
    /// none, minimal, low, medium or high.
    #[serde(default)]
    pub effort: Option<String>,
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
        match self.text.as_ref()?.format.as_ref()? {
            TextFormat::Text => None,
            TextFormat::JsonObject => Some(Rules::Object),
            TextFormat::JsonSchema { schema } => Some(schema_rules(schema.as_ref())),
        }
    }

    /// Returns the fields that the response repeats.
    pub fn echoed(&self) -> Value {
        let format = match self.text.as_ref().and_then(|text| text.format.as_ref()) {
            None | Some(TextFormat::Text) => json!({"type": "text"}),
            Some(TextFormat::JsonObject) => json!({"type": "json_object"}),
            Some(TextFormat::JsonSchema { schema }) => json!({"type": "json_schema", "name": "schema", "schema": schema}),
        };
        json!({
            "instructions": self.instructions, "max_output_tokens": self.max_output_tokens, "previous_response_id": self.previous_response_id,
            "store": self.store != Some(false), "tools": self.tools.clone().unwrap_or_default(),
            "tool_choice": self.tool_choice.clone().unwrap_or_else(|| "auto".into()), "text": {"format": format},
            "metadata": self.metadata.clone().unwrap_or_default(), "reasoning": {"effort": self.reasoning.as_ref().and_then(|r| r.effort.clone()), "summary": null},
        })
    }
}
