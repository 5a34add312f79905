//! Tests of the shares of slots: texts that give up their slots while others wait, and continue later.

use super::*;

/// A request that generates exactly `n` tokens.
fn long(namespace: &str, n: usize, seed: u64) -> Request {
    Request { namespace: namespace.into(), ignore_eos: Some(true), ..Request::text("In the beginning").max_tokens(n).set("seed", seed) }
}

fn alone_long(model: &Model, n: usize, seed: u64) -> Vec<u32> {
    let engine = Engine::start(model, EngineOptions::new().slots(1)).unwrap();
    engine.submit(long("", n, seed)).unwrap().wait().unwrap().remove(0).tokens
}

#[test]
fn a_namespace_with_all_slots_gives_up_those_beyond_its_share() {
    let engine = engine(4);
    let endless: Vec<Generation> = (0..6).map(|seed| engine.submit(long("a", UNLIMITED, seed)).unwrap()).collect();
    until(&engine, "four run, two wait", |s| (s.free_slots, s.waiting) == (0, 2));
    // The slots are shared between two namespaces, so `b` gets two, and its third text waits for a slot.
    let others: Vec<Generation> = (0..2).map(|seed| engine.submit(long("b", UNLIMITED, seed)).unwrap()).collect();
    until(&engine, "b has its share", |s| (s.free_slots, s.waiting, s.swapped) == (0, 2, 2));
    let third = engine.submit(long("b", 3, 9)).unwrap();
    until(&engine, "it waits", |s| s.waiting == 3);
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!((engine.stats().waiting, engine.stats().swapped), (3, 2));
    // A third namespace has a share of one slot. It takes the slot from one of the namespaces with two.
    assert_eq!(engine.submit(long("c", 5, 1)).unwrap().wait().unwrap()[0].tokens, alone_long(engine.model(), 5, 1));
    drop(others);
    assert_eq!(third.wait().unwrap()[0].tokens, alone_long(engine.model(), 3, 9));
    // Alone again, `a` gets all slots, and its texts that gave up their slots come before its requests in the queue.
    until(&engine, "all of a's texts with slots run", |s| (s.free_slots, s.waiting, s.swapped) == (0, 2, 0));
    drop(endless);
    until(&engine, "nothing is left", |s| (s.free_slots, s.running, s.waiting, s.swapped) == (4, 0, 0, 0));
}

#[test]
fn texts_that_take_turns_are_those_of_a_session_alone() {
    let (engine, n) = (engine(2), 2000);
    let ask = |namespace: &str, seed, n_texts| engine.submit(Request { n: n_texts, ..long(namespace, n, seed) }).unwrap();
    let first = ask("a", 0, 2);
    until(&engine, "it has both slots", |s| s.free_slots == 0);
    // While two namespaces compete, each has a share of one slot. Three namespaces take turns. A request with two continuations needs both slots at
    // once.
    let second = ask("b", 1, 1);
    until(&engine, "a text has given up its slot", |s| s.swapped > 0);
    let third = ask("c", 0, 2);
    let want: Vec<Vec<u32>> = (0..2).map(|seed| alone_long(engine.model(), n, seed)).collect();
    for (generation, want) in [(first, &want[..]), (second, &want[1..]), (third, &want[..])] {
        let texts = generation.wait().unwrap();
        texts.iter().zip(want).for_each(|(text, want)| assert_eq!(text.tokens, *want));
        assert_eq!(texts.len(), want.len());
    }
}

#[test]
fn a_stream_that_nobody_reads_loses_its_slot_and_its_memory_has_a_bound() {
    let model = model();
    let one = (2 * model.slot_bytes()).max(1 << 20);
    let options = EngineOptions { event_bytes: 12 * size_of::<Event>(), swap_bytes: one, ..EngineOptions::new().slots(2) };
    let engine = Engine::start(&model, options).unwrap();
    let unread = || engine.submit(long("a", 80, 1)).unwrap();
    let slow = [unread(), unread()];
    until(&engine, "both are paused", |s| s.paused == 2);
    for seed in 0..2 {
        let done = engine.submit(Request::text("In the beginning").max_tokens(8).set("seed", seed)).unwrap().wait().unwrap();
        assert_eq!(done[0].text, alone(&model, "In the beginning", 8, seed).1);
    }
    assert!(engine.stats().swapped >= 1, "{:?}", engine.stats());
    let want = alone_long(&model, 80, 1);
    slow.into_iter().for_each(|slow| assert_eq!(slow.wait().unwrap()[0].tokens, want));
    // Without memory for swapped texts, a text with a slow reader ends.
    let options = EngineOptions { event_bytes: 12 * size_of::<Event>(), swap_bytes: 1, ..EngineOptions::new().slots(1) };
    let engine = Engine::start(&model, options).unwrap();
    let slow = engine.submit(long("a", 80, 1)).unwrap();
    until(&engine, "it is paused", |s| s.paused == 1);
    engine.submit(Request::text("a").max_tokens(3)).unwrap().wait().unwrap();
    let e = slow.wait().unwrap_err();
    assert_eq!((e.kind, e.message.contains("its reader took no text")), (Kind::Busy, true), "{e}");
}

#[test]
fn without_memory_for_it_a_text_keeps_its_slot() {
    let engine = Engine::start(&model(), EngineOptions { swap_bytes: 0, ..EngineOptions::new().slots(1) }).unwrap();
    let first = engine.submit(long("a", UNLIMITED, 1)).unwrap();
    until(&engine, "it runs", |s| s.free_slots == 0);
    let second = engine.submit(long("b", 3, 1)).unwrap();
    std::thread::sleep(Duration::from_millis(1300));
    assert_eq!((engine.stats().waiting, engine.stats().swapped), (1, 0));
    drop(first);
    second.wait().unwrap();
}
