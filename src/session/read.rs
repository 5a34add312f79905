//! Reading tokens: one submission after the other, each begun and then finished.
//!
//! A device takes what it is given in order, so the host counts a submission as done when it begins: slots stand after their tokens at
//! once, without logits until these are back. Slots may be opened, forked and closed while the device works.

use super::Session;
use super::slots::Slot;
use super::work::{Cut, Each, EachRow, Scratch, Wanted, Work};
use crate::error::{Error, Kind, Result};
use crate::tape::{Run, Step, TOKENS_PER_BLOCK};
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use web_time::Instant;

/// What a submission took, as far as the host noticed.
pub(super) struct Clock {
    began: Instant,
    /// Until the host found it done.
    took: Option<Duration>,
}

impl Clock {
    pub fn start() -> Clock {
        Clock { began: Instant::now(), took: None }
    }

    /// Stops at the first call.
    pub fn stop(&mut self) -> Duration {
        *self.took.get_or_insert_with(|| self.began.elapsed())
    }
}

/// Tokens that the device reads now. [`finish`](Self::finish) takes the logits. Dropping it instead leaves the slots after their tokens, without
/// logits: the device reads them all the same.
pub struct Reading<'s> {
    session: &'s mut Session,
}

impl Reading<'_> {
    /// Returns how many tokens of each slot this submission reads, in the order in which they were given. The rest has to begin anew.
    pub fn n_read(&self) -> &[usize] {
        self.session.n_read()
    }

    /// Returns whether [`finish`](Self::finish) would not block.
    pub fn is_ready(&mut self) -> Result<bool> {
        self.session.is_ready()
    }

    /// Waits until [`finish`](Self::finish) does not block: in a browser by awaiting, elsewhere by blocking.
    pub async fn ready(&mut self) -> Result<()> {
        self.session.ready().await
    }

    /// Blocks until the device is done, and gives each slot the logits after its last token, if that was read.
    ///
    /// # Errors
    /// `Device` if the device failed: what the slots hold is not known then. In a browser also if the device is not done: await
    /// [`ready`](Self::ready) first.
    pub fn finish(self) -> Result<()> {
        self.session.finish_read()
    }

    /// As [`finish`](Self::finish), and hands over all logits that came back: after every token, for what
    /// [`begin_score`](Session::begin_score) began. `each(t, logits [vocab])`.
    pub fn finish_with(self, each: &mut dyn FnMut(usize, &[f32]) -> Result<()>) -> Result<()> {
        self.session.finish_read()?;
        self.session.hand_over(each)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.session.executor.cancel();
    }
}

impl Session {
    /// Begins to read prompts into several slots: as many tokens as one submission takes.
    ///
    /// # Errors
    /// As [`prefill_many`](Self::prefill_many). `Input` if there is nothing to read.
    pub fn begin_prefill(&mut self, work: &[(Slot, &[u32])]) -> Result<Reading<'_>> {
        self.begin_chunk(work, usize::MAX, Wanted::Last)
    }

    /// Begins to read one token for each of several slots.
    ///
    /// # Errors
    /// As [`begin_prefill`](Self::begin_prefill).
    pub fn begin_decode(&mut self, work: &[(Slot, u32)]) -> Result<Reading<'_>> {
        self.begin_chunk(work, usize::MAX, Wanted::Last)
    }

    /// Begins to read tokens whose logits are all wanted: as many as one submission takes.
    ///
    /// # Errors
    /// As [`begin_prefill`](Self::begin_prefill).
    pub fn begin_score(&mut self, slot: Slot, tokens: &[u32]) -> Result<Reading<'_>> {
        self.begin_chunk([(slot, tokens)].as_slice(), usize::MAX, Wanted::All)
    }

    fn begin_chunk<W: Work + ?Sized>(&mut self, work: &W, most: usize, wanted: Wanted) -> Result<Reading<'_>> {
        if self.begin_some(work, most, wanted)? == 0 {
            return Err(Error::input("expected at least one token, found none"));
        }
        Ok(Reading { session: self })
    }

    /// Begins a submission of at most `most` tokens, of those first who come first, and of one of each if each has only one. Returns how many
    /// tokens that are: none, and nothing has begun, if there is nothing to read.
    pub(super) fn begin_some<W: Work + ?Sized>(&mut self, work: &W, most: usize, wanted: Wanted) -> Result<usize> {
        self.check(work)?;
        let least = work.len().min(Step::max_tokens(work.len()));
        let room = self.chunk.tokens(self.max_rows(wanted)).max(least).min(most);
        self.scratch.begin(work.len());
        let n = self.scratch.cut(work, room, usize::MAX);
        if n > 0 {
            self.begin_read(work, wanted)?;
        }
        Ok(n)
    }

    /// How many tokens of each piece of work the last submission has read, and those of the same work before it.
    pub(super) fn n_read(&self) -> &[usize] {
        &self.scratch.done
    }

    /// Whether what was begun last can be finished without blocking.
    pub(super) fn is_ready(&mut self) -> Result<bool> {
        match self.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ready) => ready.map(|()| true),
            Poll::Pending => Ok(false),
        }
    }

    /// Waits for what was begun last: in a browser by awaiting, elsewhere by blocking.
    pub(super) async fn ready(&mut self) -> Result<()> {
        #[cfg(not(target_arch = "wasm32"))]
        if let Err(e) = self.executor.wait() {
            self.failure = Some(e.clone());
            return Err(e);
        }
        poll_fn(|context| self.poll_ready(context)).await
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let polled = self.executor.poll_ready(context);
        if let Poll::Ready(ready) = &polled {
            self.clock.stop();
            self.failure = ready.clone().err();
        }
        polled
    }

    /// Whether what was begun last has failed already; the error is the device's own.
    pub(super) fn check_failure(&mut self) -> Result<()> {
        let Some(e) = self.failure.take() else { return Ok(()) };
        self.executor.cancel();
        Err(e)
    }

    /// Reads all, in as many submissions as that takes. `each`: wants the logits after every token.
    pub(super) fn read<W: Work + ?Sized>(
        &mut self,
        work: &W,
        cut: Cut,
        mut each: Option<Each<'_>>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        self.check(work)?;
        let total: usize = (0..work.len()).map(|i| work.tokens(i).len()).sum();
        let wanted = if each.is_some() { Wanted::All } else { Wanted::Last };
        // One token for each of many slots is one step, however small the chunk.
        let most_each = if cut == Cut::OneByOne { 1 } else { usize::MAX };
        let least = if cut == Cut::OneByOne || total == work.len() { work.len().min(Step::max_tokens(work.len())) } else { 1 };
        self.scratch.begin(work.len());
        let mut read = 0;
        while read < total {
            if read > 0 && cut == Cut::Chunks && self.stop.load(Ordering::Relaxed) {
                return Err(Error::new(Kind::Interrupted, format!("interrupted after {read} of {total} tokens")));
            }
            let room = self.chunk.tokens(self.max_rows(wanted)).max(least);
            read += self.scratch.cut(work, room, most_each);
            self.begin_read(work, wanted)?;
            self.finish_read()?;
            if let Some(each) = &mut each {
                self.hand_over(each)?;
            }
            progress(read, total);
        }
        Ok(())
    }

    /// Submits the parts of the scratch memory. Their slots stand after their tokens then.
    fn begin_read<W: Work + ?Sized>(&mut self, work: &W, wanted: Wanted) -> Result<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let begun = self.submit_parts(&mut scratch, work, wanted);
        self.scratch = scratch;
        begun
    }

    fn submit_parts<W: Work + ?Sized>(&mut self, scratch: &mut Scratch, work: &W, wanted: Wanted) -> Result<()> {
        let Scratch { step, parts, moves, rows, .. } = scratch;
        step.clear();
        moves.clear();
        rows.clear();
        for part in parts.iter_mut() {
            let contents = self.contents(part.slot)?;
            part.end = contents.n_tokens + part.len;
            let go = self.pages.begin(contents.page);
            let first_row = step.tokens.len() as u32;
            step.tokens.extend_from_slice(&work.tokens(part.work)[part.from..][..part.len]);
            moves.push(go);
            self.add_run(step, part.slot, go.run(first_row, part.len as u32), part.len)?;
            let last = first_row + part.len as u32 - 1;
            let n_rows = match wanted {
                Wanted::All => part.len,
                Wanted::Last => usize::from(part.is_last),
            };
            step.outputs.extend(last + 1 - n_rows as u32..=last);
            rows.push(n_rows);
        }
        (self.clock, self.failure) = (Clock::start(), None);
        if let Err(e) = self.executor.begin(step) {
            moves.iter().for_each(|go| self.pages.cancel(go));
            // The device may have written in place before it failed: what these slots hold is not known any more.
            for part in parts {
                self.slots.get_mut(part.slot)?.logits.clear();
            }
            return Err(e);
        }
        for (part, go) in parts.iter().zip(&*moves) {
            let contents = self.slots.get_mut(part.slot)?;
            contents.advance(go.page_out, &work.tokens(part.work)[part.from..][..part.len], self.model.context().is_some());
        }
        moves.iter().for_each(|go| self.pages.finish(go));
        Ok(())
    }

    /// Takes the logits of what [`begin_read`](Self::begin_read) submitted. A slot that went elsewhere meanwhile gets none.
    pub(super) fn finish_read(&mut self) -> Result<()> {
        self.check_failure()?;
        let Scratch { step, parts, rows, logits, .. } = &mut self.scratch;
        self.executor.finish(logits)?;
        self.chunk.learn(step.tokens.len(), self.clock.stop());
        let mut all = logits.chunks_exact(self.model.facts().n_logits());
        for (part, &n_rows) in parts.iter().zip(&*rows) {
            let last = all.by_ref().take(n_rows).last();
            let contents = self.slots.get_mut(part.slot).ok().filter(|contents| contents.n_tokens == part.end);
            if let Some((row, contents)) = last.zip(contents) {
                contents.logits.clear();
                contents.logits.extend_from_slice(row);
            }
        }
        Ok(())
    }

    /// Hands over the logits that came back last.
    fn hand_over(&self, each: Each<'_>) -> Result<()> {
        self.each_row(&mut |_, t, row| each(t, row))
    }

    /// The same for several pieces of work: which one, the token's place among its tokens, the logits after it.
    pub(super) fn each_row(&self, each: EachRow<'_>) -> Result<()> {
        let Scratch { parts, rows, logits, .. } = &self.scratch;
        let mut all = logits.chunks_exact(self.model.facts().n_logits());
        for (part, &n_rows) in parts.iter().zip(rows) {
            for (t, row) in all.by_ref().take(n_rows).enumerate() {
                each(part.work, part.from + part.len - n_rows + t, row)?;
            }
        }
        Ok(())
    }

    /// Rows whose logits fit one binding, where all are wanted.
    fn max_rows(&self, wanted: Wanted) -> usize {
        match wanted {
            Wanted::Last => usize::MAX,
            Wanted::All => self.max_scored(),
        }
    }

    /// The same, of those that `score` hands over.
    pub(super) fn max_scored(&self) -> usize {
        ((64 << 20) / (4 * self.model.facts().n_logits())).clamp(1, 256)
    }

    pub(super) fn check<W: Work + ?Sized>(&self, work: &W) -> Result<()> {
        for i in 0..work.len() {
            let slot = work.slot(i);
            self.check_reads(slot, work.tokens(i), self.contents(slot)?.n_tokens)?;
            if (0..i).any(|other| work.slot(other) == slot) {
                return Err(Error::input(format!("{slot} takes part twice in one step")));
            }
        }
        Ok(())
    }

    /// Whether a slot that has read `from` tokens can read these.
    pub(super) fn check_reads(&self, slot: Slot, tokens: &[u32], from: usize) -> Result<()> {
        let n_vocab = self.model.facts().n_vocab;
        if let Some(token) = tokens.iter().find(|&&t| t as usize >= n_vocab) {
            return Err(Error::input(format!("token {token} is out of range: the model has {n_vocab}")));
        }
        match self.model.context() {
            Some(context) if from + tokens.len() > context => {
                let text = format!("{} tokens after {from} do not fit the context of {context}, in {slot}", tokens.len());
                Err(Error::input(text).hint("give a larger `context`, or read less"))
            }
            _ => Ok(()),
        }
    }

    /// Adds a slot's run to a step that reads `n` of its tokens, with the slot's blocks made ready for them.
    pub(super) fn add_run(&mut self, step: &mut Step, slot: Slot, mut run: Run, n: usize) -> Result<()> {
        if self.model.context().is_some() {
            let contents = self.slots.get_mut(slot)?;
            let end = contents.n_tokens + n;
            if let Some((from, to)) = self.blocks.own(&mut contents.blocks, contents.n_tokens, end) {
                self.executor.copy_block(from, to);
            }
            (run.position, run.blocks_at) = (contents.n_tokens as u32, step.blocks.len() as u32);
            step.blocks.extend_from_slice(&contents.blocks[..end.div_ceil(TOKENS_PER_BLOCK)]);
        }
        step.runs.push(run);
        Ok(())
    }
}
