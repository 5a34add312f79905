//! The JSON of `bench --predict`.

use serde::Serialize;

/// The estimated speed of a model on a GPU that is not at hand.
#[derive(Debug, Clone, Serialize)]
pub struct PredictReport {
    /// Always `true`: no number was measured.
    pub is_estimate: bool,
    pub gpu: &'static str,
    pub model: String,
    pub format: String,
    pub steps: Vec<PredictedStep>,
}

/// The estimate of one test, such as `tg128`.
#[derive(Debug, Clone, Serialize)]
pub struct PredictedStep {
    pub test: String,
    pub n_batch: usize,
    pub tokens_per_second: f64,
    /// The words (fused operations) of one decode step, or of one prefill step if the test decodes no tokens.
    pub words: Vec<PredictedWord>,
}

/// The sums over all calls of one word (fused operation) in a step.
#[derive(Debug, Clone, Serialize)]
pub struct PredictedWord {
    pub word: &'static str,
    pub calls: usize,
    pub dispatches: usize,
    pub ms: f64,
    /// The number of bytes that the calls read and write: weights, states, caches and activations.
    pub bytes: u64,
}
