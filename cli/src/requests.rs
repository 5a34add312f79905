//! Runs the requests of a subcommand on an engine: starts the engine, and passes on the events of each request. A signal ends the requests.

#[cfg(doc)]
use super::signals;
use futures_core::Stream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use wingbeat::engine::{CacheOptions, Engine, EngineOptions, Event, Generation, Request, StateOptions};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::session::{LoadedState, Model, Snapshot};

/// The name under which the engine keeps the state of `--state`. All texts begin with this state.
pub const BASE: &str = "base";

/// Starts an engine for a subcommand that generates texts, without a prefix cache. If `base` has a state, the engine keeps this state under the name
/// [`BASE`].
pub fn start_engine(model: &Model, options: EngineOptions, base: Option<(Snapshot, LoadedState)>) -> Result<Engine> {
    model.check_speaks()?;
    let engine = Engine::start(model, EngineOptions { cache: CacheOptions::off(), ..for_one_caller(options) })?;
    if let Some((snapshot, loaded)) = base {
        engine.keep_state("", BASE, snapshot, loaded)?;
    }
    Ok(engine)
}

/// Returns `options` for an engine with one caller. The bytes of states need no limit, because the caller keeps few states. Prefill may slow down
/// decoding, because nobody waits for single tokens.
pub fn for_one_caller(options: EngineOptions) -> EngineOptions {
    let states = StateOptions { bytes: u64::MAX, ..StateOptions::default() };
    EngineOptions { states, prefill_slowdown: None, ..options }
}

/// The events of one request. The first signal ends all running texts of the engine, and their completions contain the text so far. A request that
/// has no slot yet, or that computes vectors, ends with an error of the kind `Interrupted`.
pub struct Events {
    engine: Engine,
    generation: Generation,
    stop: Arc<AtomicBool>,
    waker: Waker,
    is_stopped: bool,
    n_read: usize,
}

impl Events {
    /// Submits a request. The request ends when a signal sets `stop` ([`signals::stop_flag`]).
    ///
    /// # Errors
    /// The errors of [`Engine::submit`].
    pub fn submit(engine: &Engine, mut request: Request, stop: &Arc<AtomicBool>) -> Result<Events> {
        request.return_progress = true;
        let generation = engine.submit(request)?;
        Ok(Events { engine: engine.clone(), generation, stop: stop.clone(), waker: unpark(), is_stopped: false, n_read: 0 })
    }

    /// Ends the texts of the engine, as a signal does.
    pub fn stop(&mut self) {
        self.is_stopped = true;
        self.engine.interrupt();
    }

    /// Returns the number of prompt tokens of the request.
    pub fn n_tokens(&self) -> usize {
        self.generation.n_tokens()
    }

    /// Returns how many prompt tokens are prefilled.
    pub fn n_read(&self) -> usize {
        self.n_read
    }
}

impl Iterator for Events {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Result<Event>> {
        loop {
            if !self.is_stopped && self.stop.load(Ordering::Relaxed) {
                self.stop();
            }
            let Poll::Ready(event) = Pin::new(&mut self.generation).poll_next(&mut Context::from_waker(&self.waker)) else {
                std::thread::park();
                continue;
            };
            return match event {
                Some(Err(_)) if self.is_stopped => Some(Err(Error::interrupted(self.n_read, self.n_tokens()))),
                Some(Ok(event)) => {
                    if let Event::Progress { processed_tokens, .. } = event {
                        self.n_read = processed_tokens;
                    }
                    Some(Ok(event))
                }
                event => event,
            };
        }
    }
}

/// Returns a waker that unparks this thread.
pub fn unpark() -> Waker {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    Waker::from(Arc::new(Unpark(std::thread::current())))
}
