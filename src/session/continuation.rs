//! A continuation is one text that is generated in a slot. A continuation samples tokens on the host, collects the text, and decides when to end the
//! text.

#[cfg(test)]
mod tests;

use super::speculation::Speculation;
use super::{Logprobs, Slot, caught};
use crate::constrain::{self, Allowed, Constraint};
use crate::error::{Error, Result};
use crate::sample::{Sampler, Sampling, penalty_weight};
use crate::vocab::{StopTexts, Utf8Stream, Vocab};
use std::sync::Arc;
use std::time::Duration;
use web_time::Instant;

/// Conditions that end a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Limit on the number of tokens in the text.
    pub max_tokens: usize,
    /// Stop texts: the text ends before the first occurrence of a stop text.
    pub stop_texts: Vec<String>,
    /// Token ids that end the text and are not part of it. `None` means the stop ids of the model's family.
    pub stop_ids: Option<Vec<u32>>,
}

impl Limits {
    /// Creates limits with the stop ids of the model's family and without stop texts.
    pub fn new(max_tokens: usize) -> Self {
        Limits { max_tokens, stop_texts: Vec::new(), stop_ids: None }
    }
}

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
    /// Index of the continuation in the list of [`Session::continue_many`](super::Session::continue_many), or among the running jobs of a batcher.
    pub continuation: usize,
    /// The token. `None` if the event only reports text that was held back before.
    pub token: Option<u32>,
    /// New text; may be empty.
    pub piece: &'a str,
    /// The number of tokens that the device sampled for this continuation in one submission, this event's token included. Their events arrive without
    /// a wait for the device in between. There are fewer events if the text ends within the submission. 1 if the host sampled the token. 0 if the
    /// event reports text without a new sampled token.
    pub n_together: usize,
    /// Log-probabilities of the token, if the continuation requests them.
    pub logprobs: Option<&'a Logprobs>,
}

/// A function that changes logits before each sampling. Its arguments are the text's tokens so far and the logits, `[vocab]`. The host samples
/// for a continuation with a processor.
pub type Processor = Box<dyn FnMut(&[u32], &mut [f32]) + Send>;

/// A text that is generated in a slot, with its sampler and the conditions that end the text.
pub struct Continuation {
    /// The slot that reads the tokens.
    pub slot: Slot,
    /// The sampler.
    pub sampler: Sampler,
    /// Token ids of the text so far.
    pub tokens: Vec<u32>,
    /// Text so far; empty without a vocabulary.
    pub text: String,
    /// The reason why the text ended. `None` before its end.
    pub finish: Option<Finish>,
    /// True if the finished text satisfies its constraint; always false if a stop text ended it. `None` without a constraint, and before the text has
    /// ended.
    pub complete: Option<bool>,
    /// Changes logits before each sampling.
    pub processor: Option<Processor>,
    /// Restricts the text to tokens that the constraint allows. The constraint applies after the processor, which therefore cannot allow a forbidden
    /// token. Penalties, biases and bans apply among the allowed tokens. The sampler's guard ([`Sampling::guard`](crate::sample::Sampling::guard))
    /// chooses no token here. A stop id is allowed where the text may end. The text ends if no further token is allowed, and at stop texts.
    pub constraint: Option<Box<dyn Constraint>>,
    /// The number of most likely tokens whose log-probabilities are reported at each sampled token. The sampled token's own log-probability is
    /// reported, too. `None` reports no log-probabilities. If this field is set, the host samples.
    pub n_logprobs: Option<usize>,
    /// Log-probabilities of the last sampled token, if requested.
    pub(super) logprobs: Option<Logprobs>,
    /// Determines where uncertain bytes go when the text ends: an incomplete character, or the beginning of a stop text. If true,
    /// [`pending`](Self::pending) returns them. If false, they become the end of the text. Has no effect if a stop id, a constraint or a stop text
    /// ended the text.
    pub keeps_end: bool,
    /// True if every token counts in penalties; the host then samples. If false, tokens of digits and blanks are recorded as seen, but with a count
    /// of 0.
    pub counts_every_token: bool,
    /// The number of tokens by which the text may exceed its limit to complete its last character.
    pub grace: usize,
    /// How the next tokens are guessed. Guesses never change the text.
    pub speculation: Speculation,
    /// Tokens that the slot has read before the text, as far as they are known. Only guesses use them.
    pub before: Arc<[u32]>,
    /// The number of guesses that steps have checked.
    pub drafted: usize,
    /// The number of guesses that were right.
    pub accepted: usize,
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
    /// Token ids that end the text.
    pub(super) stop_ids: Vec<u32>,
    utf8: Utf8Stream,
    stops: StopTexts,
    scratch: Vec<f32>,
    /// The namespace of the caller. Slow constraints of one namespace share the time of one thread.
    pub(super) owner: Arc<str>,
    /// True between `begin_draw` and `end_draw`. During this time, the [`Draw`] owns the constraint.
    is_drawing: bool,
    spent: Duration,
}

/// Draws one token under a constraint. Owns everything that drawing needs, so any thread can draw.
pub(super) struct Draw {
    constraint: Box<dyn Constraint>,
    sampler: Sampler,
    /// Logits `[vocab]`, after the processor.
    logits: Vec<f32>,
    /// Tokens of the text that the constraint has not accepted yet.
    untold: Vec<u32>,
    stop_ids: Vec<u32>,
    /// The number of tokens by which the text may still grow.
    left: usize,
    is_closing: bool,
    /// True if the constraint has accepted the token that was drawn.
    has_told_last: bool,
}

impl Draw {
    /// Returns the token, or `None` if the constraint allows no further token.
    pub fn run(&mut self) -> Result<Option<u32>> {
        let Draw { constraint, sampler, logits, untold, stop_ids, left, .. } = self;
        let constraint = constraint.as_mut();
        untold.drain(..).try_for_each(|token| constraint.accept(token))?;
        let allowed = constraint.allowed()?;
        if allowed.is_complete() {
            return Ok(None);
        }
        allowed.mask(logits, stop_ids);
        let drawn = constrain::draw(constraint, logits, stop_ids, *left, &mut |logits| sampler.draw(logits))
            .map_err(|e| Error { hint: None, ..e }.hint("the grammar allows only tokens that are banned or have no probability"))?;
        self.is_closing = drawn.is_closing;
        if let Some(token) = drawn.token.filter(|token| *left == 1 && !stop_ids.contains(token)) {
            // This token reaches the text's limit, so the caller will ask whether the text may end. The answer may take long, so the constraint
            // computes it here and keeps it.
            constraint.accept(token)?;
            self.has_told_last = true;
            let _ = constraint.allowed();
        }
        Ok(drawn.token)
    }
}

impl Continuation {
    /// Creates a continuation with an empty text, without processor, constraint and log-probabilities.
    pub fn new(slot: Slot, sampler: Sampler, limits: &Limits) -> Continuation {
        Continuation {
            slot,
            sampler,
            tokens: Vec::new(),
            text: String::new(),
            finish: None,
            complete: None,
            processor: None,
            constraint: None,
            n_logprobs: None,
            logprobs: None,
            keeps_end: false,
            counts_every_token: false,
            grace: 0,
            speculation: Speculation::off(),
            before: Arc::default(),
            drafted: 0,
            accepted: 0,
            n_told_text: 0,
            is_closing: false,
            n_told: 0,
            limit: limits.max_tokens,
            at_limit: Finish::Length,
            stop_ids: Vec::new(),
            utf8: Utf8Stream::default(),
            stops: StopTexts::new(limits.stop_texts.clone()),
            scratch: Vec::new(),
            owner: Arc::default(),
            is_drawing: false,
            spent: Duration::ZERO,
        }
    }

    /// Creates a continuation whose text has ended: a placeholder for a continuation that is moved out.
    pub(super) fn ended(slot: Slot) -> Continuation {
        let continuation = Continuation::new(slot, Sampler::new(Sampling::greedy(0)), &Limits::new(0));
        Continuation { finish: Some(Finish::Interrupted), ..continuation }
    }

    /// Sets how the text begins after an earlier text of the slot. `pending` is the result of the earlier continuation's [`pending`](Self::pending).
    /// `prompt` lists the tokens that the slot has read after the earlier text. If `prompt` is empty, the text begins with the pending bytes.
    /// Otherwise, if the prompt ended within a character, the text begins with the remaining bytes of this character.
    pub fn begin_after(&mut self, pending: &[u8], prompt: &[u32], vocab: Option<&Vocab>) {
        if prompt.is_empty() {
            self.push(pending);
            return;
        }
        self.utf8 = Utf8Stream::after_tokens(pending, prompt, vocab);
    }

    /// Returns the uncertain bytes that are not in the text yet, as described at [`keeps_end`](Self::keeps_end). The bytes may end with an
    /// incomplete character.
    pub fn pending(&self) -> Vec<u8> {
        [self.stops.held().as_bytes(), self.utf8.pending()].concat()
    }

    /// Appends bytes to the text. Returns whether a stop text ended the text.
    fn push(&mut self, bytes: &[u8]) -> bool {
        let (certain, stopped) = self.stops.push(self.utf8.push(bytes));
        self.text.push_str(certain);
        if stopped {
            self.finish = Some(Finish::Stop);
            self.complete = self.constraint.as_ref().map(|_| false);
        }
        stopped
    }

    /// Returns whether the text has a part that no event has reported yet.
    pub(super) fn has_news(&self) -> bool {
        self.text.len() > self.n_told_text
    }

    /// Returns the text that no event has reported yet, and counts this text as reported.
    pub(super) fn new_text(&mut self) -> &str {
        let from = std::mem::replace(&mut self.n_told_text, self.text.len());
        &self.text[from..]
    }

    /// Returns whether the host must sample: for a processor, a constraint, log-probabilities, `counts_every_token`, or settings of the sampler
    /// that the device's kernel does not support.
    pub(super) fn needs_host(&self) -> bool {
        self.is_watched() || self.counts_every_token || self.n_logprobs.is_some() || !self.sampler.fits_device()
    }

    /// Returns whether a processor or a constraint must see the logits before each sampling.
    fn is_watched(&self) -> bool {
        self.processor.is_some() || self.constraint.is_some()
    }

    /// Samples the next token on the host from logits `[vocab]`. Returns `None` if the constraint allows no further token.
    pub(super) fn draw(&mut self, logits: &[f32]) -> Result<Option<u32>> {
        if let Some(mut draw) = self.begin_draw(logits) {
            let (began, result) = (Instant::now(), draw.run());
            return self.end_draw(draw, result, began.elapsed(), logits);
        }
        let drawn = match &mut self.processor {
            // The guard must check the model's own logits: a processor may make logits infinite.
            Some(change) if self.sampler.guarded(logits).is_none() => {
                logits.clone_into(&mut self.scratch);
                change(&self.tokens, &mut self.scratch);
                self.sampler.draw(&self.scratch)?
            }
            _ => self.sampler.sample(logits)?,
        };
        self.logprobs = self.n_logprobs.map(|n| Logprobs::of(logits, drawn, n));
        Ok(Some(drawn))
    }

    /// Moves everything that drawing the next token under the constraint needs out of the continuation. Returns `None` without a constraint. Until
    /// [`end_draw`](Self::end_draw), only [`end`](Self::end) may be called.
    pub(super) fn begin_draw(&mut self, logits: &[f32]) -> Option<Draw> {
        let constraint = self.constraint.take()?;
        logits.clone_into(&mut self.scratch);
        // The guard must check the model's own logits: a processor may make logits infinite, and a constraint always does.
        let change = self.processor.as_mut().filter(|_| self.sampler.guarded(logits).is_none());
        change.into_iter().for_each(|change| change(&self.tokens, &mut self.scratch));
        self.is_drawing = true;
        Some(Draw {
            constraint,
            sampler: self.sampler.clone(),
            logits: std::mem::take(&mut self.scratch),
            untold: self.tokens[self.n_told..].to_vec(),
            stop_ids: self.stop_ids.clone(),
            left: self.n_left(),
            is_closing: false,
            has_told_last: false,
        })
    }

    /// Puts back everything that [`begin_draw`](Self::begin_draw) moved out, and returns the token. `took` is the time of the draw.
    pub(super) fn end_draw(&mut self, draw: Draw, result: Result<Option<u32>>, took: Duration, logits: &[f32]) -> Result<Option<u32>> {
        (self.constraint, self.sampler, self.scratch) = (Some(draw.constraint), draw.sampler, draw.logits);
        self.n_told = self.tokens.len() + usize::from(draw.has_told_last);
        self.is_closing |= draw.is_closing;
        self.is_drawing = false;
        self.spent += took;
        let token = result?;
        self.logprobs = self.n_logprobs.zip(token).map(|(n, token)| Logprobs::of(logits, token, n));
        Ok(token)
    }

    /// Returns the time that the constraint has taken so far.
    pub(super) fn spent(&self) -> Duration {
        self.spent
    }

    /// Returns the weight with which a token counts in penalties.
    pub(super) fn weight(&self, token: u32, vocab: Option<&Vocab>) -> f32 {
        // Without a vocabulary, tokens of digits and blanks cannot be recognised, so every token counts.
        vocab.filter(|_| !self.counts_every_token).map_or(1.0, |vocab| penalty_weight(vocab.token(token)))
    }

    /// Accepts a sampled token. Returns false if the token is a stop id, which does not belong to the text.
    pub(super) fn take(&mut self, token: u32, vocab: Option<&Vocab>) -> bool {
        if self.stop_ids.contains(&token) {
            self.end(Finish::Eos);
            return false;
        }
        self.tokens.push(token);
        let bytes = vocab.map_or(&[] as &[u8], |v| v.token(token));
        self.sampler.accept(token, self.weight(token, vocab));
        if !self.push(bytes) && self.tokens.len() >= self.limit && (self.utf8.is_complete() || self.tokens.len() >= self.limit + self.grace)
        {
            let is_whole = self.may_end().is_some_and(|(_, is_whole)| is_whole);
            self.end(if is_whole { Finish::Eos } else { self.at_limit });
        }
        true
    }

    /// Returns whether the constraint takes more than 20 ms per token.
    pub(super) fn is_slow(&self) -> bool {
        self.spent > SLOW * self.tokens.len().max(1) as u32
    }

    /// Returns the bytes that the constraint requires next. Returns no bytes without a constraint, or if there is a choice.
    pub(super) fn forced(&mut self) -> Vec<u8> {
        let Continuation { constraint, tokens, n_told, spent, .. } = self;
        let Some(constraint) = constraint else { return Vec::new() };
        let began = Instant::now();
        // An error is reported when the next token is drawn.
        let forced = caught(|| tell(constraint.as_mut(), tokens, n_told).map(|()| constraint.forced()));
        *spent += began.elapsed();
        forced.unwrap_or_default()
    }

    /// Returns whether the constraint allows the text to end here, and whether it requires the end. Returns `None` without a constraint. Both values
    /// are false if the constraint returns an error.
    fn may_end(&mut self) -> Option<(bool, bool)> {
        let Continuation { constraint, tokens, n_told, .. } = self;
        let constraint = constraint.as_mut()?.as_mut();
        let ends = caught(|| allowed_after(constraint, tokens, n_told).map(|allowed| (allowed.may_end, allowed.is_complete())));
        Some(ends.unwrap_or_default())
    }

    /// Limits the whole text to `max_tokens` tokens, and the rest of the text to the `room` tokens that still fit into the context. Ends the text
    /// if the limit is reached.
    pub(super) fn limit(&mut self, max_tokens: usize, room: Option<usize>) {
        let longest = room.map_or(usize::MAX, |room| self.tokens.len().saturating_add(room));
        self.at_limit = if longest < max_tokens { Finish::Context } else { Finish::Length };
        self.limit = max_tokens.min(longest);
        self.grace = if self.at_limit == Finish::Context { 0 } else { self.grace };
        if self.finish.is_none() && self.tokens.len() >= self.limit {
            self.end(self.at_limit);
        }
    }

    /// Returns how many more tokens the text may have before its limit. The result is at least 1, because a text that has reached its limit may
    /// continue until its last character is complete (`grace`).
    pub(super) fn n_left(&self) -> usize {
        self.limit.saturating_sub(self.tokens.len()).max(1)
    }

    /// Ends the text and appends the bytes that were held back. If `keeps_end` is set and `finish` is not `Eos`, [`pending`](Self::pending) returns
    /// these bytes instead.
    pub(super) fn end(&mut self, finish: Finish) {
        self.finish = Some(if finish == Finish::Eos && self.is_closing { self.at_limit } else { finish });
        let is_whole = |(may_end, _)| may_end || finish == Finish::Eos;
        // The constraint cannot be asked during a draw, and a slow constraint would delay the other texts. In both cases the text counts as
        // incomplete.
        let is_unknown = self.is_drawing || self.constraint.is_some() && self.n_told < self.tokens.len() && self.is_slow();
        self.complete = if is_unknown { Some(false) } else { self.may_end().map(is_whole) };
        if self.keeps_end && finish != Finish::Eos {
            return;
        }
        let (certain, stopped) = self.stops.push(&self.utf8.finish());
        self.text.push_str(certain);
        if !stopped {
            self.text.push_str(&self.stops.finish());
        }
    }
}

/// The mean time of a draw above which a constraint counts as slow.
pub(super) const SLOW: Duration = Duration::from_millis(20);

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
