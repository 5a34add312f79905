//! The events of a request.

use crate::load::SLICE;
use crate::model::Open;
use crate::process::{self, lock};
use crate::{bridge, errors, events, logs};
use futures_core::Stream;
use pyo3::prelude::*;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;
use wingbeat::{Event, Result};

/// Reads the events of a request. `None` if the request was cancelled.
pub struct Reader(Mutex<Option<wingbeat::Generation>>);

impl Reader {
    fn poll(&self, waker: &Waker) -> Poll<Option<Result<Event>>> {
        match lock(&self.0).as_mut() {
            Some(generation) => Pin::new(generation).poll_next(&mut Context::from_waker(waker)),
            None => Poll::Ready(None),
        }
    }

    /// Waits for the next event, for at most a slice of time.
    fn wait(&self) -> Poll<Option<Result<Event>>> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let until = Instant::now() + SLICE;
        loop {
            let polled = self.poll(&waker);
            let left = until.saturating_duration_since(Instant::now());
            if polled.is_ready() || left.is_zero() {
                return polled;
            }
            thread::park_timeout(left);
        }
    }

    /// Cancels the request. Its slots are free within one step.
    pub fn cancel(&self) {
        let generation = lock(&self.0).take();
        drop(generation);
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
    model: Weak<Open>,
    /// The number of tokens of the prompt, or of all texts of the request.
    #[pyo3(get)]
    n_tokens: usize,
}

impl Generation {
    pub fn new(generation: wingbeat::Generation, model: Weak<Open>) -> Generation {
        let n_tokens = generation.n_tokens();
        Generation { reader: Arc::new(Reader(Mutex::new(Some(generation)))), model, n_tokens }
    }

    pub fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// Returns an event as an object of Python, and `None` after the last one.
    fn event(&self, py: Python<'_>, event: Option<Result<Event>>) -> PyResult<Py<PyAny>> {
        match event {
            None => Ok(py.None()),
            Some(Ok(event)) => {
                let model = self.model.upgrade();
                let vocab = model.as_ref().and_then(|model| model.engine.model().vocab());
                events::object(py, vocab, event)
            }
            Some(Err(e)) => {
                logs::deliver(py)?;
                Err(errors::exception(py, &e))
            }
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if let Some(generation) = lock(&self.reader.0).take() {
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
        // An event that is there needs no wait without the interpreter's lock.
        if let Poll::Ready(event) = self.reader.poll(Waker::noop()) {
            return self.event(py, event);
        }
        loop {
            let polled = py.detach(|| self.reader.wait());
            process::stop_if_ending(py);
            if let Poll::Ready(event) = polled {
                return self.event(py, event);
            }
            logs::deliver(py)?;
            py.check_signals().inspect_err(|_| py.detach(|| self.reader.cancel()))?;
        }
    }

    /// Returns the next event if it is there, and `None` after the last one. Otherwise returns `...`, and calls `ready` once from another thread when it
    /// is worth to poll again.
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
            py.detach(|| self.reader.cancel());
        }
    }
}
