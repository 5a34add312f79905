//! The settings of one text: its tokens, its sampler, its limits, its rules, and the data to keep and to report.

use crate::constrain::Constraint;
use crate::sample::{Sampler, Sampling};
use crate::session::slots::Slot;
use crate::session::speculation::Speculation;
use crate::session::vectors::VectorRule;
use std::sync::Arc;

/// Conditions that end a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Limit on the number of tokens in the text.
    pub max_tokens: usize,
    /// The number of tokens before which no stop text ends the text.
    pub min_tokens: usize,
    /// Stop texts: the text ends before the first occurrence of a stop text.
    pub stop_texts: Vec<String>,
    /// Token ids that end the text and are not part of it. `None` means the stop ids of the model's family.
    pub stop_ids: Option<Vec<u32>>,
}

impl Limits {
    /// Creates limits with the stop ids of the model's family and without stop texts.
    pub fn new(max_tokens: usize) -> Self {
        Limits { max_tokens, min_tokens: 0, stop_texts: Vec::new(), stop_ids: None }
    }
}

/// A function that changes logits before each sampling. Its arguments are the text's tokens so far and the logits, `[vocab]`. The host samples
/// for a text with a processor.
pub type Processor = Box<dyn FnMut(&[u32], &mut [f32]) + Send>;

/// The settings of one text: tokens, sampler, limits, rules, speculation, and the data to keep and to report. A [`Batcher`](super::super::Batcher)
/// runs the text.
pub struct TextSpec {
    /// Token ids of the prompt. May be empty if the slot `from` has logits.
    pub prompt: Arc<[u32]>,
    /// The sampler. When the text is added to a batcher, the sampler reads the prompt for its penalties.
    pub sampler: Sampler,
    /// Limits on the text.
    pub limits: Limits,
    /// Changes logits before each sampling. While a text with a processor runs, the host samples for all texts.
    pub processor: Option<Processor>,
    /// Restricts the text to tokens that the constraint allows, by a grammar for example. The constraint applies after the processor, which therefore
    /// cannot allow a forbidden token. Penalties, biases and bans apply among the allowed tokens. The sampler's guard
    /// ([`Sampling::guard`](crate::sample::Sampling::guard)) chooses no token of a constrained text. A stop id is allowed where the text may end. The
    /// text ends if no further token is allowed, and at stop texts. While a text with a constraint runs, the host samples for all texts.
    pub constraint: Option<Box<dyn Constraint>>,
    /// An open slot with the sequence that the text continues. The text runs in a fork of this slot. `None` begins with an empty sequence.
    pub from: Option<Slot>,
    /// Bytes after the earlier text in `from` that may still become text: an incomplete character, or the beginning of a stop text. Set this field if
    /// `from` was loaded from a state file ([`LoadedState::pending`](crate::session::LoadedState::pending)).
    pub pending: Vec<u8>,
    /// The number of most likely tokens whose log-probabilities are reported at each sampled token. The sampled token's own log-probability is
    /// reported, too. `None` reports no log-probabilities. If this field is set, the host samples.
    pub n_logprobs: Option<usize>,
    /// The number of most likely tokens whose log-probabilities are reported at each prompt token except the first. The prompt token's own
    /// log-probability is reported, too. [`Batcher::take_prompt_logprobs`](super::super::Batcher::take_prompt_logprobs) returns them. `None` reports
    /// no log-probabilities of the prompt.
    pub n_prompt_logprobs: Option<usize>,
    /// The number of tokens by which the text may exceed its limit to complete its last character.
    pub grace: usize,
    /// True if every token counts in penalties; the host then samples. If false, tokens of digits and blanks are recorded as seen, but with a count
    /// of 0.
    pub counts_every_token: bool,
    /// The largest number of prompt tokens of this text that one step reads. `usize::MAX`, the default, sets no limit other than the size of a chunk.
    pub chunk: usize,
    /// Requests the vector of the prompt that this rule computes. [`Batcher::take_pooled`](super::super::Batcher::take_pooled) returns it. To compute
    /// only the vector, set a limit of 0 tokens: the prompt is still read. `None` requests no vector.
    pub pooling: Option<Arc<VectorRule>>,
    /// How the next tokens of the text are guessed. Guesses never change the text.
    pub speculation: Speculation,
    /// Tokens that the slot `from` has read, as far as they are known. Only guesses use them.
    pub before: Arc<[u32]>,
    /// The namespace of the caller. If the constraints of an owner are slow on average, its texts share one thread with all other slow owners.
    pub owner: Arc<str>,
    /// The slots and bytes of this text that are kept for the caller. [`Batcher::take_kept`](super::super::Batcher::take_kept) returns the slots.
    pub keeps: Keeps,
}

/// Slots and bytes of a text that are kept for the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keeps {
    /// Positions in the prompt, in any order, as numbers of prompt tokens. When the text's slot has read that many prompt tokens, it is forked for
    /// the caller, if another slot is free.
    pub at: Vec<usize>,
    /// True if the text's slot is kept for the caller when the text has ended.
    pub end: bool,
    /// True if the kept slot must have read the whole prompt and the whole text. If false, it may lack the last tokens of the text.
    pub whole: bool,
    /// Determines where uncertain bytes go when the text ends: an incomplete character, or the beginning of a stop text. If true,
    /// [`Text::pending`](super::Text::pending) returns them. If false, they become the end of the text. Has no effect if a stop id, a constraint or a
    /// stop text ended the text.
    pub pending: bool,
    /// True if the slot is the caller's own: it stays open when the text ends, also after an error.
    pub own: bool,
}

/// A slot that was kept for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptSlot {
    /// The id of the text.
    pub id: TextId,
    /// The slot, which the caller must close.
    pub slot: Slot,
    /// True if the slot was kept when the text ended ([`Keeps::end`]). False if the slot was forked at a position in the prompt ([`Keeps::at`]).
    pub is_end: bool,
}

impl TextSpec {
    /// Creates the spec of a text that begins with an empty sequence, without processor, constraint, log-probabilities and kept slots.
    pub fn new(prompt: impl Into<Arc<[u32]>>, sampler: Sampler, limits: Limits) -> TextSpec {
        TextSpec {
            prompt: prompt.into(),
            sampler,
            limits,
            processor: None,
            constraint: None,
            from: None,
            pending: Vec::new(),
            n_logprobs: None,
            n_prompt_logprobs: None,
            grace: 0,
            counts_every_token: false,
            chunk: usize::MAX,
            pooling: None,
            speculation: Speculation::off(),
            before: Arc::default(),
            owner: Arc::default(),
            keeps: Keeps::default(),
        }
    }

    /// Creates the spec of a text whose vector is computed, and that is not continued.
    pub fn vector(tokens: Vec<u32>, rule: Arc<VectorRule>) -> TextSpec {
        TextSpec { pooling: Some(rule), ..TextSpec::unsampled(tokens) }
    }

    /// Creates the spec of a text that is only read. The caller receives the slot after the text ([`Keeps::end`]).
    pub fn read(tokens: Vec<u32>) -> TextSpec {
        TextSpec { keeps: Keeps { end: true, pending: true, ..Keeps::default() }, ..TextSpec::unsampled(tokens) }
    }

    /// Creates the spec of a text for which no token is sampled.
    pub(crate) fn unsampled(tokens: Vec<u32>) -> TextSpec {
        TextSpec::new(tokens, Sampler::new(Sampling::greedy(0)), Limits::new(0))
    }
}

/// The id of a text, unique within its [`Batcher`](super::super::Batcher).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextId(pub(in crate::session) u64);

impl TextId {
    /// Returns how many texts were added to the batcher before this text.
    pub(in crate::session) fn index(self) -> usize {
        self.0 as usize
    }
}
