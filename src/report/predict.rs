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
    /// The words (fused operations) of one step.
    pub words: Vec<PredictedWord>,
}

/// All calls of one kind of word in a step.
#[derive(Debug, Clone, Serialize)]
pub struct PredictedWord {
    pub word: &'static str,
    pub calls: usize,
    pub dispatches: usize,
    pub ms: f64,
    /// Bytes of weights, states and caches.
    pub bytes: u64,
}
