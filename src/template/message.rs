//! Messages and tools, in the JSON spelling of GLM-4's own code: `{"role", "metadata", "content", "tools"}`.
//!
//! Plain data. Knows no template: what becomes of a message is a template's business.

use crate::error::{Error, Result, short};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    System,
    User,
    Assistant,
    /// What a tool answered.
    Observation,
}

impl Role {
    /// The special token that begins a message of this role.
    pub fn special(self) -> &'static str {
        match self {
            Role::System => "<|system|>",
            Role::User => "<|user|>",
            Role::Assistant => "<|assistant|>",
            Role::Observation => "<|observation|>",
        }
    }

    /// As JSON spells it.
    pub fn name(self) -> &'static str {
        self.special().trim_start_matches("<|").trim_end_matches("|>")
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    pub role: Role,
    /// The name of the tool that the assistant calls; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "or_null")]
    pub metadata: String,
    #[serde(default, deserialize_with = "or_null")]
    pub content: String,
    /// Tools that the model may call from here on; in a system message, the first one as a rule. Left out of JSON where there are
    /// none, because templates ask whether the key is there.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "or_null")]
    pub tools: Vec<Tool>,
}

impl Message {
    pub fn new(role: Role, content: impl Into<String>) -> Message {
        Message { role, metadata: String::new(), content: content.into(), tools: Vec::new() }
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

    /// A call of a tool, as the model wrote it.
    pub fn call(name: impl Into<String>, arguments: impl Into<String>) -> Message {
        Message { metadata: name.into(), ..Self::assistant(arguments) }
    }

    /// The same message with these tools.
    pub fn with_tools(self, tools: Vec<Tool>) -> Message {
        Message { tools, ..self }
    }
}

/// `null` is as good as nothing.
fn or_null<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> std::result::Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// What a model may call: a function of the caller's, or a tool that GLM-4 was trained with.
#[derive(Debug, Clone, PartialEq)]
pub enum Tool {
    Function(Function),
    Python,
    SimpleBrowser,
    Cogview,
}

impl Tool {
    /// A function, described by an object with `name`, and as a rule `description` and `parameters`, a JSON schema.
    ///
    /// # Errors
    /// `Input` when it is no object with a name.
    pub fn function(described: Value) -> Result<Tool> {
        Function::new(described).map(Tool::Function)
    }

    /// As JSON has it under `type`.
    pub fn kind(&self) -> &'static str {
        match self {
            Tool::Function(_) => "function",
            Tool::Python => "python",
            Tool::SimpleBrowser => "simple_browser",
            Tool::Cogview => "cogview",
        }
    }

    /// What the model calls it.
    pub fn name(&self) -> &str {
        match self {
            Tool::Function(function) => function.name(),
            builtin => builtin.kind(),
        }
    }

    /// From `{"type": "function", "function": {…}}`, `{"type": "python"}` and its like, or a bare function object, as ChatGLM3's
    /// examples have it.
    fn from_json(mut json: Map<String, Value>) -> Result<Tool> {
        match json.get("type").map(Value::as_str) {
            Some(Some("function")) => match json.remove("function") {
                Some(function) => Tool::function(function),
                None => Err(Error::input("expected a tool of type function to have a function, found none")),
            },
            Some(Some("python")) => Ok(Tool::Python),
            Some(Some("simple_browser")) => Ok(Tool::SimpleBrowser),
            Some(Some("cogview")) => Ok(Tool::Cogview),
            None if json.contains_key("name") => Tool::function(Value::Object(json)),
            Some(Some(other)) => {
                let shown = short(other, 40);
                Err(Error::input(format!("expected a tool of type function, python, simple_browser or cogview, found {shown:?}")))
            }
            _ => Err(Error::input("expected a tool to have a type, found none").hint(r#"{"type": "function", "function": {"name": …}}"#)),
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

/// A function's description: an object that has a name. The order of its keys is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Function(Value);

impl Function {
    fn new(described: Value) -> Result<Function> {
        match described.get("name").and_then(Value::as_str) {
            Some(_) => Ok(Function(described)),
            None => Err(Error::input("expected a function to be an object with a name, found none")
                .hint(r#"{"name": "get_weather", "description": "…", "parameters": {…}}"#)),
        }
    }

    pub fn name(&self) -> &str {
        self.0["name"].as_str().expect("checked when it was made")
    }

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
    fn the_spelling_is_the_original_codes() {
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
        for role in [Role::System, Role::User, Role::Assistant, Role::Observation] {
            assert_eq!(serde_json::to_value(role).unwrap(), role.name());
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for (json, want) in [
            (r#"{"role":"tool","content":""}"#, "unknown variant `tool`"),
            (r#"{"content":""}"#, "missing field `role`"),
            (r#"{"role":"user","content":[]}"#, "invalid type"),
            (r#"{"role":"assistant","tool_calls":[]}"#, "unknown field `tool_calls`"),
            (r#"{"role":"system","tools":[{}]}"#, "expected a tool to have a type"),
            (r#"{"role":"system","tools":[{"type":7}]}"#, "expected a tool to have a type"),
            (r#"{"role":"system","tools":[{"type":"retrieval"}]}"#, "found \"retrieval\""),
            (r#"{"role":"system","tools":[{"type":"function"}]}"#, "to have a function"),
            (r#"{"role":"system","tools":[{"type":"function","function":{"name":7}}]}"#, "an object with a name"),
            (r#"{"role":"system","tools":[{"type":"function","function":[]}]}"#, "an object with a name"),
        ] {
            let said = read(json).unwrap_err();
            assert!(said.contains(want), "{json}: {said}");
        }
    }
}
