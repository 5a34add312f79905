//! Jobs of a batcher, and their results.

use crate::constrain::Constraint;
use crate::error::Result;
use crate::sample::{Sampler, Sampling};
use crate::session::continuation::{Continuation, Finish, Limits, Processor};
use crate::session::slots::Slot;
use crate::session::speculation::Speculation;
use crate::session::vectors::VectorRule;
use std::sync::Arc;

/// A text to generate in a [`Batcher`](super::Batcher).
pub struct Job {
    /// Token ids of the prompt. May be empty if the slot `from` has logits.
    pub prompt: Arc<[u32]>,
    /// The sampler. When the job is added, the sampler reads the prompt for its penalties.
    pub sampler: Sampler,
    /// Limits on the text.
    pub limits: Limits,
    /// Changes logits before each sampling. While a job with a processor runs, the host samples for all jobs.
    pub processor: Option<Processor>,
    /// Restricts the text, by a grammar for example. While a job with a constraint runs, the host samples for all jobs.
    pub constraint: Option<Box<dyn Constraint>>,
    /// An open slot with the sequence that the job continues. The job runs in a fork of this slot. `None` begins with an empty sequence.
    pub from: Option<Slot>,
    /// Bytes after the earlier text in `from` that may still become text: an incomplete character, or the beginning of a stop text. Set this field if
    /// `from` was loaded from a state file ([`LoadedState::pending`](crate::session::LoadedState::pending)).
    pub pending: Vec<u8>,
    /// The number of most likely tokens whose log-probabilities are reported at each sampled token, as in [`Continuation::n_logprobs`]. The sampled
    /// token's own log-probability is reported, too. `None` reports no log-probabilities.
    pub n_logprobs: Option<usize>,
    /// The number of most likely tokens whose log-probabilities are reported at each prompt token except the first. The prompt token's own
    /// log-probability is reported, too. [`Batcher::take_prompt_logprobs`](super::Batcher::take_prompt_logprobs) returns them. `None` reports no
    /// log-probabilities of the prompt.
    pub n_prompt_logprobs: Option<usize>,
    /// The number of tokens by which the text may exceed its limit to complete its last character, as in [`Continuation::grace`].
    pub grace: usize,
    /// True if every token counts in penalties, as in [`Continuation::counts_every_token`].
    pub counts_every_token: bool,
    /// The largest number of prompt tokens of this job that one step reads. `usize::MAX`, the default, sets no limit other than the size of a chunk.
    pub chunk: usize,
    /// Requests the vector of the prompt that this rule computes. [`Batcher::take_pooled`](super::Batcher::take_pooled) returns it. To compute only
    /// the vector, set a limit of 0 tokens: the job still reads its prompt. `None` requests no vector.
    pub pooling: Option<Arc<VectorRule>>,
    /// How the next tokens of the text are guessed, as in [`Continuation::speculation`].
    pub speculation: Speculation,
    /// Tokens that the slot `from` has read, as far as they are known. Only guesses use them.
    pub before: Arc<[u32]>,
    /// The namespace of the caller. Slow constraints of one owner share the time of one thread.
    pub owner: Arc<str>,
    /// Requests slots and bytes of this job for the caller. [`Batcher::take_kept`](super::Batcher::take_kept) returns the slots.
    pub keeps: Keeps,
}

/// A job's request to keep slots and bytes for the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keeps {
    /// Positions in the prompt, in any order, as numbers of prompt tokens. When the job's slot has read that many prompt tokens, it is forked for the
    /// caller, if another slot is free.
    pub at: Vec<usize>,
    /// True if the job's slot is kept for the caller when the text has ended.
    pub end: bool,
    /// True if the kept slot must have read the whole prompt and the whole text. If false, it may lack the last tokens of the text.
    pub whole: bool,
    /// Determines where uncertain bytes go when the text ends: an incomplete character, or the beginning of a stop text. If true, these bytes go to
    /// [`JobOutput::pending`]. If false, they become the end of the text.
    pub pending: bool,
}

/// Determines what happens to a job's slot when the job ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtEnd {
    /// The slot is closed.
    Close,
    /// The caller receives the slot ([`Keeps::end`]). The slot may lack the last tokens of the text.
    Keep,
    /// The slot first reads the rest of the text ([`Keeps::whole`]). Then the caller receives the slot.
    KeepWhole,
    /// The slot is the caller's own. It stays open, and first reads the rest of the text.
    Stay,
}

/// A slot of a job that was kept for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptSlot {
    /// The job.
    pub job: JobId,
    /// The slot, which the caller must close.
    pub slot: Slot,
    /// True if the slot was kept when the text ended ([`Keeps::end`]). False if the slot was forked at a position in the prompt ([`Keeps::at`]).
    pub is_end: bool,
}

impl Job {
    /// Creates a job that begins with an empty sequence, without processor, constraint, log-probabilities and kept slots.
    pub fn new(prompt: impl Into<Arc<[u32]>>, sampler: Sampler, limits: Limits) -> Job {
        Job {
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

    /// Creates a job that computes the vector of a text and generates no text.
    pub fn vector(tokens: Vec<u32>, rule: Arc<VectorRule>) -> Job {
        Job { pooling: Some(rule), ..Job::new(tokens, Sampler::new(Sampling::greedy(0)), Limits::new(0)) }
    }

    /// Creates a job that only reads a text. The caller receives the slot after the text ([`Keeps::end`]).
    pub fn read(tokens: Vec<u32>) -> Job {
        let keeps = Keeps { end: true, pending: true, ..Keeps::default() };
        Job { keeps, ..Job::new(tokens, Sampler::new(Sampling::greedy(0)), Limits::new(0)) }
    }

    /// Returns what happens to the job's slot when the job ends.
    pub(super) fn at_end(&self) -> AtEnd {
        match self.keeps {
            Keeps { end: true, whole: true, .. } => AtEnd::KeepWhole,
            Keeps { end: true, .. } => AtEnd::Keep,
            _ => AtEnd::Close,
        }
    }
}

/// The id of a job, unique within its [`Batcher`](super::Batcher).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub(super) u64);

impl JobId {
    /// Returns how many jobs were added to the batcher before this job.
    pub(in crate::session) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A job that ended.
#[derive(Debug)]
pub struct Done {
    /// The job.
    pub job: JobId,
    /// The text, or the error that ended the job.
    pub output: Result<JobOutput>,
}

/// The result of a job.
#[derive(Debug, Clone)]
pub struct JobOutput {
    /// Token ids of the text.
    pub tokens: Vec<u32>,
    /// The text; empty if the model has no vocabulary.
    pub text: String,
    /// The reason why the text ended.
    pub finish: Finish,
    /// True if the text satisfies its constraint, as in [`Continuation::complete`]. `None` without a constraint.
    pub complete: Option<bool>,
    /// The job's sampler, after it has accepted the last token.
    pub sampler: Sampler,
    /// Bytes at the end that were not added to `text`: an incomplete character, or the beginning of a stop text. Always empty if
    /// [`Keeps::pending`] is false.
    pub pending: Vec<u8>,
    /// The number of guesses that steps have checked ([`Job::speculation`]).
    pub drafted: usize,
    /// The number of guesses that were right.
    pub accepted: usize,
}

impl JobOutput {
    /// Returns the result of a continuation, or `None` if the continuation has not ended.
    pub(super) fn of(continuation: Continuation) -> Option<JobOutput> {
        let pending = if continuation.keeps_end { continuation.pending() } else { Vec::new() };
        let Continuation { tokens, text, finish, complete, sampler, drafted, accepted, .. } = continuation;
        Some(JobOutput { tokens, text, finish: finish?, complete, sampler, pending, drafted, accepted })
    }
}
