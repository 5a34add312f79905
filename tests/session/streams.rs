//! Tests continuations: several texts of one session, and what ends or changes a text.

use super::*;

#[test]
fn continuations_of_one_state_are_those_of_single_streams() {
    for device in devices() {
        let mut options = options(device);
        options.deterministic = true;
        let model = tiny(&options);
        let limits = Limits::new(12);
        let sampling = |seed| Sampling { seed, ..Sampling::rwkv() };
        let tokens = prompt(15, 5);
        let mut session = Session::new(&model, 4).unwrap();
        let first = session.open().unwrap();
        session.prefill(first, &tokens).unwrap();
        let slots = [first, session.fork(first).unwrap(), session.fork(first).unwrap()];
        let mut continuations: Vec<Text> =
            slots.iter().enumerate().map(|(i, s)| Text::after(*s, Sampler::new(sampling(i as u64)), &limits)).collect();
        session.continue_many(&mut continuations, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
        for (i, continuation) in continuations.iter().enumerate() {
            let mut single = Session::new(&model, 1).unwrap();
            let made =
                single.generate(tokens.as_slice(), &sampling(i as u64), &limits, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
            assert_eq!((made.tokens, made.text), (continuation.tokens.clone(), continuation.text.clone()), "{device}: continuation {i}");
            assert_eq!(continuation.finish, Some(made.finish));
        }
    }
}

/// Continues several texts at once. The host must sample the first texts, which end first, and the device can sample the rest. Checks that each
/// text equals the text of a separate session, and that no tokens of the host's texts arrive together. Returns how many tokens of the device's
/// texts arrive together.
fn mixed_texts(name: &str, model: &Model) -> usize {
    let base = |seed| Sampling { seed, ..Sampling::rwkv() };
    let all = [
        Sampling { typical: 0.7, ..base(1) },
        Sampling { mirostat: 3.0, ..base(2) },
        Sampling { dry_multiplier: 2.0, dry_breakers: vec!["\n".into()], repeat_penalty: 1.2, repeat_last_n: Some(9), ..base(3) },
        Sampling { top_n_sigma: 1.0, ..base(4) },
        base(5),
    ];
    let (tokens, limits) = (prompt(15, 5), Limits::new(20));
    let alone = |sampling: &Sampling| {
        let mut single = Session::new(model, 1).unwrap();
        let slot = single.open().unwrap();
        single.prefill(slot, &tokens).unwrap();
        let mut continuations = [Text::after(slot, Sampler::new(sampling.clone()), &limits)];
        single.continue_many(&mut continuations, &mut |_| ControlFlow::Continue(())).unwrap();
        let [continuation] = continuations;
        (continuation.tokens, continuation.text, continuation.spec.sampler.memory())
    };
    let alone: Vec<_> = all.iter().map(alone).collect();
    let mut n_ahead = [0; 2];
    for n_of_host in 0..=3 {
        let mut session = Session::new(model, 8).unwrap();
        let first = session.open().unwrap();
        session.prefill(first, &tokens).unwrap();
        let mut continuations: Vec<Text> = Vec::new();
        for sampling in &all[3 - n_of_host..] {
            continuations.push(Text::after(session.fork(first).unwrap(), Sampler::new(sampling.clone()), &limits));
        }
        // These continuations begin with 12 tokens that count as generated, so they end after 8 further tokens.
        continuations[..n_of_host].iter_mut().for_each(|continuation| continuation.tokens = vec![0; 12]);
        let mut hear = |event: wingbeat::low_level::session::TokenEvent<'_>| {
            n_ahead[usize::from(event.text >= n_of_host)] += usize::from(event.n_together > 1);
            ControlFlow::Continue(())
        };
        session.continue_many(&mut continuations, &mut hear).unwrap();
        for (i, continuation) in continuations.iter().enumerate() {
            let (tokens, text, memory) = &alone[3 - n_of_host + i];
            if i < n_of_host {
                assert!(continuation.tokens[12..] == tokens[..8] && text.starts_with(&continuation.text), "{name}: {n_of_host}, {i}");
            } else {
                assert_eq!(
                    (&continuation.tokens, &continuation.text, &continuation.spec.sampler.memory()),
                    (tokens, text, memory),
                    "{name}: {n_of_host}, {i}"
                );
            }
        }
    }
    assert_eq!(n_ahead[0], 0, "{name}");
    n_ahead[1]
}

#[test]
fn a_stream_that_needs_the_host_does_not_change_others() {
    for (name, model) in models(|o| o.deterministic = true).iter().filter(|(name, _)| name == "cpu" || name == "groups") {
        mixed_texts(name, model);
    }
}

#[test]
fn streams_sample_on_the_device_once_none_needs_the_host() {
    if draws_ahead("session::streams::streams_sample_on_the_device_once_none_needs_the_host") {
        let mut options = options("cpu");
        options.deterministic = true;
        // On a software adapter a step may take longer than the time limit of a submission. Then each submission has only one step.
        assert!(mixed_texts("cpu", &tiny(&options)) > 0, "no token was sampled ahead");
    }
}

#[test]
fn breakers_are_found_in_the_vocabulary() {
    let model = tiny(&options("cpu"));
    let mut session = Session::new(&model, 1).unwrap();
    let mut make = |breakers: &[&str]| {
        let dry_breakers = breakers.iter().map(|text| text.to_string()).collect();
        // The penalty makes any repetition of a token very unlikely.
        let s = Sampling { dry_multiplier: 100.0, dry_allowed_length: 1, dry_breakers, ..Sampling::greedy(0) };
        session.generate(prompt(15, 5).as_slice(), &s, &Limits::new(40), &mut |_| ControlFlow::Continue(()))
    };
    let vocab = model.vocab().unwrap();
    let pairs = |tokens: &[u32], breaks: &dyn Fn(u32) -> bool| {
        let mut seen = std::collections::HashSet::new();
        tokens.windows(2).filter(|pair| !breaks(pair[0]) && !breaks(pair[1]) && !seen.insert([pair[0], pair[1]])).count()
    };
    let strict = make(&[]).unwrap().tokens;
    assert_eq!(pairs(&strict, &|_| false), 0, "no pair comes twice");
    let loose = make(&["e"]).unwrap().tokens;
    let has_e = |id: u32| vocab.token(id).contains(&b'e');
    assert_eq!(pairs(&loose, &has_e), 0);
    assert_ne!(strict, loose);
    let e = make(&["no token has this"]).unwrap_err().to_string();
    assert!(e.starts_with("dry_breaker: no token of the vocabulary contains"), "{e}");
}

#[test]
fn stop_texts_bans_and_interruption_end_a_text() {
    let model = tiny(&options("cpu"));
    let mut session = Session::new(&model, 1).unwrap();
    let go = |_: &str| std::ops::ControlFlow::Continue(());
    let greedy = Sampling::greedy(0);
    let golden = golden();
    let plain = session.generate(golden.tokens.as_slice(), &greedy, &Limits::new(40), &mut { go }).unwrap();
    assert_eq!(plain.finish, Finish::Length);

    let limits = Limits { stop_texts: vec!["Pharaoh".into()], ..Limits::new(40) };
    let mut streamed = String::new();
    let stopped = session
        .generate(golden.tokens.as_slice(), &greedy, &limits, &mut |piece| {
            streamed.push_str(piece);
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(stopped.finish, Finish::Stop);
    assert_eq!(streamed, stopped.text);
    assert_eq!(stopped.text, plain.text.split("Pharaoh").next().unwrap());

    let banned = Sampling { ban: vec![plain.tokens[0]], ..Sampling::greedy(0) };
    let other = session.generate(golden.tokens.as_slice(), &banned, &Limits::new(5), &mut { go }).unwrap();
    assert!(!other.tokens.contains(&plain.tokens[0]));

    let limits = Limits { stop_ids: Some(vec![plain.tokens[3]]), ..Limits::new(40) };
    let ended = session.generate(golden.tokens.as_slice(), &greedy, &limits, &mut { go }).unwrap();
    assert_eq!((ended.finish, ended.tokens.as_slice()), (Finish::Eos, &plain.tokens[..3]));

    let broken = session.generate(golden.tokens.as_slice(), &greedy, &Limits::new(40), &mut |_| std::ops::ControlFlow::Break(())).unwrap();
    assert_eq!((broken.finish, broken.tokens.len()), (Finish::Interrupted, 1));

    session.stop_flag().store(true, std::sync::atomic::Ordering::Relaxed);
    let slot = session.open().unwrap();
    let error = session.prefill(slot, &prompt(600, 6)).err().unwrap();
    assert_eq!(error.kind, wingbeat::error::Kind::Interrupted);
    assert_eq!(session.n_tokens(slot).unwrap(), 256);
}
