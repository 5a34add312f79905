//! The decode loop, for one text or many: continuous batching. When a text finishes, its slot goes to the next text. The prompt of that text is
//! prefilled while the other texts decode.
//!
//! A batcher has no queue: the caller decides which text to add next.

mod ahead;
mod guess;
mod step;
mod swap;
mod threads;

use super::Session;
use super::logprobs::Logprobs;
use super::prefill_bound::PrefillBound;
use super::slots::Slot;
use super::text::{Finish, Guessing, KeptSlot, Text, TextId, TextSpec, TokenEvent, nothing_to_continue};
use super::vectors::Pool;
use crate::error::{Error, Result};
use ahead::Ahead;
use std::borrow::BorrowMut;
use std::sync::Arc;
use step::{EventSink, Hear, OnEvent, PendingStep};

/// A text that ended.
#[derive(Debug)]
pub struct Done {
    /// The text's id.
    pub id: TextId,
    /// The text, or the error that ended it.
    pub output: Result<Text>,
}

/// Continuous batching over the slots of a session: when a text is finished, its slot takes the next text while the other texts continue.
///
/// ```
/// # #[cfg(feature = "embedded-model")]
/// # fn main() -> wingbeat::error::Result<()> {
/// use wingbeat::low_level::sample::{Sampler, Sampling};
/// use wingbeat::low_level::session::{Batcher, Limits, Model, ModelSource, Options, Prompt, Session, TextSpec};
///
/// let mut options = Options::default();
/// options.device = "cpu".parse()?; // default: the first GPU, or the CPU without one
/// let model = Model::load(&ModelSource::Embedded, &options, &mut |_done, _total| ())?;
/// let mut batcher = Batcher::new(Session::new(&model, 2)?);
/// let mut waiting = vec!["Once upon a time", "The fox", "The mouse"].into_iter();
/// let mut texts = Vec::new();
/// while texts.len() < 3 {
///     while batcher.n_free() > 0 && let Some(text) = waiting.next() {
///         let prompt = batcher.session().encode(&Prompt::Text(text))?;
///         batcher.add(TextSpec::new(prompt, Sampler::new(Sampling::greedy(0)), Limits::new(8)))?;
///     }
///     for done in batcher.step(&mut |_job, _event| ())? {
///         texts.push(done.output?.text);
///     }
/// }
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "embedded-model"))]
/// # fn main() {}
/// ```
///
/// If the model was opened as `deterministic`, a text depends only on its prompt, its sampler and the model. It is bit-identical in any slot, in any
/// batch and at any time. Otherwise the other texts of the batch may change how logits are rounded.
///
/// A batcher owns its session, or borrows it: `Batcher::new(&mut session)`.
pub struct Batcher<S = Session> {
    session: S,
    /// The running texts, without the texts that wait in [`Text::followers`].
    texts: Vec<Text>,
    /// Indices of the texts that take part in the current step.
    order: Vec<usize>,
    ahead: Ahead,
    /// True if the device has up-to-date copies of the samplers of all running texts.
    has_samplers: bool,
    /// The number of texts that were added so far. This number is also the id of the next text.
    n_added: u64,
    /// Bound on prefill while other texts decode. `None` means no bound.
    prefill: Option<PrefillBound>,
    /// Slots that [`Batcher::take_kept`] will return.
    kept: Vec<KeptSlot>,
    /// Results that [`Batcher::take_prompt_logprobs`] will return.
    prompt_logprobs: Vec<(TextId, Vec<Logprobs>)>,
    /// Results that [`Batcher::take_pooled`] will return.
    pooled: Vec<(TextId, Vec<f32>)>,
    /// Threads that draw tokens under constraints. If `None`, the thread that runs the step draws them.
    threads: Option<threads::ConstraintThreads>,
    /// The step that was begun and not finished yet. Until this step is finished, no text is removed.
    pending_step: Option<PendingStep>,
    guesses: guess::Guesses,
    /// The texts without slots, in the order in which they gave up their slots.
    swapped: Vec<swap::Swapped>,
}

impl<S: BorrowMut<Session>> Batcher<S> {
    /// Creates a batcher over the free slots of a session. A model that does not predict tokens, such as an embedding model, runs only texts with a
    /// limit of 0 tokens.
    pub fn new(session: S) -> Batcher<S> {
        Batcher {
            session,
            texts: Vec::new(),
            order: Vec::new(),
            ahead: Ahead::default(),
            has_samplers: false,
            n_added: 0,
            prefill: None,
            kept: Vec::new(),
            prompt_logprobs: Vec::new(),
            pooled: Vec::new(),
            threads: None,
            pending_step: None,
            guesses: guess::Guesses::default(),
            swapped: Vec::new(),
        }
    }

    /// Returns the session.
    pub fn session(&self) -> &Session {
        self.session.borrow()
    }

    /// Returns the session for work between two steps, such as opening slots and loading states. During a step, slots may be opened, forked and
    /// closed. Any other device work during a step makes the step end with an error.
    pub fn session_mut(&mut self) -> &mut Session {
        // The caller may replace the samplers on the device, so they are sent again before the device samples.
        self.has_samplers = false;
        self.session.borrow_mut()
    }

    /// Returns the number of texts that can be added now.
    pub fn n_free(&self) -> usize {
        self.session().n_free()
    }

    /// Returns the number of running texts, including texts that wait for the shared prefill of their [`add_alike`](Self::add_alike) call. Does not
    /// count cancelled texts, or texts that were swapped out.
    pub fn n_running(&self) -> usize {
        let waiting: usize = self.texts.iter().map(|text| text.followers.len()).sum();
        self.texts.iter().filter(|text| !text.is_cancelled).count() + waiting
    }

    /// Adds a text to a free slot. The next steps prefill its prompt, after the prompts of earlier texts.
    ///
    /// # Errors
    /// `Input` if all slots are in use, or if tokens are out of range or exceed the context; `Input` if the prompt is empty and the slot `from` has
    /// no logits; `Usage` if a setting of the sampler is wrong; `Model` if tokens may be sampled and the model predicts none. An error leaves the
    /// batcher unchanged.
    pub fn add(&mut self, spec: TextSpec) -> Result<TextId> {
        let session: &mut Session = self.session.borrow_mut();
        if spec.limits.max_tokens > 0 {
            session.model().check_speaks()?;
        }
        spec.sampler.settings().check(session.model().facts().n_vocab)?;
        let slot = match spec.from {
            Some(from) => session.fork(from)?,
            None => session.open()?,
        };
        self.begin(slot, spec).inspect_err(|_| self.session.borrow_mut().close(slot).unwrap_or(()))
    }

    /// Adds texts with the same prompt and the same `from`. The prompt is read once for all texts. Returns the ids in the order of `specs`.
    ///
    /// # Errors
    /// The errors of [`add`](Self::add); `Input` if there are fewer free slots than texts, or if the texts differ in `prompt` or `from`.
    pub fn add_alike(&mut self, specs: Vec<TextSpec>) -> Result<Vec<TextId>> {
        if specs.len() > self.n_free() {
            return Err(Error::input(format!(
                "expected a free slot for each of {} texts, found {} free slots",
                specs.len(),
                self.n_free()
            )));
        }
        let differs = |spec: &TextSpec| !Arc::ptr_eq(&spec.prompt, &specs[0].prompt) && spec.prompt != specs[0].prompt;
        if specs.iter().any(|spec| differs(spec) || spec.from != specs[0].from) {
            return Err(Error::input("texts that are added together must have the same `prompt` and the same `from`"));
        }
        let n_vocab = self.session().model().facts().n_vocab;
        specs.iter().try_for_each(|spec| spec.sampler.settings().check(n_vocab))?;
        let mut specs = specs.into_iter();
        let Some(first) = specs.next() else { return Ok(Vec::new()) };
        let mut ids = vec![self.add(first)?];
        for spec in specs {
            match self.add_to_last(spec) {
                Ok(id) => ids.push(id),
                Err(e) => {
                    ids.into_iter().rev().try_for_each(|id| self.cancel(id, &mut |_, _| ()).map(drop))?;
                    return Err(e);
                }
            }
        }
        Ok(ids)
    }

    /// Adds a text that has the same prompt as the text that was added last.
    fn add_to_last(&mut self, spec: TextSpec) -> Result<TextId> {
        let leader = self.texts.last().expect("one was added").slot;
        let mut text = self.text(leader, spec)?;
        text.slot = self.session.borrow_mut().open()?;
        text.unread.clear();
        // The leader reads the prompt, and reports its log-probabilities for all texts.
        text.spec.n_prompt_logprobs = None;
        let id = text.id;
        self.texts.last_mut().expect("one was added").followers.push(text);
        Ok(id)
    }

    fn begin(&mut self, slot: Slot, spec: TextSpec) -> Result<TextId> {
        let session: &Session = self.session.borrow();
        if spec.prompt.is_empty() && session.logits(slot)?.is_empty() {
            return Err(nothing_to_continue());
        }
        session.check_reads(slot, &spec.prompt, session.n_tokens(slot)?)?;
        let mut text = self.text(slot, spec)?;
        let TextSpec { prompt, keeps, n_prompt_logprobs, pooling, .. } = &mut text.spec;
        let n = prompt.len();
        text.marks = keeps.at.iter().filter(|at| (1..=n).contains(*at)).map(|at| n - at).collect();
        text.marks.sort_unstable();
        text.marks.dedup();
        *n_prompt_logprobs = n_prompt_logprobs.filter(|_| n > 0);
        text.pool = pooling.as_ref().filter(|_| n > 0).map(|rule| Pool::new(rule.clone(), prompt));
        Ok(self.push(text))
    }

    /// Creates a text in `slot`, which has not read the text's prompt yet.
    fn text(&mut self, slot: Slot, mut spec: TextSpec) -> Result<Text> {
        spec.sampler.read(&spec.prompt);
        let is_guessed = spec.speculation.is_on();
        if is_guessed {
            spec.before = [&*spec.before, &*spec.prompt].concat().into();
        }
        let mut text = Text::new(slot, spec);
        let session: &mut Session = self.session.borrow_mut();
        let (pending, prompt) = (std::mem::take(&mut text.spec.pending), text.spec.prompt.clone());
        text.begin_after(&pending, &prompt, session.model().vocab());
        session.bound(&mut text)?;
        text.guessing = is_guessed.then(|| Box::new(Guessing::new(&text.spec.before)));
        text.id = self.next_id();
        Ok(text)
    }

    /// Adds a text that continues in its own slot, from the slot's logits. The slot stays open when the text ends. Reports text that no event has
    /// reported yet.
    pub(super) fn resume(&mut self, mut text: Text, hear: &mut Hear<'_>) {
        text.id = self.next_id();
        text.spec.keeps.own = true;
        text.guessing = text.spec.speculation.is_on().then(|| Box::new(Guessing::new(&text.spec.before)));
        if text.has_news() {
            EventSink { vocab: None, hear, is_broken: false }.tell(self.texts.len(), &mut text);
        }
        self.push(text);
    }

    fn next_id(&mut self) -> TextId {
        self.n_added += 1;
        TextId(self.n_added - 1)
    }

    fn push(&mut self, text: Text) -> TextId {
        self.has_samplers = false;
        let id = text.id;
        self.texts.push(text);
        id
    }

    /// Gives each follower of text `i` a fork of the text's slot, with the same unread tokens and the same error. A follower waits for the common
    /// prompt.
    fn fork_followers(&mut self, i: usize) -> Result<()> {
        for mut text in std::mem::take(&mut self.texts[i].followers) {
            let session: &mut Session = self.session.borrow_mut();
            session.close(text.slot)?;
            let leader = &self.texts[i];
            text.slot = session.fork(leader.slot)?;
            (text.unread, text.error) = (leader.unread.clone(), leader.error.clone());
            self.texts.push(text);
        }
        Ok(())
    }

    /// Forks the slot of text `i` for the caller if the slot is at a position in `marks` and another slot is free.
    fn keep_marked(&mut self, i: usize) -> Result<()> {
        let text = &mut self.texts[i];
        if text.marks.last() != Some(&text.unread.len()) {
            return Ok(());
        }
        text.marks.pop();
        let session: &mut Session = self.session.borrow_mut();
        if session.n_free() > 0 {
            self.kept.push(KeptSlot { id: text.id, slot: session.fork(text.slot)?, is_end: false });
        }
        Ok(())
    }

    /// Returns the slots that were kept for the caller since the last call, as requested by the [`Keeps`](super::Keeps) of the texts. The caller must
    /// close these slots. A slot that was kept when its text ended may lack the last tokens of the text. [`Session::n_tokens`] returns how many
    /// tokens of prompt and text it has read.
    pub fn take_kept(&mut self) -> Vec<KeptSlot> {
        std::mem::take(&mut self.kept)
    }

    /// Returns the log-probabilities of the prompts that were completely read since the last call, for texts that request them
    /// ([`TextSpec::n_prompt_logprobs`]). Each prompt has one entry per token except the first.
    pub fn take_prompt_logprobs(&mut self) -> Vec<(TextId, Vec<Logprobs>)> {
        std::mem::take(&mut self.prompt_logprobs)
    }

    /// Returns the vectors of the prompts that were completely read since the last call, for texts that request a vector ([`TextSpec::pooling`]). A
    /// vector is `[n_embd]`, or `[n_labels]` for the logits of a classifier.
    pub fn take_pooled(&mut self) -> Vec<(TextId, Vec<f32>)> {
        std::mem::take(&mut self.pooled)
    }

    /// Returns the number of tokens that a running text must still read before it samples again. `None` if the text has ended.
    pub(crate) fn n_unread(&self, id: TextId) -> Option<usize> {
        Some(self.texts.iter().find(|text| text.id == id)?.unread.len())
    }

    /// Bounds how much prefill slows decoding texts down. While prompts are prefilled, the mean time of a step is at most about `slowdown` times
    /// the time of a step without prompt tokens. A single step takes at most about twice this mean. `None`, the default, sets no bound: a step
    /// prefills up to a whole chunk of tokens.
    pub fn bound_prefill(&mut self, slowdown: Option<f64>) {
        self.prefill = slowdown.map(PrefillBound::new);
    }

    /// Draws under constraints on other threads from now on, so that a slow constraint delays its own text alone. `wake` is called when a draw has
    /// ended. `most` limits the time that the constraint of one text may take in total. A text whose constraint exceeds the limit ends with an error.
    pub(crate) fn draw_on_threads(&mut self, wake: std::sync::Arc<dyn Fn() + Send + Sync>, most: Option<std::time::Duration>) {
        self.threads = Some(threads::ConstraintThreads::new(wake, most));
    }

    /// Returns whether a step has work: a text that is not paused and has no draw on another thread, or a draw that has ended.
    pub(crate) fn can_step(&self) -> bool {
        if self.threads.as_ref().is_some_and(threads::ConstraintThreads::has_ended) {
            return true;
        }
        self.texts.iter().any(|text| !text.is_paused && !text.is_drawing())
    }

    /// Pauses the texts for which `is_paused` returns true, and resumes all other texts. A paused text keeps its slot and takes part in no step. In
    /// one [`add_alike`](Self::add_alike) call, the first text prefills the common prompt. Until the prompt is read, the other texts of the call
    /// pause and resume with the first text.
    pub fn pause(&mut self, is_paused: impl Fn(TextId) -> bool) {
        for text in &mut self.texts {
            let was_paused = std::mem::replace(&mut text.is_paused, is_paused(text.id));
            // The device has the samplers of the last step's texts. These samplers are outdated if other texts take part now.
            self.has_samplers &= text.is_paused == was_paused;
        }
    }

    /// Ends a text and returns its text so far, or `None` if the text had ended before. Calls `on_event` with text that was held back as the possible
    /// beginning of a stop text. So the pieces of all events add up to the returned text.
    ///
    /// The text's slot is closed at once, or when the current step is finished. If [`Keeps::end`](super::Keeps) is set,
    /// [`take_kept`](Self::take_kept) returns the slot instead. A text that still waits for the shared prefill of its [`add_alike`](Self::add_alike)
    /// call has an empty slot, which is always closed.
    ///
    /// # Errors
    /// `Input` if a slot cannot be closed or forked.
    pub fn cancel(&mut self, id: TextId, on_event: &mut OnEvent<'_>) -> Result<Option<Text>> {
        let waiting = self.texts.iter().enumerate().find_map(|(i, text)| {
            let at = text.followers.iter().position(|follower| follower.id == id)?;
            Some((i, at))
        });
        let found = self.texts.iter().position(|text| text.id == id && !text.is_cancelled);
        let (i, mut text) = match (waiting, found) {
            (Some((i, at)), _) => {
                let text = self.texts[i].followers.remove(at);
                self.session.borrow_mut().close(text.slot)?;
                (i, text)
            }
            (None, Some(i)) if self.pending_step.is_some() => (i, self.texts[i].cancel()),
            (None, Some(i)) => (i, self.remove(i)?),
            (None, None) => match self.take_swapped(id) {
                Some(text) => (usize::MAX, text),
                None => return Ok(None),
            },
        };
        // A text with a limit of 0 tokens has its finish from the beginning, but it is not done before its prompt is read.
        if text.finish.is_none() || text.tokens.is_empty() && !text.unread.is_empty() {
            text.end(Finish::Interrupted);
        }
        let piece = text.new_text();
        if !piece.is_empty() {
            on_event(id, TokenEvent { text: i, token: None, piece, n_together: 0, logprobs: None });
        }
        Ok(Some(text))
    }

    /// Ends the running texts for which `ends` returns true, with [`Finish::Interrupted`].
    pub(super) fn interrupt(&mut self, ends: impl Fn(&Text) -> bool, hear: &mut Hear<'_>) {
        let mut sink = EventSink { vocab: None, hear, is_broken: false };
        for (i, text) in self.texts.iter_mut().enumerate().filter(|(_, text)| text.is_live() && ends(text)) {
            sink.end(i, text, Finish::Interrupted);
        }
    }

    /// Removes the texts that have ended. Returns the texts that were not cancelled.
    fn retire(&mut self) -> Result<Vec<Text>> {
        let mut all = Vec::new();
        while let Some(i) = self.texts.iter().position(Text::has_ended) {
            let text = self.remove(i)?;
            if !text.is_cancelled {
                all.push(text);
            }
        }
        Ok(all)
    }

    fn remove(&mut self, i: usize) -> Result<Text> {
        self.has_samplers = false;
        self.fork_followers(i)?;
        let text = self.texts.remove(i);
        self.guesses.forget(text.id);
        let (keeps, id, slot) = (&text.spec.keeps, text.id, text.slot);
        match (keeps.own, keeps.end && text.error.is_none()) {
            (true, _) => {}
            (false, true) => self.kept.push(KeptSlot { id, slot, is_end: true }),
            (false, false) => self.session.borrow_mut().close(slot)?,
        }
        Ok(text)
    }

    /// Returns all texts that still run.
    pub(super) fn into_texts(self) -> Vec<Text> {
        self.texts
    }
}
