//! Messages of the library in Python's logger `wingbeat`.
//!
//! Threads of the library must not wait for the interpreter, so messages wait in a queue until a call from Python delivers them.

use crate::process::lock;
use log::{Level, LevelFilter, Log, Metadata, Record};
use pyo3::prelude::*;
use std::collections::VecDeque;
use std::sync::Mutex;

/// The maximum number of waiting messages. The oldest message is dropped to make room for a new message.
const MOST: usize = 1000;

static WAITING: Mutex<VecDeque<(Level, String)>> = Mutex::new(VecDeque::new());

struct Queue;

impl Log for Queue {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("wingbeat") && metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let mut waiting = lock(&WAITING);
            if waiting.len() == MOST {
                waiting.pop_front();
            }
            waiting.push_back((record.level(), record.args().to_string()));
        }
    }

    fn flush(&self) {}
}

/// Begins to collect messages of the levels that Python's logger wants now. Each load of a model and each request calls this function, so that a
/// changed level takes effect.
pub fn start(py: Python<'_>) -> PyResult<()> {
    // An error is ignored: later calls find the logger in place.
    let _ = log::set_logger(&Queue);
    let level: i32 = logger(py)?.call_method0("getEffectiveLevel")?.extract()?;
    log::set_max_level(match level {
        ..=9 => LevelFilter::Trace,
        10..=19 => LevelFilter::Debug,
        20..=29 => LevelFilter::Info,
        30..=39 => LevelFilter::Warn,
        40..=49 => LevelFilter::Error,
        _ => LevelFilter::Off,
    });
    Ok(())
}

/// Gives all messages to Python's logger.
pub fn deliver(py: Python<'_>) -> PyResult<()> {
    let messages = std::mem::take(&mut *lock(&WAITING));
    if messages.is_empty() {
        return Ok(());
    }
    let logger = logger(py)?;
    messages.into_iter().try_for_each(|(level, text)| {
        let level = match level {
            Level::Error => 40,
            Level::Warn => 30,
            Level::Info => 20,
            Level::Debug => 10,
            Level::Trace => 5,
        };
        logger.call_method1("log", (level, "%s", text)).map(drop)
    })
}

fn logger(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("logging")?.call_method1("getLogger", ("wingbeat",))
}
