//! Runs the passages of conversations as texts of the batcher.

use super::Scheduler;
use super::admit::Beginning;
use crate::engine::passage::{Line, Passage, Pinned, Space, TurnEvent, TurnResult};
use crate::error::{Error, Result};
use crate::session::{Batcher, Done, Slot, TextId, TextSpec, TokenEvent};
use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The passages of an engine.
#[derive(Default)]
pub struct Passages {
    /// Passages without a slot, in the order of arrival.
    pub waiting: VecDeque<(Passage, Line)>,
    running: HashMap<TextId, Running>,
}

/// A passage that has a slot.
struct Running {
    line: Line,
    /// The tokens of the prompt, cached tokens included.
    prompt: Arc<[u32]>,
    /// The number of prompt tokens that need no prefill.
    n_cached: usize,
    /// The number of prefilled prompt tokens that was last reported to the caller.
    n_told: usize,
    space: Option<Arc<Space>>,
    pinned: Option<Pinned>,
    /// True if the caller has ended the prefill.
    is_broken: bool,
    leaves_forks: bool,
}

impl Passages {
    /// Returns the number of passages that have a slot.
    pub fn n_running(&self) -> usize {
        self.running.len()
    }

    pub fn is_empty(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Returns the number of passages whose prompts may leave forks for the cache in the next step.
    pub fn n_forking(&self) -> usize {
        self.running.values().filter(|passage| passage.leaves_forks && passage.n_left() > 0).count()
    }

    /// Passes an event on to the caller of its passage, and returns the caller's answer. Returns `None` if the text is not a passage.
    pub fn hear(&mut self, job: TextId, event: &TokenEvent<'_>) -> Option<ControlFlow<()>> {
        let passage = self.running.get_mut(&job)?;
        passage.tell(0);
        Some(passage.line.ask(TurnEvent::Event(event.token, event.piece.into())))
    }

    /// Ends all passages with an error.
    pub fn fail(&mut self, e: &Error, batcher: &mut Batcher) {
        for (passage_job, passage) in self.running.drain() {
            let _ = batcher.cancel(passage_job, &mut |_, _| ());
            passage.line.end(Err(e.clone()));
        }
        self.waiting.drain(..).for_each(|(_, line)| line.end(Err(e.clone())));
    }
}

impl Running {
    fn n_left(&self) -> usize {
        self.prompt.len() - self.n_cached - self.n_told
    }

    /// Reports that `n_unread` prompt tokens are left.
    fn tell(&mut self, n_unread: usize) {
        let all = self.prompt.len() - self.n_cached;
        if all - n_unread > self.n_told {
            self.n_told = all - n_unread;
            self.is_broken |= self.line.ask(TurnEvent::Read(self.n_told, all)).is_break();
        }
    }
}

impl Scheduler {
    /// Gives free slots to waiting passages.
    pub(super) fn admit_passages(&mut self) {
        while let Some(at) = self.passages.waiting.iter().position(|(passage, _)| passage.stop.load(Ordering::Relaxed))
            && let Some((passage, line)) = self.passages.waiting.remove(at)
        {
            line.end(Err(Error::interrupted(0, passage.job.prompt.len())));
        }
        while self.n_free() > 0
            && let Some((passage, line)) = self.passages.waiting.pop_front()
        {
            self.begin_passage(passage, line);
        }
    }

    /// Begins a passage in a free slot. If this fails, the passage ends with the error.
    fn begin_passage(&mut self, passage: Passage, line: Line) {
        let Passage { mut job, from, space, .. } = passage;
        let beginning = match (&from, &space) {
            (Some(pinned), _) => self
                .cache
                .open_pinned(pinned.id(), pinned.n_tokens(), 1, self.batcher.session_mut())
                .map(|slot| Beginning { slot, ..Beginning::default() }),
            (None, Some(space)) => self.cached(&space.name, &job.prompt, 1, 1),
            (None, None) => Ok(Beginning::default()),
        };
        let Beginning { slot, n_tokens, pending } = match beginning {
            Ok(beginning) => beginning,
            Err(e) => return line.end(Err(e)),
        };
        let prompt = std::mem::take(&mut job.prompt);
        job.sampler.read(&prompt[..n_tokens]);
        (job.prompt, job.from, job.pending) = (prompt[n_tokens..].into(), slot, pending);
        job.speculation = self.shared.options.speculation;
        if job.speculation.is_on() && job.before.is_empty() {
            job.before = prompt[..n_tokens].into();
        }
        job.keeps.at = job.keeps.at.iter().filter_map(|at| at.checked_sub(n_tokens)).collect();
        // With a recurrent model, later prompts can continue only from the positions in `at`, so the end is not kept.
        job.keeps.end = space.is_none() || self.shared.model.can_rewind();
        job.keeps.whole = true;
        let leaves_forks = !job.keeps.at.is_empty();
        match self.add_from(slot, job) {
            Ok(id) => {
                let (n_cached, n_told, pinned, is_broken) = (n_tokens, 0, None, false);
                self.passages.running.insert(id, Running { line, prompt, n_cached, n_told, space, pinned, is_broken, leaves_forks });
            }
            Err(e) => line.end(Err(e)),
        }
    }

    /// Adds a text that continues `from`, and closes `from`.
    pub(super) fn add_from(&mut self, from: Option<Slot>, job: TextSpec) -> Result<TextId> {
        let session = self.batcher.session_mut();
        // A cache entry that leaves the device here may share blocks with `from`. These blocks stay on the device, because `from` still holds them.
        let room = self.cache.lend(0, session);
        self.cache.make_room(1, session);
        let added = room.and_then(|()| self.batcher.add(job));
        if let Some(from) = from {
            self.batcher.session_mut().close(from)?;
        }
        added
    }

    /// Reports to the callers of passages how far their prompts are prefilled, and ends the prefills that a caller has stopped.
    pub(super) async fn report_passages(&mut self) {
        let mut broken = Vec::new();
        for (job, passage) in &mut self.passages.running {
            if passage.n_left() > 0
                && let Some(n_unread) = self.batcher.n_unread(*job)
            {
                passage.tell(n_unread);
                if passage.is_broken && n_unread > 0 {
                    broken.push(*job);
                }
            }
        }
        for job in broken {
            let _ = self.batcher.cancel(job, &mut |_, _| ());
            self.keep(&mut []).await;
            if let Some(passage) = self.passages.running.remove(&job) {
                let e = Error::interrupted(passage.n_told, passage.prompt.len() - passage.n_cached);
                passage.line.end(Err(e));
            }
        }
    }

    /// Takes a slot that the batcher kept for a passage: pins it, or makes it an entry of the cache. Returns `false` if the text is not a passage.
    pub(super) fn keep_passage(&mut self, job: TextId, slot: Slot, is_end: bool, tokens: &[u32]) -> Result<bool> {
        let is_last = self.sequences.is_empty() && self.passages.n_running() == 1;
        let Some(passage) = self.passages.running.get_mut(&job) else { return Ok(false) };
        let session = self.batcher.session_mut();
        let n_read = session.n_tokens(slot)?;
        let Some(space) = &passage.space else {
            let (id, room) = self.cache.pin(slot, session);
            passage.pinned = Some(passage.line.pins.handle(id, n_read));
            return room.map(|()| true);
        };
        if is_end && is_last {
            self.cache.lend(self.shared.model.context().unwrap_or(0), session)?;
        }
        let mut read = [&passage.prompt, tokens].concat();
        read.truncate(n_read);
        self.cache.insert(&space.name, read, slot, session).map(|()| true)
    }

    /// Ends a passage. Returns `done` if the text is not a passage.
    pub(super) fn end_passage(&mut self, done: Done) -> Option<Done> {
        let Some(mut passage) = self.passages.running.remove(&done.id) else { return Some(done) };
        passage.tell(0);
        let passed = done.output.map(|output| TurnResult {
            output,
            pinned: passage.pinned.take(),
            n_prefilled: passage.prompt.len() - passage.n_cached,
            prefill_ms: 0.0,
            decode_ms: 0.0,
        });
        passage.line.end(passed);
        None
    }
}
