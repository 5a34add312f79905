//! The body of a request for a message: its fields, and their conversion to a conversation, tools and settings of the engine.

use crate::failure::{Answer, Failure};
use crate::text_or_list::{TextOrList, text_or_list};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use wingbeat::chat::{Message, Role, Thinking, Tool};
use wingbeat::engine::{Rules, ToolChoice};
use wingbeat::low_level::front_end::{LinkedMessage, in_call_order, is_begun, short, with_thought};

/// A request for a message. Further sampler settings of the engine are fields of the same object. Other fields, such as `metadata`, are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub struct MessagesBody {
    /// The name of a saved state, which the messages follow.
    #[schema(value_type = Option<String>)]
    pub state: Option<Value>,
    pub messages: Vec<InputMessage>,
    /// The name of a model. By default, the server's first model. A server with only one model accepts any name.
    pub model: Option<String>,
    /// The system message.
    pub system: Option<Blocks>,
    pub stream: Option<bool>,
    /// Texts that end the answer.
    pub stop_sequences: Option<Vec<String>>,
    pub tools: Option<Vec<InputTool>>,
    pub tool_choice: Option<InputChoice>,
    pub thinking: Option<ThinkingChoice>,
    pub output_config: Option<OutputConfig>,
}

/// A message of a conversation.
#[derive(Debug, Deserialize, ToSchema)]
pub struct InputMessage {
    pub role: InputRole,
    pub content: Blocks,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum InputRole {
    User,
    Assistant,
    System,
}

/// A text, or a list of blocks.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Blocks {
    Text(String),
    List(Vec<Block>),
}

/// A part of a message. `cache_control` and other fields are ignored.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    Text {
        text: String,
    },
    /// A thought of an earlier answer. The model sees only the thought of a last message, which it continues.
    Thinking {
        #[serde(default)]
        thinking: String,
    },
    /// Ignored: an encrypted thought.
    RedactedThinking,
    /// A call of a tool.
    ToolUse {
        /// The id that the result of the call names.
        id: Option<String>,
        name: String,
        input: Value,
    },
    /// The result of a call.
    ToolResult {
        /// The id of the call.
        tool_use_id: Option<String>,
        #[schema(value_type = Object)]
        content: Option<Blocks>,
    },
    /// Images are not supported.
    Image,
    /// Documents are not supported.
    Document,
}

/// Reads a value in one pass, so that an error has the path of the wrong block.
impl<'de> Deserialize<'de> for Blocks {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Blocks, D::Error> {
        Ok(match text_or_list(from, "a string or an array of blocks")? {
            TextOrList::Text(text) => Blocks::Text(text),
            TextOrList::List(all) => Blocks::List(all),
        })
    }
}

/// The separator between the texts of several blocks.
const BETWEEN: &str = "\n\n";

impl Blocks {
    /// Returns the text of blocks that must all be texts. `path` is the path of the blocks in the body.
    ///
    /// # Errors
    /// 400 if a block is not a text.
    fn text(&self, path: &str) -> Answer<String> {
        let blocks = match self {
            Blocks::Text(text) => return Ok(text.clone()),
            Blocks::List(blocks) => blocks,
        };
        let mut texts = Vec::new();
        for (i, block) in blocks.iter().enumerate() {
            match block {
                Block::Text { text } => texts.push(text.as_str()),
                Block::Image => return Err(Failure::field(&format!("{path}[{i}]"), "images are not supported")),
                _ => return Err(Failure::field(&format!("{path}[{i}]"), "expected a block of the type text")),
            }
        }
        Ok(texts.join(BETWEEN))
    }
}

impl InputMessage {
    /// Converts this message, number `from` in the body, to messages of the engine, and appends these to `all`. Each call and each result becomes a
    /// message of its own. Returns the thought, which is empty if the message has none.
    ///
    /// # Errors
    /// 400 if a block is not supported.
    fn add_to(&self, all: &mut Vec<LinkedMessage>, from: usize) -> Answer<&str> {
        let path = format!("messages[{from}]");
        let unlinked = |message| LinkedMessage { message, id: None, from };
        let role = match self.role {
            InputRole::User => Role::User,
            InputRole::Assistant => Role::Assistant,
            InputRole::System => Role::System,
        };
        let blocks = match &self.content {
            Blocks::Text(text) => {
                all.push(unlinked(Message::new(role, text)));
                return Ok("");
            }
            Blocks::List(blocks) => blocks,
        };
        let (mut texts, mut thought) = (Vec::<&str>::new(), "");
        let flush = |texts: &mut Vec<&str>, all: &mut Vec<LinkedMessage>| {
            if !texts.is_empty() {
                all.push(unlinked(Message::new(role, std::mem::take(texts).join(BETWEEN))));
            }
        };
        for (i, block) in blocks.iter().enumerate() {
            let path = format!("{path}.content[{i}]");
            let (message, id) = match block {
                Block::Text { text } => {
                    texts.push(text);
                    continue;
                }
                Block::Thinking { thinking } => {
                    thought = thinking;
                    continue;
                }
                Block::RedactedThinking => continue,
                Block::ToolUse { id, name, input } => (Message::call(name, input.to_string()), id.clone()),
                Block::ToolResult { tool_use_id, content } => {
                    let text = content.as_ref().map_or_else(|| Ok(String::new()), |content| content.text(&format!("{path}.content")));
                    (Message::observation(text?), tool_use_id.clone())
                }
                Block::Image => return Err(Failure::field(&path, "images are not supported")),
                Block::Document => {
                    return Err(Failure::field(&path, "documents are not supported; send the text in a block of the type text"));
                }
            };
            flush(&mut texts, all);
            all.push(LinkedMessage { message, id, from });
        }
        flush(&mut texts, all);
        Ok(thought)
    }
}

/// A tool that the answer may call.
#[derive(Debug, Deserialize, ToSchema)]
pub struct InputTool {
    pub name: String,
    pub description: Option<String>,
    /// The JSON schema of the arguments.
    #[schema(value_type = Object)]
    pub input_schema: Option<Value>,
    /// `custom`. Tools that Anthropic runs on its own servers are refused.
    pub r#type: Option<String>,
}

impl InputTool {
    fn tool(&self, path: &str) -> Answer<Tool> {
        let Some(schema) = &self.input_schema else {
            let kind = short(self.r#type.as_deref().unwrap_or("without a type"), 40);
            return Err(Failure::field(path, format!("expected a tool with input_schema, found the built-in tool {kind}")));
        };
        let description = self.description.as_deref().unwrap_or_default();
        let function = json!({"name": self.name, "description": description, "parameters": schema});
        Tool::function(function).map_err(|e| e.field(path).into())
    }
}

/// Selects whether the answer calls tools.
#[derive(Debug, Deserialize, ToSchema)]
pub struct InputChoice {
    pub r#type: InputChoiceKind,
    /// The name of the tool, for the type `tool`.
    pub name: Option<String>,
    /// If true, the answer has at most one call.
    pub disable_parallel_tool_use: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum InputChoiceKind {
    /// The model decides.
    Auto,
    /// The answer is a call.
    Any,
    /// The answer is a call of one tool.
    Tool,
    /// The answer is no call.
    None,
}

/// Selects whether the model thinks before its answer. Ignored if the model's chat format has no thoughts. `budget_tokens` is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ThinkingChoice {
    Enabled,
    Adaptive,
    Disabled,
}

/// Options of the answer's text.
#[derive(Debug, Deserialize, ToSchema)]
pub struct OutputConfig {
    pub format: Option<OutputFormat>,
}

/// The format that the answer must have.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputFormat {
    JsonSchema {
        #[schema(value_type = Object)]
        schema: Value,
    },
}

impl MessagesBody {
    /// Returns the conversation, with the system message first.
    ///
    /// # Errors
    /// 400 if a block is not supported, or if the conversation has no message.
    pub fn conversation(&self) -> Answer<Vec<Message>> {
        let mut all = Vec::new();
        if let Some(system) = &self.system {
            let text = system.text("system")?;
            all.extend((!text.is_empty()).then(|| Message::system(text)));
        }
        if self.messages.is_empty() {
            return Err(Failure::field("messages", "expected at least one message, found none"));
        }
        let (mut thought, mut linked) = ("", Vec::new());
        for (i, message) in self.messages.iter().enumerate() {
            thought = message.add_to(&mut linked, i)?;
        }
        all.extend(in_call_order(linked, self.state.is_some(), "messages", "tool_use_id")?);
        if self.messages.last().is_some_and(|last| last.role == InputRole::Assistant) && !thought.is_empty() {
            match all.last_mut() {
                Some(last) if is_begun(last) => last.content = with_thought(thought, &last.content),
                // The thought precedes a call, so it has ended and is not continued.
                Some(last) if !last.metadata.is_empty() => {}
                _ => all.push(Message::assistant(with_thought(thought, ""))),
            }
        }
        Ok(all)
    }

    /// Returns the tools that the answer may call.
    ///
    /// # Errors
    /// 400 if a tool has no schema.
    pub fn tools(&self) -> Answer<Vec<Tool>> {
        self.tools.iter().flatten().enumerate().map(|(i, tool)| tool.tool(&format!("tools[{i}]"))).collect()
    }

    /// Returns the choice of tools, or `None` if the request has no `tool_choice`.
    ///
    /// # Errors
    /// 400 if the type is `tool` and the name is missing.
    pub fn tool_choice(&self) -> Answer<Option<ToolChoice>> {
        let Some(InputChoice { r#type, name, .. }) = &self.tool_choice else { return Ok(None) };
        Ok(Some(match (r#type, name) {
            (InputChoiceKind::Auto, _) => ToolChoice::Auto,
            (InputChoiceKind::Any, _) => ToolChoice::Required,
            (InputChoiceKind::None, _) => ToolChoice::None,
            (InputChoiceKind::Tool, Some(name)) => ToolChoice::Tool(name.clone()),
            (InputChoiceKind::Tool, None) => return Err(Failure::field("tool_choice.name", "expected the name of a tool, found none")),
        }))
    }

    /// Returns the maximum number of calls in the answer.
    pub fn max_calls(&self) -> usize {
        let is_single = self.tool_choice.as_ref().is_some_and(|choice| choice.disable_parallel_tool_use == Some(true));
        if is_single { 1 } else { usize::MAX }
    }

    /// Returns how the model thinks, or `None` if the request leaves the choice to the model.
    pub fn thinking(&self) -> Option<Thinking> {
        self.thinking.map(|choice| if choice == ThinkingChoice::Disabled { Thinking::Off } else { Thinking::On })
    }

    /// Returns the rules that the answer must follow, or `None` if the request sets no format.
    pub fn rules(&self) -> Option<Rules> {
        let OutputFormat::JsonSchema { schema } = self.output_config.as_ref()?.format.as_ref()?;
        Some(Rules::Schema(schema.to_string()))
    }
}
