//! Wakes event loops of asyncio. An engine's thread must not wait for the interpreter, so a separate thread calls the functions that wake a
//! loop.

use crate::process::lock;
use pyo3::prelude::*;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

struct Bridge {
    calls: Sender<Option<Py<PyAny>>>,
    thread: JoinHandle<()>,
}

static BRIDGE: Mutex<Option<Bridge>> = Mutex::new(None);

/// Queues a call of a Python function for the thread. Does nothing before [`start`] and after [`stop`].
pub fn call(function: Py<PyAny>) {
    if let Some(bridge) = &*lock(&BRIDGE) {
        // Sending fails only if the thread has ended, because Python is ending.
        let _ = bridge.calls.send(Some(function));
    }
}

/// Starts the thread, if it does not run.
///
/// # Errors
/// The system's error if the thread cannot be started.
pub fn start() -> std::io::Result<()> {
    let mut bridge = lock(&BRIDGE);
    if bridge.is_none() {
        let (calls, called) = channel::<Option<Py<PyAny>>>();
        let work = move || {
            while let Ok(Some(first)) = called.recv() {
                let mut is_last = false;
                let attached = Python::try_attach(|py| {
                    run(py, &first);
                    // Runs all other waiting calls, too, so that they need not wait for the interpreter again.
                    for call in called.try_iter() {
                        match call {
                            Some(function) => run(py, &function),
                            None => is_last = true,
                        }
                    }
                });
                if is_last || attached.is_none() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("wingbeat-asyncio".into()).spawn(work)?;
        *bridge = Some(Bridge { calls, thread });
    }
    Ok(())
}

/// Calls a function. Ignores an error: a closed event loop refuses the call, and then nobody waits for it.
fn run(py: Python<'_>, function: &Py<PyAny>) {
    let _ = function.call0(py);
}

/// Ends the thread and waits for it. The caller must not hold the interpreter's lock, because the thread may be waiting for this lock.
///
/// # Errors
/// `Err(())` if the thread has panicked.
pub fn stop() -> Result<(), ()> {
    let Some(Bridge { calls, thread }) = lock(&BRIDGE).take() else { return Ok(()) };
    let _ = calls.send(None);
    thread.join().map_err(|_| ())
}
