//! The JSON of `wingbeat generate`: one object at the end. In the form of JSON lines, one object per token comes before this object.

use super::DeviceReport;
use serde::Serialize;
use wingbeat::low_level::session::{Model, Text, Timings};

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

#[derive(Debug, Clone, Serialize)]
pub struct ModelReport {
    pub architecture: &'static str,
    pub name: String,
    pub n_params: u64,
    pub dtype: String,
}

impl From<&Model> for ModelReport {
    fn from(m: &Model) -> Self {
        ModelReport { architecture: m.facts().architecture, name: m.name().into(), n_params: m.n_params(), dtype: m.dtype().into() }
    }
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
    pub finish: Option<&'static str>,
    /// True if the text is complete under its grammar or schema. `None` without a grammar or schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
}

impl ChoiceReport {
    pub fn new(continuation: &Text, has_vocab: bool) -> ChoiceReport {
        ChoiceReport {
            own_seed: None,
            tokens: continuation.tokens.clone(),
            text: has_vocab.then(|| continuation.text.clone()),
            finish: continuation.finish.map(|f| f.name()),
            complete: continuation.complete,
        }
    }
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct TimingsReport {
    pub load_ms: f64,
    pub prefill_ms: f64,
    pub prefill_tokens_per_second: f64,
    /// The time in milliseconds from the start of the prefill to the first token. `None` if this time was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_token_ms: Option<f64>,
    pub decode_ms: f64,
    pub decode_tokens_per_second: f64,
    /// The number of guessed tokens that steps have checked. `None` if there were no guesses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drafted: Option<usize>,
    /// The number of guessed tokens that were right. `None` if there were no guesses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<usize>,
}

impl TimingsReport {
    pub fn new(load_ms: f64, t: &Timings) -> TimingsReport {
        let (drafted, accepted) = t.guesses().unzip();
        TimingsReport {
            load_ms,
            prefill_ms: t.prefill_ms,
            prefill_tokens_per_second: t.prefill_tokens_per_second(),
            first_token_ms: None,
            decode_ms: t.decode_ms,
            decode_tokens_per_second: t.decode_tokens_per_second(),
            drafted,
            accepted,
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
