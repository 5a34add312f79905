//! From logits to text: sampling, stops, streaming, several continuations in one batch.

use super::{Finish, Limits, Logprobs, Session, Slot, Stream};
use crate::error::{Error, Result};
use crate::sample::{Sampler, Sampling};
use crate::vocab::Vocab;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use web_time::Instant;

/// What to read before generating.
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

/// One generated token.
#[derive(Debug)]
pub struct Event<'a> {
    /// Index of the stream.
    pub stream: usize,
    /// `None` for text that was held back and is certain now.
    pub token: Option<u32>,
    /// The text that is now certain. It may be empty.
    pub piece: &'a str,
    /// Tokens of this stream that were drawn together, this one among them: they come at once, fewer where the text ends.
    pub n_together: usize,
    /// Of the token, where the stream asks for them.
    pub logprobs: Option<&'a Logprobs>,
}

/// What is called with every event.
type OnEvent<'a> = dyn FnMut(Event<'_>) -> ControlFlow<()> + 'a;

/// The streams of one call, and whoever hears of them.
pub(super) struct Batch<'a> {
    pub streams: &'a mut [Stream],
    vocab: Option<&'a Vocab>,
    on_event: &'a mut OnEvent<'a>,
    /// The caller or the stop flag ended it.
    pub broken: bool,
    n_taken: usize,
}

impl<'a> Batch<'a> {
    pub fn new(streams: &'a mut [Stream], vocab: Option<&'a Vocab>, on_event: &'a mut OnEvent<'a>) -> Batch<'a> {
        Batch { streams, vocab, on_event, broken: false, n_taken: 0 }
    }

    pub fn is_live(&self, stream: usize) -> bool {
        self.streams[stream].finish.is_none()
    }

    /// Whether a stream that goes on has to be drawn on the host. They step together, so then all are.
    fn needs_host(&self) -> bool {
        self.streams.iter().any(|s| s.finish.is_none() && s.needs_host())
    }

    /// A token for a stream, one of so many that came at once. Whether it belongs to the text.
    pub fn take(&mut self, i: usize, token: u32, n_together: usize) -> bool {
        let stream = &mut self.streams[i];
        let is_text = stream.take(token, self.vocab);
        self.n_taken += usize::from(is_text);
        let logprobs = if is_text { stream.logprobs.take() } else { None };
        let event = Event { stream: i, token: is_text.then_some(token), piece: stream.new_text(), n_together, logprobs: logprobs.as_ref() };
        self.broken |= (self.on_event)(event).is_break();
        is_text
    }

    /// Ends a stream without a token.
    pub fn end(&mut self, i: usize, finish: Finish) {
        self.streams[i].end(finish);
        self.tell(i);
    }

    /// Brings text of a stream that came without a token.
    fn tell(&mut self, i: usize) {
        let piece = self.streams[i].new_text();
        self.broken |= (self.on_event)(Event { stream: i, token: None, piece, n_together: 0, logprobs: None }).is_break();
    }

    /// Ends what has not ended.
    fn interrupt(&mut self) {
        for i in 0..self.streams.len() {
            if self.is_live(i) {
                self.end(i, Finish::Interrupted);
            }
        }
    }
}

/// Numbers of tokens and the time that they took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Timings {
    /// The time of prefill in milliseconds.
    pub prefill_ms: f64,
    /// The number of prefilled tokens.
    pub prefill_tokens: usize,
    /// The time of decode in milliseconds.
    pub decode_ms: f64,
    /// The number of decoded tokens.
    pub decode_tokens: usize,
}

impl Timings {
    /// Returns the speed of prefill in tokens/s, 0 if no time was measured.
    pub fn prefill_tokens_per_second(&self) -> f64 {
        rate(self.prefill_tokens, self.prefill_ms)
    }
    /// Returns the speed of decode in tokens/s, 0 if no time was measured.
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
    /// The tokens of the prompt.
    pub prompt: Vec<u32>,
    /// The generated tokens.
    pub tokens: Vec<u32>,
    /// The generated text.
    pub text: String,
    /// The reason why the text ended.
    pub finish: Finish,
    /// The time that prefill and decode took.
    pub timings: Timings,
}

impl Session {
    /// Prompt text as ids, as [`Vocab::encode_prompt`] makes them.
    pub fn encode(&self, prompt: &Prompt<'_>) -> Result<Vec<u32>> {
        self.encode_by(prompt, Vocab::encode_prompt)
    }

    /// Text that a slot is to read as ids: as [`encode`](Self::encode) does at its beginning, later without what stands before every text.
    pub fn encode_for(&self, slot: Slot, prompt: &Prompt<'_>) -> Result<Vec<u32>> {
        match self.n_tokens(slot)? {
            0 => self.encode(prompt),
            _ => self.encode_by(prompt, Vocab::encode_further),
        }
    }

    fn encode_by(&self, prompt: &Prompt<'_>, encode: impl Fn(&Vocab, &[u8]) -> Result<Vec<u32>>) -> Result<Vec<u32>> {
        match prompt {
            Prompt::Tokens(tokens) => Ok(tokens.to_vec()),
            Prompt::Text(text) => match self.model().vocab() {
                Some(vocab) => encode(vocab, text.as_bytes()),
                None => {
                    let e = Error::input("text needs a vocabulary, and none was found for this model; give token ids in its place");
                    Err(e.hint(self.model().vocab_hint().unwrap_or("give one with `vocab`")))
                }
            },
        }
    }

    /// Reads a prompt into a fresh slot and continues it. `on_piece` gets text as it becomes certain and may break off.
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

    /// Whether the model tells tokens.
    pub(crate) fn check_speaks(&self) -> Result<()> {
        match self.model().facts().labels {
            None => Ok(()),
            Some(_) => Err(Error::model("this model tells classes, no tokens").hint("use `wingbeat classify`, or Session::classify")),
        }
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
        let mut streams = [Stream::new(slot, sampler, limits)];
        streams[0].begin_after(&[], &prompt, self.model().vocab());
        let mut timings = self.continue_many(&mut streams, limits, &mut |event| on_piece(event.piece))?;
        (timings.prefill_ms, timings.prefill_tokens) = (prefill_ms, prompt.len());
        let [stream] = streams;
        let finish = stream.finish.unwrap_or(Finish::Interrupted);
        Ok(Generated { prompt, tokens: stream.tokens, text: stream.text, finish, timings })
    }

    /// Says where a stream ends whose slot has so many tokens to read before it is drawn for.
    pub(super) fn bound(&mut self, stream: &mut Stream, limits: &Limits, n_unread: usize) -> Result<()> {
        let room = self.n_left(stream.slot)?.map(|n| n.saturating_sub(n_unread));
        stream.stop_ids = limits.stop_ids.clone().unwrap_or_else(|| self.model().facts().stop_ids.clone());
        stream.limit(limits.max_tokens, room);
        self.tell_breakers(&mut stream.sampler)
    }

    /// Continues every stream from its slot's logits, all in one batch, until each has finished. The last token drawn is
    /// read too, so that a slot always stands after its text; a stop id is not.
    ///
    /// Where the model runs on a GPU, that draws too, several tokens ahead of the caller. A stream with a processor or a constraint, or whose
    /// settings the kernel does not know ([`Sampler::fits_device`]), draws on the host, and its neighbours with it until it has ended; the
    /// ids are the same. Several streams repeat to the bit only under `deterministic`: else the kernels that the others
    /// run on change when one ends, and when that is depends on the clock.
    pub fn continue_many<'a>(&mut self, streams: &'a mut [Stream], limits: &'a Limits, on_event: &'a mut OnEvent<'a>) -> Result<Timings> {
        self.check_speaks()?;
        let vocab = self.model().vocab().cloned();
        let started = Instant::now();
        for stream in streams.iter_mut() {
            self.bound(stream, limits, 0)?;
        }
        let mut batch = Batch::new(streams, vocab.as_ref(), on_event);
        for i in 0..batch.streams.len() {
            if batch.streams[i].text.len() > batch.streams[i].n_told_text {
                batch.tell(i);
            }
        }
        let mut drawn = Vec::new();
        let mut next = Vec::new();
        while !batch.broken && batch.streams.iter().any(|s| s.finish.is_none()) {
            drawn.clear();
            for i in 0..batch.streams.len() {
                if batch.is_live(i) {
                    let stream = &mut batch.streams[i];
                    let logits = &self.contents(stream.slot)?.logits;
                    if logits.is_empty() {
                        return Err(nothing_to_continue());
                    }
                    match stream.draw(logits)? {
                        Some(token) if batch.take(i, token, 1) => drawn.push((i, token)),
                        Some(_) => {}
                        None => batch.end(i, Finish::Eos),
                    }
                }
            }
            if !batch.needs_host() {
                self.continue_ahead(&mut batch, &mut drawn)?;
            }
            next.clear();
            next.extend(drawn.iter().map(|&(i, token)| (batch.streams[i].slot, token)));
            self.decode_many(&next)?;
            batch.broken |= self.stop.load(Ordering::Relaxed);
        }
        batch.interrupt();
        let decode_ms = started.elapsed().as_secs_f64() * 1e3;
        Ok(Timings { decode_ms, decode_tokens: batch.n_taken, ..Timings::default() })
    }
}

/// Neither a prompt nor a slot that has read one.
pub(crate) fn nothing_to_continue() -> Error {
    Error::input("there is nothing to continue: the prompt is empty").hint("give at least one token")
}
