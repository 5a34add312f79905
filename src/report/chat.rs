//! The JSON of the verb `chat`: one object per answer.

use super::TimingsReport;
use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub struct ChatReport<'a> {
    /// The typed line that was answered.
    pub prompt: &'a str,
    /// The branch of the conversation.
    pub branch: &'a str,
    pub seed: u64,
    /// The number of tokens that were prefilled before the first token of the answer.
    pub prompt_tokens: usize,
    /// The ids of the answer, the thought included.
    pub tokens: &'a [u32],
    pub text: &'a str,
    /// The model's thought before the answer, or `None`.
    pub thought: Option<&'a str>,
    pub finish: &'static str,
    /// True if the answer is complete under its grammar or schema. `None` without a grammar or schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    pub timings: TimingsReport,
}
