//! Reads tokens, for prefill and decode. The host begins a submission (work that it gives to the device at once), and finishes it later.
//!
//! A device executes submissions in order, so tokens count as read as soon as their submission begins. The logits arrive when the submission is
//! finished. Meanwhile, slots may be opened, forked and closed.

use super::Session;
use super::slots::Slot;
use super::work::{ChunkRule, Each, EachRow, LogitRows, ReadList, Scratch};
use crate::error::{Error, Result};
use crate::exec::wait::{MAY_BLOCK, block_on};
use crate::exec::{Excerpt, read_async};
use crate::tape::{Run, Step, TOKENS_PER_BLOCK};
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use web_time::Instant;

/// Measures on the host how long a submission takes.
pub(super) struct Clock {
    began: Instant,
    /// `None` until the host has found the submission done.
    took: Option<Duration>,
}

impl Clock {
    pub fn start() -> Clock {
        Clock { began: Instant::now(), took: None }
    }

    /// Stops the clock if it still runs. Returns the time from start to stop.
    pub fn stop(&mut self) -> Duration {
        *self.took.get_or_insert_with(|| self.began.elapsed())
    }
}

/// A step in progress, in which slots read tokens. [`finish`](Self::finish) waits for the device and stores the logits in the slots. If a `Reading`
/// is dropped instead, the tokens still count as read, but the slots have no logits.
pub struct Reading<'s> {
    session: &'s mut Session,
}

impl Reading<'_> {
    /// Returns how many tokens each slot reads in this step, in the order of the caller's list. For the rest of a slot's tokens, begin another step
    /// after [`finish`](Self::finish).
    pub fn n_read(&self) -> &[usize] {
        self.session.n_read()
    }

    /// Returns whether [`finish`](Self::finish) would return without blocking.
    ///
    /// # Errors
    /// `Device` if the device failed.
    pub fn is_ready(&mut self) -> Result<bool> {
        self.session.is_ready()
    }

    /// Waits until [`finish`](Self::finish) would not block. In a browser, the future awaits the device. Elsewhere, polling the future blocks the
    /// thread.
    ///
    /// # Errors
    /// `Device` if the device failed.
    pub async fn ready(&mut self) -> Result<()> {
        self.session.ready().await
    }

    /// Blocks until the device is done. Afterwards, each slot whose listed tokens have all been read has the logits after the last token.
    ///
    /// # Errors
    /// `Device` if the device failed; then the content of the slots is undefined. In a browser, returns the same error if the device is not done yet,
    /// so await [`ready`](Self::ready) first.
    pub fn finish(self) -> Result<()> {
        self.session.finish_read()
    }

    /// Does what [`finish`](Self::finish) does, and then calls `each(t, logits)`: `t` is a token's index in its slot's list, and `logits`, `[vocab]`,
    /// are the logits after this token. After [`begin_score`](Session::begin_score), calls `each` for every token that was read. Otherwise calls
    /// `each` only for the last token of each list, if that token was read.
    ///
    /// # Errors
    /// The errors of [`finish`](Self::finish); the errors of `each`.
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
    /// Begins to prefill prompts in several slots, and returns while the device works. Reads as many tokens as fit into one step; [`Reading::n_read`]
    /// returns how many.
    ///
    /// # Errors
    /// The errors of [`prefill_many`](Self::prefill_many); `Input` if there are no tokens.
    pub fn begin_prefill(&mut self, work: &[(Slot, &[u32])]) -> Result<Reading<'_>> {
        self.begin_chunk(work, usize::MAX, LogitRows::Last)
    }

    /// Begins to decode one token in each of several slots.
    ///
    /// # Errors
    /// The errors of [`begin_prefill`](Self::begin_prefill).
    pub fn begin_decode(&mut self, work: &[(Slot, u32)]) -> Result<Reading<'_>> {
        self.begin_chunk(work, usize::MAX, LogitRows::Last)
    }

    /// Begins to prefill as many of the tokens as fit into one step ([`Reading::n_read`]), and requests the logits after each of them.
    ///
    /// # Errors
    /// The errors of [`begin_prefill`](Self::begin_prefill).
    pub fn begin_score(&mut self, slot: Slot, tokens: &[u32]) -> Result<Reading<'_>> {
        self.begin_chunk([(slot, tokens)].as_slice(), usize::MAX, LogitRows::All)
    }

    /// Prefills a prompt as [`prefill`](Self::prefill) does, and awaits the device after each step. Outside a browser, polling the future blocks.
    ///
    /// # Errors
    /// The errors of [`prefill_many`](Self::prefill_many).
    pub(crate) async fn prefill_awaited(&mut self, slot: Slot, mut tokens: &[u32]) -> Result<()> {
        while !tokens.is_empty() {
            let mut reading = self.begin_prefill(&[(slot, tokens)])?;
            let n = reading.n_read()[0];
            reading.ready().await?;
            reading.finish()?;
            tokens = &tokens[n..];
        }
        Ok(())
    }

    fn begin_chunk<W: ReadList + ?Sized>(&mut self, work: &W, most: usize, wanted: LogitRows) -> Result<Reading<'_>> {
        if self.begin_some(work, most, wanted)? == 0 {
            return Err(Error::input("expected at least 1 token, found an empty list"));
        }
        Ok(Reading { session: self })
    }

    /// Begins a submission of one step that reads tokens in the order of `work`. The step has as many tokens as the chunk size allows, or one token
    /// per slot if that is more, but at most `most` tokens. Returns the number of tokens in the step. If `work` has no tokens, returns 0 and begins
    /// nothing.
    pub(super) fn begin_some<W: ReadList + ?Sized>(&mut self, work: &W, most: usize, wanted: LogitRows) -> Result<usize> {
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

    /// Returns how many tokens of each item of the work have been read. The tokens of the last submission count, even before it is finished.
    pub(super) fn n_read(&self) -> &[usize] {
        &self.scratch.done
    }

    /// Returns whether the host can finish the last submission without blocking.
    pub(super) fn is_ready(&mut self) -> Result<bool> {
        match self.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ready) => ready.map(|()| true),
            Poll::Pending => Ok(false),
        }
    }

    /// Waits until the device has done the last submission. In a browser, the future awaits the device. Elsewhere, polling the future blocks the
    /// thread.
    pub(super) async fn ready(&mut self) -> Result<()> {
        if MAY_BLOCK && let Err(e) = self.executor.wait() {
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

    /// Returns the error that polling found for the last submission, and clears it. Returns `Ok` if polling found no error.
    pub(super) fn check_failure(&mut self) -> Result<()> {
        let Some(e) = self.failure.take() else { return Ok(()) };
        self.executor.cancel();
        Err(e)
    }

    /// Checks the stop flag. The error says that `read` of `total` tokens were read.
    ///
    /// # Errors
    /// `Interrupted` if the flag is set.
    pub(super) fn check_stop(&self, read: usize, total: usize) -> Result<()> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::interrupted(read, total)),
            false => Ok(()),
        }
    }

    /// Reads the tokens of all items of `work`, in as many submissions as needed, and waits for each. Calls `each`, if given, with the `wanted` rows
    /// of logits after each submission.
    ///
    /// # Errors
    /// `Input` if a slot cannot read its tokens; `Interrupted` by the stop flag, with `ChunkRule::Chunks` only; `Device` if the device failed; the
    /// errors of `each`.
    pub(super) fn read<W: ReadList + ?Sized>(
        &mut self,
        work: &W,
        cut: ChunkRule,
        (wanted, mut each): (LogitRows, Option<EachRow<'_>>),
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        self.check(work)?;
        let total: usize = (0..work.len()).map(|i| work.tokens(i).len()).sum();
        // One token per slot makes one step, even if there are more slots than a chunk has tokens.
        let most_each = if cut == ChunkRule::OneByOne { 1 } else { usize::MAX };
        let least = if cut == ChunkRule::OneByOne || total == work.len() { work.len().min(Step::max_tokens(work.len())) } else { 1 };
        self.scratch.begin(work.len());
        let mut read = 0;
        while read < total {
            if read > 0 && cut == ChunkRule::Chunks {
                self.check_stop(read, total)?;
            }
            let room = self.chunk.tokens(self.max_rows(wanted)).max(least);
            read += self.scratch.cut(work, room, most_each);
            self.begin_read(work, wanted)?;
            self.finish_read()?;
            if let Some(each) = &mut each {
                self.each_row(each)?;
            }
            progress(read, total);
        }
        Ok(())
    }

    /// Begins a submission with the tokens of `scratch.parts`, and counts them as read.
    fn begin_read<W: ReadList + ?Sized>(&mut self, work: &W, wanted: LogitRows) -> Result<()> {
        self.drop_guesses();
        let mut scratch = std::mem::take(&mut self.scratch);
        let begun = self.submit_parts(&mut scratch, work, wanted);
        self.scratch = scratch;
        begun
    }

    fn submit_parts<W: ReadList + ?Sized>(&mut self, scratch: &mut Scratch, work: &W, wanted: LogitRows) -> Result<()> {
        let Scratch { step, parts, moves, unsettled, rows, hidden, .. } = scratch;
        step.clear();
        moves.clear();
        rows.clear();
        *hidden = None;
        for part in parts.iter_mut() {
            let contents = self.contents(part.slot)?;
            part.end = contents.n_tokens + part.len;
            // A wrong guess must leave the current states as they are.
            let go = match part.n_guesses > 0 && !self.model.can_rewind() {
                true => self.pages.leave(contents.page),
                false => self.pages.begin(contents.page),
            };
            let first_row = step.tokens.len() as u32;
            step.tokens.extend_from_slice(&work.tokens(part.work)[part.from..][..part.len]);
            moves.push(go);
            self.add_run(step, part.slot, go.run(first_row, part.len as u32), part.len)?;
            let last = first_row + part.len as u32 - 1;
            let n_rows = match wanted {
                _ if part.n_guesses > 0 => part.n_guesses + 1,
                LogitRows::All => part.len,
                LogitRows::Last => usize::from(part.is_last),
            };
            step.outputs.extend(last + 1 - n_rows as u32..=last);
            rows.push(n_rows);
        }
        (self.clock, self.failure) = (Clock::start(), None);
        if let Err(e) = self.executor.begin(step) {
            moves.iter().for_each(|go| self.pages.cancel(go));
            // The device may have changed states in place before it failed, so the content of these slots is undefined.
            for part in parts {
                self.slots.get_mut(part.slot)?.logits.clear();
            }
            return Err(e);
        }
        for (i, (part, go)) in parts.iter().zip(&*moves).enumerate() {
            if part.n_guesses > 0 {
                unsettled.push(i);
                continue;
            }
            let contents = self.slots.get_mut(part.slot)?;
            contents.advance(go.page_out, &work.tokens(part.work)[part.from..][..part.len], self.model.context().is_some());
            self.pages.finish(go);
        }
        Ok(())
    }

    /// Waits for the submission of [`begin_read`](Self::begin_read) and copies its logits to the slots. A slot that was closed or has read other
    /// tokens since then receives no logits.
    pub(super) fn finish_read(&mut self) -> Result<()> {
        self.check_failure()?;
        if self.scratch.hidden.is_some() {
            return Ok(());
        }
        let Scratch { step, parts, rows, logits, .. } = &mut self.scratch;
        self.executor.finish(logits)?;
        self.chunk.learn(step.tokens.len(), self.clock.stop());
        let mut all = logits.chunks_exact(self.model.n_outputs());
        for (part, &n_rows) in parts.iter().zip(&*rows) {
            let last = all.by_ref().take(n_rows).last();
            let contents = self.slots.get_mut(part.slot).ok().filter(|contents| part.n_guesses == 0 && contents.n_tokens == part.end);
            if let Some((row, contents)) = last.zip(contents) {
                contents.logits.clear();
                contents.logits.extend_from_slice(row);
            }
        }
        Ok(())
    }

    /// Calls `each(t, logits)` for every row of logits of the last submission. `t` is the token's index in its item of the work.
    fn hand_over(&self, each: Each<'_>) -> Result<()> {
        self.each_row(&mut |_, t, row| each(t, row))
    }

    /// Calls `each(i, t, logits)` for every row of logits of the last submission. `i` is the index of the item, and `t` the token's index in this
    /// item.
    pub(super) fn each_row(&self, each: EachRow<'_>) -> Result<()> {
        self.each_of(&self.scratch.logits, self.model.n_outputs(), each)
    }

    /// Copies the hidden states of the last submission to the host, `[rows, n_embd]`: the inputs of the matrix that computes logits. There is one row
    /// per row of logits, in the order of [`each_row`](Self::each_row). Blocks.
    ///
    /// # Errors
    /// `Model` if the model has no hidden states; `Device` if the device failed, and in a browser.
    pub(super) fn hidden_rows(&mut self) -> Result<Vec<f32>> {
        block_on(self.hidden_rows_awaited())
    }

    /// Does what [`hidden_rows`](Self::hidden_rows) does, and awaits the device. Outside a browser, polling the future blocks the thread.
    async fn hidden_rows_awaited(&mut self) -> Result<Vec<f32>> {
        let tape = self.model.tape();
        let var = tape.hidden.ok_or_else(|| Error::model("this model has no output head, and so no hidden state before the head"))?;
        let (stride, width) = (tape.var_spec(var).stride(), self.model.facts().n_embd);
        let n_rows = self.scratch.rows.iter().sum();
        let all = if n_rows == 0 { Vec::new() } else { read_async(self.executor.as_mut(), Excerpt::Var(var, n_rows)).await? };
        Ok(all.chunks_exact(stride).flat_map(|row| &row[..width]).copied().collect())
    }

    /// Waits as [`ready`](Self::ready) does. Then copies logits and hidden states to the host, so that neither [`finish_read`](Self::finish_read) nor
    /// [`each_hidden`](Self::each_hidden) blocks.
    ///
    /// # Errors
    /// `Device` if the device failed. `finish_read` then returns the same error.
    pub(super) async fn hidden_ready(&mut self) -> Result<()> {
        self.ready().await?;
        if !self.model.returns_hidden() && self.scratch.hidden.is_none() {
            let hidden = match self.finish_read() {
                Ok(()) => self.hidden_rows_awaited().await,
                Err(e) => Err(e),
            };
            self.failure = hidden.as_ref().err().cloned();
            self.scratch.hidden = Some(hidden?);
        }
        Ok(())
    }

    /// Does what [`each_row`](Self::each_row) does, with hidden states instead of logits. If the model's steps return logits, the hidden states are
    /// still on the device. Copying them blocks, unless [`hidden_ready`](Self::hidden_ready) has copied them.
    ///
    /// # Errors
    /// The errors of [`hidden_rows`](Self::hidden_rows).
    pub(super) fn each_hidden(&mut self, each: EachRow<'_>) -> Result<()> {
        if self.model.returns_hidden() {
            return self.each_row(each);
        }
        let copied = self.scratch.hidden.take();
        let hidden = copied.map_or_else(|| self.hidden_rows(), Ok)?;
        self.each_of(&hidden, self.model.facts().n_embd, each)
    }

    /// Does what [`each_row`](Self::each_row) does, with `of` in place of the logits: one row of `width` numbers per row of logits.
    fn each_of(&self, of: &[f32], width: usize, each: EachRow<'_>) -> Result<()> {
        let Scratch { parts, rows, .. } = &self.scratch;
        let mut all = of.chunks_exact(width);
        for (part, &n_rows) in parts.iter().zip(rows) {
            for (t, row) in all.by_ref().take(n_rows).enumerate() {
                each(part.work, part.from + part.len - n_rows + t, row)?;
            }
        }
        Ok(())
    }

    /// Returns the largest number of tokens in a step that returns the `wanted` logits. `usize::MAX` means no limit.
    pub(super) fn max_rows(&self, wanted: LogitRows) -> usize {
        match wanted {
            LogitRows::Last => usize::MAX,
            LogitRows::All => self.max_scored(),
        }
    }

    /// Returns the largest number of tokens in a step that returns the logits after every token. The logits of this step take at most 64 MiB, unless
    /// one token needs more. The result is from 1 to 256.
    pub(super) fn max_scored(&self) -> usize {
        ((64 << 20) / (4 * self.model.n_outputs())).clamp(1, 256)
    }

    /// Checks that every slot can read its tokens and that no slot is listed twice.
    pub(super) fn check<W: ReadList + ?Sized>(&self, work: &W) -> Result<()> {
        for i in 0..work.len() {
            let slot = work.slot(i);
            self.check_reads(slot, work.tokens(i), self.contents(slot)?.n_tokens)?;
            if (0..i).any(|other| work.slot(other) == slot) {
                return Err(Error::input(format!("{slot} occurs twice in one step; a step can have each slot once")));
            }
        }
        Ok(())
    }

    /// Checks that a slot that has read `from` tokens can read `tokens`: every id is in the vocabulary, and the context has room.
    pub(super) fn check_reads(&self, slot: Slot, tokens: &[u32], from: usize) -> Result<()> {
        self.model.check_ids(tokens)?;
        match self.model.context() {
            Some(context) if from + tokens.len() > context => {
                let text =
                    format!("{slot} has read {from} tokens, and {} more tokens exceed the context of {context} tokens", tokens.len());
                Err(Error::input(text).hint("use a larger `context`, or fewer tokens"))
            }
            _ => Ok(()),
        }
    }

    /// Adds a slot's run of `n` tokens to a step, and makes the slot's blocks of the KV cache writable for these tokens.
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
