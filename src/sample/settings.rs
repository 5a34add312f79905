//! What a caller may set: one struct, the defaults of each model family, and the check of what came from outside.

use crate::error::{Error, Result};

/// When the temperature applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// After the filters, as the official RWKV package: top_p, top_k, min_p, temperature. Tokens as likely as the last one
    /// that top_p keeps are kept too.
    Pip,
    /// Before the filters, as transformers: temperature, top_k, top_p, min_p.
    Hf,
}

/// How a token is drawn. Penalties come first, then `logit_bias`, then `ban`, then the filters in the given [`Order`].
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Divides the logits: below 1 is more certain. 0 is greedy: always the largest logit, the lowest id of equals.
    pub temperature: f32,
    /// Keeps the most likely tokens up to this share of the probability, in 0 ..= 1. 1 is off, 0 keeps the largest.
    pub top_p: f32,
    /// Keeps this many tokens; the lower id of equals. 0 is off.
    pub top_k: usize,
    /// Keeps tokens at least this fraction as likely as the most likely one, in 0 ..= 1. 0 is off.
    pub min_p: f32,
    /// Taken from the logit of every token that was seen, however long ago. 0 is off.
    pub presence_penalty: f32,
    /// Taken from the logit of a token once per count. 0 is off.
    pub frequency_penalty: f32,
    /// What is left of all counts after one more token, in 0 ..= 1. 1 never forgets.
    pub penalty_decay: f32,
    /// Divides a positive logit, multiplies a negative one, of every token that was seen. 1 is off.
    pub repeat_penalty: f32,
    /// Added to the logits of these ids. Negative infinity bans.
    pub logit_bias: Vec<(u32, f32)>,
    /// Ids that are never drawn.
    pub ban: Vec<u32>,
    /// The invalid-score guard of GLM's own code: while any logit is NaN or infinite, before penalties and bans, this id is drawn.
    /// It keeps a text going where the model's numbers fail. None: such logits are never drawn, and the others are.
    pub guard: Option<u32>,
    /// When the temperature applies.
    pub order: Order,
    /// Names the random stream.
    pub seed: u64,
}

impl Sampling {
    /// The defaults of the official RWKV package.
    pub fn rwkv() -> Self {
        Sampling { top_p: 0.85, presence_penalty: 0.2, frequency_penalty: 0.2, penalty_decay: 0.996, ..Self::plain(Order::Pip) }
    }

    /// The defaults of GLM-4 under transformers.
    pub fn glm() -> Self {
        Sampling { temperature: 0.8, top_p: 0.8, top_k: 50, ..Self::plain(Order::Hf) }
    }

    /// Always the largest logit, no penalties. The seed only names the stream that a later change of temperature would use.
    pub fn greedy(seed: u64) -> Self {
        Sampling { temperature: 0.0, seed, ..Self::plain(Order::Pip) }
    }

    /// Every filter and penalty off: draws from the softmax of the logits.
    fn plain(order: Order) -> Self {
        Sampling {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_decay: 1.0,
            repeat_penalty: 1.0,
            logit_bias: Vec::new(),
            ban: Vec::new(),
            guard: None,
            order,
            seed: 0,
        }
    }

    /// Whether the largest logit always wins, so that nothing is drawn.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Checks every value, and ids against a vocabulary of `n_vocab` logits.
    ///
    /// # Errors
    /// `Usage`, at the flag concerned.
    pub fn check(&self, n_vocab: usize) -> Result<()> {
        let at_least_zero = 0.0..=f32::MAX;
        let share = 0.0..=1.0;
        let any = f32::MIN..=f32::MAX;
        let ranges = [
            ("--temperature", self.temperature, &at_least_zero, "a number from 0"),
            ("--top-p", self.top_p, &share, "a number from 0 to 1"),
            ("--min-p", self.min_p, &share, "a number from 0 to 1"),
            ("--presence-penalty", self.presence_penalty, &any, "a number"),
            ("--frequency-penalty", self.frequency_penalty, &any, "a number"),
            ("--penalty-decay", self.penalty_decay, &share, "a number from 0 to 1"),
            ("--repeat-penalty", self.repeat_penalty, &(f32::MIN_POSITIVE..=f32::MAX), "a number above 0"),
        ];
        for (flag, value, range, expected) in ranges {
            if !range.contains(&value) {
                return Err(Error::usage(format!("expected {expected}, found {value}")).at(flag));
            }
        }
        for &(id, bias) in &self.logit_bias {
            check_id("--logit-bias", id, n_vocab)?;
            if bias.is_nan() || bias == f32::INFINITY {
                return Err(Error::usage(format!("expected a finite number or -inf for id {id}, found {bias}")).at("--logit-bias"));
            }
        }
        self.guard.map_or(Ok(()), |id| check_id("guard", id, n_vocab))?;
        self.ban.iter().try_for_each(|&id| check_id("--ban", id, n_vocab))
    }
}

fn check_id(flag: &str, id: u32, n_vocab: usize) -> Result<()> {
    if (id as usize) < n_vocab {
        return Ok(());
    }
    Err(Error::usage(format!("expected an id below {n_vocab}, the size of the vocabulary, found {id}")).at(flag))
}
