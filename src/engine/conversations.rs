//! The methods of an engine for conversations: passages, pinned states, and a namespace of the prefix cache.

use super::Engine;
use super::passage::{Line, Passage, Pinned, Pins, Space, TurnEvent, TurnResult, Visit};
use super::prefix::PrefixCache;
use super::scheduler::Command;
use super::shared::gone;
use crate::error::{Error, Result};
use crate::exec::wait::MAY_BLOCK;
use crate::session::{Session, Snapshot};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use web_time::Instant;

impl Engine {
    fn pins(&self) -> Pins {
        let commands = self.commands.downgrade();
        let post = move |visit| drop(commands.upgrade().map(|commands| commands.try_send(Command::Visit(visit))));
        Pins { post: Arc::new(post), n: self.shared.pinned.clone() }
    }

    /// Returns the number of states that callers can still pin.
    pub(crate) fn n_unpinned(&self) -> usize {
        self.shared.options.pinned.saturating_sub(self.shared.pinned.load(Ordering::SeqCst))
    }

    /// Returns a new namespace of the prefix cache.
    pub(crate) fn space(&self) -> Arc<Space> {
        static N: AtomicUsize = AtomicUsize::new(0);
        // The leading NUL keeps this name apart from the namespaces of callers.
        let name = format!("\0conversation {}", N.fetch_add(1, Ordering::Relaxed));
        Arc::new(Space { name, post: self.pins().post })
    }

    /// Runs `work` on the engine's thread between two steps, and waits for its result.
    fn visit<T: Send + 'static>(&self, work: impl FnOnce(&mut PrefixCache, &mut Session) -> Result<T> + Send + 'static) -> Result<T> {
        not_in_a_browser()?;
        let (done, is_done) = channel();
        let visit: Visit = Box::new(move |cache, session| {
            let _ = done.send(work(cache, session));
        });
        self.commands.try_send(Command::Visit(visit)).map_err(|_| gone())?;
        is_done.recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Pins a state that was saved or loaded.
    ///
    /// # Errors
    /// The errors of [`Session::restore`].
    pub(crate) fn pin(&self, snapshot: Snapshot) -> Result<Pinned> {
        let pins = self.pins();
        self.visit(move |cache, session| {
            cache.make_room(1, session);
            let slot = session.restore(&snapshot)?;
            let (id, room) = cache.pin(slot, session);
            let pinned = pins.handle(id, snapshot.n_tokens());
            room.map(|()| pinned)
        })
    }

    /// Returns a copy of a pinned state. `None` selects the empty state.
    ///
    /// # Errors
    /// The errors of [`Session::snapshot`] and [`Session::restore`].
    pub(crate) fn copy_of(&self, pinned: Option<&Pinned>) -> Result<Snapshot> {
        let pin = pinned.map(|pinned| (pinned.id(), pinned.n_tokens()));
        self.visit(move |cache, session| {
            let opened = pin.map(|(id, n_tokens)| cache.open_pinned(id, n_tokens, 0, session)).transpose()?.flatten();
            cache.make_room(1, session);
            let slot = opened.map_or_else(|| session.open(), Ok)?;
            let snapshot = session.snapshot(slot);
            session.close(slot)?;
            snapshot
        })
    }

    /// Returns the state after the longest prefix of `tokens` that the namespace has, and the number of tokens in this prefix.
    ///
    /// # Errors
    /// The errors of [`Session::snapshot`] and [`Session::restore`].
    pub(crate) fn copy_in(&self, space: &Space, tokens: Vec<u32>) -> Result<(Snapshot, usize)> {
        let name = space.name.clone();
        self.visit(move |cache, session| cache.snapshot(&name, &tokens, session))
    }

    /// Adds `snapshot`, the state after `tokens`, to the cache entries of the namespace.
    ///
    /// # Errors
    /// The errors of [`Session::restore`].
    pub(crate) fn keep_in(&self, space: &Space, tokens: Vec<u32>, snapshot: Snapshot) -> Result<()> {
        let name = space.name.clone();
        self.visit(move |cache, session| {
            cache.make_room(1, session);
            let slot = session.restore(&snapshot)?;
            cache.insert(&name, tokens, slot, session)
        })
    }

    /// Runs a passage and waits for its end. Calls `on_read(prefilled tokens, tokens to prefill)` after each step that prefills, and `on_event` with
    /// each token and each new text. `Break` from `on_event` ends the text; the state has then read exactly this text.
    ///
    /// # Errors
    /// `Interrupted` after `Break` from `on_read`; `Memory` if no further state can be pinned; the errors of [`Batcher::add`](crate::session::Batcher)
    /// and of the text.
    pub(crate) fn pass(
        &self,
        passage: Passage,
        on_read: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
        on_event: &mut dyn FnMut(Option<u32>, &str) -> ControlFlow<()>,
    ) -> Result<TurnResult> {
        not_in_a_browser()?;
        if passage.space.is_none() && self.n_unpinned() == 0 {
            return Err(no_room());
        }
        let ((heard, hear), (answer, answers)) = (channel(), channel());
        let line = Line { heard, answers, pins: self.pins() };
        self.commands.try_send(Command::Pass(Box::new(passage), line)).map_err(|_| gone())?;
        let (mut began, mut prefill_ms) = (Instant::now(), 0.0);
        loop {
            let said = match hear.recv() {
                Ok(TurnEvent::Read(done, all)) => {
                    let said = on_read(done, all);
                    if done == all {
                        (began, prefill_ms) = (Instant::now(), since(began));
                    }
                    said
                }
                Ok(TurnEvent::Event(token, text)) => on_event(token, &text),
                Ok(TurnEvent::Done(passed)) => {
                    return passed.map(|passed| TurnResult { prefill_ms, decode_ms: since(began), ..passed });
                }
                Err(_) => return Err(gone()),
            };
            let _ = answer.send(said);
        }
    }
}

/// Returns the milliseconds since `began`.
pub(crate) fn since(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}

/// Returns the error for a caller that has pinned as many states as the engine allows.
pub(crate) fn no_room() -> Error {
    Error::memory("no memory for another branch: all slots of the session are in use").hint("remove a branch first")
}

/// Returns an error in a browser. The engine runs on the caller's thread there, and this thread cannot wait for itself.
fn not_in_a_browser() -> Result<()> {
    if MAY_BLOCK { Ok(()) } else { Err(Error::device("a conversation waits for its engine, which a browser does not allow")) }
}
