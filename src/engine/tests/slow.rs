//! Tests of slow readers, and of requests whose rules panic.

use super::*;
use crate::constrain::{Allowed, Constraint};
use crate::engine::prepare::{MakeConstraint, Prepared, Preparer};
use crate::error::Result;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

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

/// Submits a request whose texts follow the rules that `make` returns.
fn under(engine: &Engine, make: MakeConstraint, request: Request) -> Generation {
    let prepared = Prepared { constraint: Some(make), ..Preparer::new(engine.model(), None).prepare(&request).unwrap() };
    engine.queue(prepared, request, None).unwrap()
}

/// Rules that allow every token, and that wait at each token.
struct Waits<F: FnMut() + Send>(F, Vec<u32>);

impl<F: FnMut() + Send> Constraint for Waits<F> {
    fn allowed(&mut self) -> Result<Allowed<'_>> {
        (self.0)();
        Ok(Allowed { ids: &self.1, may_end: true })
    }

    fn accept(&mut self, _: u32) -> Result<()> {
        Ok(())
    }
}

#[test]
fn slow_rules_delay_their_own_text_alone() {
    let model = model();
    // If the engine has only one slot, the text under slow rules gives its slot to the other caller while the rules are computed.
    for slots in [3, 1] {
        let engine = Engine::start(&model, EngineOptions::new().slots(slots)).unwrap();
        let (go, may_go) = channel::<()>();
        let gate = std::sync::Mutex::new(Some(may_go));
        // The rules wait until both other texts are complete. If the rules blocked the steps, no text would ever be complete.
        let make = move || {
            let may_go: Receiver<()> = gate.lock().unwrap().take().unwrap();
            let mut waits = true;
            // If nobody opens the gate, only the first token waits for the full 20 s.
            let wait = move || waits = waits && may_go.recv_timeout(Duration::from_secs(20)) != Err(RecvTimeoutError::Timeout);
            Ok(Box::new(Waits(wait, vec![u32::MAX; 1 << 12])) as Box<dyn Constraint>)
        };
        let request = |text: &str| Request { ignore_eos: Some(true), ..Request::text(text).max_tokens(12).set("seed", 1) };
        let other = |text: &str| Request { namespace: "other".into(), ..request(text) };
        let slow = under(&engine, Box::new(make), request("In the beginning"));
        let began = Instant::now();
        let quick = under(&engine, Box::new(|| Ok(Box::new(Waits(|| (), vec![u32::MAX; 1 << 12])))), other("And God said"));
        let plain = engine.submit(other("And Moses said")).unwrap();
        assert_eq!(plain.wait().unwrap()[0].text, alone(&model, "And Moses said", 12, 1).1);
        assert_eq!(quick.wait().unwrap()[0].tokens.len(), 12);
        assert!(began.elapsed() < Duration::from_secs(15), "the texts waited for the slow rules");
        drop(go);
        // The rules allow every token, so the text equals the text without rules.
        assert_eq!(slow.wait().unwrap()[0].text, alone(&model, "In the beginning", 12, 1).1);
        until(&engine, "the slots are free", |s| s.free_slots == slots && s.running == 0);
    }
}

#[test]
fn a_text_whose_rules_wait_can_be_cancelled_and_interrupted() {
    let engine = Engine::start(&model(), EngineOptions { slots: 2, ..EngineOptions::default() }).unwrap();
    let waits = || Ok(Box::new(Waits(|| std::thread::sleep(Duration::from_millis(300)), vec![u32::MAX; 1 << 12])) as Box<dyn Constraint>);
    let dropped = under(&engine, Box::new(waits), Request::text("a").max_tokens(UNLIMITED));
    // Waits until the text runs: before that, the slots are free, too, and the check of the slots below would pass too early.
    until(&engine, "the first text runs", |s| s.running == 1);
    drop(dropped);
    until(&engine, "the slot is free", |s| s.free_slots == 2 && s.running == 0);
    let kept = under(&engine, Box::new(waits), Request::text("a").max_tokens(UNLIMITED));
    until(&engine, "it runs", |s| s.running == 1);
    engine.interrupt();
    let done = kept.wait().unwrap();
    assert_eq!((done[0].finish, done[0].complete), (Finish::Interrupted, Some(false)));
}

#[test]
fn rules_have_a_budget_of_time() {
    let options = EngineOptions { rules_time: Some(Duration::from_millis(50)), ..EngineOptions::default() };
    let engine = Engine::start(&model(), options).unwrap();
    let waits = || Ok(Box::new(Waits(|| std::thread::sleep(Duration::from_millis(20)), vec![u32::MAX; 1 << 12])) as Box<dyn Constraint>);
    let e = under(&engine, Box::new(waits), Request::text("a").max_tokens(UNLIMITED)).wait().unwrap_err();
    assert!(e.message.starts_with("the rules of this text took more than 0.05 s of computing"), "{e}");
    until(&engine, "the slot is free", |s| s.running == 0);
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
        let e = under(&engine, make, request.clone()).wait().unwrap_err();
        assert_eq!((e.kind, e.message.as_str()), (Kind::Input, "internal error: rules that panic"));
    }
    assert_eq!(beside.wait().unwrap()[0].text, alone(&model, "And Moses said", 20, 0).1);
    until(&engine, "the slots are free", |s| s.free_slots == 2 && s.running == 0);
}
