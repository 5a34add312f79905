//! The session of a model for `logits`, `loglikelihoods` and `forward`, which Ctrl-C and the end of the model interrupt.

use crate::process::{self, lock};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wingbeat::low_level::session::{Idle, MAX_NESTED, Session};
use wingbeat::low_level::tape::TOKENS_PER_BLOCK;
use wingbeat::{Engine, Result};

/// The minimum time between two checks for Ctrl-C.
const SLICE: Duration = Duration::from_millis(100);

/// The session of a model. The first call creates the session, and later calls reuse it.
#[derive(Default)]
pub struct Reader {
    session: Mutex<Option<Session>>,
    is_closed: AtomicBool,
}

impl Reader {
    /// Runs `work` with the session. After an error or a panic, the session is dropped: slots may be open, or the device may be lost.
    ///
    /// # Errors
    /// The errors of `work` and of [`Session::with_idle`].
    pub fn read<T>(&self, engine: &Engine, watch: &mut Watch, work: impl FnOnce(&mut Session, &mut Watch) -> Result<T>) -> Result<T> {
        let mut place = lock(&self.session);
        let mut session = match place.take() {
            Some(session) => session,
            None => {
                let model = engine.model();
                // `loglikelihoods` keeps up to `MAX_NESTED` nested beginnings in slots. Each beginning extends the previous beginning and shares its
                // blocks of the KV cache. So all beginnings together take one context, and at most one more block each.
                let idle =
                    Idle { slots: MAX_NESTED, tokens: model.context().map_or(0, |n| n + MAX_NESTED * TOKENS_PER_BLOCK), ..Idle::default() };
                Session::with_idle(model, engine.stats().slots, idle)?
            }
        };
        watch.stop = session.stop_flag();
        watch.stop.store(self.is_closed.load(Ordering::SeqCst), Ordering::SeqCst);
        let done = work(&mut session, watch)?;
        *place = Some(session);
        Ok(done)
    }

    /// Ends the current reading after its step, refuses later readings, and drops the session.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        lock(&self.session).take();
    }

    /// Returns whether the reader was closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }
}

/// Checks for Ctrl-C between the steps of a reading, and stops the reading.
pub struct Watch {
    stop: Arc<AtomicBool>,
    last: Instant,
    /// The exception that a signal handler has raised.
    pub raised: Option<PyErr>,
}

impl Watch {
    pub fn new() -> Watch {
        Watch { stop: Arc::default(), last: Instant::now(), raised: None }
    }

    /// Stops the reading if `reader` is closed, or if a signal handler raises an exception. Checks for signals at most once per `SLICE`.
    pub fn look(&mut self, reader: &Reader) {
        if reader.is_closed() {
            self.stop.store(true, Ordering::SeqCst);
        }
        if self.last.elapsed() < SLICE {
            return;
        }
        self.last = Instant::now();
        if let Some(Err(e)) = process::attach(|py| py.check_signals()) {
            self.raised = Some(e);
            self.stop.store(true, Ordering::SeqCst);
        }
    }
}
