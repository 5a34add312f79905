//! Passages are texts that conversations read and generate on an engine. Pinned states are points to which a conversation can return.
//!
//! A passage is one text of the engine, beside the texts of requests. After each step of its prefill and after each token, the engine's thread waits for
//! the caller. So a caller can end the text at exactly this token, and the state after the passage has read exactly its text.

use super::prefix::PrefixCache;
use crate::error::Result;
use crate::session::{Session, Text, TextSpec};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};

/// Work on the cache and the session between two steps.
pub(super) type Visit = Box<dyn FnOnce(&mut PrefixCache, &mut Session) + Send>;

/// A state that the engine holds for a caller. Clones are handles of the same state. The engine frees the state when the last handle is dropped.
#[derive(Clone)]
pub(crate) struct Pinned(Arc<Pin>);

struct Pin {
    /// The key of the state in the engine's cache.
    id: u64,
    n_tokens: usize,
    pins: Pins,
}

/// Sends work to an engine; does nothing once the engine has stopped. Holds a weak reference, so that a state handle does not keep the engine alive.
pub(super) type Post = Arc<dyn Fn(Visit) + Send + Sync>;

/// Makes and counts the handles of an engine's pinned states.
#[derive(Clone)]
pub(super) struct Pins {
    pub post: Post,
    /// The number of pinned states with handles.
    pub n: Arc<AtomicUsize>,
}

impl Pins {
    /// Returns the handle of a state that the cache has pinned under the key `id`. The state has read `n_tokens` tokens.
    pub fn handle(&self, id: u64, n_tokens: usize) -> Pinned {
        self.n.fetch_add(1, Ordering::SeqCst);
        Pinned(Arc::new(Pin { id, n_tokens, pins: self.clone() }))
    }
}

impl Pinned {
    /// Returns a number that differs between all pinned states of an engine.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Returns the number of tokens that the state has read.
    pub fn n_tokens(&self) -> usize {
        self.0.n_tokens
    }

    /// Returns how many handles the state has.
    pub fn n_handles(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let id = self.id;
        self.pins.n.fetch_sub(1, Ordering::SeqCst);
        (self.pins.post)(Box::new(move |cache, session| warn(cache.unpin(id, session))));
    }
}

/// A namespace of the prefix cache that only its owner uses. Dropping this value removes the entries of the namespace.
pub(crate) struct Space {
    pub(super) name: String,
    pub(super) post: Post,
}

impl Drop for Space {
    fn drop(&mut self) {
        let name = std::mem::take(&mut self.name);
        (self.post)(Box::new(move |cache, session| warn(cache.forget(&name, session))));
    }
}

fn warn(freed: Result<()>) {
    freed.unwrap_or_else(|e| log::warn!("prefix cache: {e}"));
}

/// A text that a caller reads and generates step by step.
pub(crate) struct Passage {
    /// The prompt, and how to continue it. A limit of 0 tokens only prefills the prompt. The engine sets `from`, `pending`, `speculation`,
    /// `keeps.end` and `keeps.whole`.
    pub job: TextSpec,
    /// The state after which the prompt follows. `None` begins with an empty state.
    pub from: Option<Pinned>,
    /// The namespace in which the engine looks up the prompt and keeps states: at `job.keeps.at` for a recurrent model, at the end for other models.
    /// `None` looks up nothing and pins the state after the text.
    pub space: Option<Arc<Space>>,
    /// The engine ends the wait for a slot if this flag becomes true. Once the passage has a slot, the caller's callbacks decide when to stop.
    pub stop: Arc<AtomicBool>,
}

/// The result of a passage.
pub(crate) struct TurnResult {
    pub output: Text,
    /// The state after the text. `None` if the passage has a [`Space`].
    pub pinned: Option<Pinned>,
    /// The number of prompt tokens that were prefilled.
    pub n_prefilled: usize,
    pub prefill_ms: f64,
    pub decode_ms: f64,
}

/// A message to the caller of a passage.
pub(super) enum TurnEvent {
    /// The number of prompt tokens prefilled so far, and the number of all prompt tokens to prefill.
    Read(usize, usize),
    Event(Option<u32>, String),
    Done(Box<Result<TurnResult>>),
}

/// The engine's end of the two channels to the caller of a passage.
pub(super) struct Line {
    pub heard: Sender<TurnEvent>,
    pub answers: Receiver<ControlFlow<()>>,
    pub pins: Pins,
}

impl Line {
    /// Sends a message to the caller and waits for the answer. Returns `Break` if the caller is gone.
    pub fn ask(&self, heard: TurnEvent) -> ControlFlow<()> {
        let said = self.heard.send(heard).ok().and_then(|()| self.answers.recv().ok());
        said.unwrap_or(ControlFlow::Break(()))
    }

    /// Sends the result to the caller, which may be gone.
    pub fn end(self, passed: Result<TurnResult>) {
        let _ = self.heard.send(TurnEvent::Done(Box::new(passed)));
    }
}
