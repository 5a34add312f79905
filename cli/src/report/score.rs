//! The JSON of `wingbeat score`.

use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub struct ScoreReport {
    pub tokens: Vec<u32>,
    /// The natural logarithm of each token's probability. `None` for the first token.
    pub logprobs: Vec<Option<f64>>,
    /// The negative log-likelihood in nats: the negated sum of `logprobs`.
    pub nll: f64,
    /// The perplexity, exp(nll / n). `None` if `n` is 0.
    pub perplexity: Option<f64>,
    /// The number of tokens that have a probability.
    pub n: usize,
}

impl ScoreReport {
    pub fn new(tokens: Vec<u32>, logprobs: Vec<Option<f64>>) -> ScoreReport {
        let known = logprobs.iter().flatten();
        let (n, nll) = (known.clone().count(), 0.0 - known.sum::<f64>());
        ScoreReport { tokens, logprobs, nll, perplexity: (n > 0).then(|| (nll / n as f64).exp()), n }
    }
}
