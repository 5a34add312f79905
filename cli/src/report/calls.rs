//! The JSON of tool calls, as in OpenAI's interface: `{"type": "function", "function": {"name", "arguments"}}`.

use serde::Serialize;
use wingbeat::low_level::template::ToolCall;

/// A tool call.
#[derive(Debug, Clone, Serialize)]
pub struct ToolCallReport<'a> {
    /// Always `function`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub function: FunctionReport<'a>,
}

/// The name of the called tool, and its arguments as the model wrote them.
#[derive(Debug, Clone, Serialize)]
pub struct FunctionReport<'a> {
    pub name: &'a str,
    pub arguments: &'a str,
}

impl<'a> From<&'a ToolCall> for ToolCallReport<'a> {
    fn from(call: &'a ToolCall) -> ToolCallReport<'a> {
        ToolCallReport { kind: "function", function: FunctionReport { name: &call.name, arguments: &call.arguments } }
    }
}
