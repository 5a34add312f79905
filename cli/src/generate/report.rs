//! The JSON of `wingbeat generate`: one object at the end. With `--jsonl`, one object per token comes before this object.

use crate::report::{DeviceReport, ModelReport, TimingsReport};
use serde::Serialize;
use wingbeat::engine::Completion;

#[derive(Debug, Clone, Serialize)]
pub struct GenerateReport {
    pub version: &'static str,
    pub model: ModelReport,
    pub device: DeviceReport,
    pub seed: u64,
    pub prompt_tokens: usize,
    #[serde(flatten)]
    pub first: ChoiceReport,
    /// All continuations of the prompt, including the first. Empty if the caller asked for only one continuation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<ChoiceReport>,
    pub timings: TimingsReport,
}

/// One continuation of the prompt.
#[derive(Debug, Clone, Serialize)]
pub struct ChoiceReport {
    /// The seed of this continuation. `None` in `GenerateReport::first`, because `GenerateReport` already has the field `seed`.
    #[serde(skip_serializing_if = "Option::is_none", rename = "seed")]
    pub own_seed: Option<u64>,
    /// The ids of the generated tokens.
    pub tokens: Vec<u32>,
    /// The generated text. `None` if the model has no vocabulary.
    pub text: Option<String>,
    pub finish: &'static str,
    /// True if the text is complete under its grammar or schema. `None` without a grammar or schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
}

impl ChoiceReport {
    pub fn new(continuation: &Completion, has_vocab: bool) -> ChoiceReport {
        ChoiceReport {
            own_seed: None,
            tokens: continuation.tokens.clone(),
            text: has_vocab.then(|| continuation.text.clone()),
            finish: continuation.finish.name(),
            complete: continuation.complete,
        }
    }
}

/// One generated token, and the text that can be printed after this token. Text is held back while a character or a possible stop text is incomplete,
/// and comes with a later token.
#[derive(Debug, Clone, Serialize)]
pub struct TokenLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<usize>,
    /// The token's id. `None` if the object has only text that was held back before.
    pub token: Option<u32>,
    pub text: Option<&'a str>,
}
