//! Texts and schemas of the tool calls that a request demands. The caller makes a grammar from these texts and schemas, so that the model must write
//! a tool call.

use crate::error::{Error, Result, short};
use crate::template::{Template, Tool};
use serde_json::{Value, json};

/// Returns the error for a request that demands a tool call but declares no tool.
pub fn undeclared() -> Error {
    Error::input("a tool call can be required only if tools are declared").hint("declare the tools in `tools`")
}

/// Returns how the model must write a call, for each tool: the text before the arguments, the JSON schema of the arguments, and the text after
/// the arguments. With `name`, returns only the tool of this name.
///
/// # Errors
/// `Input` if no tool is declared, if no tool has this name, if a tool is not a function, or if the model does not write arguments as JSON.
pub fn demanded(template: &dyn Template, tools: &[Tool], name: Option<&str>) -> Result<Vec<(String, Value, String)>> {
    let wanted: Vec<&Tool> = tools.iter().filter(|tool| name.is_none_or(|name| tool.name() == name)).collect();
    if wanted.is_empty() {
        return Err(match name {
            Some(name) => Error::input(format!("expected the name of a declared tool, found {:?}", short(name, 40))),
            None => undeclared(),
        });
    }
    let texts = |tool: &&Tool| {
        let Tool::Function(function) = tool else {
            let e = Error::input(format!("a call of the built-in tool {} cannot be required", tool.name()));
            return Err(e.hint("describe the tool as a function"));
        };
        let [before, after] = template.around_arguments(tool.name()).ok_or_else(|| {
            Error::input("a tool call cannot be required from this model, because this model's tool calls are not JSON")
                .hint("set `tool_choice` to auto, so that the model chooses")
        })?;
        let schema = function.object().get("parameters").filter(|schema| schema.as_object().is_some_and(|keys| !keys.is_empty()));
        Ok((before, schema.cloned().unwrap_or_else(|| json!({"type": "object"})), after))
    };
    wanted.iter().map(texts).collect()
}
