//! Requests for vectors, while other requests of the same engine decode.

use super::*;
use crate::session::{EmbedOptions, Model, Output, Pooling};
use crate::vocab::Vocab;

/// Returns the vector of each prompt, computed by an engine that does nothing else, and the number of tokens of the prompt.
fn alone(model: &Model, pooling: Pooling, prompts: &[&str]) -> Vec<(Vec<f32>, usize)> {
    let embed = EmbedOptions { pooling: Some(pooling), ..EmbedOptions::default() };
    let engine = Engine::start(model, EngineOptions { slots: 1, ..EngineOptions::default() }.embed(embed)).unwrap();
    let texts: Vec<Input> = prompts.iter().map(|prompt| Input::Text(prompt.to_string())).collect();
    let vectors = engine.submit(Request::vectors(texts)).unwrap().vectors().unwrap();
    let length = |prompt: &&str| model.vocab().map_or(0, |vocab: &Vocab| vocab.encode_prompt(prompt.as_bytes()).unwrap().len());
    vectors.into_iter().zip(prompts.iter().map(length)).collect()
}

fn vector(prompt: &str, pooling: Pooling) -> Request {
    Request { pooling: Some(pooling), ..Request::text(prompt) }
}

#[test]
fn vectors_are_computed_while_texts_decode() {
    let engine = engine(4);
    let text = Request::text("In the beginning").max_tokens(40).set("temperature", 0);
    let alone = engine.submit(text.clone()).unwrap().wait().unwrap().remove(0);
    let prompts = ["light", "In the beginning God created the heaven", "x"];
    let expected = [Pooling::Last, Pooling::Mean].map(|pooling| self::alone(engine.model(), pooling, &prompts));
    let decoding = engine.submit(text.clone()).unwrap();
    for (pooling, expected) in [Pooling::Last, Pooling::Mean].into_iter().zip(expected) {
        let all: Vec<Generation> = prompts.iter().map(|prompt| engine.submit(vector(prompt, pooling)).unwrap()).collect();
        for ((generation, (expected, n_tokens)), prompt) in all.into_iter().zip(expected).zip(prompts) {
            let events = generation.into_iter().collect::<crate::error::Result<Vec<Event>>>().unwrap();
            let [Event::Started { cached_tokens: 0, .. }, Event::Vector { index: 0, vector }, Event::Done(done)] = &events[..] else {
                panic!("{events:?}")
            };
            assert_eq!((done.vector.as_ref(), done.text.as_str(), done.tokens.len()), (Some(vector), "", 0), "{prompt}");
            assert_eq!(done.usage.prompt_tokens, n_tokens);
            let far = vector.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(vector.len() == expected.len() && far < 1e-4, "{prompt} {pooling:?}: {far}");
        }
    }
    assert_eq!(decoding.wait().unwrap().remove(0).text, alone.text);
}

#[test]
fn a_request_for_a_vector_has_no_text() {
    let engine = engine(1);
    let base = vector("x", Pooling::Last);
    let wrong = [
        (Request { n: 2, ..base.clone() }, "`n`"),
        (Request { echo: true, ..base.clone() }, "`echo`"),
        (Request { logprobs: Some(1), ..base.clone() }, "`logprobs`"),
        (Request { pooling: Some(Pooling::Mean), ..Request::chat([Message::user("a")]) }, "not messages"),
    ];
    for (request, want) in wrong {
        let e = engine.submit(request.clone()).unwrap_err();
        assert!(e.field_name() == Some("pooling") || e.field_name() == Some("n"), "{e:?}");
        assert!(e.field_name() == Some("n") || e.to_string().contains(want), "{e}");
    }
    let done = engine.submit(Request { max_tokens: Some(9), ..base }).unwrap().wait().unwrap().remove(0);
    assert!(done.vector.is_some() && done.tokens.is_empty());
}

#[test]
fn too_many_slots_are_refused_at_the_start() {
    for (slots, cache, most) in [(1023, CacheOptions::default(), 1022), (1024, CacheOptions::off(), 1023), (0, CacheOptions::off(), 1023)] {
        let options = EngineOptions { slots, cache, ..EngineOptions::default() };
        let e = Engine::start(&model(), options).err().unwrap();
        assert!(e.field_name() == Some("slots") && e.to_string().contains(&format!("expected 1 to {most} slots in an engine")), "{e}");
    }
}

/// Starts an engine with a model that returns hidden states and so generates no text.
fn hidden(slots: usize) -> Engine {
    let options = Options { device: "cpu".parse().unwrap(), output: Output::Hidden, ..Options::default() };
    let model = Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap();
    Engine::start(&model, EngineOptions { slots, ..EngineOptions::default() }).unwrap()
}

fn texts(n: usize, words: usize) -> Vec<Input> {
    (0..n).map(|i| Input::Text(format!("{i}{}", " and God said".repeat(words)))).collect()
}

fn arrived(generation: &mut Generation) -> Vec<Event> {
    use futures_core::Stream;
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut next = || std::pin::Pin::new(&mut *generation).poll_next(&mut context);
    std::iter::from_fn(|| if let std::task::Poll::Ready(event) = next() { event } else { None }).map(crate::error::Result::unwrap).collect()
}

#[test]
fn a_request_has_many_texts() {
    for engine in [hidden(4), engine(3)] {
        let texts = texts(11, 2);
        let only: Vec<&str> = texts.iter().map(|text| if let Input::Text(text) = text { text.as_str() } else { "" }).collect();
        let expected = alone(engine.model(), Pooling::Last, &only);
        let mut events = engine.submit(Request::vectors(texts)).unwrap().into_iter().collect::<crate::error::Result<Vec<Event>>>().unwrap();
        let Some(Event::Done(done)) = events.pop() else { panic!("{events:?}") };
        let n_tokens = expected.iter().map(|(_, n_tokens)| n_tokens).sum::<usize>();
        assert_eq!((done.index, done.usage.prompt_tokens, done.usage.completion_tokens, done.vector), (0, n_tokens, 0, None));
        assert!(matches!(events.remove(0), Event::Started { prompt_tokens, cached_tokens: 0 } if prompt_tokens == n_tokens));
        let mut seen = Vec::new();
        for event in events {
            let Event::Vector { index, vector } = event else { panic!("{event:?}") };
            let far = vector.iter().zip(&expected[index].0).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(far < 1e-4, "{index}: {far}");
            seen.push(index);
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..11));
        until(&engine, "all slots are free", |s| s.running == 0 && s.waiting == 0 && s.free_slots == s.slots);
    }
}

#[test]
fn the_texts_of_a_request_take_all_slots() {
    let engine = hidden(16);
    let generation = engine.submit(Request::vectors(texts(64, 100))).unwrap();
    until(&engine, "one request has all slots", |s| (s.running, s.waiting, s.free_slots) == (1, 0, 0));
    drop(generation);
    until(&engine, "all slots are free", |s| (s.running, s.waiting, s.free_slots) == (0, 0, 16));
}

#[test]
fn two_callers_share_a_model_for_vectors() {
    let engine = hidden(2);
    let of = |namespace: &str, n| Request { namespace: namespace.into(), ..Request::vectors(texts(n, 30)) };
    let mut first = engine.submit(of("ada", 90)).unwrap();
    let second = engine.submit(of("bob", 30)).unwrap();
    second.wait().unwrap();
    let n_first = arrived(&mut first).iter().filter(|event| matches!(event, Event::Vector { .. })).count();
    assert!((15..70).contains(&n_first), "{n_first}");
    // A caller's own request with one text does not wait for all texts of the request before it.
    engine.submit(of("ada", 1)).unwrap().wait().unwrap();
    assert!(!arrived(&mut first).iter().any(|event| matches!(event, Event::Done(_))));
    until(&engine, "only the long request runs", |s| s.running == 1);
}

#[test]
fn a_request_counts_in_the_queue_until_its_last_text_has_a_slot() {
    let model = hidden(1).model().clone();
    let engine = Engine::start(&model, EngineOptions { slots: 1, queue: 2, ..EngineOptions::default() }).unwrap();
    let long = || engine.submit(Request::vectors(texts(64, 100)));
    let kept = [long().unwrap(), long().unwrap()];
    until(&engine, "both have begun", |s| s.running == 2 && s.waiting == 0);
    assert_eq!(long().unwrap_err().kind, Kind::Busy);
    drop(kept);
    until(&engine, "the queue is empty", |s| s.running == 0);
    engine.submit(Request::vectors(texts(1, 1))).unwrap().wait().unwrap();
    let last = long().unwrap();
    engine.interrupt();
    assert_eq!(last.wait().unwrap_err().kind, Kind::Device);
}

#[test]
fn a_model_refuses_what_it_cannot_compute() {
    let (vectors, text) = (hidden(1), engine(1));
    for request in [Request::text("a"), Request::tokens([1]), Request::chat([Message::user("a")])] {
        let e = vectors.submit(request.clone()).unwrap_err();
        assert_eq!((e.kind, e.field_name()), (Kind::Input, Some("model")), "{e}");
        assert!(e.to_string().contains("was opened for hidden states and cannot generate text"), "{e}");
    }
    for engine in [&vectors, &text] {
        let e = engine.submit(Request::ranking("a", ["b".to_string()])).unwrap_err();
        assert_eq!((e.field_name(), e.message.as_str()), (Some("model"), "this model has no reranker"));
        let state = Request { state: Some("x".into()), ..Request::vectors(texts(1, 1)) };
        assert!(engine.submit(state.clone()).is_err());
        for (wrong, field) in [(vec![], "input"), (vec![Input::Tokens(vec![1]), Input::Text("".into())], "input[1]")] {
            assert_eq!(engine.submit(Request::vectors(wrong)).unwrap_err().field_name(), Some(field));
        }
    }
    assert_eq!(vectors.stats().free_slots, 1);
}
