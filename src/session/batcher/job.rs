//! What a batcher is asked for, and what comes of it.

use crate::constrain::Constraint;
use crate::error::Result;
use crate::sample::Sampler;
use crate::session::slots::Slot;
use crate::session::stream::{Finish, Limits, Processor, Stream};

/// A text to be made.
pub struct Job {
    /// May be empty where a slot gives something to continue.
    pub prompt: Vec<u32>,
    /// Is told the prompt when the job is added.
    pub sampler: Sampler,
    /// The limits of the text.
    pub limits: Limits,
    /// Changes logits before each draw; all texts then draw on the host.
    pub processor: Option<Processor>,
    /// What the text has to follow; as with a processor.
    pub constraint: Option<Box<dyn Constraint>>,
    /// An open slot of the session that it goes on from, and that stays as it is. None: from the beginning.
    pub from: Option<Slot>,
    /// What the text before kept back at its end, where `from` comes from a state file
    /// ([`LoadedState::pending`](crate::session::LoadedState::pending)).
    pub pending: Vec<u8>,
    /// Log-probabilities of each token and of so many likeliest ones, as [`Stream::n_logprobs`].
    pub n_logprobs: Option<usize>,
    /// Log-probabilities of the prompt's tokens and of so many likeliest ones: see [`Batcher::take_prompt_logprobs`](super::Batcher::take_prompt_logprobs).
    pub n_prompt_logprobs: Option<usize>,
    /// Which slots of the job outlive it: see [`Batcher::take_kept`](super::Batcher::take_kept).
    pub keeps: Keeps,
}

/// Slots of a job that its owner takes over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keeps {
    /// Forks after so many tokens of the prompt, in any order. One that finds no free slot is left out.
    pub at: Vec<usize>,
    /// The job's own slot, after its text.
    pub end: bool,
    /// The end of the text that is not certain yet is no part of the text, but of [`JobOutput::pending`], as with
    /// [`Stream::keeps_end`].
    pub pending: bool,
}

/// A slot that a job left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptSlot {
    /// The job.
    pub job: JobId,
    /// The slot, which the caller closes.
    pub slot: Slot,
    /// It stands after the text; else within the prompt or after it.
    pub is_end: bool,
}

impl Job {
    /// From the beginning; nothing changes or constrains its logits.
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

/// Names a job of a [`Batcher`](super::Batcher); no other of its jobs has the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub(super) u64);

/// A job that ended.
#[derive(Debug)]
pub struct Done {
    /// The job.
    pub job: JobId,
    /// An error is the job's alone: nothing can be drawn from its logits.
    pub output: Result<JobOutput>,
}

/// What came of a job.
#[derive(Debug, Clone)]
pub struct JobOutput {
    /// The generated tokens.
    pub tokens: Vec<u32>,
    /// Empty without a vocabulary.
    pub text: String,
    /// The reason why the text ended.
    pub finish: Finish,
    /// As [`Stream::complete`].
    pub complete: Option<bool>,
    /// As it is after the last token.
    pub sampler: Sampler,
    /// What the text kept back at its end, where [`Keeps::pending`] asked for it.
    pub pending: Vec<u8>,
}

impl JobOutput {
    /// `None` of a stream that has not ended.
    pub(super) fn of(stream: Stream) -> Option<JobOutput> {
        let pending = if stream.keeps_end { stream.pending() } else { Vec::new() };
        let Stream { tokens, text, finish, complete, sampler, .. } = stream;
        Some(JobOutput { tokens, text, finish: finish?, complete, sampler, pending })
    }
}
