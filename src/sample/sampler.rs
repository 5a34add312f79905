//! The sampler: settings, memory and the chain put together.

use super::chain::{Shortlist, Ties};
use super::counts::Counts;
use super::settings::{Order, Sampling};
use super::stream;
use crate::error::{Error, Result};

/// Settings plus what they need to remember: penalty counts and the position of the random stream.
///
/// A clone continues as the original would; it does not copy the working memory.
#[derive(Debug, Clone)]
pub struct Sampler {
    settings: Sampling,
    counts: Counts,
    /// How many tokens were drawn: the position in the random stream.
    draws: u64,
    scratch: Scratch,
}

/// What a sampler remembers, for state files. Exact: a sampler restored from it draws what the original would have drawn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Memory {
    /// Id and count of every id that was accepted, in the order in which they first came.
    pub counts: Vec<(u32, f32)>,
    /// The name of the random stream.
    pub seed: u64,
    /// How many tokens were drawn from it.
    pub draws: u64,
}

/// Working memory: of vocabulary size after the first call, without meaning between calls.
#[derive(Default)]
struct Scratch {
    /// Logits after penalties, bias and bans. `[V]`
    logits: Vec<f32>,
    list: Shortlist,
}

impl Clone for Scratch {
    fn clone(&self) -> Self {
        Scratch::default()
    }
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scratch")
    }
}

/// What the chain comes to.
enum Outcome {
    /// Greedy: one id, nothing to draw.
    Certain(u32),
    /// `Scratch::list` is filtered and weighed.
    Weighed,
}

impl Sampler {
    /// A sampler at the beginning of its stream that has seen nothing. Settings from outside want [`Sampling::check`] first;
    /// unchecked ones never panic: ids beyond the logits are ignored, a temperature that is not above 0 is greedy.
    pub fn new(settings: Sampling) -> Self {
        Sampler { settings, counts: Counts::default(), draws: 0, scratch: Scratch::default() }
    }

    /// The settings, with the seed of the stream in use.
    pub fn settings(&self) -> &Sampling {
        &self.settings
    }

    /// Draws one id from `logits` `[V]`. Takes one number of the stream, greedy or not. After the first call nothing of
    /// vocabulary size is allocated. A logit that is not finite is never drawn. Counts nothing: see [`accept`](Self::accept).
    ///
    /// # Errors
    /// `Model` when no logit is finite, `Usage` when bans and bias leave none.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32> {
        let id = match self.run(logits)? {
            Outcome::Certain(id) => id,
            Outcome::Weighed => {
                let u = stream::uniform(self.settings.seed, self.draws);
                self.scratch.list.pick(u).ok_or_else(no_finite_logit)?
            }
        };
        self.draws = self.draws.wrapping_add(1);
        Ok(id)
    }

    /// The probabilities `[V]` that [`sample`](Self::sample) would draw from: the same chain, nothing drawn.
    ///
    /// # Errors
    /// As `sample`.
    pub fn distribution(&mut self, logits: &[f32]) -> Result<Vec<f32>> {
        let mut p = vec![0.0; logits.len()];
        match self.run(logits)? {
            Outcome::Certain(id) => p[id as usize] = 1.0,
            Outcome::Weighed => {
                for (id, probability) in self.scratch.list.probabilities() {
                    p[id as usize] = probability;
                }
            }
        }
        Ok(p)
    }

    /// Counts an id that was drawn: decays all counts, then adds `weight` to its own. The weight is 1, or 0 for text that may
    /// repeat ([`penalty_weight`](super::penalty_weight)); the presence penalty applies either way. Prompts are not counted.
    pub fn accept(&mut self, id: u32, weight: f32) {
        self.counts.accept(id, weight, self.settings.penalty_decay);
    }

    /// Counts a number of the stream that another sampler took, which had this one's memory.
    pub fn skip(&mut self) {
        self.draws = self.draws.wrapping_add(1);
    }

    /// What to keep so that another sampler with the same settings goes on from here.
    pub fn memory(&self) -> Memory {
        Memory { counts: self.counts.0.clone(), seed: self.settings.seed, draws: self.draws }
    }

    /// Goes on from `memory`, its seed included.
    pub fn restore(&mut self, memory: Memory) {
        self.counts = Counts(memory.counts);
        self.settings.seed = memory.seed;
        self.draws = memory.draws;
    }

    /// A fork with the same settings and counts, at the beginning of another stream.
    pub fn reseeded(&self, seed: u64) -> Self {
        let settings = Sampling { seed, ..self.settings.clone() };
        Sampler { counts: self.counts.clone(), ..Self::new(settings) }
    }

    /// Adjusts the logits and plays the chain.
    fn run(&mut self, logits: &[f32]) -> Result<Outcome> {
        let Scratch { logits: buffer, list } = &mut self.scratch;
        let s = &self.settings;
        let adjusted = adjust(s, &self.counts, logits, buffer);
        let max = max_finite(adjusted);
        if max == f32::NEG_INFINITY {
            return Err(if max_finite(logits) == max { no_finite_logit() } else { all_banned() });
        }
        let is_greedy = s.temperature.is_nan() || s.temperature <= 0.0;
        if is_greedy {
            let id = adjusted.iter().position(|&x| x == max).ok_or_else(no_finite_logit)?;
            return Ok(Outcome::Certain(id as u32));
        }
        match s.order {
            Order::Pip => {
                list.fill(adjusted, max, 1.0);
                list.top_p(s.top_p, Ties::Keep);
                list.top_k(s.top_k);
                list.min_p(s.min_p);
                list.weigh(s.temperature);
            }
            Order::Hf => {
                list.fill(adjusted, max, s.temperature);
                list.top_k(s.top_k);
                list.top_p(s.top_p, Ties::Drop);
                list.min_p(s.min_p);
                list.weigh(1.0);
            }
        }
        Ok(Outcome::Weighed)
    }
}

/// Penalties, then bias, then bans; the logits themselves where there are none of them.
fn adjust<'a>(s: &Sampling, counts: &Counts, logits: &'a [f32], buffer: &'a mut Vec<f32>) -> &'a [f32] {
    let penalises = s.presence_penalty != 0.0 || s.frequency_penalty != 0.0 || s.repeat_penalty != 1.0;
    let seen: &[(u32, f32)] = if penalises { &counts.0 } else { &[] };
    if seen.is_empty() && s.logit_bias.is_empty() && s.ban.is_empty() {
        return logits;
    }
    buffer.clear();
    buffer.extend_from_slice(logits);
    for &(id, count) in seen {
        if let Some(x) = buffer.get_mut(id as usize) {
            *x = if *x > 0.0 { *x / s.repeat_penalty } else { *x * s.repeat_penalty };
            *x -= s.presence_penalty + count * s.frequency_penalty;
        }
    }
    for &(id, bias) in &s.logit_bias {
        if let Some(x) = buffer.get_mut(id as usize) {
            *x += bias;
        }
    }
    for &id in &s.ban {
        if let Some(x) = buffer.get_mut(id as usize) {
            *x = f32::NEG_INFINITY;
        }
    }
    buffer
}

/// The largest finite logit, negative infinity where there is none.
fn max_finite(logits: &[f32]) -> f32 {
    // sixteen maxima side by side, which the compiler keeps in SIMD registers
    let finite = |x: f32| if x <= f32::MAX { x } else { f32::NEG_INFINITY };
    let larger = |a: f32, b: f32| if a > b { a } else { b };
    let (blocks, rest) = logits.as_chunks::<16>();
    let mut lanes = [f32::NEG_INFINITY; 16];
    for block in blocks {
        for (lane, &x) in lanes.iter_mut().zip(block) {
            *lane = larger(finite(x), *lane);
        }
    }
    lanes.iter().copied().chain(rest.iter().map(|&x| finite(x))).fold(f32::NEG_INFINITY, larger)
}

fn no_finite_logit() -> Error {
    Error::model("expected logits with a finite number, found none")
        .hint("the parameters hold NaN, or the activations overflow: try --dtype f32")
}

fn all_banned() -> Error {
    Error::usage("expected a token that may be drawn, found that --ban, --logit-bias or the penalties exclude every one")
}
