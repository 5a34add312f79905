//! The sampler: draws tokens, using the settings, the memory between tokens and the chain of filters.

use super::chain::{Shortlist, Ties};
use super::counts::Counts;
use super::fixed::{EXCLUDED, key, ordered, unkey};
use super::host::OnHost;
use super::row::{BANNED, Row, biases, flag};
use super::settings::Sampling;
use super::stream;
use super::wide;
use crate::error::{Error, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Draws tokens from logits. A sampler holds the sampling settings and the memory between tokens: penalty counts, the last tokens of the text and
/// the position in the random stream.
///
/// A clone draws the same ids as the original. Clone and original do not affect each other.
#[derive(Debug, Clone)]
pub struct Sampler {
    settings: Sampling,
    /// The settings that the kernel supports, in the form that the kernel reads.
    row: Row,
    /// The settings that only the host supports, in integers.
    on_host: OnHost,
    /// The ids in `logit_bias` and `ban`, each with its bias.
    biases: Vec<(u32, i32)>,
    /// The ids that end a repetition for DRY, ascending. `None` until [`Sampler::break_at`] is called.
    breakers: Option<Arc<[u32]>>,
    counts: Counts,
    /// The last tokens of the text. The list has at least as many tokens as DRY and the repeat penalty need, or all tokens of a shorter text.
    recent: Vec<u32>,
    /// Mirostat's limit mu: the largest surprise of a kept token, in units of 2^-20 bits. `None` before the first draw.
    mu: Option<i32>,
    /// The number of tokens drawn so far, which is the position in the random stream.
    draws: u64,
    /// The number of tokens that the guard drew.
    n_guarded: u64,
    scratch: SamplerScratch,
}

/// The memory of a sampler, as stored in state files. A sampler with the same settings that restores this memory draws the same ids as the
/// original.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Memory {
    /// The id and the penalty count of every accepted id, in the order in which the ids were first accepted. Counts are in units of 2^-20.
    pub counts: Vec<(u32, u32)>,
    /// The seed of the random stream.
    pub seed: u64,
    /// The number of tokens drawn so far, which is the position in the random stream.
    pub draws: u64,
    /// The last tokens of the text. Empty if no setting needs the last tokens.
    pub recent: Vec<u32>,
    /// Mirostat's limit mu: the largest surprise of a kept token, in units of 2^-20 bits. `None` before the first draw, or if mirostat is off.
    pub mu: Option<i32>,
}

/// Buffers that are reused to save allocations. Their contents have no meaning between calls.
#[derive(Default)]
struct SamplerScratch {
    /// The logits after penalties, biases and bans, as unsigned integers (keys). `[V]`, where V is the size of the vocabulary.
    keys: Vec<u32>,
    list: Shortlist,
}

impl Clone for SamplerScratch {
    fn clone(&self) -> Self {
        SamplerScratch::default()
    }
}

impl std::fmt::Debug for SamplerScratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scratch")
    }
}

/// The result of the chain of filters.
enum FilterOutcome {
    /// Greedy sampling: the drawn id.
    Certain(u32),
    /// `SamplerScratch::list` holds the kept tokens and their masses (unnormalised probabilities). The value is the sum of the masses.
    Weighed(u64),
}

impl Sampler {
    /// Returns a sampler with empty memory, at the beginning of its random stream.
    ///
    /// Check settings from outside the library with [`Sampling::check`] first. Unchecked settings never panic: ids beyond the logits are ignored,
    /// and a temperature that is NaN or not above 0 means greedy sampling.
    pub fn new(settings: Sampling) -> Self {
        let (row, on_host, biases) = (Row::of(&settings), OnHost::of(&settings), biases(&settings));
        Sampler {
            settings,
            row,
            on_host,
            biases,
            breakers: None,
            counts: Counts::default(),
            recent: Vec::new(),
            mu: None,
            draws: 0,
            n_guarded: 0,
            scratch: SamplerScratch::default(),
        }
    }

    /// Returns the settings. Their `seed` is the seed of the current random stream, even after [`restore`](Self::restore).
    pub fn settings(&self) -> &Sampling {
        &self.settings
    }

    /// Draws one id from `logits`, `[V]`, where V is the size of the vocabulary. Takes one number from the random stream, even with greedy
    /// sampling.
    ///
    /// An id whose logit is not finite is never drawn, except by the [guard](Sampling::guard). Penalty counts do not change: only
    /// [`accept`](Self::accept) changes them. Only the first call allocates memory of the vocabulary's size.
    ///
    /// # Errors
    /// `Model` if no logit is finite. `Usage` if `ban` and `logit_bias` exclude every finite logit.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32> {
        if let Some(id) = self.guarded(logits) {
            if self.n_guarded == 0 {
                log::warn!("a logit of the model is not finite: token id {id} is used in place of a sampled token");
            }
            self.n_guarded += 1;
            self.skip();
            return Ok(id);
        }
        self.draw(logits)
    }

    /// Draws one id like [`sample`](Self::sample), but ignores the guard.
    pub(crate) fn draw(&mut self, logits: &[f32]) -> Result<u32> {
        let id = match self.run(logits)? {
            FilterOutcome::Certain(id) => id,
            FilterOutcome::Weighed(total) => {
                let random = stream::number(self.settings.seed, self.draws);
                let (id, mass) = self.scratch.list.pick(random, total).ok_or_else(no_finite_logit)?;
                if let Some(mirostat) = self.on_host.mirostat {
                    self.mu = Some(mirostat.learn(self.mu.unwrap_or(mirostat.first()), mass, total));
                }
                id
            }
        };
        self.skip();
        Ok(id)
    }

    /// Returns the guard's id if at least one of the logits is not finite. Returns `None` if all logits are finite, if the guard is off, or if
    /// `logits` has no entry for the guard's id.
    pub fn guarded(&self, logits: &[f32]) -> Option<u32> {
        let id = self.settings.guard.filter(|&id| (id as usize) < logits.len())?;
        // no branch per element, so that the loop vectorises
        let is_wrong = |some: &[f32]| some.iter().fold(false, |wrong, x| wrong | !x.is_finite());
        logits.chunks(256).any(is_wrong).then_some(id)
    }

    /// Returns how many tokens the guard drew.
    pub fn n_guarded(&self) -> u64 {
        self.n_guarded
    }

    /// Returns the probabilities, `[V]`, from which [`sample`](Self::sample) would draw. Does not change the memory.
    #[cfg(test)]
    pub(super) fn distribution(&mut self, logits: &[f32]) -> Result<Vec<f32>> {
        let mut p = vec![0.0; logits.len()];
        if let Some(id) = self.guarded(logits) {
            p[id as usize] = 1.0;
            return Ok(p);
        }
        match self.run(logits)? {
            FilterOutcome::Certain(id) => p[id as usize] = 1.0,
            FilterOutcome::Weighed(total) => {
                for (id, probability) in self.scratch.list.probabilities(total) {
                    p[id as usize] = probability;
                }
            }
        }
        Ok(p)
    }

    /// Counts a drawn id: decays all penalty counts, then adds `weight` to the count of `id`. Also appends `id` to the text, as
    /// [`read`](Self::read) does.
    ///
    /// The weight is 1, or 0 for text that may repeat ([`penalty_weight`](super::penalty_weight)). The presence penalty applies to the id with both
    /// weights. Do not call `accept` for the tokens of a prompt: call [`read`](Self::read).
    pub fn accept(&mut self, id: u32, weight: f32) {
        self.counts.accept(id, weight, self.row.decay);
        self.read(&[id]);
    }

    /// Appends tokens, such as a prompt, to the text that DRY and `repeat_last_n` examine. Penalty counts do not change.
    pub fn read(&mut self, tokens: &[u32]) {
        let most = self.on_host.looks_back();
        self.recent.extend_from_slice(&tokens[tokens.len() - tokens.len().min(most)..]);
        // drops old tokens only when the list is twice as long as needed, so that the cost per token stays constant
        if self.recent.len() / 2 >= most {
            self.recent.drain(..self.recent.len() - most);
        }
    }

    /// Returns whether the GPU kernel supports the settings of this sampler. If the result is false, the host must draw.
    pub fn fits_device(&self) -> bool {
        self.on_host.is_off()
    }

    /// Returns the texts in `dry_breakers` if DRY still needs the ids of the tokens that contain these texts. Returns `None` if DRY is off, or if
    /// [`break_at`](Self::break_at) was called.
    pub fn wants_breakers(&self) -> Option<&[String]> {
        (self.on_host.dry.is_some() && self.breakers.is_none()).then_some(self.settings.dry_breakers.as_slice())
    }

    /// Sets the ids that end a repetition for DRY. `ids` is sorted in ascending order. A `Session` calls this function.
    pub fn break_at(&mut self, ids: Arc<[u32]>) {
        self.breakers = Some(ids);
    }

    /// Skips one number of the random stream: the GPU, or another sampler with the same memory, has used this number.
    pub fn skip(&mut self) {
        self.draws = self.draws.wrapping_add(1);
    }

    /// Returns the memory. Another sampler with the same settings can [`restore`](Self::restore) the memory and then draws the same ids.
    pub fn memory(&self) -> Memory {
        let recent = self.recent_at_most(self.on_host.looks_back()).to_vec();
        Memory { counts: self.counts.0.clone(), seed: self.settings.seed, draws: self.draws, recent, mu: self.mu }
    }

    /// Replaces the memory, including the seed of the random stream.
    pub fn restore(&mut self, memory: Memory) {
        self.counts = Counts(memory.counts);
        self.settings.seed = memory.seed;
        self.row.seed = Row::of(&self.settings).seed;
        self.draws = memory.draws;
        self.recent.clear();
        self.read(&memory.recent);
        self.mu = memory.mu;
    }

    /// Returns a copy with the same settings and memory, but at the beginning of the random stream of `seed`.
    pub fn reseeded(&self, seed: u64) -> Self {
        let mut fork = self.clone();
        fork.restore(Memory { seed, draws: 0, ..self.memory() });
        fork.n_guarded = 0;
        fork
    }

    /// Returns the settings in the form that the kernel reads. `seed` is the seed of the current random stream.
    pub fn row(&self) -> &Row {
        &self.row
    }

    /// Returns the number of tokens drawn so far, which is the position in the random stream.
    pub fn draws(&self) -> u64 {
        self.draws
    }

    /// Returns the id and the penalty count of every accepted id, in the order in which the ids were first accepted. Counts are in units of 2^-20.
    pub fn counts(&self) -> &[(u32, u32)] {
        &self.counts.0
    }

    /// Returns each biased or banned id once, with its bias, sorted by id. A bias is in units of 2^-20. The bias of a banned id is [`BANNED`].
    pub fn biases(&self) -> &[(u32, i32)] {
        &self.biases
    }

    fn recent_at_most(&self, n: usize) -> &[u32] {
        &self.recent[self.recent.len() - n.min(self.recent.len())..]
    }

    /// Applies penalties, biases and bans to the logits, and runs the chain of filters.
    fn run(&mut self, logits: &[f32]) -> Result<FilterOutcome> {
        let mut keys = std::mem::take(&mut self.scratch.keys);
        wide::keys(logits, &mut keys);
        self.adjust(&mut keys);
        let outcome = self.filter(logits, &keys);
        self.scratch.keys = keys;
        outcome
    }

    /// Applies penalties, then DRY, then biases and bans. `keys` are the logits as unsigned integers.
    fn adjust(&self, keys: &mut [u32]) {
        let (row, on_host) = (&self.row, &self.on_host);
        let mut change = |id: u32, change: &dyn Fn(i32) -> u32| {
            if let Some(k) = keys.get_mut(id as usize).filter(|k| **k != EXCLUDED) {
                *k = change(unkey(*k));
            }
        };
        let counts = if row.is(flag::PENALISES) { self.counts.0.as_slice() } else { &[] };
        match on_host.repeat_last_n {
            None => counts.iter().for_each(|&(id, count)| change(id, &|x| key(row.penalised(x, count)))),
            Some(n) => {
                let seen: BTreeSet<u32> = self.recent_at_most(n).iter().copied().collect();
                seen.into_iter().for_each(|id| change(id, &|x| key(row.repeated(x))));
                counts.iter().for_each(|&(id, count)| change(id, &|x| key(row.counted(x, count))));
            }
        }
        if let Some(dry) = on_host.dry {
            let penalties = dry.penalties(&self.recent, self.breakers.as_deref().unwrap_or_default());
            penalties.into_iter().for_each(|(id, penalty)| change(id, &|x| key(x.saturating_sub(penalty))));
        }
        for &(id, bias) in &self.biases {
            change(id, &|x| if bias == BANNED { EXCLUDED } else { key(x.saturating_add(bias)) });
        }
    }

    /// Runs the filters in the order that the settings determine. `keys` are the logits after penalties, biases and bans, as unsigned integers.
    fn filter(&mut self, logits: &[f32], keys: &[u32]) -> Result<FilterOutcome> {
        let (row, on_host, list) = (&self.row, &self.on_host, &mut self.scratch.list);
        let max = keys.iter().copied().max().unwrap_or(EXCLUDED);
        if max == EXCLUDED {
            return Err(if logits.iter().any(|x| x.is_finite()) { all_banned() } else { no_finite_logit() });
        }
        if row.is(flag::GREEDY) {
            return Ok(FilterOutcome::Certain(largest(logits, keys, max)));
        }
        let (is_hf, filter) = (row.is(flag::HF), row.filter_scale);
        list.fill(keys, max);
        if let Some(mirostat) = on_host.mirostat {
            return Ok(FilterOutcome::Weighed(mirostat.cut(list, self.mu.unwrap_or(mirostat.first()), row.draw_scale)));
        }
        if row.is(flag::SIGMA) {
            list.top_n_sigma(row.n_sigma);
        }
        if is_hf {
            list.top_k(row.top_k);
        }
        if let Some(p) = on_host.typical {
            list.typical(p, filter);
        }
        if row.is(flag::TOP_P) {
            list.top_p(row.top_p, filter, if is_hf { Ties::Drop } else { Ties::Keep });
        }
        if !is_hf {
            list.top_k(row.top_k);
        }
        list.within(row.min_p_distance);
        Ok(FilterOutcome::Weighed(list.weigh(row.draw_scale)))
    }
}

/// Returns the id whose key (the logit as an unsigned integer) is `max`, the largest key. Among equal keys, the id with the largest logit wins.
/// Among equal logits, the lowest id wins.
fn largest(logits: &[f32], keys: &[u32], max: u32) -> u32 {
    let mut best = (0, 0);
    for (i, _) in keys.iter().enumerate().filter(|(_, key)| **key == max) {
        let order = ordered(logits[i]);
        if order > best.0 {
            best = (order, i as u32);
        }
    }
    best.1
}

fn no_finite_logit() -> Error {
    Error::model("the model computed no finite logit, so that no token can be chosen")
        .hint("the weights hold NaN, or activations are too large for f16: try `dtype=f32`")
}

fn all_banned() -> Error {
    Error::usage("the bans and logit biases exclude every token").hint("ban fewer ids")
}
