//! A run: lines become requests of an engine, and what comes of them lines of results.

use super::line;
use super::results::{self, Name, Results};
use super::tally::Tally;
use crate::chat::Format;
use crate::cli::lines::{self, Held, Numbered};
use crate::cli::{Failure, flags, panics};
use crate::engine::{CacheOptions, Completion, Engine, EngineOptions, Event, Generation, Request, StateOptions};
use crate::error::{Error, Kind, Result, short};
use crate::report::{BatchChoice, BatchFailure, BatchLine, BatchReport, TokenLogprobs, Usage};
use crate::session::{LoadedState, Logprobs, Model, Snapshot};
use futures_core::Stream;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

/// The engine's name for the state that all texts begin from.
const BASE: &str = "base";

pub struct Run {
    engine: Engine,
    n_slots: usize,
    /// What the flags say, for lines that do not.
    defaults: Request,
    /// There is a state that all texts begin from.
    has_base: bool,
    seed: u64,
    results: Results,
    /// Names of the lines that were read.
    seen: HashSet<u128>,
    running: Vec<Running>,
    pub tally: Tally,
}

/// A line on its way.
struct Running {
    id: Value,
    /// The number of its line.
    number: u64,
    generation: Generation,
    /// Continuations.
    n: usize,
    done: Vec<Completion>,
    /// Long lines wait until this one has ended.
    _held: Held,
}

impl Run {
    /// Texts begin from a state if there is one.
    pub fn new(
        model: &Model,
        n_slots: usize,
        base: Option<(Snapshot, LoadedState)>,
        format: Option<Format>,
        defaults: Request,
        seed: u64,
        results: Results,
    ) -> Result<Run> {
        // What many lines cost is bounded by their slots. Nobody waits for a single token.
        let states = StateOptions { folder: None, bytes: u64::MAX };
        let cache = CacheOptions::off();
        let options = EngineOptions { slots: n_slots, cache, states, prefill_slowdown: None, format, ..EngineOptions::default() };
        let engine = Engine::start(model, options)?;
        let has_base = base.is_some();
        if let Some((snapshot, loaded)) = base {
            engine.keep_state("", BASE, snapshot, loaded)?;
        }
        let (seen, running, tally) = (HashSet::new(), Vec::new(), Tally::default());
        Ok(Run { engine, n_slots, defaults, has_base, seed, results, seen, running, tally })
    }

    /// Texts that can be begun now.
    pub fn n_free(&self) -> usize {
        self.n_slots.saturating_sub(self.running.iter().map(|running| running.n).sum())
    }

    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Tokens so far, of texts that have not ended too.
    pub fn n_drawn(&self) -> u64 {
        self.engine.stats().drawn
    }

    /// Starts a line, unless it is done; writes an error where it cannot be started.
    pub fn take(&mut self, line: Numbered) -> std::result::Result<(), Failure> {
        let Numbered { number, bytes, held } = line;
        let place = format!("line {number}");
        let unnamed = Name::Line(number);
        let fields = match &bytes {
            Some(bytes) if bytes.trim_ascii().is_empty() => return Ok(()),
            Some(bytes) => panics::caught(|| line::fields(bytes)),
            None => Err(Error::input(format!("expected a line of at most {} bytes, found more", lines::MAX_BYTES))),
        };
        let (id, fields) = match fields {
            Ok(found) => found,
            Err(e) => return self.fail(unnamed, e.at(place)),
        };
        let (name, key) = (Name::Id(id.clone()), results::key(&id));
        if !self.seen.insert(key) {
            let e = Error::input(format!("expected an id of its own, found {} a second time", short(&id.to_string(), 40)));
            return self.fail(unnamed, e.at(place));
        }
        if let Some(was) = self.results.was(key) {
            self.tally.add(was);
            return Ok(());
        }
        // Readers of grammars, schemas and templates are large programs, and not ours: a panic in one is this line's error.
        match panics::caught(|| self.submit(&id, &line::request(&fields)?)) {
            Ok((generation, n)) => {
                self.running.push(Running { id, number, generation, n, done: Vec::new(), _held: held });
                Ok(())
            }
            Err(e) => self.fail(name, e.at(place)),
        }
    }

    fn submit(&self, id: &Value, request: &Request) -> Result<(Generation, usize)> {
        let mut merged = request.over(&self.defaults);
        merged.state = self.has_base.then(|| BASE.into());
        if !request.sets("seed") {
            merged = merged.set("seed", seed_of(self.seed, id));
        }
        Ok((self.engine.submit(&merged)?, request.n))
    }

    /// Waits until there is news, not longer than `patience`, and writes what has ended.
    pub fn wait(&mut self, patience: Duration) -> std::result::Result<(), Failure> {
        if self.is_idle() {
            return Ok(());
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut has_news = false;
        let mut i = 0;
        while i < self.running.len() {
            match Pin::new(&mut self.running[i].generation).poll_next(&mut context) {
                Poll::Pending => i += 1,
                Poll::Ready(Some(event)) => {
                    has_news = true;
                    self.on_event(i, event)?;
                }
                // Its last event has taken it out.
                Poll::Ready(None) => i += 1,
            }
        }
        if !has_news {
            std::thread::park_timeout(patience);
        }
        Ok(())
    }

    fn on_event(&mut self, i: usize, event: Event) -> std::result::Result<(), Failure> {
        match event {
            Event::Done(completion) => {
                let running = &mut self.running[i];
                running.done.push(*completion);
                if running.done.len() == running.n {
                    let running = self.running.swap_remove(i);
                    self.write(running)?;
                }
                Ok(())
            }
            // The device can do no other line either.
            Event::Failed(e) if e.kind == Kind::Device => Err(e.hint("what is done is kept").into()),
            Event::Failed(e) => {
                let running = self.running.swap_remove(i);
                self.fail(Name::Id(running.id), e.at(format!("line {}", running.number)))
            }
            _ => Ok(()),
        }
    }

    fn write(&mut self, mut running: Running) -> std::result::Result<(), Failure> {
        running.done.sort_by_key(|done| done.index);
        let has_vocab = self.engine.model().vocab().is_some();
        let mut choices: Vec<BatchChoice<'_>> = running.done.iter().map(|done| choice(done, has_vocab)).collect();
        let usage = Usage {
            prompt_tokens: running.done.iter().map(|done| done.usage.prompt_tokens).max().unwrap_or(0),
            completion_tokens: running.done.iter().map(|done| done.usage.completion_tokens).sum(),
        };
        let only = if choices.len() == 1 { choices.pop() } else { None };
        self.results.write(&BatchLine { id: &running.id, only, choices, usage })?;
        self.tally.done += 1;
        running.done.iter().for_each(|done| self.tally.endings.add(done.finish, done.complete));
        self.tally.usage.prompt_tokens += usage.prompt_tokens;
        self.tally.usage.completion_tokens += usage.completion_tokens;
        Ok(())
    }

    /// Writes an error.
    fn fail(&mut self, name: Name, e: Error) -> std::result::Result<(), Failure> {
        self.tally.failed += 1;
        let (id, line) = match &name {
            Name::Id(id) => (Some(id), None),
            Name::Line(number) => (None, Some(*number)),
        };
        self.results.write(&BatchFailure { id, line, error: flags::report(&e).error })
    }

    /// What it all came to, in a report that says the rest.
    pub fn into_report(self, run: BatchReport) -> BatchReport {
        let Tally { done, failed, kept, endings, usage, .. } = self.tally;
        let (context_full, incomplete) = (endings.context, endings.incomplete);
        let tokens_per_second = usage.completion_tokens as f64 / run.seconds.max(1e-9);
        BatchReport { done, failed, kept, context_full, incomplete, usage, seed: self.seed, tokens_per_second, ..run }
    }
}

/// A continuation as the results show it.
fn choice(done: &Completion, has_vocab: bool) -> BatchChoice<'_> {
    BatchChoice {
        text: has_vocab.then_some(done.text.as_str()),
        thought: done.thought.as_deref(),
        calls: done.calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str()).into()).collect(),
        tokens: &done.tokens,
        logprobs: logprobs(&done.logprobs),
        prompt_logprobs: logprobs(&done.prompt_logprobs),
        finish: done.finish.name(),
        complete: done.complete,
        seed: done.seed,
    }
}

fn logprobs(all: &[Logprobs]) -> Vec<TokenLogprobs<'_>> {
    all.iter().map(|found| (found.token, found.logprob, found.top.as_slice()).into()).collect()
}

/// Wakes the thread that waits for news.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The seed of a line that has none of its own: the same in every run with that seed, in any order. 53 bits, as numbers of JSON have.
fn seed_of(seed: u64, id: &Value) -> u64 {
    let digest = Sha256::digest(format!("{seed} {id}"));
    u64::from_le_bytes(digest[..8].try_into().expect("a sha256 has 32 bytes")) >> 11
}

#[cfg(test)]
mod tests {
    use super::seed_of;
    use serde_json::json;

    #[test]
    fn a_seed_is_its_ids_for_ever() {
        assert_eq!(seed_of(1, &json!("a")), 369_185_221_646_774);
        let others = [seed_of(1, &json!(1)), seed_of(1, &json!("1")), seed_of(2, &json!(1)), seed_of(1, &json!("a"))];
        assert!(others.iter().enumerate().all(|(i, a)| others[..i].iter().all(|b| a != b) && *a < 1 << 53));
    }
}
