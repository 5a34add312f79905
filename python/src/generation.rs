//! The events of a request.

use crate::load::SLICE;
use crate::process::{self, lock};
use crate::{bridge, errors, events, logs};
use futures_core::Stream;
use pyo3::prelude::*;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;
use wingbeat::vocab::Vocab;
use wingbeat::{Event, Result};

/// Reads the events of a request.
pub struct Reader {
    /// `None` if the request was cancelled.
    generation: Mutex<Option<wingbeat::Generation>>,
    waiting: Arc<Waiting>,
}

/// The wakers of all callers that wait for the next event. The library's generation remembers only one waker.
#[derive(Default)]
struct Waiting(Mutex<Vec<Waker>>);

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let all = std::mem::take(&mut *lock(&self.0));
        all.into_iter().for_each(Waker::wake);
    }
}

impl Reader {
    fn new(generation: wingbeat::Generation) -> Reader {
        Reader { generation: Mutex::new(Some(generation)), waiting: Arc::default() }
    }

    /// Returns the next event, or remembers `waker` until an event arrives.
    fn poll(&self, waker: &Waker) -> Poll<Option<Result<Event>>> {
        let all = Waker::from(self.waiting.clone());
        {
            let mut waiting = lock(&self.waiting.0);
            if !waiting.iter().any(|known| known.will_wake(waker)) {
                waiting.push(waker.clone());
            }
        }
        let polled = match lock(&self.generation).as_mut() {
            Some(generation) => Pin::new(generation).poll_next(&mut Context::from_waker(&all)),
            None => Poll::Ready(None),
        };
        if polled.is_ready() {
            // Wakes the other callers: they may find the next event, or the end.
            self.forget(waker);
            all.wake();
        }
        polled
    }

    fn forget(&self, waker: &Waker) {
        lock(&self.waiting.0).retain(|known| !known.will_wake(waker));
    }

    /// Waits for the next event, at most as long as [`SLICE`].
    fn wait(&self) -> Poll<Option<Result<Event>>> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let until = Instant::now() + SLICE;
        loop {
            let polled = self.poll(&waker);
            let left = until.saturating_duration_since(Instant::now());
            if polled.is_ready() || left.is_zero() {
                self.forget(&waker);
                return polled;
            }
            thread::park_timeout(left);
        }
    }

    /// Cancels the request. Its slots are free within one step.
    pub fn cancel(&self) {
        let generation = lock(&self.generation).take();
        drop(generation);
        Waker::from(self.waiting.clone()).wake();
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Calls a function of Python, once, in the thread of the bridge.
struct Call(Mutex<Option<Py<PyAny>>>);

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        let function = lock(&self.0).take();
        function.into_iter().for_each(bridge::call);
    }
}

#[pyclass(frozen, module = "wingbeat._native")]
pub struct Generation {
    reader: Arc<Reader>,
    /// Has the bytes of tokens. `None` if the model has no vocabulary.
    vocab: Option<Vocab>,
    /// The number of tokens of the prompt, or of all texts of the request.
    #[pyo3(get)]
    n_tokens: usize,
}

impl Generation {
    pub fn new(generation: wingbeat::Generation, vocab: Option<Vocab>) -> Generation {
        let n_tokens = generation.n_tokens();
        Generation { reader: Arc::new(Reader::new(generation)), vocab, n_tokens }
    }

    pub fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// Converts an event to a Python object. Returns Python's `None` after the last event.
    fn event(&self, py: Python<'_>, event: Option<Result<Event>>) -> PyResult<Py<PyAny>> {
        match event {
            None => Ok(py.None()),
            Some(Ok(event)) => events::object(py, self.vocab.as_ref(), event),
            Some(Err(e)) => {
                logs::deliver(py)?;
                Err(errors::exception(py, &e))
            }
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if let Some(generation) = lock(&self.reader.generation).take() {
            process::release(generation);
        }
    }
}

#[pymethods]
impl Generation {
    /// Waits for the next event. Returns `None` after the last one. Ctrl-C cancels the request.
    fn next(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if process::is_forked() {
            return Err(errors::forked(py));
        }
        // Returns an available event at once, without releasing the interpreter's lock.
        if let Poll::Ready(event) = self.reader.poll(Waker::noop()) {
            return self.event(py, event);
        }
        loop {
            let polled = process::detach(py, || self.reader.wait());
            if let Poll::Ready(event) = polled {
                return self.event(py, event);
            }
            logs::deliver(py)?;
            py.check_signals().inspect_err(|_| process::detach(py, || self.reader.cancel()))?;
        }
    }

    /// Returns the next event if it is available, and `None` after the last event. Otherwise returns `...`, and calls `ready` once from another
    /// thread when the caller should poll again.
    fn poll(&self, py: Python<'_>, ready: Py<PyAny>) -> PyResult<Py<PyAny>> {
        if process::is_forked() {
            return Err(errors::forked(py));
        }
        bridge::start()?;
        match self.reader.poll(&Waker::from(Arc::new(Call(Mutex::new(Some(ready)))))) {
            Poll::Ready(event) => self.event(py, event),
            Poll::Pending => Ok(py.Ellipsis()),
        }
    }

    /// Cancels the request. Its slots are free within one step.
    fn cancel(&self, py: Python<'_>) {
        if !process::is_forked() {
            process::detach(py, || self.reader.cancel());
        }
    }
}
