//! What belongs to this process: models that are open, and the end of the process.
//!
//! A fork copies neither threads nor the GPU, so a child process must not touch the models of its parent.

use crate::errors;
use crate::generation::Reader;
use crate::model::Open;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

/// The process that opened the first model; 0 before.
static OPENED_BY: AtomicU32 = AtomicU32::new(0);

/// The open models, for the end of the process.
static OPEN: Mutex<Vec<Weak<Open>>> = Mutex::new(Vec::new());

/// The readers of requests, for the end of the process. A text goes on after its model is dropped, as long as somebody may read it.
static READERS: Mutex<Vec<Weak<Reader>>> = Mutex::new(Vec::new());

/// True from the moment when Python begins to end.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Threads that load models whose caller has stopped to wait.
static ABANDONED: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// Marks the process as one that opens models. Registers the function that closes them when Python ends.
///
/// # Errors
/// `ForkError` if the process was forked from one that had opened a model.
pub fn begin(py: Python<'_>) -> PyResult<()> {
    static IS_REGISTERED: PyOnceLock<()> = PyOnceLock::new();
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

/// Returns whether this process was forked from the one that opened its models.
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
    Python::try_attach(|py| py.detach(|| drop(value.take())));
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

/// Remembers a thread that loads a model which nobody waits for.
pub fn abandon(thread: JoinHandle<()>) {
    lock(&ABANDONED).push(thread);
}

/// Ends running texts, and waits until no thread uses a device. Python calls this function before it ends, because drivers must not run while the process
/// frees them.
#[pyfunction]
pub fn at_exit(py: Python<'_>) -> PyResult<()> {
    if is_forked() {
        return Ok(());
    }
    IS_ENDING.store(true, Ordering::SeqCst);
    py.detach(|| {
        let open = mem::take(&mut *lock(&OPEN));
        open.iter().filter_map(Weak::upgrade).for_each(|model| model.end());
        let readers = mem::take(&mut *lock(&READERS));
        readers.iter().filter_map(Weak::upgrade).for_each(|reader| reader.cancel());
        let threads = mem::take(&mut *lock(&ABANDONED));
        threads.into_iter().try_for_each(|thread| thread.join()).map_err(|_| ())?;
        crate::bridge::stop()
    })
    .map_err(|()| PyRuntimeError::new_err("a thread of wingbeat has panicked"))
}

/// Stops this thread for good if Python is ending, as Python does with all threads a moment later. A thread whose text has just been ended would report that
/// as an error.
pub fn stop_if_ending(py: Python<'_>) {
    if IS_ENDING.load(Ordering::SeqCst) {
        py.detach(|| {
            loop {
                std::thread::park();
            }
        });
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
