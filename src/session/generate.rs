//! Generates text: samples tokens, ends texts, passes new text to the caller, and continues several texts in one batch.

use super::batcher::Batcher;
use super::text::{Finish, Limits, Text, TextId, TextSpec, TokenEvent, nothing_to_continue};
use super::{Session, Slot};
use crate::error::Result;
use crate::sample::{Sampler, Sampling};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use web_time::Instant;

/// A prompt, as text or as token ids.
#[derive(Debug, Clone)]
pub enum Prompt<'a> {
    /// A text.
    Text(&'a str),
    /// Token ids.
    Tokens(&'a [u32]),
}

impl<'a> From<&'a str> for Prompt<'a> {
    fn from(text: &'a str) -> Self {
        Prompt::Text(text)
    }
}
impl<'a> From<&'a [u32]> for Prompt<'a> {
    fn from(tokens: &'a [u32]) -> Self {
        Prompt::Tokens(tokens)
    }
}

/// Times and numbers of tokens. [`Session::continue_many`] returns the numbers of all its texts together, and the time of the whole call.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Timings {
    /// The time in the engine's queue, in milliseconds: from the end of `submit` until the request receives its slots. 0 without an engine.
    pub queue_ms: f64,
    /// The time of prefill in milliseconds. With an engine, it ends when the first token is sampled.
    pub prefill_ms: f64,
    /// The number of prefilled tokens.
    pub prefill_tokens: usize,
    /// The time of decode in milliseconds.
    pub decode_ms: f64,
    /// The number of decoded tokens.
    pub decode_tokens: usize,
    /// The number of guessed tokens that decode steps have checked ([`Speculation`](super::Speculation)).
    pub drafted_tokens: usize,
    /// The number of guessed tokens that were right. The text has these tokens.
    pub accepted_tokens: usize,
}

impl Timings {
    /// Returns the prefill speed, or 0 if nothing was measured.
    pub fn prefill_tokens_per_second(&self) -> f64 {
        rate(self.prefill_tokens, self.prefill_ms)
    }
    /// Returns how many guessed tokens steps have checked, and how many of them were right. `None` if there were no guesses.
    pub fn guesses(&self) -> Option<(usize, usize)> {
        (self.drafted_tokens > 0).then_some((self.drafted_tokens, self.accepted_tokens))
    }
    /// Returns the decode speed, or 0 if nothing was measured.
    pub fn decode_tokens_per_second(&self) -> f64 {
        rate(self.decode_tokens, self.decode_ms)
    }
}

fn rate(n: usize, ms: f64) -> f64 {
    if ms > 0.0 { n as f64 * 1e3 / ms } else { 0.0 }
}

/// The result of [`Session::generate`].
#[derive(Debug, Clone)]
pub struct Generated {
    /// Token ids of the prompt.
    pub prompt: Vec<u32>,
    /// Token ids of the text.
    pub tokens: Vec<u32>,
    /// The text; empty if the model has no vocabulary.
    pub text: String,
    /// The reason why the text ended.
    pub finish: Finish,
    /// The times and the numbers of tokens of prefill and decode.
    pub timings: Timings,
}

impl Session {
    /// Returns the token ids of a prompt. Encodes text with [`Vocab::encode_prompt`](crate::vocab::Vocab::encode_prompt); returns [`Prompt::Tokens`]
    /// unchanged.
    ///
    /// # Errors
    /// `Input` if text cannot be encoded, or the model has no vocabulary.
    pub fn encode(&self, prompt: &Prompt<'_>) -> Result<Vec<u32>> {
        self.encode_after(0, prompt)
    }

    /// Returns the token ids of a prompt for a slot, as [`encode`](Self::encode) does. If the slot has read tokens, leaves out the special tokens
    /// that begin every text.
    ///
    /// # Errors
    /// The errors of [`encode`](Self::encode); `Input` if the slot was closed, or belongs to another session.
    pub fn encode_for(&self, slot: Slot, prompt: &Prompt<'_>) -> Result<Vec<u32>> {
        self.encode_after(self.n_tokens(slot)?, prompt)
    }

    fn encode_after(&self, n_before: usize, prompt: &Prompt<'_>) -> Result<Vec<u32>> {
        match prompt {
            Prompt::Tokens(tokens) => Ok(tokens.to_vec()),
            Prompt::Text(text) => self.model().encode_after(n_before, text),
        }
    }

    /// Prefills a prompt in a new slot and generates a text. Calls `on_piece` with each piece of text as soon as later tokens can no longer
    /// change this piece. If `on_piece` returns `Break`, the text ends.
    ///
    /// # Errors
    /// `Usage` if a sampler setting is wrong; `Input` if all slots are in use, or the prompt is empty or exceeds the context; `Model` if the model
    /// does not predict tokens, such as a classifier; `Device` if the device failed.
    pub fn generate<'p>(
        &mut self,
        prompt: impl Into<Prompt<'p>>,
        sampling: &Sampling,
        limits: &Limits,
        on_piece: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Generated> {
        let slot = self.open()?;
        let result = self.generate_in(slot, &prompt.into(), sampling, limits, on_piece);
        self.close(slot)?;
        result
    }

    fn generate_in(
        &mut self,
        slot: Slot,
        prompt: &Prompt<'_>,
        sampling: &Sampling,
        limits: &Limits,
        on_piece: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Generated> {
        sampling.check(self.model().facts().n_vocab)?;
        let prompt = self.encode(prompt)?;
        let started = Instant::now();
        self.prefill(slot, &prompt)?;
        let prefill_ms = started.elapsed().as_secs_f64() * 1e3;
        let mut sampler = Sampler::new(sampling.clone());
        sampler.read(&prompt);
        let mut texts = [Text::after(slot, sampler, limits)];
        texts[0].begin_after(&[], &prompt, self.model().vocab());
        let mut timings = self.continue_many(&mut texts, &mut |event| on_piece(event.piece))?;
        (timings.prefill_ms, timings.prefill_tokens) = (prefill_ms, prompt.len());
        let [text] = texts;
        let finish = text.reason();
        Ok(Generated { prompt, tokens: text.tokens, text: text.text, finish, timings })
    }

    /// Sets a text's stop ids, its length limit, and the ids that end a repetition for the DRY penalty. The limit leaves room in the context for the
    /// text's unread tokens.
    pub(super) fn bound(&mut self, text: &mut Text) -> Result<()> {
        let room = self.n_left(text.slot)?.map(|n| n.saturating_sub(text.unread.len()));
        let Limits { max_tokens, stop_ids, .. } = &text.spec.limits;
        text.stop_ids = stop_ids.clone().unwrap_or_else(|| self.model().facts().stop_ids.clone());
        text.limit(*max_tokens, room);
        self.tell_breakers(&mut text.spec.sampler)
    }

    /// Continues all texts in one batch, each from its slot's logits, until all have finished. Calls `on_event` for each token and each new
    /// piece of text. Afterwards, each slot has read its whole text, including the last token, but not the stop id. Returns how long decoding took,
    /// and how many tokens were decoded.
    ///
    /// A GPU also samples, several tokens ahead of the caller. A text needs the host if it has a processor, a constraint, log-probabilities, or
    /// settings that the kernel does not support ([`Sampler::fits_device`]). Until all such texts have ended, the host samples for all texts. Host
    /// and GPU sample the same ids.
    ///
    /// With several texts, the results are bit-identical in every run only if the model was opened as `deterministic`. Otherwise results may differ
    /// in rounding between runs. The kernels depend on how many texts still run, and a finished text leaves the batch at a moment that depends on
    /// measured times.
    ///
    /// # Errors
    /// `Input` if a slot has no logits, was closed, or belongs to another session; `Usage` if a sampler setting is wrong; `Model` if the model does
    /// not predict tokens, such as a classifier; `Device` if the device failed; the errors of constraints.
    pub fn continue_many(&mut self, texts: &mut [Text], on_event: &mut dyn FnMut(TokenEvent<'_>) -> ControlFlow<()>) -> Result<Timings> {
        let started = Instant::now();
        let (stop, n_taken, is_broken) = (self.stop.clone(), Cell::new(0), Cell::new(false));
        let mut hear = |id: TextId, event: TokenEvent<'_>| {
            n_taken.set(n_taken.get() + usize::from(event.token.is_some()));
            let said = on_event(TokenEvent { text: id.index(), ..event });
            is_broken.set(is_broken.get() || said.is_break());
            said
        };
        self.model.check_speaks()?;
        let (draft, n_texts) = (self.draft.clone(), texts.len());
        let mut batcher = Batcher::new(&mut *self);
        if let Some(draft) = draft {
            batcher.set_draft(&draft, n_texts)?;
        }
        for text in texts.iter_mut() {
            let session = batcher.session_mut();
            session.bound(text)?;
            if text.finish.is_none() && session.logits(text.slot)?.is_empty() {
                return Err(nothing_to_continue());
            }
        }
        for text in texts.iter_mut() {
            let ended = Text::new(text.slot, TextSpec::unsampled(Vec::new()));
            batcher.resume(std::mem::replace(text, ended), &mut hear);
        }
        let mut failed = None;
        while failed.is_none() && batcher.n_running() > 0 {
            if is_broken.get() {
                batcher.interrupt(|_| true, &mut hear);
            }
            match batcher.begin_step().and_then(|()| batcher.finish_texts(&mut hear)) {
                Ok(ended) => {
                    for mut text in ended {
                        failed = failed.or(text.error.take());
                        let index = text.id.index();
                        texts[index] = text;
                    }
                }
                Err(e) => failed = Some(e),
            }
            is_broken.set(is_broken.get() || stop.load(Ordering::Relaxed));
        }
        for text in batcher.into_texts() {
            let index = text.id.index();
            texts[index] = text;
        }
        match failed {
            Some(e) => Err(e),
            None => Ok(Timings {
                decode_ms: started.elapsed().as_secs_f64() * 1e3,
                decode_tokens: n_taken.get(),
                drafted_tokens: texts.iter().map(|text| text.drafted).sum(),
                accepted_tokens: texts.iter().map(|text| text.accepted).sum(),
                ..Timings::default()
            }),
        }
    }
}
