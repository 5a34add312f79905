//! From logits to text: sampling, stops, streaming, several continuations in one batch.

use super::{Session, Slot};
use crate::error::{Error, Kind, Result};
use crate::sample::{Sampler, Sampling, penalty_weight};
use crate::vocab::{StopTexts, Utf8Stream, Vocab};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// What to read before generating.
#[derive(Debug, Clone)]
pub enum Prompt<'a> {
    Text(&'a str),
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

/// When to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub max_tokens: usize,
    /// The text ends before any of these.
    pub stop_texts: Vec<String>,
    /// Ids that end the text and are not read. Empty: none does.
    pub stop_ids: Vec<u32>,
}

impl Request {
    /// Stops at the end-of-text id 0 of the RWKV vocabularies.
    pub fn new(max_tokens: usize) -> Self {
        Request { max_tokens, stop_texts: Vec::new(), stop_ids: vec![0] }
    }
}

/// Why a text ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// A stop id.
    Eos,
    /// A stop text.
    Stop,
    /// As many tokens as asked for.
    Length,
    /// The caller or the stop flag said so.
    Interrupted,
}

impl Finish {
    pub fn name(self) -> &'static str {
        match self {
            Finish::Eos => "eos",
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::Interrupted => "interrupted",
        }
    }
}

/// Called on every draw's logits `[vocab]` with the tokens generated so far. Runs on the host.
pub type Processor = Box<dyn FnMut(&[u32], &mut [f32]) + Send>;

/// One continuation: a slot, its sampler, and what came of it.
pub struct Stream {
    pub slot: Slot,
    pub sampler: Sampler,
    pub tokens: Vec<u32>,
    /// Text so far; empty without a vocabulary.
    pub text: String,
    pub finish: Option<Finish>,
    /// Changes logits before each draw.
    pub processor: Option<Processor>,
    utf8: Utf8Stream,
    stops: StopTexts,
    scratch: Vec<f32>,
}

impl Stream {
    pub fn new(slot: Slot, sampler: Sampler, request: &Request) -> Stream {
        Stream {
            slot,
            sampler,
            tokens: Vec::new(),
            text: String::new(),
            finish: None,
            processor: None,
            utf8: Utf8Stream::default(),
            stops: StopTexts::new(request.stop_texts.clone()),
            scratch: Vec::new(),
        }
    }

    /// Draws a token; `None` where it ends the text. The piece is text that no stop text can take back.
    fn draw(&mut self, logits: &[f32], vocab: Option<&Vocab>, request: &Request) -> Result<Option<(u32, String)>> {
        let token = match &mut self.processor {
            Some(change) => {
                logits.clone_into(&mut self.scratch);
                change(&self.tokens, &mut self.scratch);
                self.sampler.sample(&self.scratch)?
            }
            None => self.sampler.sample(logits)?,
        };
        if request.stop_ids.contains(&token) {
            self.end(Finish::Eos);
            return Ok(None);
        }
        self.tokens.push(token);
        let bytes = vocab.map_or(&[] as &[u8], |v| v.token(token));
        // Without a vocabulary every token counts: nobody can tell which are digits and blanks.
        self.sampler.accept(token, vocab.map_or(1.0, |_| penalty_weight(bytes)));
        let (piece, stopped) = self.stops.push(&self.utf8.push(bytes));
        self.text.push_str(&piece);
        if stopped {
            self.finish = Some(Finish::Stop);
        } else if self.tokens.len() >= request.max_tokens {
            let piece = piece + &self.end(Finish::Length);
            return Ok(Some((token, piece)));
        }
        Ok(Some((token, piece)))
    }

    /// Ends the text: what was held back is text after all.
    fn end(&mut self, finish: Finish) -> String {
        self.finish = Some(finish);
        let (mut rest, stopped) = self.stops.push(&self.utf8.finish());
        if !stopped {
            rest.push_str(&self.stops.finish());
        }
        self.text.push_str(&rest);
        rest
    }
}

/// One generated token.
#[derive(Debug)]
pub struct Event<'a> {
    /// Index of the stream.
    pub stream: usize,
    /// `None` for text that was held back and is certain now.
    pub token: Option<u32>,
    pub piece: &'a str,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Timings {
    pub prefill_ms: f64,
    pub prefill_tokens: usize,
    pub decode_ms: f64,
    pub decode_tokens: usize,
}

impl Timings {
    pub fn prefill_tokens_per_second(&self) -> f64 {
        rate(self.prefill_tokens, self.prefill_ms)
    }
    pub fn decode_tokens_per_second(&self) -> f64 {
        rate(self.decode_tokens, self.decode_ms)
    }
}

fn rate(n: usize, ms: f64) -> f64 {
    if ms > 0.0 { n as f64 * 1e3 / ms } else { 0.0 }
}

/// What [`Session::generate`] gives.
#[derive(Debug, Clone)]
pub struct Generated {
    pub prompt: Vec<u32>,
    pub tokens: Vec<u32>,
    pub text: String,
    pub finish: Finish,
    pub timings: Timings,
}

impl Session {
    /// Prompt text as ids, as [`Vocab::encode_prompt`] makes them.
    pub fn encode(&self, prompt: &Prompt<'_>) -> Result<Vec<u32>> {
        match prompt {
            Prompt::Tokens(tokens) => Ok(tokens.to_vec()),
            Prompt::Text(text) => match self.model().vocab() {
                Some(vocab) => vocab.encode_prompt(text.as_bytes()),
                None => {
                    let e =
                        Error::input("text needs a vocabulary, and none was found for this model; token ids can be given with --tokens");
                    Err(e.hint(self.model().vocab_hint().unwrap_or("give one with --vocab")))
                }
            },
        }
    }

    /// Reads a prompt into a fresh slot and continues it. `on_piece` gets text as it becomes certain and may break off.
    pub fn generate<'p>(
        &mut self,
        prompt: impl Into<Prompt<'p>>,
        sampling: &Sampling,
        request: &Request,
        on_piece: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Generated> {
        let slot = self.open()?;
        let result = self.generate_in(slot, &prompt.into(), sampling, request, on_piece);
        self.close(slot)?;
        result
    }

    fn generate_in(
        &mut self,
        slot: Slot,
        prompt: &Prompt<'_>,
        sampling: &Sampling,
        request: &Request,
        on_piece: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Generated> {
        sampling.check(self.model().facts().n_vocab)?;
        let prompt = self.encode(prompt)?;
        let started = Instant::now();
        self.prefill(slot, &prompt)?;
        let prefill_ms = started.elapsed().as_secs_f64() * 1e3;
        let mut streams = [Stream::new(slot, Sampler::new(sampling.clone()), request)];
        let mut timings = self.continue_many(&mut streams, request, &mut |event| on_piece(event.piece))?;
        (timings.prefill_ms, timings.prefill_tokens) = (prefill_ms, prompt.len());
        let [stream] = streams;
        let finish = stream.finish.unwrap_or(Finish::Interrupted);
        Ok(Generated { prompt, tokens: stream.tokens, text: stream.text, finish, timings })
    }

    /// Continues every stream from its slot's logits, all in one batch, until each has finished. The last token drawn is
    /// read too, so that a slot always stands after its text; a stop id is not.
    pub fn continue_many(
        &mut self,
        streams: &mut [Stream],
        request: &Request,
        on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Timings> {
        let vocab = self.model().vocab().cloned();
        let started = Instant::now();
        let mut timings = Timings::default();
        if request.max_tokens == 0 {
            streams.iter_mut().for_each(|s| s.finish = Some(Finish::Length));
        }
        let mut broken = false;
        while !broken && streams.iter().any(|s| s.finish.is_none()) {
            let mut next = Vec::new();
            for (i, stream) in streams.iter_mut().enumerate().filter(|(_, s)| s.finish.is_none()) {
                let logits = &self.memory(stream.slot)?.logits;
                if logits.is_empty() {
                    return Err(Error::input("there is nothing to continue: the prompt is empty").hint("give at least one token"));
                }
                let before = stream.text.len();
                let drawn = stream.draw(logits, vocab.as_ref(), request)?;
                let (token, piece) = match &drawn {
                    Some((token, piece)) => (Some(*token), piece.as_str()),
                    None => (None, &stream.text[before..]),
                };
                broken |= on_event(Event { stream: i, token, piece }).is_break();
                if let Some((token, _)) = drawn {
                    next.push((stream.slot, token));
                }
            }
            timings.decode_tokens += next.len();
            match self.decode_many(&next) {
                Ok(()) => {}
                Err(e) if e.kind == Kind::Interrupted => broken = true,
                Err(e) => return Err(e),
            }
            broken |= self.stop.load(Ordering::Relaxed);
        }
        for (i, stream) in streams.iter_mut().enumerate().filter(|(_, s)| s.finish.is_none()) {
            let rest = stream.end(Finish::Interrupted);
            let _ = on_event(Event { stream: i, token: None, piece: &rest });
        }
        timings.decode_ms = started.elapsed().as_secs_f64() * 1e3;
        Ok(timings)
    }
}
