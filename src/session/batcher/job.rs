//! Jobs of a batcher, and their results.

use crate::constrain::Constraint;
use crate::error::Result;
use crate::sample::Sampler;
use crate::session::slots::Slot;
use crate::session::stream::{Finish, Limits, Processor, Stream};

/// A text to generate.
pub struct Job {
    /// Token ids. May be empty if `from` has logits to continue from.
    pub prompt: Vec<u32>,
    /// The sampler. Accepts the prompt when the job is added.
    pub sampler: Sampler,
    /// Limits on the text.
    pub limits: Limits,
    /// Changes logits before each sampling. All jobs then sample on the host.
    pub processor: Option<Processor>,
    /// Restricts the text, by a grammar for example. All jobs then sample on the host.
    pub constraint: Option<Box<dyn Constraint>>,
    /// An open slot of the session to continue from; the job forks it. `None` begins with an empty sequence.
    pub from: Option<Slot>,
    /// Bytes that the previous text held back at its end, if `from` was loaded from a state file
    /// ([`LoadedState::pending`](crate::session::LoadedState::pending)).
    pub pending: Vec<u8>,
    /// The number of alternative tokens in the log-probabilities of each token, as [`Stream::n_logprobs`].
    pub n_logprobs: Option<usize>,
    /// The number of alternative tokens in log-probabilities of the prompt: see
    /// [`Batcher::take_prompt_logprobs`](super::Batcher::take_prompt_logprobs). `None` requests none.
    pub n_prompt_logprobs: Option<usize>,
    /// Slots that are kept for the caller: see [`Batcher::take_kept`](super::Batcher::take_kept).
    pub keeps: Keeps,
}

/// Slots of a job that the caller takes over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keeps {
    /// Positions in the prompt, as numbers of tokens, in any order. At each position the slot is forked if another slot is free.
    pub at: Vec<usize>,
    /// True to keep the job's own slot, after its text.
    pub end: bool,
    /// True if uncertain bytes at the end of the text go to [`JobOutput::pending`] instead of the text, as with [`Stream::keeps_end`].
    pub pending: bool,
}

/// A slot of a job that was kept for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptSlot {
    /// The job.
    pub job: JobId,
    /// The slot, which the caller must close.
    pub slot: Slot,
    /// True if the slot is after the text. Otherwise the slot is within the prompt or after the prompt.
    pub is_end: bool,
}

impl Job {
    /// Creates a job that begins with an empty sequence, without processor, constraint, log-probabilities and kept slots.
    pub fn new(prompt: Vec<u32>, sampler: Sampler, limits: Limits) -> Job {
        Job {
            prompt,
            sampler,
            limits,
            processor: None,
            constraint: None,
            from: None,
            pending: Vec::new(),
            n_logprobs: None,
            n_prompt_logprobs: None,
            keeps: Keeps::default(),
        }
    }
}

/// The id of a job, unique within its [`Batcher`](super::Batcher).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub(super) u64);

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
    /// Ids of the text.
    pub tokens: Vec<u32>,
    /// The text; empty if the model has no vocabulary.
    pub text: String,
    /// The reason why the text ended.
    pub finish: Finish,
    /// True if the text satisfies its constraint: see [`Stream::complete`].
    pub complete: Option<bool>,
    /// The sampler after the last token.
    pub sampler: Sampler,
    /// Uncertain bytes at the end that were not added to `text`. Empty unless [`Keeps::pending`] is set.
    pub pending: Vec<u8>,
}

impl JobOutput {
    /// Returns the result of a stream, or `None` if the stream has not ended.
    pub(super) fn of(stream: Stream) -> Option<JobOutput> {
        let pending = if stream.keeps_end { stream.pending() } else { Vec::new() };
        let Stream { tokens, text, finish, complete, sampler, .. } = stream;
        Some(JobOutput { tokens, text, finish: finish?, complete, sampler, pending })
    }
}
