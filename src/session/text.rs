//! One text that is generated in a slot: its settings, the unread tokens, the text so far, and the conditions that end it. A
//! [`Batcher`](super::Batcher) owns all running texts, for answers, turns of conversations, vectors and scores.

mod draw;
mod guessing;
mod spec;
#[cfg(test)]
mod tests;

pub(super) use draw::{Drawing, Drawn, SLOW};
pub(super) use guessing::Guessing;
pub use spec::{Keeps, KeptSlot, Limits, Processor, TextId, TextSpec};

use super::vectors::Pool;
use super::{Logprobs, Slot};
use crate::constrain::{Allowed, Constraint};
use crate::error::{Error, Result};
use crate::sample::{Sampler, penalty_weight};
use crate::vocab::{StopTexts, Utf8Stream, Vocab};
use std::time::Duration;

/// The reason why a text ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finish {
    /// A stop id ended the text, or the constraint allows no further token.
    Eos,
    /// A stop text ended the text.
    Stop,
    /// The text reached its limit, [`Limits::max_tokens`].
    Length,
    /// The slot's context was full before the text had [`Limits::max_tokens`] tokens.
    Context,
    /// The caller or the stop flag ended the text.
    Interrupted,
}

impl Finish {
    /// Returns the name of the reason in JSON output, such as `length`.
    pub fn name(self) -> &'static str {
        match self {
            Finish::Eos => "eos",
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::Context => "context",
            Finish::Interrupted => "interrupted",
        }
    }
}

/// A report to the caller: a generated token, or text that later tokens can no longer change, or both.
#[derive(Debug)]
pub struct TokenEvent<'a> {
    /// Index of the text in the list of [`Session::continue_many`](super::Session::continue_many), or among the running texts of a batcher.
    pub text: usize,
    /// The token. `None` if the event only reports text that was held back before.
    pub token: Option<u32>,
    /// New text; may be empty.
    pub piece: &'a str,
    /// The number of tokens that the device sampled for this text in one submission, this event's token included. The events of these tokens arrive
    /// together, without a wait for the device in between. Fewer events arrive if the text ends within the submission. The number is 1 if the host
    /// sampled the token, and 0 if the event reports text without a new sampled token.
    pub n_together: usize,
    /// Log-probabilities of the token, if the text requests them.
    pub logprobs: Option<&'a Logprobs>,
}

/// A text gets no new guesses while it must read more than this many accepted tokens again.
const MOST_BEHIND: usize = 8;
/// A text guesses only if its constraint takes at most this much time per token, because the thread that runs the step asks the constraint.
const QUICK: Duration = Duration::from_millis(2);

/// A running text: its spec, its slot, and the tokens and the text so far. A finished text is its own result.
pub struct Text {
    /// The id of the text in its batcher.
    pub id: TextId,
    /// The slot that reads the tokens.
    pub slot: Slot,
    /// The checked settings of the text.
    pub spec: TextSpec,
    /// Token ids of the text so far.
    pub tokens: Vec<u32>,
    /// Text so far; empty without a vocabulary.
    pub text: String,
    /// The reason why the text ended. `None` before its end.
    pub finish: Option<Finish>,
    /// True if the finished text satisfies its constraint; always false if a stop text ended it. `None` without a constraint, and before the text has
    /// ended.
    pub complete: Option<bool>,
    /// The number of guesses that steps have checked.
    pub drafted: usize,
    /// The number of guesses that were right.
    pub accepted: usize,
    /// Log-probabilities of the last sampled token, if requested.
    pub(super) logprobs: Option<Logprobs>,
    /// Token ids that end the text.
    pub(super) stop_ids: Vec<u32>,
    /// The number of bytes of `text` that events have reported.
    n_told_text: usize,
    /// True if the constraint has begun to close the text because few tokens remain. [`finish`](Self::finish) then becomes `at_limit` in place of
    /// `Eos`.
    is_closing: bool,
    /// The number of `tokens` that were passed to the constraint.
    n_told: usize,
    /// Limit on the number of tokens in the text: the smaller of `max_tokens` and the room in the context.
    limit: usize,
    /// The reason that is reported if the text ends at `limit`: `Length` or `Context`.
    at_limit: Finish,
    utf8: Utf8Stream,
    stops: StopTexts,
    scratch: Vec<f32>,
    /// True between `begin_draw` and `end_draw`. During this time, the draw owns the constraint.
    is_lent: bool,
    /// The time that the constraint has taken so far.
    spent: Duration,

    /// Tokens that the slot must read before the next sampling: the rest of the prompt, or the token that was sampled last.
    pub(super) unread: Vec<u32>,
    /// Texts with the same prompt, which wait in empty slots. When this text has read the prompt, each of them continues in a fork of this slot.
    pub(super) followers: Vec<Text>,
    /// Positions at which the slot is forked for [`Batcher::take_kept`](super::Batcher::take_kept), as numbers of prompt tokens that are unread
    /// there, in ascending order. The slot reaches the last entry first.
    pub(super) marks: Vec<usize>,
    /// Log-probabilities of the prompt tokens that were read so far. The first token of the prompt has none.
    pub(super) prompt_logprobs: Vec<Logprobs>,
    /// Collects the hidden states of the prompt. `None` if the spec requests no vector, or the vector is complete.
    pub(super) pool: Option<Pool>,
    /// True if the slot must read its unread tokens one per step, as the device does when it samples: only then is the state bit-identical. Set after
    /// the device could not sample, and for the rest of a text that ended within a submission.
    pub(super) is_stuck: bool,
    /// How the next tokens of the text are guessed. `None` if they are not guessed.
    pub(super) guessing: Option<Box<Guessing>>,
    /// How many of the last tokens of `unread` are guesses. 0 except between the beginning and the end of a step.
    pub(super) n_guesses: usize,
    /// True if `unread` has several accepted tokens, because the guess after them was wrong. The next step reads these tokens again, all at once.
    pub(super) is_behind: bool,
    /// True if the text takes part in no step.
    pub(super) is_paused: bool,
    /// True if the receiver of the text's events has asked to end the text.
    pub(super) is_broken: bool,
    /// True if the text was cancelled during a step. A cancelled text has no result.
    pub(super) is_cancelled: bool,
    pub(super) error: Option<Error>,
    /// The draw of the next token on another thread. Until this draw has ended, the text takes part in no step.
    pub(super) drawing: Option<Drawing>,
}

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Text { id, slot, tokens, text, finish, error, .. } = self;
        f.debug_struct("Text")
            .field("id", id)
            .field("slot", slot)
            .field("tokens", tokens)
            .field("text", text)
            .field("finish", finish)
            .field("error", error)
            .finish()
    }
}

impl Text {
    /// Creates an empty text in an open slot. The slot has not read the text's prompt yet.
    pub fn new(slot: Slot, spec: TextSpec) -> Text {
        Text {
            id: TextId::default(),
            slot,
            tokens: Vec::new(),
            text: String::new(),
            finish: None,
            complete: None,
            drafted: 0,
            accepted: 0,
            logprobs: None,
            stop_ids: Vec::new(),
            n_told_text: 0,
            is_closing: false,
            n_told: 0,
            limit: spec.limits.max_tokens,
            at_limit: Finish::Length,
            utf8: Utf8Stream::default(),
            stops: StopTexts::new(spec.limits.stop_texts.clone()),
            scratch: Vec::new(),
            is_lent: false,
            spent: Duration::ZERO,
            unread: spec.prompt.to_vec(),
            followers: Vec::new(),
            marks: Vec::new(),
            prompt_logprobs: Vec::new(),
            pool: None,
            is_stuck: false,
            guessing: None,
            n_guesses: 0,
            is_behind: false,
            is_paused: false,
            is_broken: false,
            is_cancelled: false,
            error: None,
            drawing: None,
            spec,
        }
    }

    /// Creates an empty text without a prompt. The text continues the sequence that the slot has read.
    pub fn after(slot: Slot, sampler: Sampler, limits: &Limits) -> Text {
        Text::new(slot, TextSpec::new([], sampler, limits.clone()))
    }

    /// Cancels the text during a step, and returns the text so far. `self` keeps only the data that the rest of the step needs.
    pub(super) fn cancel(&mut self) -> Text {
        let spec = TextSpec { keeps: self.spec.keeps.clone(), ..TextSpec::unsampled(Vec::new()) };
        let mut rest = Text { id: self.id, finish: Some(Finish::Interrupted), is_cancelled: true, ..Text::new(self.slot, spec) };
        std::mem::swap(&mut rest.unread, &mut self.unread);
        std::mem::swap(&mut rest.followers, &mut self.followers);
        (rest.n_guesses, rest.is_stuck, rest.is_behind) = (self.n_guesses, self.is_stuck, self.is_behind);
        std::mem::replace(self, rest)
    }

    /// Sets how the text begins after an earlier text of the slot. `pending` is the result of the earlier text's [`pending`](Self::pending).
    /// `prompt` lists the tokens that the slot has read after the earlier text. If `prompt` is empty, the text begins with the pending bytes.
    /// Otherwise, if the prompt ended within a character, the text begins with the remaining bytes of this character.
    pub fn begin_after(&mut self, pending: &[u8], prompt: &[u32], vocab: Option<&Vocab>) {
        if prompt.is_empty() {
            self.push(pending);
            return;
        }
        self.utf8 = Utf8Stream::after_tokens(pending, prompt, vocab);
    }

    /// Returns the uncertain bytes that are not in the text yet, as described at [`Keeps::pending`]. The bytes may end with an incomplete character.
    pub fn pending(&self) -> Vec<u8> {
        if self.finish.is_some() && !self.spec.keeps.pending {
            return Vec::new();
        }
        [self.stops.held().as_bytes(), self.utf8.pending()].concat()
    }

    /// Appends bytes to the text. Returns whether a stop text ended the text.
    fn push(&mut self, bytes: &[u8]) -> bool {
        let bytes = self.utf8.push(bytes);
        if self.tokens.len() < self.spec.limits.min_tokens {
            self.text.push_str(bytes);
            return false;
        }
        let (certain, stopped) = self.stops.push(bytes);
        self.text.push_str(certain);
        if stopped {
            self.finish = Some(Finish::Stop);
            self.complete = self.spec.constraint.as_ref().filter(|constraint| constraint.has_rules()).map(|_| false);
        }
        stopped
    }

    /// Returns the reason why the text ended, or `Interrupted` if it has not ended.
    pub fn reason(&self) -> Finish {
        self.finish.unwrap_or(Finish::Interrupted)
    }

    /// Returns whether the text has a part that no event has reported yet.
    pub(in crate::session) fn has_news(&self) -> bool {
        self.text.len() > self.n_told_text
    }

    /// Returns all known tokens of the sequence, the prompt and the text, if its next tokens are guessed. The first tokens may be missing.
    pub(super) fn known(&self) -> &[u32] {
        self.guessing.as_ref().map_or(&[], |guessing| &guessing.tokens)
    }

    /// Returns the text that no event has reported yet, and counts this text as reported.
    pub(in crate::session) fn new_text(&mut self) -> &str {
        let from = std::mem::replace(&mut self.n_told_text, self.text.len());
        &self.text[from..]
    }

    /// Returns the weight with which a token counts in penalties.
    pub(in crate::session) fn weight(&self, token: u32, vocab: Option<&Vocab>) -> f32 {
        // Without a vocabulary, tokens of digits and blanks cannot be recognised, so every token counts.
        vocab.filter(|_| !self.spec.counts_every_token).map_or(1.0, |vocab| penalty_weight(vocab.token(token)))
    }

    /// Accepts a sampled token. Returns false if the token is a stop id, which does not belong to the text.
    pub(in crate::session) fn take(&mut self, token: u32, vocab: Option<&Vocab>) -> bool {
        if self.stop_ids.contains(&token) {
            self.end(Finish::Eos);
            return false;
        }
        self.tokens.push(token);
        let bytes = vocab.map_or(&[] as &[u8], |v| v.token(token));
        self.spec.sampler.accept(token, self.weight(token, vocab));
        if !self.push(bytes)
            && self.tokens.len() >= self.limit
            && (self.utf8.is_complete() || self.tokens.len() >= self.limit + self.spec.grace)
        {
            let is_whole = self.may_end().is_some_and(|(_, is_whole)| is_whole);
            self.end(if is_whole { Finish::Eos } else { self.at_limit });
        }
        true
    }

    /// Limits the whole text to `max_tokens` tokens, and the rest of the text to the `room` tokens that still fit into the context. Ends the text
    /// if the limit is reached.
    pub(in crate::session) fn limit(&mut self, max_tokens: usize, room: Option<usize>) {
        let longest = room.map_or(usize::MAX, |room| self.tokens.len().saturating_add(room));
        self.at_limit = if longest < max_tokens { Finish::Context } else { Finish::Length };
        self.limit = max_tokens.min(longest);
        self.spec.grace = if self.at_limit == Finish::Context { 0 } else { self.spec.grace };
        if self.finish.is_none() && self.tokens.len() >= self.limit {
            self.end(self.at_limit);
        }
    }

    /// Returns how many more tokens the text may have before its limit. The result is at least 1, because a text that has reached its limit may
    /// continue until its last character is complete (`grace`).
    pub(in crate::session) fn n_left(&self) -> usize {
        self.limit.saturating_sub(self.tokens.len()).max(1)
    }

    /// Ends the text and appends the bytes that were held back. If `keeps.pending` is set and `finish` is not `Eos`, [`pending`](Self::pending)
    /// returns these bytes instead.
    pub(in crate::session) fn end(&mut self, finish: Finish) {
        self.finish = Some(if finish == Finish::Eos && self.is_closing { self.at_limit } else { finish });
        let is_whole = |(may_end, _)| may_end || finish == Finish::Eos;
        // The constraint cannot be asked during a draw, and a slow constraint would delay the other texts. In both cases the text counts as
        // incomplete.
        let is_unknown = self.is_lent || self.spec.constraint.is_some() && self.n_told < self.tokens.len() && self.is_slow();
        let has_rules = self.is_lent || self.spec.constraint.as_ref().is_some_and(|constraint| constraint.has_rules());
        self.complete = if is_unknown { Some(false) } else { self.may_end().map(is_whole) }.filter(|_| has_rules);
        if self.spec.keeps.pending && finish != Finish::Eos {
            return;
        }
        let (certain, stopped) = self.stops.push(&self.utf8.finish());
        self.text.push_str(certain);
        if !stopped {
            self.text.push_str(&self.stops.finish());
        }
    }

    /// Returns the tokens that the next step may read: one token if `is_stuck`, otherwise at most `chunk` prompt tokens up to the next position in
    /// `marks`.
    pub(super) fn next(&self) -> &[u32] {
        let n = if self.is_stuck { 1 } else { self.unread.len() - self.marks.last().unwrap_or(&0) };
        let chunk = if self.n_guesses > 0 || self.is_behind { usize::MAX } else { self.spec.chunk };
        &self.unread[..n.min(chunk).min(self.unread.len())]
    }

    /// Returns whether the text has not ended.
    pub(super) fn is_live(&self) -> bool {
        self.finish.is_none()
    }

    /// Returns whether the slot must read its unread tokens even if the text has ended, for example at a limit of 0 tokens.
    fn has_to_read(&self) -> bool {
        let keeps = &self.spec.keeps;
        let for_result = self.spec.n_prompt_logprobs.is_some() || self.pool.is_some();
        // The caller keeps the state after the prompt even if no token may be sampled.
        let for_prompt = keeps.pending && self.tokens.is_empty();
        let for_state = (keeps.own || keeps.end && keeps.whole) && !self.is_live();
        (for_result || (for_prompt || for_state) && !self.unread.is_empty()) && self.error.is_none() && !self.is_cancelled
    }

    /// Returns whether the text takes part in the next step.
    pub(super) fn is_running(&self) -> bool {
        !self.is_paused && !self.is_drawing() && self.error.is_none() && (self.is_live() || self.has_to_read())
    }

    /// Returns whether another thread draws the next token.
    pub(super) fn is_drawing(&self) -> bool {
        self.drawing.is_some()
    }

    /// Returns whether the text has ended and can be removed.
    pub(super) fn has_ended(&self) -> bool {
        self.error.is_some() || !self.is_live() && !self.has_to_read()
    }

    /// Returns whether a step must return a row (logits and hidden state) after each token of the prompt, not only after the last.
    pub(super) fn needs_all_rows(&self) -> bool {
        self.spec.n_prompt_logprobs.is_some() || self.pool.as_ref().is_some_and(|pool| pool.needs_all)
    }

    /// Returns whether the text decodes: at most one token is unread besides guesses, or the slot reads tokens of the text again.
    pub(super) fn is_decoding(&self) -> bool {
        self.unread.len() - self.n_guesses <= 1 || self.is_stuck || self.is_behind
    }

    /// Returns whether the next step can check guesses for the text. Apart from guesses, the step may only read the text's tokens and sample.
    pub(super) fn may_guess(&self) -> bool {
        let n = self.unread.len();
        // Before the whole prompt is read, a step may have to return results for the prompt.
        let is_busy = !self.followers.is_empty() || !self.marks.is_empty() || self.has_to_read();
        let is_quick = self.spent() <= QUICK * self.tokens.len().max(1) as u32;
        self.guessing.is_some() && (1..=MOST_BEHIND).contains(&n) && self.is_live() && !self.is_stuck && !is_busy && is_quick
    }

    /// Returns whether the device can sample the next tokens. A step in which the device samples returns no logits or hidden states. Such a step does
    /// not handle the end of a prompt, and cannot stop where a slot will be forked.
    pub(super) fn samples_on_device(&self) -> bool {
        let is_shared = !self.followers.is_empty() || !self.marks.is_empty();
        self.unread.len() == 1 && !self.is_stuck && !is_shared && !self.has_to_read() && !self.needs_host()
    }
}

/// Returns the error for an empty prompt in a slot without logits.
pub fn nothing_to_continue() -> Error {
    Error::input("the prompt is empty: nothing to continue").hint("give a text, or at least 1 token id")
}

/// Passes all tokens after the first `n_told` to the constraint, and updates `n_told`.
fn tell(constraint: &mut dyn Constraint, tokens: &[u32], n_told: &mut usize) -> Result<()> {
    for &token in &tokens[*n_told..] {
        constraint.accept(token)?;
        *n_told += 1;
    }
    Ok(())
}

/// Passes all tokens after the first `n_told` to the constraint, and updates `n_told`. Returns the tokens that the constraint allows next.
fn allowed_after<'c>(constraint: &'c mut dyn Constraint, tokens: &[u32], n_told: &mut usize) -> Result<Allowed<'c>> {
    tell(constraint, tokens, n_told)?;
    constraint.allowed()
}
