//! The body of a request for a response.

use crate::failure::{Answer, Failure};
use crate::openai::extras::NamedSchema;
use crate::openai::messages::{Content, WireCall, WireMessage, WireRole, arguments, linked};
use crate::text_or_list::{TextOrList, text_or_list};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use wingbeat::chat::{Message, Tool};
use wingbeat::engine::{Rules, ToolChoice};
use wingbeat::low_level::front_end::{LinkedMessage, in_call_order};

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
    /// If false, the response has at most one call.
    pub parallel_tool_calls: Option<bool>,
    /// Must be false: the server answers every request while its connection is open.
    pub background: Option<bool>,
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
    /// none, minimal, low, medium, high or xhigh.
    pub effort: Option<String>,
    /// Ignored: a response has the whole thought.
    pub summary: Option<String>,
}

/// A text, or items of a conversation.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
pub enum ResponseInput {
    Text(String),
    Items(Vec<Item>),
}

/// Reads a value in one pass, so that an error has the path of the wrong item.
impl<'de> Deserialize<'de> for ResponseInput {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ResponseInput, D::Error> {
        Ok(match text_or_list(from, "a string or an array of messages, calls and results of calls")? {
            TextOrList::Text(text) => ResponseInput::Text(text),
            TextOrList::List(all) => ResponseInput::Items(all),
        })
    }
}

/// A message, a function call, the result of a function call, or a thought.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "AnyItem", untagged)]
pub enum Item {
    Message(WireMessage),
    Call {
        /// The id that the result of the call names.
        call_id: Option<String>,
        name: String,
        #[schema(value_type = String)]
        arguments: Value,
    },
    Output {
        /// The id of the call.
        call_id: Option<String>,
        output: Content,
    },
    /// A thought of an earlier answer. Ignored: the model does not see its earlier thoughts.
    Thought {
        summary: Vec<Value>,
    },
}

/// An item of any type. The keys determine the type, because clients may leave `type` out.
#[derive(Deserialize)]
struct AnyItem {
    role: Option<WireRole>,
    content: Option<Content>,
    reasoning_content: Option<String>,
    tool_calls: Option<Vec<WireCall>>,
    tool_call_id: Option<String>,
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<Value>,
    output: Option<Content>,
    summary: Option<Vec<Value>>,
}

impl TryFrom<AnyItem> for Item {
    type Error = &'static str;

    fn try_from(item: AnyItem) -> Result<Item, &'static str> {
        let AnyItem { role, content, reasoning_content, tool_calls, tool_call_id, call_id, name, arguments, output, summary } = item;
        match (role, name, arguments, output, summary) {
            (Some(role), ..) => {
                Ok(Item::Message(WireMessage { role, content, reasoning_content, tool_calls, function_call: None, tool_call_id }))
            }
            (None, Some(name), Some(arguments), ..) => Ok(Item::Call { call_id, name, arguments }),
            (None, _, _, Some(output), _) => Ok(Item::Output { call_id, output }),
            (None, _, _, None, Some(summary)) => Ok(Item::Thought { summary }),
            _ => Err("found neither a message (role, content) nor a function_call (name, arguments) nor a function_call_output (output)"),
        }
    }
}

impl Default for ResponseInput {
    fn default() -> ResponseInput {
        ResponseInput::Items(Vec::new())
    }
}

impl ResponseInput {
    /// Returns the input as messages. With `has_earlier`, the input continues an earlier response.
    ///
    /// # Errors
    /// 400 if there is no message, if a result names no earlier call, or if a call has two results.
    pub fn messages(&self, has_earlier: bool) -> Answer<Vec<Message>> {
        let items = match self {
            ResponseInput::Text(text) => return Ok(vec![Message::user(text)]),
            ResponseInput::Items(items) => items,
        };
        let mut all = Vec::new();
        for (from, item) in items.iter().enumerate() {
            let (message, id) = match item {
                Item::Message(message) => {
                    let of_message = linked(std::slice::from_ref(message)).into_iter();
                    all.extend(of_message.map(|message| LinkedMessage { from, ..message }));
                    continue;
                }
                Item::Call { call_id, name, arguments: json } => (Message::call(name, arguments(json)), call_id),
                Item::Output { call_id, output } => (Message::observation(output.text()), call_id),
                Item::Thought { .. } => continue,
            };
            all.push(LinkedMessage { message, id: id.clone(), from });
        }
        let messages = in_call_order(all, has_earlier, "input", "call_id")?;
        match messages.is_empty() {
            true => Err(Failure::field("input", "expected at least one message, found none")),
            false => Ok(messages),
        }
    }
}

/// Types of tools that this server leaves out: only OpenAI's own servers run them, or (`custom`) their input is not JSON.
const FOREIGN_TOOLS: [&str; 11] = [
    "web_search",
    "web_search_preview",
    "file_search",
    "code_interpreter",
    "image_generation",
    "computer_use",
    "computer_use_preview",
    "local_shell",
    "shell",
    "mcp",
    "custom",
];

impl ResponseBody {
    /// Returns the functions that the answer may call, and a warning for each tool that is left out because it is not a function.
    ///
    /// # Errors
    /// 400 if a tool is neither a function nor a known tool of OpenAI.
    pub fn tools(&self) -> Answer<(Vec<Tool>, Vec<String>)> {
        let (mut tools, mut warnings) = (Vec::new(), Vec::new());
        for (i, tool) in self.tools.iter().flatten().enumerate() {
            let field = format!("tools[{i}]");
            let kind = tool["type"].as_str().unwrap_or("no type");
            // The names of newer versions end with a date: `web_search_2025_08_26`.
            let is_foreign =
                FOREIGN_TOOLS.iter().any(|known| kind.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with("_20")));
            if is_foreign {
                warnings.push(format!("{field}: the tool {kind} is left out, because this server calls only functions"));
                continue;
            }
            if kind != "function" {
                let text = format!("expected a tool of type function, found {}", wingbeat::low_level::front_end::short(kind, 40));
                return Err(Failure::field(&field, text));
            }
            // A tool in the format of `/v1/chat/completions` is accepted, too.
            let mut described = if tool["function"].is_object() { tool["function"].clone() } else { tool.clone() };
            described.as_object_mut().into_iter().for_each(|keys| {
                keys.shift_remove("type");
                keys.shift_remove("strict");
            });
            tools.push(Tool::function(described).map_err(|e| e.field(&field))?);
        }
        Ok((tools, warnings))
    }

    pub fn tool_choice(&self) -> Answer<Option<ToolChoice>> {
        let Some(choice) = self.tool_choice.as_ref().filter(|choice| !choice.is_null()) else { return Ok(None) };
        let name = choice["name"].as_str().or_else(|| choice["function"]["name"].as_str());
        match (choice.as_str(), name) {
            (Some(text @ ("auto" | "none" | "required")), _) => Ok(Some(ToolChoice::from(text))),
            (None, Some(name)) => Ok(Some(ToolChoice::Tool(name.into()))),
            // A choice of a tool that was left out, such as `{"type": "web_search"}`, leaves the choice to the model.
            (None, None) if choice["type"].as_str().is_some_and(|kind| FOREIGN_TOOLS.contains(&kind)) => Ok(None),
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
