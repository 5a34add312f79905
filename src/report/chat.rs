//! What the verb `chat` prints for each answer.

use super::TimingsReport;
use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub struct ChatReport<'a> {
    /// The line that was answered, as it was typed.
    pub prompt: &'a str,
    /// The branch of the conversation that it was said in.
    pub branch: &'a str,
    pub seed: u64,
    /// Tokens that were read before the first of the answer.
    pub prompt_tokens: usize,
    /// Ids of the answer, its reasoning included.
    pub tokens: &'a [u32],
    pub text: &'a str,
    /// What the model thought before it answered; null where it did not.
    pub thought: Option<&'a str>,
    pub finish: &'static str,
    /// Whether the answer follows its grammar or schema to the end. Absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    pub timings: TimingsReport,
}
