//! Tests of slow readers, and of requests whose rules panic.

use super::*;
use crate::constrain::{Allowed, Constraint};
use crate::engine::prepare::MakeConstraint;
use crate::engine::prepare::{Prepared, Preparer};
use crate::error::Result;

const N: usize = 80;

/// Returns an engine that pauses a request at about a dozen events.
fn bounded() -> (Model, Engine) {
    let model = model();
    let options = EngineOptions { slots: 2, event_bytes: 12 * size_of::<Event>(), ..EngineOptions::default() };
    let engine = Engine::start(&model, options).unwrap();
    (model, engine)
}

/// Submits a request of N tokens and waits until the engine has paused the request.
fn paused(engine: &Engine) -> Generation {
    let generation = engine.submit(Request { ignore_eos: Some(true), ..Request::text("a").max_tokens(N).set("seed", 1) }).unwrap();
    until(engine, "it is paused", |s| s.paused == 1);
    generation
}

#[test]
fn a_slow_reader_pauses_its_own_request_alone() {
    let (model, engine) = bounded();
    let slow = paused(&engine);
    assert!(engine.stats().drawn < N as u64, "{:?}", engine.stats());
    // Other requests run in the other slot. Their texts equal the texts of a separate session.
    for seed in 0..2 {
        let done = engine.submit(Request::text("In the beginning").max_tokens(8).set("seed", seed)).unwrap().wait().unwrap();
        assert_eq!(done[0].text, alone(&model, "In the beginning", 8, seed).1);
    }
    let stats = engine.stats();
    assert!(stats.paused == 1 && stats.free_slots == 1 && stats.drawn < N as u64, "{stats:?}");
    // The whole text arrives when the reader continues.
    let done = slow.wait().unwrap();
    assert_eq!(done[0].tokens.len(), N);
    until(&engine, "nothing is paused", |s| (s.paused, s.free_slots) == (0, 2));
    // A paused request frees its slot when it is dropped.
    drop(paused(&engine));
    until(&engine, "the slots are free", |s| (s.paused, s.free_slots) == (0, 2));
}

#[test]
fn a_paused_request_ends_when_the_engine_drains_or_is_dropped() {
    let (_, engine) = bounded();
    let slow = paused(&engine);
    let other = engine.clone();
    drop(engine);
    assert_eq!(slow.wait().unwrap()[0].tokens.len(), N);
    let slow = paused(&other);
    other.drain();
    assert_eq!(slow.wait().unwrap()[0].tokens.len(), N);
    let (_, engine) = bounded();
    let slow = paused(&engine);
    drop(engine);
    assert_eq!(slow.wait().unwrap()[0].tokens.len(), N);
}

/// Rules that panic when the first token is sampled.
struct Panics;

impl Constraint for Panics {
    fn allowed(&mut self) -> Result<Allowed<'_>> {
        panic!("rules that panic")
    }

    fn accept(&mut self, _: u32) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_panic_in_the_rules_of_a_request_ends_that_request_alone() {
    let model = model();
    let engine = Engine::start(&model, EngineOptions { slots: 2, ..EngineOptions::default() }).unwrap();
    let beside = engine.submit(Request::text("And Moses said").max_tokens(20).set("seed", 0)).unwrap();
    let request = Request::text("a").max_tokens(5);
    let all: [MakeConstraint; 2] = [Box::new(|| panic!("rules that panic")), Box::new(|| Ok(Box::new(Panics)))];
    for make in all {
        let prepared = Prepared { constraint: Some(make), ..Preparer::new(&model, None).prepare(&request).unwrap() };
        let e = engine.queue(prepared, request.clone(), None).unwrap().wait().unwrap_err();
        assert_eq!((e.kind, e.message.as_str()), (Kind::Input, "internal error: rules that panic"));
    }
    assert_eq!(beside.wait().unwrap()[0].text, alone(&model, "And Moses said", 20, 0).1);
    until(&engine, "the slots are free", |s| s.free_slots == 2 && s.running == 0);
}
