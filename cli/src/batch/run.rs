//! Executes `wingbeat batch`: turns input lines into requests to an engine, and finished texts into lines of results.

use super::line::Form;
use super::report::{BatchFailure, BatchLine, BatchReport};
use crate::endings::Endings;
use crate::lines::{self, HeldBytes, NumberedLine};
use crate::output::say;
use crate::requests::unpark;
use crate::resume::{EarlierResult, Id, Results};
use crate::{Failure, flags};
use futures_core::Stream;
use std::collections::HashSet;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use wingbeat::engine::{Completion, Engine, Event, Generation, Request};
use wingbeat::error::{Error, Kind, Result};
use wingbeat::low_level::front_end::short;
use wingbeat::low_level::session::caught;

pub struct BatchRun {
    engine: Engine,
    /// A request with the settings from the flags.
    defaults: Request,
    results: Results,
    /// The hashes (`Id::key`) of all ids that were read, to detect two lines with the same id.
    seen: HashSet<u128>,
    running: Vec<RunningLine>,
    endings: Endings,
    /// The form of the lines. `None` before the first line with text.
    form: Option<Form>,
    /// The error of the first line that failed.
    pub first_error: Option<String>,
    report: BatchReport,
}

/// A line whose texts are being generated.
struct RunningLine {
    id: Id,
    /// The line's number in the input, from 1.
    number: u64,
    generation: Generation,
    /// The number of texts that the line asks for.
    n: usize,
    done: Vec<Completion>,
    /// Counts the line's bytes until the line is finished. No further line is read while all lines together are at their limit.
    _held: HeldBytes,
}

type WriteResult = std::result::Result<(), Failure>;

impl BatchRun {
    /// Creates a run that generates up to `slots` texts at once. `seed` is the run's seed. If `form` is `None`, the first line determines the form of
    /// the lines.
    pub fn new(engine: Engine, slots: usize, defaults: Request, seed: u64, results: Results, form: Option<Form>) -> BatchRun {
        let report = BatchReport { slots, seed, ..BatchReport::default() };
        let (seen, running, endings) = (HashSet::new(), Vec::new(), Endings::default());
        BatchRun { engine, defaults, results, seen, running, endings, form, first_error: None, report }
    }

    /// Returns how many more texts can be started now.
    pub fn n_free(&self) -> usize {
        self.report.slots.saturating_sub(self.running.iter().map(|running| running.n).sum())
    }

    /// Returns whether no text is being generated.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Returns how many tokens were generated so far, including the tokens of unfinished texts.
    pub fn n_drawn(&self) -> u64 {
        self.engine.stats().drawn
    }

    /// Returns how many lines are finished: generated in this run, failed, or kept from an earlier run.
    pub fn n_lines(&self) -> usize {
        self.report.done + self.report.failed + self.report.kept
    }

    /// Starts the texts of a line, or writes the error of a line that cannot be started. A line that an earlier run has finished is only
    /// counted.
    pub fn take(&mut self, line: NumberedLine) -> WriteResult {
        let NumberedLine { number, bytes, held } = line;
        let fields = match &bytes {
            Some(bytes) if bytes.trim_ascii().is_empty() => return Ok(()),
            Some(bytes) => {
                let form = self.form(bytes);
                caught(|| form.read(bytes, number))
            }
            None => Err(Error::input(format!("expected a line of at most {} bytes, found a longer line", lines::MAX_BYTES))),
        };
        let (id, line) = match fields {
            Ok(found) => found,
            Err(e) => return self.fail(None, number, e),
        };
        let key = id.key();
        if !self.seen.insert(key) {
            let e = Error::input(format!("an earlier line has the same id {}", short(&id.to_string(), 40)));
            return self.fail(None, number, e);
        }
        if let Some(was) = self.results.was(key) {
            match was {
                EarlierResult::Text => self.report.kept += 1,
                EarlierResult::Error => self.report.failed += 1,
            }
            return Ok(());
        }
        // Large crates of other authors parse grammars, schemas and templates. A panic in their code becomes this line's error.
        match caught(|| self.submit(&id, &line.request()?)) {
            Ok((generation, n)) => {
                self.running.push(RunningLine { id, number, generation, n, done: Vec::new(), _held: held });
                Ok(())
            }
            Err(e) => self.fail(Some(&id), number, e),
        }
    }

    fn form(&mut self, line: &[u8]) -> Form {
        *self.form.get_or_insert_with(|| {
            let form = Form::of(line);
            if form == Form::Prompts {
                say(format_args!("plain text: each line is a prompt, and its number is its id"));
            }
            form
        })
    }

    fn submit(&self, id: &Id, request: &Request) -> Result<(Generation, usize)> {
        let mut merged = request.over(&self.defaults);
        merged.state.clone_from(&self.defaults.state);
        if !request.sets("seed") {
            merged = merged.set("seed", id.seed(self.report.seed));
        }
        Ok((self.engine.submit(merged)?, request.n))
    }

    /// Handles all pending events. If no event is pending, waits up to `patience` for an event; the next call then handles it. Returns at once if
    /// no text is being generated.
    pub fn wait(&mut self, patience: Duration) -> WriteResult {
        let waker = unpark();
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

    /// Handles an event of the line at index `i` of `running`. If the line is finished, writes its result and removes the line.
    fn on_event(&mut self, i: usize, event: Result<Event>) -> WriteResult {
        match event {
            Ok(Event::Done(completion)) => {
                let running = &mut self.running[i];
                running.done.push(*completion);
                if running.done.len() < running.n {
                    return Ok(());
                }
                let running = self.running.swap_remove(i);
                self.write(running)
            }
            // After an error of the device, no other line can run either.
            Err(e) if e.kind == Kind::Device => Err(e.hint("finished lines are kept").into()),
            Err(e) => {
                let RunningLine { id, number, .. } = self.running.swap_remove(i);
                self.fail(Some(&id), number, e)
            }
            Ok(_) => Ok(()),
        }
    }

    /// Writes the result of a line whose texts are all finished.
    fn write(&mut self, mut running: RunningLine) -> WriteResult {
        running.done.sort_by_key(|done| done.index);
        let line = BatchLine::new(running.id.value(), &running.done, self.engine.model().vocab().is_some());
        self.results.write(&line)?;
        self.report.done += 1;
        self.report.usage += line.usage;
        running.done.iter().for_each(|done| self.endings.add(done.finish, done.complete));
        Ok(())
    }

    /// Writes an error as the result of the line with this number. `id` is `None` if the line has no id, or if another line has the same
    /// id.
    fn fail(&mut self, id: Option<&Id>, number: u64, e: Error) -> WriteResult {
        self.report.failed += 1;
        let e = e.at(format!("line {number}"));
        self.first_error.get_or_insert_with(|| e.to_string());
        let error = flags::report(&e).error;
        self.results.write(&BatchFailure { id: id.map(Id::value), line: id.is_none().then_some(number), error })
    }

    /// Returns the summary of the run. `time` is how long the run took.
    pub fn into_report(self, interrupted: bool, time: Duration) -> BatchReport {
        let (seconds, Endings { context, incomplete, .. }) = (time.as_secs_f64(), self.endings);
        let tokens_per_second = self.report.usage.completion_tokens as f64 / seconds.max(1e-9);
        BatchReport { context_full: context, incomplete, interrupted, seconds, tokens_per_second, ..self.report }
    }
}
