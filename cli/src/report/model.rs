//! Parts of the JSON of several verbs: the model, and the times of a text.

use serde::Serialize;
use wingbeat::low_level::session::{Model, Timings};

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
