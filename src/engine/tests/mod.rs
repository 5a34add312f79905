//! Tests of the engine with the embedded model on the CPU.

mod cache;
mod calls;
mod serving;
mod shares;
mod slow;
mod states;
mod storm;
mod vectors;

use super::*;
use crate::chat::Message;
use crate::error::Kind;
use crate::sample::Sampling;
use crate::session::{Finish, Limits, Model, ModelSource, Options, Session};
use std::time::{Duration, Instant};

fn model() -> Model {
    let options = Options { device: "cpu".parse().unwrap(), deterministic: true, ..Options::default() };
    Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap()
}

fn engine(slots: usize) -> Engine {
    Engine::start(&model(), EngineOptions { slots, ..EngineOptions::default() }).unwrap()
}

/// Continues a prompt in a separate session. Returns tokens and text.
fn alone(model: &Model, prompt: &str, n: usize, seed: u64) -> (Vec<u32>, String) {
    let mut session = Session::new(model, 1).unwrap();
    let sampling = Sampling { seed, ..model.sampling().clone() };
    let made = session.generate(prompt, &sampling, &Limits::new(n), &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    (made.tokens, made.text)
}

/// Waits until the engine's counts satisfy a condition.
fn until(engine: &Engine, what: &str, is: impl Fn(EngineStats) -> bool) {
    let began = Instant::now();
    while !is(engine.stats()) {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}: {:?}", engine.stats());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn texts_are_those_that_a_session_makes_alone() {
    let model = model();
    let engine = Engine::start(&model, EngineOptions { slots: 3, ..EngineOptions::default() }).unwrap();
    let prompts = ["In the beginning", "And Moses said", "a", "Thou shalt not", "Behold, the light of"];
    let ask = |i: usize| Request::text(prompts[i]).max_tokens(5 + 3 * i).set("seed", i);
    let generations: Vec<Generation> = (0..prompts.len()).map(|i| engine.submit(ask(i)).unwrap()).collect();
    for (i, generation) in generations.into_iter().enumerate() {
        let events = generation.into_iter().collect::<crate::error::Result<Vec<Event>>>().unwrap();
        let Event::Started { prompt_tokens, cached_tokens: 0 } = events[0] else { panic!("{events:?}") };
        let Some(Event::Done(done)) = events.last() else { panic!("{events:?}") };
        let text: String =
            events.iter().filter_map(|e| if let Event::Text { text, .. } = e { Some(text.as_str()) } else { None }).collect();
        let (tokens, want) = alone(&model, prompts[i], 5 + 3 * i, i as u64);
        assert_eq!((&done.tokens, &done.text, &text), (&tokens, &want, &want), "{}", prompts[i]);
        assert_eq!((done.finish, done.seed, done.index), (Finish::Length, i as u64, 0));
        assert_eq!(done.usage, Usage { prompt_tokens, cached_tokens: 0, completion_tokens: tokens.len(), reasoning_tokens: 0 });
    }
    engine.drain();
    let EngineStats { slots, free_slots, running, waiting, .. } = engine.stats();
    assert_eq!((slots, free_slots, running, waiting), (3, 3, 0, 0));
    assert!(engine.submit(ask(0)).unwrap_err().to_string().contains("takes no more requests"));
}

#[test]
fn continuations_of_one_prompt_have_seeds_of_their_own() {
    let model = model();
    let engine = Engine::start(&model, EngineOptions { slots: 4, ..EngineOptions::default() }).unwrap();
    let other = engine.submit(Request::text("Thou").max_tokens(20).set("seed", 9)).unwrap();
    let request = Request { n: 3, ..Request::text("In the beginning").max_tokens(12).set("seed", 40) };
    let all = engine.submit(request.clone()).unwrap().wait().unwrap();
    assert_eq!(all.len(), 3);
    for (i, done) in all.iter().enumerate() {
        let (tokens, text) = alone(&model, "In the beginning", 12, 40 + i as u64);
        assert_eq!((done.index, done.seed, &done.tokens, &done.text), (i, 40 + i as u64, &tokens, &text));
    }
    assert_ne!(all[0].text, all[1].text);
    assert_eq!(other.wait().unwrap()[0].text, alone(&model, "Thou", 20, 9).1);
    let e = engine.submit(Request { n: 5, ..request }).unwrap_err();
    assert_eq!((e.field_name(), e.message.as_str()), (Some("n"), "expected at most 4 continuations, one per slot, found 5"));
}

#[test]
fn a_dropped_generation_frees_its_slots() {
    let engine = engine(2);
    let endless = || Request { n: 2, ..Request::text("a").max_tokens(UNLIMITED).set("seed", 1) };
    let endless = |_| Request { ignore_eos: Some(true), ..endless() };
    let mut first = engine.submit(endless(())).unwrap();
    let second = engine.submit(endless(())).unwrap();
    assert!(matches!(first.recv(), Some(Ok(Event::Started { .. }))) && matches!(first.recv(), Some(Ok(Event::Text { .. }))));
    until(&engine, "one runs, one waits", |s| s.free_slots == 0 && s.waiting == 1 && s.running == 1);
    drop(second);
    until(&engine, "who waits is forgotten", |s| s.waiting == 0);
    drop(first);
    until(&engine, "the slots are free", |s| s.free_slots == 2 && s.running == 0);
    assert_eq!(engine.submit(Request::text("a").max_tokens(3)).unwrap().wait().unwrap()[0].tokens.len(), 3);
}

#[test]
fn the_queue_has_a_limit_and_an_order() {
    let engine = Engine::start(&model(), EngineOptions { slots: 1, queue: 3, ..EngineOptions::default() }).unwrap();
    let endless = Request { ignore_eos: Some(true), ..Request::text("a").max_tokens(UNLIMITED) };
    let running = engine.submit(endless.clone()).unwrap();
    until(&engine, "it runs", |s| s.running == 1 && s.waiting == 0);
    let with = |priority| engine.submit(Request { priority, ..Request::text("b").max_tokens(4) });
    let (low, first, high) = (with(-1).unwrap(), with(0).unwrap(), with(5).unwrap());
    let e = with(9).unwrap_err();
    assert_eq!((e.kind, e.message.as_str()), (Kind::Busy, "the queue is full: 3 requests are waiting"));
    drop(running);
    // The request that was submitted last starts first. So each request waits less than the requests submitted before it, however slow the machine is.
    let [low, first, high] = [low, first, high].map(|generation| generation.wait().unwrap()[0].timings.queue_ms);
    assert!(high < first && first < low, "{high} {first} {low}");
}

#[test]
fn no_request_gets_more_than_the_longest_answer() {
    let engine = Engine::start(&model(), EngineOptions { max_answer: 5, ..EngineOptions::new().slots(2) }).unwrap();
    for (asked, want) in [(UNLIMITED, 5), (6, 5), (4, 4)] {
        let request = Request { ignore_eos: Some(true), ..Request::text("a").max_tokens(asked).set("seed", 1) };
        let done = engine.run(request).unwrap();
        assert_eq!((done.tokens.len(), done.finish), (want, Finish::Length));
    }
}

#[test]
fn answers_are_separated_into_text_and_thought_while_they_stream() {
    let engine = engine(2);
    let request = Request::chat([Message::user("light")]).max_tokens(40).set("seed", 3);
    let events = engine.submit(request.clone()).unwrap().into_iter().collect::<crate::error::Result<Vec<Event>>>().unwrap();
    let Some(Event::Done(done)) = events.last() else { panic!("{events:?}") };
    let of = |is: fn(&Event) -> Option<&str>| events.iter().filter_map(is).collect::<String>();
    assert_eq!(of(|e| if let Event::Text { text, .. } = e { Some(text) } else { None }), done.text);
    assert_eq!(of(|e| if let Event::Thought { text, .. } = e { Some(text) } else { None }), done.thought.clone().unwrap_or_default());
    assert_eq!(done.text.trim(), done.text);
    assert!(!done.text.is_empty());
}

#[test]
fn rules_hold_for_a_text_and_for_an_answer() {
    let engine = engine(2);
    let rules =
        Rules::Schema(r#"{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}"#.into());
    for input in [Input::Text("A number: ".into()), Input::Messages(vec![Message::user("a number")])] {
        let request = Request { follows: Some(Follows::Rules(rules.clone())), n: 2, ..Request::new(input).max_tokens(40).set("seed", 5) };
        for done in engine.submit(request.clone()).unwrap().wait().unwrap() {
            let value: serde_json::Value = serde_json::from_str(&done.text).unwrap_or_else(|e| panic!("{e}: {:?}", done.text));
            assert!(value["a"].is_i64() || value["a"].is_u64() || value["a"].is_number(), "{value}");
            assert_eq!(done.complete, Some(true));
        }
    }
    let wrong = Request { follows: Some(Follows::Rules(Rules::Gbnf("root ::= [a".into()))), ..Request::text("a") };
    assert_eq!(engine.submit(wrong.clone()).unwrap_err().field.as_deref(), Some("grammar: line 1, column 12"));
}

#[test]
fn errors_are_found_before_a_slot_is_taken() {
    let engine = engine(1);
    for (request, want) in [
        (Request::text("a").set("temperature", "hot"), "temperature"),
        (Request::text("a").set("warmth", 1), "warmth"),
        (Request::chat([]), "at least 1 message"),
    ] {
        let said = engine.submit(request.clone()).unwrap_err().to_string();
        assert!(said.contains(want), "{said}");
    }
    let with = |request: Request, n, logprobs| Request { n, logprobs, ..request };
    let stops = Request { stop: Some(vec!["x".into(); 65]), ..Request::text("a") };
    for (request, field) in [
        (Request::tokens([70_000]), "tokens"),
        (Request::text(""), "prompt"),
        (with(Request::text("a"), 0, None), "n"),
        (with(Request::text("a"), 1, Some(21)), "logprobs"),
        (stops, "stop"),
    ] {
        let e = engine.submit(request.clone()).unwrap_err();
        assert!(e.kind == Kind::Input && e.field_name() == Some(field), "{e}");
    }
    assert_eq!(engine.stats().free_slots, 1);
}

#[test]
fn a_generation_can_be_awaited() {
    use futures_core::Stream;
    let engine = engine(1);
    let mut generation = engine.submit(Request::text("a").max_tokens(3).set("seed", 1)).unwrap();
    let mut n = 0;
    while let Some(event) = pollster::block_on(std::future::poll_fn(|context| std::pin::Pin::new(&mut generation).poll_next(context))) {
        n += 1;
        event.unwrap();
    }
    assert!(n >= 3);
}

#[test]
fn logprobs_are_of_the_models_own_logits() {
    let model = model();
    let engine = Engine::start(&model, EngineOptions { slots: 2, ..EngineOptions::default() }).unwrap();
    let request = Request { logprobs: Some(3), n: 2, ..Request::text("In the beginning").max_tokens(6).set("seed", 2) };
    let events = engine.submit(request.clone()).unwrap().into_iter().collect::<crate::error::Result<Vec<Event>>>().unwrap();
    let done =
        |index: usize| events.iter().find_map(|e| if let Event::Done(done) = e { Some(done).filter(|d| d.index == index) } else { None });
    for index in 0..2 {
        let done = done(index).unwrap();
        let heard: Vec<_> = events
            .iter()
            .filter_map(|e| if let Event::Logprobs { index: i, logprobs } = e { Some((*i, logprobs)) } else { None })
            .collect();
        let heard: Vec<_> = heard.into_iter().filter(|(i, _)| *i == index).map(|(_, logprobs)| logprobs.clone()).collect();
        assert_eq!(done.logprobs, heard);
        assert_eq!(done.tokens, heard.iter().map(|l| l.token).collect::<Vec<_>>());
        assert_eq!(done.text, alone(&model, "In the beginning", 6, 2 + index as u64).1, "asking changes nothing");
        let mut session = Session::new(&model, 1).unwrap();
        let slot = session.open().unwrap();
        let prompt = session.encode(&"In the beginning".into()).unwrap();
        let mut logits = session.prefill(slot, &prompt).unwrap().to_vec();
        for found in &done.logprobs {
            let want = crate::session::logprob(&logits, found.token).unwrap();
            assert!((f64::from(found.logprob) - want).abs() < 1e-5, "{found:?} {want}");
            assert!(found.top.len() == 3 && found.top.windows(2).all(|pair| pair[0].1 >= pair[1].1), "{found:?}");
            logits = session.decode(slot, found.token).unwrap().to_vec();
        }
    }
}

/// Runs a request. Returns the number of its cached tokens, and its continuation.
fn asked(engine: &Engine, request: &Request) -> (usize, Completion) {
    let done = engine.submit(request.clone()).unwrap().wait().unwrap().remove(0);
    (done.usage.cached_tokens, done)
}

#[test]
fn a_cached_prefix_is_not_prefilled_again() {
    let model = model();
    let engine = Engine::start(&model, EngineOptions { slots: 2, ..EngineOptions::default() }).unwrap();
    let vocab = model.vocab().unwrap();
    let start = vocab.encode_prompt(b"In the beginning God created the heaven").unwrap();
    let ask = |tokens: &[u32], n: usize| Request { ignore_eos: Some(true), ..Request::tokens(tokens).max_tokens(n).set("seed", 7) };
    let off = |request: Request| Request { no_cache: true, ..request };
    let (cached, first) = asked(&engine, &ask(&start, 8));
    assert_eq!(cached, 0);
    // The same prompt again needs no prefill.
    let (cached, again) = asked(&engine, &ask(&start, 8));
    assert_eq!((cached, &again.tokens, &again.text), (start.len(), &first.tokens, &first.text));
    // A prompt that continues the text uses the entry. The entry has all sampled tokens except the last token.
    let further = [start.clone(), first.tokens.clone(), vocab.encode_further(b" and the").unwrap()].concat();
    let (cached, further_on) = asked(&engine, &ask(&further, 8));
    assert!(cached >= start.len() + 7 && cached < further.len(), "{cached} of {}", further.len());
    let (cached, alone) = asked(&engine, &off(ask(&further, 8)));
    assert_eq!((cached, &further_on.tokens, &further_on.text), (0, &alone.tokens, &alone.text));
    // A prompt that begins with the first prompt continues from the end of the first prompt. A prompt that differs at its start uses no entry.
    let edited = [start.clone(), vocab.encode_further(b" upon the waters").unwrap()].concat();
    let (cached, one) = asked(&engine, &ask(&edited, 8));
    assert_eq!((cached, one.text), (start.len(), asked(&engine, &off(ask(&edited, 8))).1.text));
    assert_eq!(asked(&engine, &ask(&start[1..], 3)).0, 0);
    // Other namespaces do not see the entry.
    let other = || Request { namespace: "other".into(), ..ask(&edited, 3) };
    assert_eq!(asked(&engine, &other()).0, 0);
    assert_eq!(asked(&engine, &other()).0, edited.len());
    // Several continuations begin from one entry, each with its own seed.
    let both = engine.submit(Request { n: 2, ..ask(&start, 8) }).unwrap().wait().unwrap();
    assert_eq!((both[0].usage.cached_tokens, &both[0].text), (start.len(), &first.text));
    assert_eq!(both[1].text, asked(&engine, &off(ask(&start, 8).set("seed", 8))).1.text);
}

#[test]
fn penalties_and_incomplete_characters_continue_from_the_cache() {
    let model = model();
    let engine = Engine::start(&model, EngineOptions { slots: 1, ..EngineOptions::default() }).unwrap();
    let text = "Behold, behold, behold, the \u{e9}\u{e9} of \u{20ac}";
    let tokens: Vec<u32> = model.vocab().unwrap().encode_prompt(text.as_bytes()).unwrap();
    for n in 5..=tokens.len() {
        let ask =
            |tokens: &[u32]| Request::tokens(tokens).max_tokens(6).set("seed", n).set("presence_penalty", 1).set("repeat_penalty", 1.5);
        asked(&engine, &ask(&tokens[..n - 1]));
        let (cached, with) = asked(&engine, &ask(&tokens[..n]));
        let (_, without) = asked(&engine, &Request { no_cache: true, ..ask(&tokens[..n]) });
        assert!(cached >= n - 1, "{cached} of {n}");
        assert_eq!((with.tokens, with.text), (without.tokens, without.text), "{n}");
    }
}

#[test]
fn the_cache_never_takes_a_slot_from_a_request() {
    let model = model();
    // The cache has room for two entries.
    let options = EngineOptions {
        slots: 3,
        cache: CacheOptions { device_bytes: 2 * model.slot_bytes(), host_bytes: 0, ..CacheOptions::default() },
        ..EngineOptions::default()
    };
    let engine = Engine::start(&model, options).unwrap();
    for round in 0..4 {
        let all: Vec<Generation> = (0..9)
            .map(|i| {
                engine
                    .submit(Request { n: 1 + i % 3, ..Request::text(format!("{} begat {i}", "so ".repeat(i))).max_tokens(3 + i) })
                    .unwrap()
            })
            .collect();
        for (i, generation) in all.into_iter().enumerate() {
            assert_eq!(generation.wait().unwrap().len(), 1 + i % 3, "{round} {i}");
        }
        until(&engine, "all slots are free", |s| s.free_slots == 3 && s.running == 0);
        assert!(engine.stats().cached <= 2, "{:?}", engine.stats());
    }
}

#[test]
fn an_echoed_prompt_has_its_log_probabilities() {
    let model = model();
    let engine = Engine::start(&model, EngineOptions { slots: 3, ..EngineOptions::default() }).unwrap();
    let beside = engine.submit(Request::text("And Moses said").max_tokens(20).set("seed", 0)).unwrap();
    let prompt = "In the beginning God created the heaven";
    let ask = |n: usize| Request { echo: true, logprobs: Some(2), n: 2, ..Request::text(prompt).max_tokens(n).set("seed", 4) };
    let mut session = Session::new(&model, 1).unwrap();
    let tokens = session.encode(&prompt.into()).unwrap();
    let slot = session.open().unwrap();
    let mut want = Vec::new();
    let each = &mut |t: usize, row: &[f32]| {
        want.extend(tokens.get(t + 1).map(|&next| (next, crate::session::logprob(row, next).unwrap())));
        Ok(())
    };
    session.score(slot, &tokens, each, &mut |_, _| ()).unwrap();
    for n in [0, 3, 0] {
        let events = engine.submit(ask(n)).unwrap().into_iter().collect::<crate::error::Result<Vec<Event>>>().unwrap();
        let done: Vec<&Completion> = events.iter().filter_map(|e| if let Event::Done(done) = e { Some(&**done) } else { None }).collect();
        assert_eq!(done.len(), 2);
        for done in done {
            let text = events.iter().filter_map(|e| match e {
                Event::Text { index, text, .. } if *index == done.index => Some(text.as_str()),
                _ => None,
            });
            assert_eq!(text.collect::<String>(), done.text);
            assert!(done.text.starts_with(prompt) && done.tokens.len() == n && done.logprobs.len() == n, "{done:?}");
            assert_eq!(done.usage.cached_tokens, 0, "tokens of a cache entry have no logits");
            assert_eq!(done.prompt_first, Some(tokens[0]));
            assert!(events.iter().any(|e| matches!(e, Event::Prompt { first, .. } if *first == done.prompt_first)));
            let found: Vec<u32> = done.prompt_logprobs.iter().map(|found| found.token).collect();
            assert_eq!(found, want.iter().map(|(token, _)| *token).collect::<Vec<_>>());
            assert!(done.prompt_logprobs.iter().zip(&want).all(|(a, b)| (f64::from(a.logprob) - b.1).abs() < 1e-5 && a.top.len() == 2));
        }
    }
    let messages = Request { echo: true, ..Request::chat([Message::user("a")]) };
    assert_eq!(engine.submit(messages.clone()).unwrap_err().field_name(), Some("echo"));
    assert_eq!(beside.wait().unwrap()[0].text, alone(&model, "And Moses said", 20, 0).1, "other requests change nothing");
}

#[test]
fn a_request_names_its_format_and_whether_the_model_thinks() {
    let engine = engine(1);
    let prompt = |format: Option<&str>, thinking: Option<&str>| {
        let thinking = thinking.map(|text| text.parse().unwrap());
        let request = Request { format: format.map(Into::into), thinking, ..Request::chat([Message::user("a")]).max_tokens(1) };
        engine.submit(request.clone()).map(|generation| generation.wait().unwrap()[0].usage.prompt_tokens)
    };
    let [plain, fast, think] = ["g1", "g1-fast", "G1-think"].map(|format| prompt(Some(format), None).unwrap());
    assert!(plain < think && think < fast, "{plain} {think} {fast}");
    for (thinking, want) in [("off", plain), ("fast", fast), ("on", think)] {
        assert_eq!(prompt(Some("g1"), Some(thinking)).unwrap(), want, "{thinking}");
    }
    assert_eq!(prompt(Some("world"), Some("off")).unwrap(), prompt(Some("world"), None).unwrap());
    for (format, thinking, field) in [(Some("world"), Some("on"), "thinking"), (Some("worlds"), None, "format")] {
        assert_eq!(prompt(format, thinking).unwrap_err().field_name(), Some(field));
    }
}

#[test]
fn a_request_of_g1_may_begin_with_token_0() {
    let engine = engine(1);
    let tokens = |format: &str, add_bos: Option<bool>| {
        let request = Request { format: Some(format.into()), add_bos, ..Request::chat([Message::user("a")]).max_tokens(1) };
        engine.submit(request.clone()).map(|generation| generation.wait().unwrap()[0].usage.prompt_tokens)
    };
    for format in ["g1", "g1-bot", "g1-tools"] {
        assert_eq!(tokens(format, Some(true)).unwrap(), tokens(format, None).unwrap() + 1, "{format}");
    }
    assert_eq!(tokens("world", Some(true)).unwrap_err().field_name(), Some("add_bos"));
    assert!(tokens("world", Some(false)).is_ok());
}
