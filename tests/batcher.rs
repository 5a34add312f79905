//! Tests continuous batching on every device of this machine: each text must equal the text that its job generates alone.

use crate::support::{adapter, caps, devices, draws_ahead, glm4, golden, options, read, tiny, unwatched};
use std::collections::HashMap;
use wingbeat::constrain::{Follower, Grammar, Pieces};
use wingbeat::engine::{Engine, EngineOptions, Request};
use wingbeat::error::Kind;
use wingbeat::low_level::exec::gpu::Device;
use wingbeat::low_level::sample::{Sampler, Sampling};
use wingbeat::low_level::session::{Batcher, Finish, Limits, Model, Session, Text, TextId, TextSpec};
use wingbeat::low_level::tape::Class;

/// Returns a prompt, sampler settings and limits for case `i`. Prompts have different lengths.
fn case(i: usize) -> (Vec<u32>, Sampling, Limits) {
    let mut sampling = if i.is_multiple_of(3) { Sampling::greedy(0) } else { Sampling { seed: i as u64, ..Sampling::rwkv() } };
    sampling.top_k = i % 4 * 10;
    let mut limits = Limits::new([1, 9, 4, 17, 0, 12][i % 6]);
    if i.is_multiple_of(5) {
        limits.stop_texts = vec!["the".into()];
    }
    (golden().prompt(1 + (i * 7) % 23, i), sampling, limits)
}

fn alone(model: &Model, i: usize) -> (Vec<u32>, String, Finish) {
    let (prompt, sampling, limits) = case(i);
    let mut session = Session::new(model, 1).unwrap();
    let go = &mut |_: &str| std::ops::ControlFlow::Continue(());
    let made = session.generate(prompt.as_slice(), &sampling, &limits, go).unwrap();
    (made.tokens, made.text, made.finish)
}

fn all_of(made: Text) -> (Vec<u32>, String, Finish) {
    (made.tokens, made.text, made.finish.unwrap())
}

#[test]
fn a_text_does_not_depend_on_the_rest_of_the_batch() {
    for device in devices() {
        let mut options = options(device);
        options.deterministic = true;
        // Chunks are shorter than some prompts, so these prompts take several steps.
        options.chunk = Some(16);
        let model = tiny(&options);
        let n = if *device == "cpu" { 40 } else { 12 };
        let mut batcher = Batcher::new(Session::new(&model, 5).unwrap());
        let (mut waiting, mut which, mut found, mut heard) = (0..n, HashMap::new(), HashMap::new(), HashMap::<TextId, String>::new());
        while found.len() < n {
            while batcher.n_free() > 0
                && let Some(i) = waiting.next()
            {
                let (prompt, sampling, limits) = case(i);
                which.insert(batcher.add(TextSpec::new(prompt, Sampler::new(sampling), limits)).unwrap(), i);
            }
            let (running, free) = (batcher.n_running(), batcher.n_free());
            assert_eq!(running + free, 5);
            let mut hear =
                |job: TextId, event: wingbeat::low_level::session::TokenEvent<'_>| heard.entry(job).or_default().push_str(event.piece);
            for done in batcher.step(&mut hear).unwrap() {
                found.insert(which[&done.id], (done.id, all_of(done.output.unwrap())));
            }
        }
        assert_eq!((batcher.n_running(), batcher.n_free()), (0, 5));
        for (i, (job, made)) in found {
            assert_eq!(made, alone(&model, i), "{device}: text {i}");
            assert_eq!(heard.get(&job).map_or("", String::as_str), made.1, "{device}: text {i}");
        }
    }
}

#[test]
fn an_error_of_one_job_does_not_affect_the_others() {
    let model = tiny(&options("cpu"));
    let n_vocab = model.facts().n_vocab as u32;
    let mut batcher = Batcher::new(Session::new(&model, 2).unwrap());
    let (prompt, sampling, limits) = case(3);
    let job = |prompt: &[u32], sampling: &Sampling| TextSpec::new(prompt.to_vec(), Sampler::new(sampling.clone()), limits.clone());
    // A refused job does not keep a slot open.
    for (prompt, sampling, kind, want) in [
        (&[][..], sampling.clone(), Kind::Input, "the prompt is empty"),
        (&[n_vocab][..], sampling.clone(), Kind::Input, "out of range"),
        (&[5][..], Sampling { top_p: 2.0, ..sampling.clone() }, Kind::Usage, "top_p: "),
    ] {
        let e = batcher.add(job(prompt, &sampling)).unwrap_err();
        assert!(e.kind == kind && e.to_string().contains(want), "{e}");
        assert_eq!((batcher.n_running(), batcher.n_free()), (0, 2));
    }
    let banned = Sampling { ban: (0..n_vocab).collect(), ..Sampling::rwkv() };
    let (good, bad) = (batcher.add(job(&prompt, &sampling)).unwrap(), batcher.add(job(&prompt, &banned)).unwrap());
    assert!(batcher.add(job(&prompt, &sampling)).unwrap_err().to_string().contains("2 of 2 slots are in use"));
    let (mut made, mut error) = (None, None);
    while batcher.n_running() > 0 {
        for done in batcher.step(&mut |_, _| ()).unwrap() {
            match done.output {
                Ok(text) => made = Some((done.id, all_of(text))),
                Err(e) => error = Some((done.id, e.kind)),
            }
        }
    }
    assert_eq!((made, error), (Some((good, alone(&model, 3))), Some((bad, Kind::Usage))));
}

#[test]
fn a_job_continues_from_an_open_slot_and_can_be_cancelled() {
    let mut options = options("cpu");
    options.deterministic = true;
    let model = tiny(&options);
    let mut session = Session::new(&model, 3).unwrap();
    let base = session.open().unwrap();
    let (prompt, sampling, limits) = case(9);
    session.prefill(base, &prompt[..4]).unwrap();
    let mut batcher = Batcher::new(session);
    let job = |prompt: &[u32], n| TextSpec {
        from: Some(base),
        ..TextSpec::new(prompt.to_vec(), Sampler::new(sampling.clone()), Limits { max_tokens: n, ..limits.clone() })
    };
    for _ in 0..2 {
        let first = batcher.add(job(&prompt[4..], 17)).unwrap();
        let endless = batcher.add(job(&[], 1000)).unwrap();
        assert_eq!(batcher.n_free(), 0);
        let mut ended = Vec::new();
        while ended.is_empty() {
            ended = batcher.step(&mut |_, _| ()).unwrap();
        }
        assert_eq!((ended[0].id, ended.len()), (first, 1));
        assert_eq!(all_of(ended.remove(0).output.unwrap()), alone(&model, 9));
        let cut = batcher.cancel(endless, &mut |_, _| ()).unwrap().unwrap();
        assert!(cut.finish == Some(Finish::Interrupted) && cut.tokens.len() >= 17 && !cut.text.is_empty());
        assert!(batcher.cancel(endless, &mut |_, _| ()).unwrap().is_none() && batcher.cancel(first, &mut |_, _| ()).unwrap().is_none());
        assert_eq!(batcher.n_free(), 2);
    }
    assert!(batcher.session().logits(base).unwrap() == read(&model, &prompt[..4]).as_slice());
}

#[test]
fn a_processor_is_called_before_each_sampling() {
    let model = tiny(&options("cpu"));
    let mut batcher = Batcher::new(Session::new(&model, 2).unwrap());
    let (prompt, ..) = case(3);
    let mut job = TextSpec::new(prompt.clone(), Sampler::new(Sampling::rwkv()), Limits::new(5));
    job.processor = Some(Box::new(|tokens, logits| {
        logits.fill(f32::NEG_INFINITY);
        logits[65 + tokens.len()] = 0.0;
    }));
    batcher.add(job).unwrap();
    batcher.add(TextSpec::new(prompt, Sampler::new(Sampling::greedy(0)), Limits::new(5))).unwrap();
    let mut made = Vec::new();
    while batcher.n_running() > 0 {
        made.extend(batcher.step(&mut |_, _| ()).unwrap().into_iter().map(|d| d.output.unwrap().tokens));
    }
    assert!(made.contains(&vec![65, 66, 67, 68, 69]), "{made:?}");
}

/// Generates three texts in a batch, and uses the session for other work after every step. Checks that this work does not change the texts.
fn texts_beside(name: &str, model: &Model, n_tokens: usize) {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("s.st");
    let case = |i: usize| {
        let sampling = Sampling { seed: i as u64, temperature: 1.3, ..Sampling::rwkv() };
        (golden().prompt(3 + i, i), sampling, Limits { stop_ids: Some(vec![]), ..Limits::new(n_tokens) })
    };
    let alone = |session: &mut Session, i: usize| {
        let (prompt, sampling, limits) = case(i);
        let go = &mut |_: &str| std::ops::ControlFlow::Continue(());
        session.generate(prompt.as_slice(), &sampling, &limits, go).unwrap().tokens
    };
    let mut single = Session::new(model, 1).unwrap();
    let expected: Vec<Vec<u32>> = (0..4).map(|i| alone(&mut single, i)).collect();
    let mut batcher = Batcher::new(Session::new(model, 4).unwrap());
    let jobs: Vec<TextId> = (0..3)
        .map(|i| {
            let (prompt, sampling, limits) = case(i);
            batcher.add(TextSpec::new(prompt, Sampler::new(sampling), limits)).unwrap()
        })
        .collect();
    let (mut heard, mut n_ahead, mut n_steps) = (HashMap::<TextId, Vec<u32>>::new(), 0, 0);
    while batcher.n_running() > 0 {
        let mut hear = |job: TextId, event: wingbeat::low_level::session::TokenEvent<'_>| {
            heard.entry(job).or_default().extend(event.token);
            n_ahead += usize::from(event.n_together > 1);
        };
        for done in batcher.step(&mut hear).unwrap() {
            let i = jobs.iter().position(|job| *job == done.id).unwrap();
            assert_eq!(done.output.unwrap().tokens, expected[i], "{name}: text {i}");
        }
        let session = batcher.session_mut();
        n_steps += 1;
        match n_steps % 4 {
            // Generates another text, which replaces the samplers on the device.
            0 => assert_eq!(alone(session, 3), expected[3], "{name}: the text of another"),
            // Prefills another slot. From the second time on, this slot is loaded from a state file.
            1 => {
                let slot = if state.exists() { session.load(&state, false).unwrap().0 } else { session.open().unwrap() };
                session.prefill(slot, &case(3).0).unwrap();
                session.save(slot, &state, None, None).unwrap();
                session.close(slot).unwrap();
            }
            _ => {}
        }
    }
    for (i, job) in jobs.iter().enumerate() {
        assert_eq!(heard[job], expected[i], "{name}: text {i}, token by token");
    }
    assert!(n_steps > 4, "{name}: nothing else was done between {n_steps} steps");
    // On a software adapter a step may take longer than the time limit of a submission. Then each submission has only one step.
    assert!(n_ahead > 0 || name != "cpu", "no token was sampled ahead");
}

#[test]
fn other_work_between_two_steps_neither_drops_nor_repeats_tokens() {
    if !draws_ahead("batcher::other_work_between_two_steps_neither_drops_nor_repeats_tokens") {
        return;
    }
    let mut on_cpu = options("cpu");
    on_cpu.deterministic = true;
    texts_beside("cpu", &tiny(&on_cpu), 200);
    if let Some(adapter) = adapter() {
        let base = Device::open(&adapter, true).unwrap();
        let mut own = options("gpu");
        own.gpu = Some(unwatched(&base, caps(base.caps.clone(), Class::Groups)));
        texts_beside("groups", &tiny(&own), 12);
    }
}

#[test]
fn lexer_states_of_one_text_do_not_count_for_another() {
    let mut options = options("cpu");
    options.deterministic = true;
    let model = tiny(&options);
    let pieces = Pieces::new(model.vocab().unwrap(), model.facts().n_vocab).unwrap();
    // For this grammar, the lexer needs a new state for almost every text of some length. One text visits tens of thousands of states, and
    // llguidance gives up a lexer that has 250 000 states.
    let ends: Vec<String> = ('a'..='z').zip(20..).map(|(letter, n)| format!("\"{letter}\" [a-z ]{{{n}}}")).collect();
    let grammar = Grammar::gbnf(&format!("root ::= [a-z ]* ({})", ends.join(" | "))).unwrap();
    let follower = pieces.follow(&grammar).unwrap();
    const TEXTS: usize = 10;
    let run = |n_slots: usize, follower: &dyn Fn() -> Follower| {
        let mut batcher = Batcher::new(Session::new(&model, n_slots).unwrap());
        let (mut waiting, mut texts) = (0..TEXTS as u64, HashMap::new());
        while texts.len() < TEXTS {
            while batcher.n_free() > 0
                && let Some(seed) = waiting.next()
            {
                let sampler = Sampler::new(Sampling { seed, ..Sampling::rwkv() });
                let mut job = TextSpec::new(golden().prompt(5, 1), sampler, Limits::new(24));
                job.constraint = Some(Box::new(follower()));
                batcher.add(job).unwrap();
            }
            for done in batcher.step(&mut |_, _| ()).unwrap() {
                texts.insert(done.id, all_of(done.output.unwrap()));
            }
        }
        texts
    };
    let one = run(1, &|| pieces.follow(&grammar).unwrap());
    let different: std::collections::HashSet<&str> = one.values().map(|(_, text, _)| text.as_str()).collect();
    assert_eq!(different.len(), TEXTS);
    assert_eq!(run(4, &|| follower.clone()), one);
}

#[test]
fn a_context_limits_a_text_and_a_longer_prompt_is_refused() {
    let Some(tiny) = glm4() else { return };
    let mut options = options("cpu");
    options.deterministic = true;
    options.context = Some(100);
    let model = tiny.load(&options);
    let golden = tiny.golden();
    let mut batcher = Batcher::new(Session::new(&model, 3).unwrap());
    let job = |n: usize, seed| {
        TextSpec::new(golden.prompt(n, seed), Sampler::new(Sampling::greedy(0)), Limits { stop_ids: Some(vec![]), ..Limits::new(1000) })
    };
    assert!(batcher.add(job(101, 1)).unwrap_err().to_string().contains("exceed the context of 100"));
    let mut n_prompt = HashMap::new();
    let mut waiting = [100, 60, 1, 99, 64, 65].into_iter();
    let mut texts = 0;
    while texts < 6 {
        while batcher.n_free() > 0
            && let Some(n) = waiting.next()
        {
            n_prompt.insert(batcher.add(job(n, n)).unwrap(), n);
        }
        for done in batcher.step(&mut |_, _| ()).unwrap() {
            let (n, made) = (n_prompt[&done.id], done.output.unwrap());
            let mut single = Session::new(&model, 1).unwrap();
            let limits = Limits { stop_ids: Some(vec![]), ..Limits::new(1000) };
            let go = &mut |_: &str| std::ops::ControlFlow::Continue(());
            let expected = single.generate(golden.prompt(n, n).as_slice(), &Sampling::greedy(0), &limits, go).unwrap();
            assert_eq!((made.finish, made.tokens.len(), made.tokens), (Some(Finish::Context), 100 - n, expected.tokens), "{n}");
            texts += 1;
        }
    }
}

/// A step that samples on the device does not record that the prompt has been prefilled. A job that saves its state needs this record.
#[test]
fn a_prompt_of_one_token_ends_with_its_state() {
    if !draws_ahead("batcher::a_prompt_of_one_token_ends_with_its_state") {
        return;
    }
    let engine = Engine::start(&tiny(&options("cpu")), EngineOptions::default()).unwrap();
    let mut request = Request::tokens([5]).max_tokens(3);
    request.save_state = Some("a".into());
    let (ended, has_ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let done = engine.submit(request.clone()).unwrap().wait().unwrap().remove(0);
        ended.send(done).unwrap();
    });
    let done = has_ended.recv_timeout(std::time::Duration::from_secs(60)).expect("the text ends");
    assert_eq!(done.state.unwrap().unwrap().n_tokens, 1 + done.tokens.len());
}
