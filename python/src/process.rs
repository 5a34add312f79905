//! The state of this process: its open models, and its end.
//!
//! A fork copies neither threads nor the GPU, so a child process must not touch the models of its parent.

use crate::errors;
use crate::generation::Reader;
use crate::model::Open;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

/// The id of the process that opened the first model, or 0 if no model was opened.
static OPENED_BY: AtomicU32 = AtomicU32::new(0);

/// The open models, for the end of the process.
static OPEN: Mutex<Vec<Weak<Open>>> = Mutex::new(Vec::new());

/// The readers of all running requests. The end of the process cancels these requests, also after Python has dropped their model.
static READERS: Mutex<Vec<Weak<Reader>>> = Mutex::new(Vec::new());

/// True from the moment when Python begins to end.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// The thread in which Python ends.
static ENDS_IN: Mutex<Option<ThreadId>> = Mutex::new(None);

/// The number of threads that are about to take the interpreter's lock back.
static RETURNING: AtomicUsize = AtomicUsize::new(0);

/// Threads that load models whose callers no longer wait.
static ABANDONED: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// Records that this process opens models. Registers the function that closes all models when Python ends.
///
/// # Errors
/// `ForkError` if the process was forked from a process that had opened a model. `RuntimeError` if Python is ending.
pub fn begin(py: Python<'_>) -> PyResult<()> {
    static IS_REGISTERED: PyOnceLock<()> = PyOnceLock::new();
    if IS_ENDING.load(Ordering::SeqCst) {
        return Err(PyRuntimeError::new_err("Python is ending: a model can no longer be opened"));
    }
    let process = std::process::id();
    if let Err(parent) = OPENED_BY.compare_exchange(0, process, Ordering::SeqCst, Ordering::SeqCst)
        && parent != process
    {
        return Err(errors::forked(py));
    }
    IS_REGISTERED.get_or_try_init(py, || {
        let function = py.import("wingbeat._native")?.getattr("at_exit")?;
        py.import("atexit")?.call_method1("register", (function,)).map(drop)
    })?;
    Ok(())
}

/// Returns whether this process was forked from a process that had opened models.
pub fn is_forked() -> bool {
    let parent = OPENED_BY.load(Ordering::SeqCst);
    parent != 0 && parent != std::process::id()
}

/// Drops a value without the interpreter's lock, because the drop may wait for threads. A forked process has no such threads, so it keeps the value.
pub fn release<T: Send>(value: T) {
    if is_forked() {
        return mem::forget(value);
    }
    let mut value = Some(value);
    Python::try_attach(|py| detach(py, || drop(value.take())));
    drop(value);
}

/// Remembers an open model until the end of the process.
pub fn remember(model: &Arc<Open>) {
    let mut open = lock(&OPEN);
    open.retain(|model| model.strong_count() > 0);
    open.push(Arc::downgrade(model));
}

/// Remembers the reader of a request until the end of the process.
pub fn remember_reader(reader: &Arc<Reader>) {
    let mut readers = lock(&READERS);
    readers.retain(|reader| reader.strong_count() > 0);
    readers.push(Arc::downgrade(reader));
}

/// Remembers a loading thread whose caller no longer waits. `at_exit` waits for this thread.
pub fn abandon(thread: JoinHandle<()>) {
    lock(&ABANDONED).push(thread);
}

/// Runs `work` without the interpreter's lock. If Python is ending when the work is done, the thread stops here for good: Python would end a thread
/// that takes the lock then, and Rust does not survive this.
pub fn detach<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let done = py.detach(|| {
        let done = work();
        RETURNING.fetch_add(1, Ordering::SeqCst);
        if IS_ENDING.load(Ordering::SeqCst) && *lock(&ENDS_IN) != Some(thread::current().id()) {
            RETURNING.fetch_sub(1, Ordering::SeqCst);
            loop {
                thread::park();
            }
        }
        done
    });
    RETURNING.fetch_sub(1, Ordering::SeqCst);
    done
}

/// Runs `work` with the interpreter's lock, in a thread that has released the lock with [`detach`]. Returns `None` if Python is ending.
pub fn attach<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    RETURNING.fetch_add(1, Ordering::SeqCst);
    let is_ending = IS_ENDING.load(Ordering::SeqCst);
    let done = if is_ending { None } else { Some(Python::attach(work)) };
    RETURNING.fetch_sub(1, Ordering::SeqCst);
    done
}

/// Ends running texts, and waits until no thread uses a device. Python calls this function before it ends, because drivers must not run while the
/// process frees them.
#[pyfunction]
pub fn at_exit(py: Python<'_>) -> PyResult<()> {
    if is_forked() {
        return Ok(());
    }
    *lock(&ENDS_IN) = Some(thread::current().id());
    IS_ENDING.store(true, Ordering::SeqCst);
    detach(py, || {
        let open = mem::take(&mut *lock(&OPEN));
        open.iter().filter_map(Weak::upgrade).for_each(|model| model.end());
        let readers = mem::take(&mut *lock(&READERS));
        readers.iter().filter_map(Weak::upgrade).for_each(|reader| reader.cancel());
        let threads = mem::take(&mut *lock(&ABANDONED));
        threads.into_iter().try_for_each(|thread| thread.join()).map_err(|_| ())?;
        crate::bridge::stop()?;
        // Threads that began to return before the end was announced still get the lock, because this thread does not hold it.
        while RETURNING.load(Ordering::SeqCst) > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    })
    .map_err(|()| PyRuntimeError::new_err("a thread of wingbeat has panicked"))
}

pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
