//! Abilities of a model's chat format: thoughts and tools.

use serde_json::json;
use wingbeat::chat::{Message, Thinking, Tool};
use wingbeat::engine::{Engine, Request};

/// Removes `thinking` from a request if the chat format of the request does not support this choice.
pub fn keep_supported_thinking(engine: &Engine, request: &mut Request) {
    if request.thinking.is_some_and(|thinking| !can_choose(engine, thinking, request.format.clone())) {
        request.thinking = None;
    }
}

/// Returns whether the model's own chat format lets the model think before an answer.
pub fn can_think(engine: &Engine) -> bool {
    can_choose(engine, Thinking::On, None)
}

/// Returns the values of `thinking` that the model's own chat format supports. Leaves out a value that renders the same prompt as an earlier value.
pub fn thinking_choices(engine: &Engine) -> Vec<&'static str> {
    let mut found: Vec<(&'static str, Vec<u32>)> = Vec::new();
    for name in Thinking::names() {
        let mut probe = Request::chat([Message::user("a")]);
        probe.thinking = name.parse().ok();
        match engine.tokens(&probe) {
            Ok(prompt) if found.iter().all(|(_, other)| *other != prompt) => found.push((name, prompt)),
            _ => {}
        }
    }
    found.into_iter().map(|(name, _)| name).collect()
}

fn can_choose(engine: &Engine, thinking: Thinking, format: Option<String>) -> bool {
    let mut probe = Request::chat([Message::user("a")]);
    (probe.thinking, probe.format) = (Some(thinking), format);
    engine.tokens(&probe).err().is_none_or(|e| e.field_name() != Some("thinking"))
}

/// Returns whether the model's own chat format has tools.
pub fn can_call(engine: &Engine) -> bool {
    let tool = Tool::function(json!({"name": "a", "description": "a", "parameters": {"type": "object", "properties": {}}}));
    tool.is_ok_and(|tool| engine.tokens(&Request::chat([Message::user("a")]).tools([tool])).is_ok())
}
