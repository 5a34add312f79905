//! The sampler: settings, memory and the chain put together.

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

/// Settings plus what they need to remember: penalty counts, the last tokens, and the position of the random stream.
///
/// A clone continues as the original would; it does not copy the working memory.
#[derive(Debug, Clone)]
pub struct Sampler {
    settings: Sampling,
    /// The settings in integers.
    row: Row,
    /// Those that only the host draws with.
    on_host: OnHost,
    /// Ids and biases of `logit_bias` and `ban`.
    biases: Vec<(u32, i32)>,
    /// Ids that break a repetition, ascending; none until somebody told.
    breakers: Option<Arc<[u32]>>,
    counts: Counts,
    /// The last tokens of the text, at least as many as the settings look back at.
    recent: Vec<u32>,
    /// Mirostat's largest surprise, in units of 2^-20 bits; none before the first draw.
    mu: Option<i32>,
    /// How many tokens were drawn: the position in the random stream.
    draws: u64,
    /// How many of them were the guard's.
    n_guarded: u64,
    scratch: Scratch,
}

/// What a sampler remembers, for state files. Exact: a sampler restored from it draws what the original would have drawn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Memory {
    /// Id and count of every id that was accepted, in the order in which they first came. Counts are in units of 2^-20.
    pub counts: Vec<(u32, u32)>,
    /// The name of the random stream.
    pub seed: u64,
    /// How many tokens were drawn from it.
    pub draws: u64,
    /// The last tokens of the text, where a setting looks back at them.
    pub recent: Vec<u32>,
    /// Mirostat's largest surprise, in units of 2^-20 bits, once it has learnt.
    pub mu: Option<i32>,
}

/// Working memory: of vocabulary size after the first call, without meaning between calls.
#[derive(Default)]
struct Scratch {
    /// Logits after penalties, bias and bans, as ordered integers. `[V]`
    keys: Vec<u32>,
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
    /// `Scratch::list` is filtered and weighed; the sum of its masses.
    Weighed(u64),
}

impl Sampler {
    /// A sampler at the beginning of its stream that has seen nothing. Settings from outside want [`Sampling::check`] first;
    /// unchecked ones never panic: ids beyond the logits are ignored, a temperature that is not above 0 is greedy.
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
            scratch: Scratch::default(),
        }
    }

    /// The settings, with the seed of the stream in use.
    pub fn settings(&self) -> &Sampling {
        &self.settings
    }

    /// Draws one id from `logits` `[V]`. Takes one number of the stream, greedy or not. After the first call nothing of
    /// vocabulary size is allocated. A logit that is not finite is never drawn, but by a guard. Counts nothing: see [`accept`](Self::accept).
    ///
    /// # Errors
    /// `Model` when no logit is finite, `Usage` when bans and bias leave none.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32> {
        if let Some(id) = self.guarded(logits) {
            if self.n_guarded == 0 {
                log::warn!("the model gave a logit that is not finite; the guard draws {id} while it does");
            }
            self.n_guarded += 1;
            self.skip();
            return Ok(id);
        }
        self.draw(logits)
    }

    /// The same without the guard.
    pub(crate) fn draw(&mut self, logits: &[f32]) -> Result<u32> {
        let id = match self.run(logits)? {
            Outcome::Certain(id) => id,
            Outcome::Weighed(total) => {
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

    /// The id that the guard draws from these logits; none where it does not step in, or is off.
    pub fn guarded(&self, logits: &[f32]) -> Option<u32> {
        let id = self.settings.guard.filter(|&id| (id as usize) < logits.len())?;
        // without a branch an element, so that several are looked at together
        let is_wrong = |some: &[f32]| some.iter().fold(false, |wrong, x| wrong | !x.is_finite());
        logits.chunks(256).any(is_wrong).then_some(id)
    }

    /// How many tokens the guard drew.
    pub fn n_guarded(&self) -> u64 {
        self.n_guarded
    }

    /// The probabilities `[V]` that [`sample`](Self::sample) would draw from: the same chain, nothing drawn.
    ///
    /// # Errors
    /// As `sample`.
    pub fn distribution(&mut self, logits: &[f32]) -> Result<Vec<f32>> {
        let mut p = vec![0.0; logits.len()];
        if let Some(id) = self.guarded(logits) {
            p[id as usize] = 1.0;
            return Ok(p);
        }
        match self.run(logits)? {
            Outcome::Certain(id) => p[id as usize] = 1.0,
            Outcome::Weighed(total) => {
                for (id, probability) in self.scratch.list.probabilities(total) {
                    p[id as usize] = probability;
                }
            }
        }
        Ok(p)
    }

    /// Counts an id that was drawn: decays all counts, then adds `weight` to its own. The weight is 1, or 0 for text that may
    /// repeat ([`penalty_weight`](super::penalty_weight)); the presence penalty applies either way. Prompts are not counted, but
    /// [read](Self::read).
    pub fn accept(&mut self, id: u32, weight: f32) {
        self.counts.accept(id, weight, self.row.decay);
        self.read(&[id]);
    }

    /// Takes note of tokens that the text goes on with: a prompt. DRY and `repeat_last_n` look back at them; nothing is counted.
    pub fn read(&mut self, tokens: &[u32]) {
        let most = self.on_host.looks_back();
        self.recent.extend_from_slice(&tokens[tokens.len() - tokens.len().min(most)..]);
        // now and then, so that not every token moves all
        if self.recent.len() / 2 >= most {
            self.recent.drain(..self.recent.len() - most);
        }
    }

    /// Whether a device's kernel can draw with these settings; else the host has to.
    pub fn fits_device(&self) -> bool {
        self.on_host.is_nothing()
    }

    /// The texts of which DRY wants to know which ids contain them; none where it is off, or was told.
    pub fn wants_breakers(&self) -> Option<&[String]> {
        (self.on_host.dry.is_some() && self.breakers.is_none()).then_some(self.settings.dry_breakers.as_slice())
    }

    /// Tells DRY the ids, ascending, that no repetition reaches past. A session does so.
    pub fn break_at(&mut self, ids: Arc<[u32]>) {
        self.breakers = Some(ids);
    }

    /// Counts a number of the stream that another sampler took, which had this one's memory.
    pub fn skip(&mut self) {
        self.draws = self.draws.wrapping_add(1);
    }

    /// What to keep so that another sampler with the same settings goes on from here.
    pub fn memory(&self) -> Memory {
        let recent = self.recent_at_most(self.on_host.looks_back()).to_vec();
        Memory { counts: self.counts.0.clone(), seed: self.settings.seed, draws: self.draws, recent, mu: self.mu }
    }

    /// Goes on from `memory`, its seed included.
    pub fn restore(&mut self, memory: Memory) {
        self.counts = Counts(memory.counts);
        self.settings.seed = memory.seed;
        self.row.seed = Row::of(&self.settings).seed;
        self.draws = memory.draws;
        self.recent.clear();
        self.read(&memory.recent);
        self.mu = memory.mu;
    }

    /// A fork with the same settings and the same past, at the beginning of another stream.
    pub fn reseeded(&self, seed: u64) -> Self {
        let mut fork = self.clone();
        fork.restore(Memory { seed, draws: 0, ..self.memory() });
        fork.n_guarded = 0;
        fork
    }

    /// The settings as the kernel takes them, with the seed of the stream in use.
    pub fn row(&self) -> &Row {
        &self.row
    }

    /// How many tokens were drawn: the position in the random stream.
    pub fn draws(&self) -> u64 {
        self.draws
    }

    /// Id and count, in units of 2^-20, of every id that was accepted, in the order in which they first came.
    pub fn counts(&self) -> &[(u32, u32)] {
        &self.counts.0
    }

    /// Id and bias, in units of 2^-20 or [`BANNED`], ascending by id, each once.
    pub fn biases(&self) -> &[(u32, i32)] {
        &self.biases
    }

    fn recent_at_most(&self, n: usize) -> &[u32] {
        &self.recent[self.recent.len() - n.min(self.recent.len())..]
    }

    /// Adjusts the logits and plays the chain.
    fn run(&mut self, logits: &[f32]) -> Result<Outcome> {
        let mut keys = std::mem::take(&mut self.scratch.keys);
        wide::keys(logits, &mut keys);
        self.adjust(&mut keys);
        let outcome = self.play(logits, &keys);
        self.scratch.keys = keys;
        outcome
    }

    /// Penalties, then DRY, then biases and bans, in the keys of the logits they concern.
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

    /// The filters, in their order.
    fn play(&mut self, logits: &[f32], keys: &[u32]) -> Result<Outcome> {
        let (row, on_host, list) = (&self.row, &self.on_host, &mut self.scratch.list);
        let max = keys.iter().copied().max().unwrap_or(EXCLUDED);
        if max == EXCLUDED {
            return Err(if logits.iter().any(|x| x.is_finite()) { all_banned() } else { no_finite_logit() });
        }
        if row.is(flag::GREEDY) {
            return Ok(Outcome::Certain(largest(logits, keys, max)));
        }
        let (is_hf, filter) = (row.is(flag::HF), row.filter_scale);
        list.fill(keys, max);
        if let Some(mirostat) = on_host.mirostat {
            return Ok(Outcome::Weighed(mirostat.cut(list, self.mu.unwrap_or(mirostat.first()), row.draw_scale)));
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
        Ok(Outcome::Weighed(list.weigh(row.draw_scale)))
    }
}

/// Of the tokens with the largest key the one with the largest logit, of those the first.
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
    Error::model("expected logits with a finite number, found none")
        .hint("the parameters hold NaN, or the activations overflow: try `dtype=f32`")
}

fn all_banned() -> Error {
    Error::usage("expected a token that may be drawn, found that bans, biases or penalties exclude every one")
        .hint("use a smaller `ban` or `logit_bias`")
}
