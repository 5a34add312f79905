//! Messages and tools as plain data, with the JSON keys of GLM-4's code: `{"role", "metadata", "content", "tools"}`.

use crate::error::{Error, Result, short};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    System,
    User,
    Assistant,
    /// A tool. The message is the result of a tool call.
    Observation,
}

impl Role {
    /// Returns the special token that begins a message of this role.
    pub const fn special(self) -> &'static str {
        match self {
            Role::System => "<|system|>",
            Role::User => "<|user|>",
            Role::Assistant => "<|assistant|>",
            Role::Observation => "<|observation|>",
        }
    }

    /// Returns the role's name in JSON.
    pub fn name(self) -> &'static str {
        self.special().trim_start_matches("<|").trim_end_matches("|>")
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    pub role: Role,
    /// The name of the tool in a message that calls a tool. Empty in other messages.
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "or_null")]
    pub metadata: String,
    /// The text. JSON may also have a list of text parts, `{"type": "text", "text": "…"}`, and the texts are then joined.
    #[serde(default, deserialize_with = "text_only")]
    pub content: String,
    /// Tools that the model may call after this message, usually in the first system message. JSON has no key `tools` if the list is empty, because
    /// templates test for this key.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "or_null")]
    pub tools: Vec<Tool>,
    /// The id of a tool call, or of the call to which a result belongs, for templates that show it. `None` if the client gave no id. JSON has no such
    /// key.
    #[serde(skip)]
    pub id: Option<String>,
}

impl Message {
    pub fn new(role: Role, content: impl Into<String>) -> Message {
        Message { role, metadata: String::new(), content: content.into(), tools: Vec::new(), id: None }
    }
    pub fn system(content: impl Into<String>) -> Message {
        Self::new(Role::System, content)
    }
    pub fn user(content: impl Into<String>) -> Message {
        Self::new(Role::User, content)
    }
    pub fn assistant(content: impl Into<String>) -> Message {
        Self::new(Role::Assistant, content)
    }
    pub fn observation(content: impl Into<String>) -> Message {
        Self::new(Role::Observation, content)
    }

    /// Returns a message that calls a tool, with the arguments as the model wrote them.
    pub fn call(name: impl Into<String>, arguments: impl Into<String>) -> Message {
        Message { metadata: name.into(), ..Self::assistant(arguments) }
    }

    /// Returns the message with `tools`.
    pub fn with_tools(self, tools: Vec<Tool>) -> Message {
        Message { tools, ..self }
    }
}

/// Reads a value. Returns the type's default value for `null`.
fn or_null<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> std::result::Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Reads the content of a message: a text, a list of text parts, or `null`. Refuses parts of another type, such as images.
fn text_only<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<String, D::Error> {
    match Value::deserialize(from)? {
        Value::Null => Ok(String::new()),
        Value::Array(parts) => parts.iter().map(text_of).collect::<Result<String>>().map_err(D::Error::custom),
        other => String::deserialize(other).map_err(D::Error::custom),
    }
}

fn text_of(part: &Value) -> Result<&str> {
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
    let text = part.get("text").and_then(Value::as_str).filter(|_| kind == "text");
    text.ok_or_else(|| {
        let found = short(kind, 40);
        Error::input(format!("expected only text in a message, found a part of type {found:?}: images, video and sound are not supported"))
    })
}

/// A tool: a function of the caller, or one of the tools that GLM-4 was trained with.
#[derive(Debug, Clone, PartialEq)]
pub enum Tool {
    Function(Function),
    Python,
    SimpleBrowser,
    Cogview,
}

impl Tool {
    /// Returns a function as a tool. `described` is an object with `name`, and usually with `description` and `parameters` (a JSON schema).
    ///
    /// # Errors
    /// `Input` if `described` is not an object with a name.
    pub fn function(described: Value) -> Result<Tool> {
        Function::new(described).map(Tool::Function)
    }

    /// Returns the value of the tool's key `type` in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Tool::Function(_) => "function",
            Tool::Python => "python",
            Tool::SimpleBrowser => "simple_browser",
            Tool::Cogview => "cogview",
        }
    }

    /// Returns the name that the model writes in a call.
    pub fn name(&self) -> &str {
        match self {
            Tool::Function(function) => function.name(),
            builtin => builtin.kind(),
        }
    }

    /// Reads a tool in one of three forms: `{"type": "function", "function": {…}}`, a built-in tool such as `{"type": "python"}`, or the object of
    /// a function alone, as in ChatGLM3's examples.
    fn from_json(mut json: Map<String, Value>) -> Result<Tool> {
        match json.get("type").map(Value::as_str) {
            Some(Some("function")) => match json.remove("function") {
                Some(function) => Tool::function(function),
                None => Err(Error::input("a tool of type function needs the key function, an object with a name")),
            },
            Some(Some("python")) => Ok(Tool::Python),
            Some(Some("simple_browser")) => Ok(Tool::SimpleBrowser),
            Some(Some("cogview")) => Ok(Tool::Cogview),
            None if json.contains_key("name") => Tool::function(Value::Object(json)),
            Some(Some(other)) => {
                let shown = short(other, 40);
                Err(Error::input(format!("expected the tool type function, python, simple_browser or cogview, found {shown:?}")))
            }
            _ => Err(Error::input("a tool needs the key \"type\"").hint(r#"write {"type": "function", "function": {"name": …}}"#)),
        }
    }
}

impl Serialize for Tool {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Tool::Function(function) => json!({"type": self.kind(), "function": function.object()}).serialize(to),
            builtin => json!({"type": builtin.kind()}).serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Tool {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        Tool::from_json(Map::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// A function's description: a JSON object with a name. Its keys stay in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Function(Value);

impl Function {
    fn new(described: Value) -> Result<Function> {
        match described.get("name").and_then(Value::as_str) {
            Some(_) => Ok(Function(described)),
            None => Err(Error::input("a function of a tool needs the key \"name\" with a text")),
        }
    }

    /// Returns the function's name.
    pub fn name(&self) -> &str {
        self.0["name"].as_str().expect("`new` checks the name")
    }

    /// Returns the whole description.
    pub fn object(&self) -> &Value {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> std::result::Result<Message, String> {
        serde_json::from_str(json).map_err(|e| e.to_string())
    }

    #[test]
    fn json_has_the_keys_of_the_original_code() {
        let json = r#"{"role":"system","content":"x","tools":[{"type":"function","function":{"name":"f","b":1,"a":{"z":[],"c":null}}},{"type":"python"}]}"#;
        let message = read(json).unwrap();
        assert_eq!(message.tools[0].name(), "f");
        assert_eq!(message.tools[1], Tool::Python);
        assert_eq!(serde_json::to_string(&message).unwrap(), json, "keys stay in order");
        let call = r#"{"role":"assistant","metadata":"f","content":"{}"}"#;
        assert_eq!(read(call).unwrap(), Message::call("f", "{}"));
        assert_eq!(serde_json::to_string(&Message::call("f", "{}")).unwrap(), call);
        let nulls = read(r#"{"role":"user","metadata":null,"content":null,"tools":null}"#).unwrap();
        assert_eq!(serde_json::to_string(&nulls).unwrap(), r#"{"role":"user","content":""}"#, "no key that templates would find");
        let parts = r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#;
        assert_eq!(read(parts).unwrap(), Message::user("ab"));
        for role in [Role::System, Role::User, Role::Assistant, Role::Observation] {
            assert_eq!(serde_json::to_value(role).unwrap(), role.name());
        }
    }

    #[test]
    fn invalid_messages_are_refused() {
        for (json, want) in [
            (r#"{"role":"tool","content":""}"#, "unknown variant `tool`"),
            (r#"{"content":""}"#, "missing field `role`"),
            (r#"{"role":"user","content":7}"#, "invalid type"),
            (r#"{"role":"user","content":["a"]}"#, "found a part of type \"\""),
            (r#"{"role":"user","content":[{"type":"text"}]}"#, "found a part of type \"text\""),
            (
                r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}}]}"#,
                "expected only text in a message, found a part of type \"image_url\": images, video and sound are not supported",
            ),
            (r#"{"role":"assistant","tool_calls":[]}"#, "unknown field `tool_calls`"),
            (r#"{"role":"system","tools":[{}]}"#, "a tool needs the key \"type\""),
            (r#"{"role":"system","tools":[{"type":7}]}"#, "a tool needs the key \"type\""),
            (r#"{"role":"system","tools":[{"type":"retrieval"}]}"#, "found \"retrieval\""),
            (r#"{"role":"system","tools":[{"type":"function"}]}"#, "needs the key function"),
            (r#"{"role":"system","tools":[{"type":"function","function":{"name":7}}]}"#, "needs the key \"name\" with a text"),
            (r#"{"role":"system","tools":[{"type":"function","function":[]}]}"#, "needs the key \"name\" with a text"),
        ] {
            let said = read(json).unwrap_err();
            assert!(said.contains(want), "{json}: {said}");
        }
    }
}
