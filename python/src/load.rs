//! Loads a model in a thread, so that Ctrl-C ends the wait and Python's other threads continue.

use crate::errors;
use crate::options::LoadOptions;
use crate::process::{self, lock};
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use wingbeat::low_level::exec::{ChosenDevice, choose, tune};
use wingbeat::{Engine, Error, Model, ModelSource, Options, Result};

/// The time between two checks for Ctrl-C.
pub const SLICE: Duration = Duration::from_millis(50);

/// A message of the loading thread.
enum Said {
    /// The stage, the finished work and the total work. The stage determines the unit.
    Progress(&'static str, u64, u64),
    Loaded(thread::Result<Result<Engine>>),
}

/// The payload of the panic that ends a load for which nobody waits any longer.
struct Abandoned;

/// Loads a model and starts its engine. Returns the engine. `progress(stage, done, total)` is a Python function.
pub fn load(py: Python<'_>, source: ModelSource, options: LoadOptions, download: bool, progress: Option<&Py<PyAny>>) -> PyResult<Engine> {
    let (says, said) = channel();
    let is_abandoned = Arc::new(AtomicBool::new(false));
    let stop = is_abandoned.clone();
    let work = move || {
        let tell = |stage, done, total| {
            if stop.load(Ordering::SeqCst) {
                // Unwinds without a message: the library frees what it has loaded so far.
                resume_unwind(Box::new(Abandoned));
            }
            let _ = says.send(Said::Progress(stage, done, total));
        };
        let loaded = catch_unwind(AssertUnwindSafe(|| start(source, &options, download, &tell)));
        let _ = says.send(Said::Loaded(loaded));
    };
    let thread = thread::Builder::new().name("wingbeat-load".into()).spawn(work)?;
    let loaded = wait(py, &Mutex::new(said), progress).inspect_err(|_| is_abandoned.store(true, Ordering::SeqCst));
    crate::logs::deliver(py)?;
    match loaded {
        Ok(Ok(loaded)) => loaded.map_err(|e| errors::exception(py, &e)),
        Ok(Err(panic)) => Err(errors::panicked(py, &*panic)),
        Err(e) => {
            process::abandon(thread);
            Err(e)
        }
    }
}

/// Waits for the loading thread, and calls `progress` at most 20 times a second.
///
/// # Errors
/// The exception of a signal or of `progress`.
fn wait(py: Python<'_>, said: &Mutex<Receiver<Said>>, progress: Option<&Py<PyAny>>) -> PyResult<thread::Result<Result<Engine>>> {
    loop {
        let mut last: Option<(&'static str, u64, u64)> = None;
        // The end of a stage is reported even if the next stage begins within the same slice.
        let mut tell = |said: (&'static str, u64, u64)| match progress {
            Some(progress) => progress.call1(py, said).map(drop),
            None => Ok(()),
        };
        let until = std::time::Instant::now() + SLICE;
        let ended = loop {
            let left = until.saturating_duration_since(std::time::Instant::now());
            match process::detach(py, || lock(said).recv_timeout(left)) {
                Ok(Said::Progress(stage, done, total)) => {
                    if let Some(ended) = last.filter(|(before, ..)| *before != stage) {
                        tell(ended)?;
                    }
                    last = Some((stage, done, total));
                }
                Ok(Said::Loaded(loaded)) => break Some(loaded),
                Err(RecvTimeoutError::Timeout) => break None,
                Err(RecvTimeoutError::Disconnected) => break Some(Ok(Err(Error::device("the thread that loads the model has ended")))),
            }
        };
        last.map_or(Ok(()), &mut tell)?;
        match ended {
            Some(loaded) => return Ok(loaded),
            None => py.check_signals()?,
        }
    }
}

fn start(source: ModelSource, options: &LoadOptions, download: bool, tell: &(dyn Fn(&'static str, u64, u64) + Sync)) -> Result<Engine> {
    let found = |source: &ModelSource| match source {
        ModelSource::Path(path) => locate(path, download, tell).map(ModelSource::Path),
        other => Ok(other.clone()),
    };
    let of_model = options.model()?;
    start_threads(options.threads()?)?;
    let source = found(&source)?;
    measure(&of_model, tell)?;
    let load = |source: &ModelSource, options: &Options| Model::load(source, options, &mut |done, total| tell("weights", done, total));
    let model = load(&source, &of_model)?;
    let mut beside = of_model;
    (beside.strategy, beside.lora, beside.vocab) = (None, None, None);
    let engine = options.engine(&model, &beside, |source, options| load(&found(source)?, options))?;
    Engine::start(&model, engine)
}

/// Starts the threads that all models of the process share, when the first model loads.
///
/// # Errors
/// `Usage` if a later model asks for another number of threads.
fn start_threads(n: Option<u32>) -> Result<()> {
    /// The number that the first model asked for. The outer `None` means that no model has loaded yet.
    static STARTED: Mutex<Option<Option<u32>>> = Mutex::new(None);
    let mut started = lock(&STARTED);
    match *started {
        None => {
            wingbeat_cli::start_threads(n)?;
            *started = Some(n);
            Ok(())
        }
        Some(before) if n.is_none() || n == before => Ok(()),
        Some(_) => Err(Error::usage("all models of a process share their threads, and the first model has started them").field("threads")),
    }
}

fn locate(path: &Path, download: bool, tell: &dyn Fn(&'static str, u64, u64)) -> Result<std::path::PathBuf> {
    let mut progress = |done, total| tell("download", done, total);
    wingbeat_cli::located(path, if download { Some(&mut progress) } else { None })
}

/// Measures which kernels are fastest on the chosen GPU, unless it was measured before. Does nothing without a cache folder or with a strategy.
fn measure(options: &Options, tell: &dyn Fn(&'static str, u64, u64)) -> Result<()> {
    let (Some(folder), None) = (&options.cache, &options.strategy) else { return Ok(()) };
    if let ChosenDevice::Gpu(adapter) = choose(&options.device, options.backend)?.chosen {
        tune::measure_once(&adapter, folder, &mut |done, total| tell("measure", done as u64, total as u64))?;
    }
    Ok(())
}
