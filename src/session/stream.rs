//! One continuation: when it ends, how its tokens are drawn on the host, and what became of it.

#[cfg(test)]
mod tests;

use super::{Logprobs, Slot, caught};
use crate::constrain::{self, Allowed, Constraint};
use crate::error::{Error, Result};
use crate::sample::{Sampler, penalty_weight};
use crate::vocab::{StopTexts, Utf8Stream, Vocab};

/// When to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The largest number of tokens to generate.
    pub max_tokens: usize,
    /// The text ends before any of these.
    pub stop_texts: Vec<String>,
    /// Ids that end the text and are not read; none of them: those of the model's family.
    pub stop_ids: Option<Vec<u32>>,
}

impl Limits {
    /// Stops where the model's family does.
    pub fn new(max_tokens: usize) -> Self {
        Limits { max_tokens, stop_texts: Vec::new(), stop_ids: None }
    }
}

/// Why a text ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finish {
    /// A stop id, or a constraint's end: what a grammar allows is whole.
    Eos,
    /// A stop text.
    Stop,
    /// As many tokens as were asked for.
    Length,
    /// The context is full: fewer tokens than were asked for.
    Context,
    /// The caller or the stop flag said so.
    Interrupted,
}

impl Finish {
    /// Returns the name of the reason, as in JSON.
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

/// Changes logits `[vocab]` before each draw; gets the tokens generated so far too. Draws on the host then.
pub type Processor = Box<dyn FnMut(&[u32], &mut [f32]) + Send>;

/// One continuation: a slot, its sampler, and what came of it.
pub struct Stream {
    /// The slot.
    pub slot: Slot,
    /// The sampler.
    pub sampler: Sampler,
    /// The generated tokens.
    pub tokens: Vec<u32>,
    /// Text so far; empty without a vocabulary.
    pub text: String,
    /// The reason why the text ended. `None` while it continues.
    pub finish: Option<Finish>,
    /// Whether the text, which has ended, is all that its constraint wants. `None` without a constraint. A stop text cuts a text, so
    /// the text before it counts as incomplete.
    pub complete: Option<bool>,
    /// Changes logits before each draw.
    pub processor: Option<Processor>,
    /// What the text has to follow. It comes last before each draw, so that neither a processor nor a guard undoes it; penalties, biases
    /// and bans choose among what it allows. Stop ids are allowed where the text may end, and the text ends where nothing else may
    /// follow. Stop texts end it as they do any text.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Asks for log-probabilities of each token and of so many likeliest ones; the text then draws on the host.
    pub n_logprobs: Option<usize>,
    /// Of the token that was drawn last, where they were asked for.
    pub(super) logprobs: Option<Logprobs>,
    /// Keeps back at its end what is not certain yet, for [`pending`](Self::pending): the bytes of an incomplete character, and text with which
    /// a stop text may begin. Not after a stop id or a stop text.
    pub keeps_end: bool,
    /// Counts every token in penalties. Else tokens of digits and blanks alone, which may repeat, count as seen only. Draws on the host.
    pub counts_every_token: bool,
    /// Tokens beyond `max_tokens` in which a character may be completed.
    pub grace: usize,
    /// Bytes of the text that an event has brought.
    pub(super) n_told_text: usize,
    /// The text is closed because its tokens run out: it ends as a cut text does, though whole.
    is_closing: bool,
    /// Tokens that the constraint was told.
    n_told: usize,
    /// Tokens that the text may have in all: as many as were asked for, and as its slot has room for.
    limit: usize,
    /// Why the text ends at its limit: `Length` or `Context`.
    at_limit: Finish,
    /// Ids that end the text.
    pub(super) stop_ids: Vec<u32>,
    utf8: Utf8Stream,
    stops: StopTexts,
    scratch: Vec<f32>,
}

impl Stream {
    /// Creates a stream that continues a slot.
    pub fn new(slot: Slot, sampler: Sampler, limits: &Limits) -> Stream {
        Stream {
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
            n_told_text: 0,
            is_closing: false,
            n_told: 0,
            limit: limits.max_tokens,
            at_limit: Finish::Length,
            stop_ids: Vec::new(),
            utf8: Utf8Stream::default(),
            stops: StopTexts::new(limits.stop_texts.clone()),
            scratch: Vec::new(),
        }
    }

    /// Begins behind a text. `pending` was kept back when the text before ended ([`pending`](Self::pending)), and `prompt` was read since. Without a
    /// prompt, the text goes on where it was; after one, only a character that the prompt left incomplete is completed.
    pub fn begin_after(&mut self, pending: &[u8], prompt: &[u32], vocab: Option<&Vocab>) {
        if prompt.is_empty() {
            self.push(pending);
            return;
        }
        self.utf8 = Utf8Stream::after_tokens(pending, prompt, vocab);
    }

    /// What [`keeps_end`](Self::keeps_end) kept back. Bytes: a character may be incomplete.
    pub fn pending(&self) -> Vec<u8> {
        [self.stops.held().as_bytes(), self.utf8.pending()].concat()
    }

    /// Takes bytes into the text. Whether a stop text has come.
    fn push(&mut self, bytes: &[u8]) -> bool {
        let (certain, stopped) = self.stops.push(self.utf8.push(bytes));
        self.text.push_str(certain);
        if stopped {
            self.finish = Some(Finish::Stop);
            self.complete = self.constraint.as_ref().map(|_| false);
        }
        stopped
    }

    /// The text that no event has brought yet.
    pub(super) fn new_text(&mut self) -> &str {
        let from = std::mem::replace(&mut self.n_told_text, self.text.len());
        &self.text[from..]
    }

    /// Whether the host has to draw: for what changes or constrains logits, or with a setting that the device's kernel does not know.
    pub(super) fn needs_host(&self) -> bool {
        self.is_watched() || self.counts_every_token || self.n_logprobs.is_some() || !self.sampler.fits_device()
    }

    /// Whether something has to look at the logits on the host before each draw.
    fn is_watched(&self) -> bool {
        self.processor.is_some() || self.constraint.is_some()
    }

    /// The next token, drawn on the host; none where the constraint says that the text is whole.
    pub(super) fn draw(&mut self, logits: &[f32]) -> Result<Option<u32>> {
        let drawn = self.drawn(logits)?;
        self.logprobs = self.n_logprobs.zip(drawn).map(|(n, token)| Logprobs::of(logits, token, n));
        Ok(drawn)
    }

    fn drawn(&mut self, logits: &[f32]) -> Result<Option<u32>> {
        if !self.is_watched() {
            return self.sampler.sample(logits).map(Some);
        }
        // The guard looks at the model's own logits: a processor may make some infinite, and a constraint does.
        let is_guarded = self.sampler.guarded(logits).is_some();
        if is_guarded && self.constraint.is_none() {
            return self.sampler.sample(logits).map(Some);
        }
        logits.clone_into(&mut self.scratch);
        if let Some(change) = self.processor.as_mut().filter(|_| !is_guarded) {
            change(&self.tokens, &mut self.scratch);
        }
        let Some(constraint) = &mut self.constraint else { return self.sampler.draw(&self.scratch).map(Some) };
        let left = self.limit.saturating_sub(self.tokens.len()).max(1);
        let allowed = behind(constraint.as_mut(), &self.tokens, &mut self.n_told)?;
        if allowed.is_complete() {
            return Ok(None);
        }
        allowed.mask(&mut self.scratch, &self.stop_ids);
        let sampler = &mut self.sampler;
        let drawn = constrain::draw(constraint.as_mut(), &mut self.scratch, &self.stop_ids, left, &mut |logits| sampler.draw(logits))
            .map_err(|e| Error { hint: None, ..e }.hint("the grammar allows none of the tokens that are left"))?;
        self.is_closing |= drawn.is_closing;
        Ok(drawn.token)
    }

    /// Goes on with a token that was drawn. Whether it belongs to the text: a stop id does not.
    pub(super) fn take(&mut self, token: u32, vocab: Option<&Vocab>) -> bool {
        if self.stop_ids.contains(&token) {
            self.end(Finish::Eos);
            return false;
        }
        self.tokens.push(token);
        let bytes = vocab.map_or(&[] as &[u8], |v| v.token(token));
        // Without a vocabulary every token counts: nobody can tell which are digits and blanks.
        let counts = self.counts_every_token || vocab.is_none();
        self.sampler.accept(token, if counts { 1.0 } else { penalty_weight(bytes) });
        if !self.push(bytes) && self.tokens.len() >= self.limit && (self.utf8.is_complete() || self.tokens.len() >= self.limit + self.grace)
        {
            let is_whole = self.may_end().is_some_and(|(_, is_whole)| is_whole);
            self.end(if is_whole { Finish::Eos } else { self.at_limit });
        }
        true
    }

    /// Whether the constraint lets the text end here, and whether the text has to end here. `None` without a constraint. Neither, if the
    /// constraint fails.
    fn may_end(&mut self) -> Option<(bool, bool)> {
        let Stream { constraint, tokens, n_told, .. } = self;
        let constraint = constraint.as_mut()?.as_mut();
        let ends = caught(|| behind(constraint, tokens, n_told).map(|allowed| (allowed.may_end, allowed.is_complete())));
        Some(ends.unwrap_or_default())
    }

    /// Sets the limit: `max_tokens` in all, and no more than `room` further ones. Ends a text that is there already.
    pub(super) fn limit(&mut self, max_tokens: usize, room: Option<usize>) {
        let longest = room.map_or(usize::MAX, |room| self.tokens.len().saturating_add(room));
        self.at_limit = if longest < max_tokens { Finish::Context } else { Finish::Length };
        self.limit = max_tokens.min(longest);
        self.grace = if self.at_limit == Finish::Context { 0 } else { self.grace };
        if self.finish.is_none() && self.tokens.len() >= self.limit {
            self.end(self.at_limit);
        }
    }

    /// Tokens that the text may still have.
    pub(super) fn n_left(&self) -> usize {
        self.limit.saturating_sub(self.tokens.len()).max(1)
    }

    /// Ends the text: what was held back is text after all.
    pub(super) fn end(&mut self, finish: Finish) {
        self.finish = Some(if finish == Finish::Eos && self.is_closing { self.at_limit } else { finish });
        self.complete = self.may_end().map(|(may_end, _)| may_end || finish == Finish::Eos);
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

/// What a constraint allows behind these tokens, of which it was told the first `n_told`.
fn behind<'c>(constraint: &'c mut dyn Constraint, tokens: &[u32], n_told: &mut usize) -> Result<Allowed<'c>> {
    for &token in &tokens[*n_told..] {
        constraint.accept(token)?;
        *n_told += 1;
    }
    constraint.allowed()
}
