//! A running job: its text, the tokens that its slot must still read, and what the caller requests besides the text.

use super::aside::Drawing;
use super::guessing::Guessing;
use super::job::{AtEnd, Done, JobId, JobOutput};
use crate::error::Error;
use crate::session::continuation::Continuation;
use crate::session::logprobs::Logprobs;
use crate::session::vectors::Pool;
use std::time::Duration;

/// A text that must read this many accepted tokens again reads them without new guesses.
const MOST_BEHIND: usize = 8;
/// A text guesses only if its constraint takes at most this much time per token, because the thread that runs the step asks the constraint.
const QUICK: Duration = Duration::from_millis(2);

/// A job that waits until another job has read their common prompt. Until then, it has an empty slot.
pub struct Follower {
    pub job: JobId,
    pub continuation: Continuation,
    pub at_end: AtEnd,
}

/// A running job.
pub struct Sequence {
    pub job: JobId,
    pub continuation: Continuation,
    /// Tokens that the slot must read before the next sampling: the rest of the prompt, or the token that was sampled last.
    pub unread: Vec<u32>,
    /// Jobs with the same prompt. When this job has read the prompt, each follower continues in a fork of this job's slot.
    pub followers: Vec<Follower>,
    /// Positions at which the slot is forked for [`Batcher::take_kept`](super::Batcher::take_kept), as numbers of prompt tokens that are unread
    /// there, in ascending order. The slot reaches the last entry first.
    pub marks: Vec<usize>,
    /// The number of most likely tokens to report for each prompt token. `None` if the job requests no log-probabilities of the prompt, or already
    /// has all of them.
    pub n_prompt_logprobs: Option<usize>,
    /// Log-probabilities of the prompt tokens that were read so far. The first token of the prompt has none.
    pub prompt_logprobs: Vec<Logprobs>,
    /// Collects the hidden states of the prompt. `None` if the job requests no vector, or already has its vector.
    pub pool: Option<Pool>,
    pub at_end: AtEnd,
    /// The largest number of prompt tokens that one step reads.
    pub chunk: usize,
    /// True if the prompt must be read even if the job may generate no token, because the caller keeps the state.
    pub reads_prompt: bool,
    /// True if the slot must read its unread tokens one per step, as the device does when it samples: only then is the state bit-identical. Set after
    /// the device could not sample, and for the rest of a text that ended within a submission.
    pub is_stuck: bool,
    /// How the next tokens of the text are guessed. `None` if they are not guessed.
    pub guessing: Option<Box<Guessing>>,
    /// How many of the last tokens of `unread` are guesses. 0 except between the beginning and the end of a step.
    pub n_guesses: usize,
    /// True if `unread` has several tokens of the text, because a guess after them was wrong. The next step reads them together.
    pub is_behind: bool,
    /// True if the job takes part in no step.
    pub is_paused: bool,
    /// True if the receiver of the text's events has asked to end the text.
    pub is_broken: bool,
    /// True if the job was cancelled during a step. A cancelled job has no result.
    pub is_cancelled: bool,
    /// The error that ends the job.
    pub error: Option<Error>,
    /// The draw of the next token on another thread. Until this draw has ended, the job takes part in no step.
    pub drawing: Option<Drawing>,
}

impl Sequence {
    pub fn new(job: JobId, continuation: Continuation, unread: Vec<u32>, at_end: AtEnd) -> Sequence {
        let guessing = continuation.speculation.is_on().then(|| Box::new(Guessing::new(&continuation)));
        Sequence {
            job,
            continuation,
            unread,
            guessing,
            n_guesses: 0,
            is_behind: false,
            followers: Vec::new(),
            marks: Vec::new(),
            n_prompt_logprobs: None,
            prompt_logprobs: Vec::new(),
            pool: None,
            at_end,
            chunk: usize::MAX,
            reads_prompt: false,
            is_stuck: false,
            is_paused: false,
            is_broken: false,
            is_cancelled: false,
            error: None,
            drawing: None,
        }
    }

    /// Returns the tokens that the next step may read: at most `chunk` prompt tokens up to the next position in `marks`, or one token if `is_stuck`.
    pub fn next(&self) -> &[u32] {
        let n = if self.is_stuck { 1 } else { self.unread.len() - self.marks.last().unwrap_or(&0) };
        let chunk = if self.n_guesses > 0 || self.is_behind { usize::MAX } else { self.chunk };
        &self.unread[..n.min(chunk).min(self.unread.len())]
    }

    /// Returns whether the text has not ended.
    pub fn is_live(&self) -> bool {
        self.continuation.finish.is_none()
    }

    /// Returns whether the slot must read its unread tokens even if the text has ended, for example at a limit of 0 tokens.
    fn has_to_read(&self) -> bool {
        let for_result = self.n_prompt_logprobs.is_some() || self.pool.is_some() || self.reads_prompt;
        let for_state = matches!(self.at_end, AtEnd::KeepWhole | AtEnd::Stay) && !self.is_live() && !self.unread.is_empty();
        (for_result || for_state) && self.error.is_none() && !self.is_cancelled
    }

    /// Returns whether the job takes part in the next step.
    pub fn is_running(&self) -> bool {
        !self.is_paused && !self.is_drawing() && self.error.is_none() && (self.is_live() || self.has_to_read())
    }

    /// Returns whether another thread draws the next token.
    pub fn is_drawing(&self) -> bool {
        self.drawing.is_some()
    }

    /// Returns whether the job has ended and can be removed.
    pub fn has_ended(&self) -> bool {
        self.error.is_some() || !self.is_live() && !self.has_to_read()
    }

    /// Returns whether a step must return a row (logits and hidden state) after each token of the prompt, not only after the last.
    pub fn needs_all_rows(&self) -> bool {
        self.n_prompt_logprobs.is_some() || self.pool.as_ref().is_some_and(|pool| pool.needs_all)
    }

    /// Returns whether the sequence decodes: at most one token is unread besides guesses, or the slot reads tokens of the text again.
    pub fn is_decoding(&self) -> bool {
        self.unread.len() - self.n_guesses <= 1 || self.is_stuck || self.is_behind
    }

    /// Returns the result of a job that has ended.
    pub fn done(self) -> Done {
        let Sequence { job, continuation, error, .. } = self;
        Done { job, output: error.map_or_else(|| Ok(JobOutput::of(continuation).expect("it ended, with an error or without")), Err) }
    }

    /// Returns whether the next step can check guesses for the text: the step does nothing else for it than to read tokens and to sample.
    pub fn may_guess(&self) -> bool {
        let (n, continuation) = (self.unread.len(), &self.continuation);
        // Before the whole prompt is read, a step may have to return results for the prompt.
        let is_busy = !self.followers.is_empty() || !self.marks.is_empty() || self.has_to_read();
        let is_quick = continuation.spent() <= QUICK * continuation.tokens.len().max(1) as u32;
        self.guessing.is_some() && (1..=MOST_BEHIND).contains(&n) && self.is_live() && !self.is_stuck && !is_busy && is_quick
    }

    /// Returns whether the device can sample the next tokens. A step in which it samples returns neither logits nor hidden states, and does not
    /// handle the end of a prompt. Such a step cannot stop where a slot will be forked.
    pub fn samples_on_device(&self) -> bool {
        let is_shared = !self.followers.is_empty() || !self.marks.is_empty();
        self.unread.len() == 1 && !self.is_stuck && !is_shared && !self.has_to_read() && !self.continuation.needs_host()
    }
}
