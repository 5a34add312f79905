//! Tests of functions for servers: states of conversations, fairness among callers, an end that keeps all texts and states.

use super::*;

fn of(namespace: &str, request: Request) -> Request {
    Request { namespace: namespace.into(), ..request }
}

#[test]
fn a_conversation_resumes_its_kept_state() {
    let model = model();
    let options = EngineOptions { cache: CacheOptions::off(), ..EngineOptions::default() };
    let engine = Engine::start(&model, options).unwrap();
    let kept = |request: Request| Request { state: Some("s".into()), state_is_prefix: true, save_state: Some("s".into()), ..request };
    let ask = |messages: &[Message]| Request::chat(messages).max_tokens(12).set("seed", 5);
    let done = |request: &Request| engine.submit(request.clone()).unwrap().wait().unwrap().remove(0);
    // The first turn has no state yet.
    let mut messages = vec![Message::user("light")];
    let one = done(&kept(ask(&messages)));
    assert_eq!((one.usage.cached_tokens, one.state.unwrap().unwrap().n_tokens >= one.usage.prompt_tokens), (0, true));
    let n_state = engine.states("").unwrap()[0].n_tokens;
    messages.extend([Message::assistant(&one.text), Message::user("darkness")]);
    let two = done(&kept(ask(&messages)));
    assert_eq!(two.usage.cached_tokens, n_state, "only the new words are read");
    // Without the state, the conversation has almost as many prompt tokens: a state keeps the tokens as they were sampled, and the tokenizer can
    // split the same text differently.
    let plain = done(&ask(&messages));
    assert_eq!(plain.usage.cached_tokens, 0);
    assert!(plain.usage.prompt_tokens.abs_diff(two.usage.prompt_tokens) <= 1 + one.tokens.len(), "{:?} {:?}", plain.usage, two.usage);
    // After an edit, the text of the state is no prefix of the prompt.
    messages[0] = Message::user("water");
    let edited = done(&kept(ask(&messages)));
    assert_eq!((edited.usage, edited.text), (done(&ask(&messages)).usage, done(&ask(&messages)).text));
    // An unknown name is no error, because a conversation has to begin.
    let new = Request { state: Some("unknown".into()), ..kept(ask(&messages)) };
    assert_eq!(done(&new).usage.cached_tokens, 0);
}

#[test]
fn a_resumed_text_equals_a_text_in_one_piece() {
    let model = model();
    let engine = Engine::start(&model, EngineOptions { cache: CacheOptions::off(), ..EngineOptions::default() }).unwrap();
    let done = |request: &Request| engine.submit(request.clone()).unwrap().wait().unwrap().remove(0);
    let one = done(&Request { save_state: Some("a".into()), ..Request::text("In the beginning God created").max_tokens(0) });
    assert_eq!(one.text, "");
    let rest = |request: Request| request.max_tokens(16).set("seed", 2);
    let whole = "In the beginning God created the heaven and the earth";
    let resumed = done(&rest(Request { state: Some("a".into()), state_is_prefix: true, ..Request::text(whole) }));
    let plain = done(&rest(Request::text(whole)));
    assert_eq!((&resumed.text, &resumed.tokens, resumed.usage.prompt_tokens), (&plain.text, &plain.tokens, plain.usage.prompt_tokens));
    assert!(resumed.usage.cached_tokens > 3 && plain.usage.cached_tokens == 0);
    // The state ends within a word of the prompt. Only the rest of this word is tokenized again, so all tokens of the state count as cached.
    let inside =
        done(&rest(Request { state: Some("a".into()), state_is_prefix: true, ..Request::text("In the beginning God createdst thou") }));
    assert_eq!(inside.usage.cached_tokens, one.usage.prompt_tokens);
}

#[test]
fn a_mark_between_messages_is_part_of_a_text() {
    let model = model();
    let engine = Engine::start(&model, EngineOptions { cache: CacheOptions::off(), ..EngineOptions::default() }).unwrap();
    let done = |request: &Request| engine.submit(request.clone()).unwrap().wait().unwrap().remove(0);
    let vocab = model.vocab().unwrap();
    let (before, after) = (vocab.encode(b"In the").unwrap(), vocab.encode(b" beginning").unwrap());
    assert!(vocab.token(0).is_empty());
    let marked = [before.as_slice(), &[0], &after].concat();
    done(&Request { save_state: Some("a".into()), ..Request::tokens(marked).max_tokens(0) });
    let plain = Request::tokens([before, after, vocab.encode(b" God").unwrap()].concat()).max_tokens(1);
    assert_eq!(done(&Request { state: Some("a".into()), state_is_prefix: true, ..plain }).usage.cached_tokens, 0);
}

#[test]
fn callers_take_turns() {
    let engine = Engine::start(&model(), EngineOptions { slots: 1, ..EngineOptions::default() }).unwrap();
    let endless = Request { ignore_eos: Some(true), ..Request::text("a").max_tokens(UNLIMITED) };
    let running = engine.submit(of("ada", endless)).unwrap();
    until(&engine, "it runs", |s| s.running == 1 && s.waiting == 0);
    let ask = |name| (name, Instant::now(), engine.submit(of(name, Request::text("b").max_tokens(3))).unwrap());
    let waiting = ["ada", "ada", "ada", "bob", "bob", "cy"].map(ask);
    drop(running);
    let mut began = waiting.map(|(name, at, generation)| {
        let timings = generation.wait().unwrap()[0].timings;
        (at + Duration::from_secs_f64(timings.queue_ms / 1e3), name)
    });
    began.sort();
    // First one request of each namespace, in the order of arrival. `ada` is last, because `ada` had the previous request. Then the next round.
    assert_eq!(began.map(|(_, name)| name), ["bob", "cy", "ada", "bob", "ada", "ada"]);
}

#[test]
fn an_interrupted_engine_completes_its_texts_and_states() {
    let model = model();
    let engine = Engine::start(&model, EngineOptions { slots: 2, ..EngineOptions::default() }).unwrap();
    let endless = || Request { ignore_eos: Some(true), ..Request::text("In the").max_tokens(UNLIMITED).set("seed", 3) };
    let mut saved = engine.submit(Request { save_state: Some("end".into()), ..endless() }).unwrap();
    let plain = engine.submit(endless()).unwrap();
    let late = engine.submit(endless()).unwrap();
    let is_text = |event: Option<crate::error::Result<Event>>| matches!(event, Some(Ok(Event::Text { .. })));
    while !is_text(saved.recv()) {}
    engine.interrupt();
    let one = saved.wait().unwrap().remove(0);
    let info = one.state.unwrap().unwrap();
    assert_eq!((one.finish, info.n_tokens), (Finish::Interrupted, one.usage.prompt_tokens + one.tokens.len()));
    assert_eq!(plain.wait().unwrap()[0].finish, Finish::Interrupted);
    assert_eq!(late.wait().unwrap_err().kind, Kind::Device);
    assert!(engine.submit(endless()).is_err());
    engine.drain();
    assert_eq!(engine.stats().free_slots, 2);
}

#[test]
fn an_interrupted_text_includes_the_held_back_beginning_of_a_stop_text() {
    let model = model();
    // The request pauses after some tokens, because its log-probabilities are not read. So the engine is interrupted within the stop text.
    let engine = Engine::start(&model, EngineOptions { slots: 1, event_bytes: 1 << 10, ..EngineOptions::default() }).unwrap();
    let (_, text) = alone(&model, "In the beginning", 40, 0);
    let request = Request { stop: Some(vec![text]), logprobs: Some(0), ignore_eos: Some(true), ..Request::text("In the beginning") };
    let waiting = engine.submit(request.clone().max_tokens(UNLIMITED).set("seed", 0)).unwrap();
    until(&engine, "the request pauses", |s| s.paused == 1);
    engine.interrupt();
    let (mut told, mut done) = (String::new(), None);
    for event in waiting {
        match event.unwrap() {
            Event::Text { text, .. } => told += &text,
            Event::Done(completion) => done = Some(completion),
            _ => {}
        }
    }
    let done = done.unwrap();
    assert!(done.finish == Finish::Interrupted && (1..40).contains(&done.tokens.len()), "{done:?}");
    let want = String::from_utf8(model.vocab().unwrap().decode(&done.tokens)).unwrap();
    assert_eq!((told.as_str(), done.text.as_str()), (want.as_str(), want.as_str()));
}

#[test]
fn an_engine_may_forget_states_that_its_caller_has() {
    let model = model();
    let bytes = {
        let engine = Engine::start(&model, EngineOptions::default()).unwrap();
        let saved = Request { save_state: Some("a".into()), ..Request::text("a").max_tokens(1) };
        engine.submit(saved.clone()).unwrap().wait().unwrap()[0].state.clone().unwrap().unwrap().bytes
    };
    let states = StateOptions { bytes: 2 * bytes, forgets: true, ..StateOptions::default() };
    let engine = Engine::start(&model, EngineOptions { states, ..EngineOptions::default() }).unwrap();
    for name in ["a", "b", "c"] {
        let saved = Request { save_state: Some(name.into()), ..Request::text("a").max_tokens(1) };
        assert!(engine.submit(saved.clone()).unwrap().wait().unwrap()[0].state.clone().unwrap().is_ok());
    }
    assert_eq!(["a", "b", "c"].map(|name| engine.has_state("", name)), [false, true, true]);
    // A state that is larger than the limit is refused even if the engine may forget other states.
    let small = StateOptions { bytes: bytes / 2, forgets: true, ..StateOptions::default() };
    let engine = Engine::start(&model, EngineOptions { states: small, ..EngineOptions::default() }).unwrap();
    let saved = Request { save_state: Some("a".into()), ..Request::text("a").max_tokens(1) };
    assert_eq!(engine.submit(saved.clone()).unwrap().wait().unwrap()[0].state.clone().unwrap().unwrap_err().kind, Kind::Memory);
}
