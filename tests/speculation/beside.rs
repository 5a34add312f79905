//! Tests guesses beside other work: other steps, cancelled texts, an engine.

use super::*;

#[test]
fn other_work_between_the_halves_of_a_step_loses_no_page() {
    let model = tiny(&options("cpu"));
    let mut batcher = Batcher::new(Session::with_idle(&model, 2, Idle { guesses: true, ..Idle::default() }).unwrap());
    let prompt: Vec<u32> = [40, 41, 42, 43].repeat(4);
    for _ in 0..8 {
        let mut job =
            TextSpec::new(prompt.clone(), Sampler::new(Sampling::greedy(0)), Limits { stop_ids: Some(vec![]), ..Limits::new(30) });
        job.speculation = Speculation { by: Speculate::Ngram, n_guesses: Some(4) };
        let id = batcher.add(job).unwrap();
        for _ in 0..3 {
            batcher.step(&mut |_, _| ()).unwrap();
        }
        batcher.begin_step().unwrap();
        let session = batcher.session_mut();
        let slot = session.open().unwrap();
        session.prefill(slot, &[1, 2, 3]).unwrap();
        session.close(slot).unwrap();
        // The step may end with an error. Its job then ends, too.
        let _ = batcher.finish_step(&mut |_, _| ());
        let _ = batcher.step(&mut |_, _| ());
        batcher.cancel(id, &mut |_, _| ()).unwrap();
        assert_eq!(batcher.n_free(), 2);
    }
}

#[test]
fn a_cancelled_job_leaves_no_trace() {
    models(&mut options("cpu"), &mut |name, model| {
        let cases: Vec<Case> = (0..6)
            .map(|i| Case { limits: Limits { stop_ids: Some(vec![]), ..Limits::new(40) }, n: 1, has_rules: false, ..case(i, &model) })
            .collect();
        let (known, _) = run(&model, &cases, None, &By::Nobody, None, &[]);
        for at in [1, 2, 5, 9] {
            let mut batcher = Batcher::new(Session::with_idle(&model, 2, Idle { guesses: true, ..Idle::default() }).unwrap());
            let texts = known.iter().map(|outcome| outcome.tokens.clone()).enumerate().collect();
            batcher.add_proposer(Box::new(Oracle { texts, is_wrong: |at| at % 3 == 2, n_vocab: model.facts().n_vocab }));
            for (i, case) in cases.iter().enumerate() {
                let mut job = TextSpec::new(case.prompt.clone(), Sampler::new(case.sampling.clone()), case.limits.clone());
                job.speculation = Speculation { by: Speculate::Draft, n_guesses: Some(4) };
                // The job that is cancelled in the middle of a step frees its slot and its pages for the next job.
                let id = batcher.add(job).unwrap();
                let mut ended = Vec::new();
                for step in 0.. {
                    batcher.begin_step().unwrap();
                    if i % 2 == 1 && step == at {
                        let cut = batcher.cancel(id, &mut |_, _| ()).unwrap().unwrap();
                        assert!(known[i].tokens.starts_with(&cut.tokens), "{name}");
                    }
                    ended.extend(batcher.finish_step(&mut |_, _| ()).unwrap());
                    if batcher.n_running() == 0 {
                        break;
                    }
                }
                if i % 2 == 0 {
                    assert_eq!(ended.pop().unwrap().output.unwrap().tokens, known[i].tokens, "{name}: text {i}");
                }
                assert_eq!(batcher.n_free(), 2, "{name}");
            }
        }
    });
}

#[test]
fn an_engine_gives_the_same_answers_with_guesses() {
    let mut options = options("cpu");
    options.deterministic = true;
    let model = tiny(&options);
    let engine = |speculation: Speculation, draft: Option<&Model>| {
        let options = EngineOptions { speculation, draft: draft.cloned(), ..EngineOptions::new().slots(3) };
        Engine::start(&model, options).unwrap()
    };
    let schema = r#"{"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}}, "required": ["name", "age"]}"#;
    let answers = |engine: &Engine| {
        let text = "And God said, Let there be light: and there was light. And God said, Let there be";
        let mut all = Vec::new();
        let mut answer = |request: Request| {
            let mut done = Vec::new();
            for event in engine.submit(request.seed(7)).unwrap() {
                if let Event::Done(completion) = event.unwrap() {
                    done.push(*completion);
                }
            }
            done.sort_by_key(|completion| completion.index);
            for done in done {
                let logprobs: Vec<_> = done.logprobs.iter().map(|at| (at.token, at.logprob.to_bits())).collect();
                all.push((done.text, done.tokens, done.finish, done.complete, done.usage.cached_tokens, logprobs));
            }
        };
        answer(Request::text(text).max_tokens(50).set("temperature", 0));
        answer(Request::text(text).max_tokens(30).n(3));
        answer(Request::text(text).max_tokens(20).logprobs(2));
        answer(Request::text(text).max_tokens(60).follows(Rules::Schema(schema.into())));
        answer(Request::text(text).max_tokens(25).stop(["the", "And"]));
        // Each turn begins with the text of the turn before, which is in the prefix cache.
        let mut turns = text.to_string();
        for _ in 0..4 {
            turns += " light: and there was light. And God said, Let there be light";
            answer(Request::text(turns.clone()).max_tokens(12));
        }
        // A state that is saved after guesses continues like a state without guesses.
        answer(Request::text(text).max_tokens(23).save_state("a"));
        answer(Request::text(" and there was").state("a").max_tokens(40));
        all
    };
    let plain = engine(Speculation::off(), None);
    let known = answers(&plain);
    assert!(known.iter().any(|answer| answer.4 > 0), "the prefix cache was not used");
    let e = plain.submit(Request::text("a").speculate(Speculate::Ngram)).unwrap_err();
    assert_eq!((e.field_name(), e.message.as_str()), (Some("speculate"), "this engine has no memory for guesses"));
    let ways = [
        (Speculation::by(Speculate::Ngram), None),
        (Speculation { by: Speculate::Ngram, n_guesses: Some(3) }, None),
        (Speculation { by: Speculate::Auto, n_guesses: Some(5) }, None),
        (Speculation { by: Speculate::Forced, n_guesses: Some(8) }, None),
        (Speculation { by: Speculate::Draft, n_guesses: Some(2) }, Some(&model)),
        (Speculation { by: Speculate::Auto, n_guesses: None }, Some(&model)),
    ];
    for (speculation, draft) in ways {
        let engine = engine(speculation, draft);
        assert_eq!(answers(&engine), known, "{speculation:?}");
        let stats = engine.stats();
        // Without a fixed number of guesses, an engine may make no guesses, because measured times may show that guesses do not pay.
        let is_fixed = speculation.n_guesses.is_some();
        assert!(!is_fixed || stats.accepted > 0 && stats.accepted <= stats.drafted, "{speculation:?}: {stats:?}");
        let off = engine.run(Request::text("And God said").max_tokens(20).speculate(Speculate::Off)).unwrap();
        assert_eq!(off.timings.guesses(), None);
    }
    let with_draft = engine(Speculation::off(), Some(&model));
    let mut request = Request::text("In the beginning").max_tokens(30).draft_tokens(3).set("temperature", 0);
    request.draft = Some(model.name().into());
    let timings = with_draft.run(request.clone()).unwrap().timings;
    assert!(timings.drafted_tokens > 0, "{timings:?}");
    request.draft = Some("other".into());
    assert_eq!(
        with_draft.submit(request.clone()).unwrap_err().message,
        format!("unknown draft model \"other\": only {} was loaded", model.name())
    );
    assert_eq!(plain.submit(request).unwrap_err().message, "unknown draft model \"other\": none was loaded");
    let e = engine(Speculation::by(Speculate::Ngram), None).submit(Request::text("a").speculate(Speculate::Draft)).unwrap_err();
    assert_eq!(e.message, "this engine has no draft model");
}
