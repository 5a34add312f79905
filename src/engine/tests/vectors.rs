//! Requests for vectors, while other requests of the same engine decode.

use super::*;
use crate::session::{EmbedOptions, Embedder, Pooling};

fn vector(prompt: &str, pooling: Pooling) -> Request {
    Request { pooling: Some(pooling), ..Request::text(prompt) }
}

#[test]
fn vectors_are_computed_while_texts_decode() {
    let engine = engine(4);
    let text = Request::text("In the beginning").max_tokens(40).set("temperature", 0);
    let alone = engine.submit(text.clone()).unwrap().wait().unwrap().remove(0);
    let prompts = ["light", "In the beginning God created the heaven", "x"];
    let expected = [Pooling::Last, Pooling::Mean].map(|pooling| {
        let options = EmbedOptions { pooling: Some(pooling), ..EmbedOptions::default() };
        let mut embedder = Embedder::new(engine.model(), 1, &options).unwrap();
        embedder.embed(&prompts, &mut |_, _| ()).unwrap()
    });
    let decoding = engine.submit(text.clone()).unwrap();
    for (pooling, expected) in [Pooling::Last, Pooling::Mean].into_iter().zip(expected) {
        let all: Vec<Generation> = prompts.iter().map(|prompt| engine.submit(vector(prompt, pooling)).unwrap()).collect();
        for ((generation, expected), prompt) in all.into_iter().zip(expected).zip(prompts) {
            let events = generation.into_iter().collect::<crate::error::Result<Vec<Event>>>().unwrap();
            let [Event::Started { cached_tokens: 0, .. }, Event::Vector { vector }, Event::Done(done)] = &events[..] else {
                panic!("{events:?}")
            };
            assert_eq!((done.vector.as_ref(), done.text.as_str(), done.tokens.len()), (Some(vector), "", 0), "{prompt}");
            assert_eq!(done.usage.prompt_tokens, expected.n_tokens);
            let far = vector.iter().zip(&expected.vector).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(vector.len() == expected.vector.len() && far < 1e-4, "{prompt} {pooling:?}: {far}");
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
        (Request { pooling: Some(Pooling::Mean), ..Request::messages([Message::user("a")]) }, "not messages"),
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
