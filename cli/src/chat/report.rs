//! The JSON of `wingbeat chat`: one object per answer.

use crate::report::{TimingsReport, ToolCallReport};
use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub struct ChatReport<'a> {
    /// The line that the user typed.
    pub prompt: &'a str,
    /// The name of the conversation's branch to which the answer belongs.
    pub branch: &'a str,
    pub seed: u64,
    /// The number of tokens that were prefilled before the first token of the answer.
    pub prompt_tokens: usize,
    /// The ids of the generated tokens: the thought (reasoning) and the answer.
    pub tokens: &'a [u32],
    pub text: &'a str,
    /// The reasoning that the model wrote before the answer. `None` if the model wrote no reasoning.
    pub thought: Option<&'a str>,
    /// Tool calls, as in OpenAI's interface.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCallReport<'a>>,
    pub finish: &'static str,
    /// True if the answer is complete under its grammar or schema. `None` without a grammar or schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    pub timings: TimingsReport,
}
