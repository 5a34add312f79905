//! A run of `batch`: lines become requests of an engine, and completions become lines of results.

use super::line;
use crate::chat::Format;
use crate::cli::endings::Endings;
use crate::cli::lines::{self, Held, Numbered};
use crate::cli::resume::{Id, Results, Was};
use crate::cli::{Failure, flags};
use crate::engine::{CacheOptions, Completion, Engine, EngineOptions, Event, Generation, Request, StateOptions};
use crate::error::{Error, Kind, Result, short};
use crate::report::{BatchFailure, BatchLine, BatchReport};
use crate::session::{LoadedState, Model, Snapshot, caught};
use futures_core::Stream;
use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

/// The engine's name for the state that all texts begin from.
pub const BASE: &str = "base";

/// Starts an engine without a prefix cache. It keeps the state `base` under the name [`BASE`].
pub fn start_engine(model: &Model, slots: usize, format: Option<Format>, base: Option<(Snapshot, LoadedState)>) -> Result<Engine> {
    // The number of slots bounds the work, and nobody waits for a single token.
    let states = StateOptions { folder: None, bytes: u64::MAX };
    let cache = CacheOptions::off();
    let engine = Engine::start(model, EngineOptions { slots, cache, states, prefill_slowdown: None, format, ..EngineOptions::default() })?;
    if let Some((snapshot, loaded)) = base {
        engine.keep_state("", BASE, snapshot, loaded)?;
    }
    Ok(engine)
}

pub struct Run {
    engine: Engine,
    /// The request that the flags make.
    defaults: Request,
    results: Results,
    /// Keys of the ids that were read.
    seen: HashSet<u128>,
    running: Vec<Running>,
    endings: Endings,
    report: BatchReport,
}

/// A line whose texts are being generated.
struct Running {
    id: Id,
    /// The number of its line.
    number: u64,
    generation: Generation,
    /// The number of its texts.
    n: usize,
    done: Vec<Completion>,
    /// The line's share of the bytes of lines. Long lines wait until it is returned.
    _held: Held,
}

type Written = std::result::Result<(), Failure>;

impl Run {
    /// Makes a run whose texts take `slots` slots of `engine`. `seed` is the run's seed.
    pub fn new(engine: Engine, slots: usize, defaults: Request, seed: u64, results: Results) -> Run {
        let report = BatchReport { slots, seed, ..BatchReport::default() };
        let (seen, running, endings) = (HashSet::new(), Vec::new(), Endings::default());
        Run { engine, defaults, results, seen, running, endings, report }
    }

    /// Returns how many more texts can be begun now.
    pub fn n_free(&self) -> usize {
        self.report.slots.saturating_sub(self.running.iter().map(|running| running.n).sum())
    }

    /// Returns whether no text is being generated.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Returns the tokens generated so far, including tokens of texts that have not ended.
    pub fn n_drawn(&self) -> u64 {
        self.engine.stats().drawn
    }

    /// Returns how many lines need no more work.
    pub fn n_lines(&self) -> usize {
        self.report.done + self.report.failed + self.report.kept
    }

    /// Starts a line unless it is done. Writes an error if the line cannot be started.
    pub fn take(&mut self, line: Numbered) -> Written {
        let Numbered { number, bytes, held } = line;
        let fields = match &bytes {
            Some(bytes) if bytes.trim_ascii().is_empty() => return Ok(()),
            Some(bytes) => caught(|| line::fields(bytes)),
            None => Err(Error::input(format!("expected a line of at most {} bytes, found more", lines::MAX_BYTES))),
        };
        let (id, fields) = match fields {
            Ok(found) => found,
            Err(e) => return self.fail(None, number, e),
        };
        let key = id.key();
        if !self.seen.insert(key) {
            let e = Error::input(format!("two lines have the id {}", short(&id.to_string(), 40)));
            return self.fail(None, number, e);
        }
        if let Some(was) = self.results.was(key) {
            match was {
                Was::Text => self.report.kept += 1,
                Was::Error => self.report.failed += 1,
            }
            return Ok(());
        }
        // Readers of grammars, schemas and templates are large programs of others: a panic in a reader becomes the line's error.
        match caught(|| self.submit(&id, &line::request(&fields)?)) {
            Ok((generation, n)) => {
                self.running.push(Running { id, number, generation, n, done: Vec::new(), _held: held });
                Ok(())
            }
            Err(e) => self.fail(Some(&id), number, e),
        }
    }

    fn submit(&self, id: &Id, request: &Request) -> Result<(Generation, usize)> {
        let mut merged = request.over(&self.defaults);
        merged.state.clone_from(&self.defaults.state);
        if !request.sets("seed") {
            merged = merged.set("seed", id.seed(self.report.seed));
        }
        Ok((self.engine.submit(&merged)?, request.n))
    }

    /// Waits for an event, at most as long as `patience`, and writes the lines that have ended.
    pub fn wait(&mut self, patience: Duration) -> Written {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut has_news = self.is_idle();
        let mut i = 0;
        while i < self.running.len() {
            match Pin::new(&mut self.running[i].generation).poll_next(&mut context) {
                Poll::Ready(Some(event)) => {
                    has_news = true;
                    self.on_event(i, event)?;
                }
                Poll::Ready(None) | Poll::Pending => i += 1,
            }
        }
        if !has_news {
            std::thread::park_timeout(patience);
        }
        Ok(())
    }

    /// Handles an event of the running line at index `i`. A line that has ended is removed.
    fn on_event(&mut self, i: usize, event: Event) -> Written {
        match event {
            Event::Done(completion) => {
                let running = &mut self.running[i];
                running.done.push(*completion);
                if running.done.len() < running.n {
                    return Ok(());
                }
                let running = self.running.swap_remove(i);
                self.write(running)
            }
            // No other line can run without the device.
            Event::Failed(e) if e.kind == Kind::Device => Err(e.hint("finished lines are kept").into()),
            Event::Failed(e) => {
                let Running { id, number, .. } = self.running.swap_remove(i);
                self.fail(Some(&id), number, e)
            }
            _ => Ok(()),
        }
    }

    /// Writes the completions of a line.
    fn write(&mut self, mut running: Running) -> Written {
        running.done.sort_by_key(|done| done.index);
        let line = BatchLine::new(running.id.value(), &running.done, self.engine.model().vocab().is_some());
        self.results.write(&line)?;
        self.report.done += 1;
        self.report.usage += line.usage;
        running.done.iter().for_each(|done| self.endings.add(done.finish, done.complete));
        Ok(())
    }

    /// Writes an error in the line `number`. `id` is `None` if the line has no id of its own.
    fn fail(&mut self, id: Option<&Id>, number: u64, e: Error) -> Written {
        self.report.failed += 1;
        let error = flags::report(&e.at(format!("line {number}"))).error;
        self.results.write(&BatchFailure { id: id.map(Id::value), line: id.is_none().then_some(number), error })
    }

    /// Returns the counts of all lines. `time` is that since the model was loaded.
    pub fn into_report(self, interrupted: bool, time: Duration) -> BatchReport {
        let (seconds, Endings { context, incomplete, .. }) = (time.as_secs_f64(), self.endings);
        let tokens_per_second = self.report.usage.completion_tokens as f64 / seconds.max(1e-9);
        BatchReport { context_full: context, incomplete, interrupted, seconds, tokens_per_second, ..self.report }
    }
}

/// Wakes the thread that waits for events.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
