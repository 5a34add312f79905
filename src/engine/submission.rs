//! A request from `submit` to its last event.

use super::outbox::Outbox;
use super::prepare::Prepared;
use super::request::Request;
use super::states::State;
use crate::sample::{Sampler, Sampling};
use crate::session::Logprobs;
use std::sync::Arc;
use web_time::Instant;

/// A request in the engine. It waits for slots, then its texts run. In a request for vectors or scores, some texts can have slots while others wait.
pub struct Submission {
    pub request: Request,
    pub prepared: Prepared,
    /// The named state that the prompt follows. `None` if the request begins with an empty state, or if the state is a part of the prompt.
    pub state: Option<Arc<State>>,
    pub events: Outbox,
    /// The time at which `submit` queued the request.
    pub at: Instant,
    /// The time at which the request got its first slots. `None` before.
    pub began: Option<Instant>,
    /// The number of tokens at the beginning of the prompt that a cache entry, or a state with `state_is_prefix`, covered.
    pub cached_tokens: usize,
    /// The number of prefilled tokens that was last reported.
    pub n_told: usize,
    /// The namespace in which the slots of the request become cache entries. `None` if the request uses no cache.
    pub cache: Option<String>,
    /// Log-probabilities of all prompt tokens except the first. Empty if the request does not set both `echo` and `logprobs`.
    pub prompt_logprobs: Vec<Logprobs>,
    /// The vector of the prompt. `None` until the prompt is prefilled. Always `None` if the request does not set `pooling`.
    pub vector: Option<Vec<f32>>,
    /// The number of texts for vectors or scores that have not ended. 0 for a request that has a prompt.
    pub texts_left: usize,
    /// The number of continuations that are not complete.
    pub n_left: usize,
    /// True if the reader is slow. The continuations then take part in no step.
    pub is_paused: bool,
}

impl Submission {
    /// Returns a request that waits for slots.
    pub fn new(request: Request, prepared: Prepared, state: Option<Arc<State>>, events: Outbox) -> Submission {
        let texts_left = prepared.texts.as_ref().map_or(0, |texts| texts.n_texts);
        Submission {
            n_left: if texts_left > 0 { 1 } else { request.n },
            texts_left,
            request,
            prepared,
            state,
            events,
            at: Instant::now(),
            began: None,
            cached_tokens: 0,
            n_told: 0,
            cache: None,
            prompt_logprobs: Vec::new(),
            vector: None,
            is_paused: false,
        }
    }

    /// Returns the namespace of the request.
    pub fn owner(&self) -> &str {
        &self.request.namespace
    }

    /// Returns the number of tokens in the prompt, or in all texts of the request.
    pub fn prompt_tokens(&self) -> usize {
        self.prepared.texts.as_ref().map_or(self.prepared.prompt.len(), |texts| texts.n_tokens)
    }

    /// Returns the sampler of a continuation after the first `n_read` tokens of the prompt. A request without a seed takes the seed of its named
    /// state, and its first continuation also continues the state's random numbers.
    pub fn sampler(&self, index: usize, n_read: usize) -> Sampler {
        let Prepared { sampling, prompt, .. } = &self.prepared;
        let saved = self.state.as_ref().and_then(|state| state.seed()).filter(|_| !self.request.sets("seed"));
        let seed = saved.unwrap_or(sampling.seed).wrapping_add(index as u64);
        let mut sampler = Sampler::new(Sampling { seed, ..sampling.clone() });
        if let Some(state) = &self.state {
            state.begin(&mut sampler, Some(seed).filter(|_| saved.is_none() || index > 0));
        }
        sampler.read(&prompt[..n_read]);
        sampler
    }

    /// Returns how long the request waited for slots, in milliseconds.
    pub fn queue_ms(&self) -> f64 {
        self.began.map_or(0.0, |began| (began - self.at).as_secs_f64() * 1e3)
    }

    /// Returns the tokens of the request's named state, followed by `tokens`. Returns `None` if the state's tokens are unknown.
    pub fn tokens_before(&self, tokens: &[u32]) -> Option<Vec<u32>> {
        match &self.state {
            Some(state) if state.snapshot.n_tokens() > 0 => Some([state.tokens()?, tokens].concat()),
            _ => Some(tokens.to_vec()),
        }
    }
}
