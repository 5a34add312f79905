//! Kept states: coming back is exact, and what is kept is what was read.

use super::*;

/// Whether logits are the same but for rounding: sums of a chunk and of single tokens have another order.
fn is_near(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && !a.is_empty() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-3)
}

#[test]
fn what_is_kept_is_what_was_read() {
    let mut talk = bob_and_alice();
    talk.set("FREE_GEN_LEN", "8").unwrap();
    for line in ["light", "+", "+qa water", "+++", "fire"] {
        answer(&mut talk, line);
    }
    for (name, read) in talk.transcripts().into_iter().map(|(name, tokens)| (name, tokens.to_vec())).collect::<Vec<_>>() {
        let saved = talk.way.kept().into_iter().find(|(kept, _)| *kept == name).unwrap().1;
        let of_talk = talk.core.session.logits(saved.slot).unwrap().to_vec();
        assert_eq!(talk.core.session.n_tokens(saved.slot).unwrap(), read.len(), "{name}");
        let mut session = Session::new(&model(), 1).unwrap();
        let slot = session.open().unwrap();
        assert!(is_near(session.prefill(slot, &read).unwrap(), &of_talk), "{name}");
    }
}

#[test]
fn coming_back_is_exact_to_the_bit() {
    let mut talk = bob_and_alice();
    talk.set("preset", "chat").unwrap();
    talk.set("FREE_GEN_LEN", "8").unwrap();
    let script = Script::of(&mut talk);
    let first_logits = |script: &Script| script.seen().swap_remove(0);
    let init = exported(&mut talk, "chat_init");

    answer(&mut talk, "light");
    let (asked, pre) = (first_logits(&script), exported(&mut talk, "chat_pre"));
    let replies: Vec<Vec<u32>> = (0..3).map(|_| answer(&mut talk, "+").tokens).collect();
    assert!(replies.iter().any(|tokens| *tokens != replies[0]), "they are drawn");
    assert_eq!(first_logits(&script), asked);
    assert_eq!(exported(&mut talk, "chat_pre"), pre);

    answer(&mut talk, "+gen In the");
    let (begun, gen_0, gen_1) = (first_logits(&script), exported(&mut talk, "gen_0"), exported(&mut talk, "gen_1"));
    assert_ne!(gen_0, gen_1);
    script.seen();
    answer(&mut talk, "+++");
    assert_eq!(exported(&mut talk, "gen_0"), gen_1, "more goes on where the last one ended");
    let more = first_logits(&script);
    answer(&mut talk, "++");
    assert_eq!((first_logits(&script), exported(&mut talk, "gen_0")), (more, gen_1));
    answer(&mut talk, "+gen In the");
    assert_eq!((first_logits(&script), exported(&mut talk, "gen_0")), (begun, gen_0));

    say(&mut talk, "+reset");
    assert_eq!(exported(&mut talk, "chat"), init);
    assert_eq!(exported(&mut talk, "chat_init"), init);
    script.seen();
    answer(&mut talk, "light");
    assert_eq!(first_logits(&script), asked);
    assert_eq!(exported(&mut talk, "chat_pre"), pre);
}

#[test]
fn few_slots_are_enough() {
    let model = model();
    assert_eq!(Talk::slots(&model), 32);
    let session = Session::new(&model, 8).unwrap();
    let mut talk = Talk::new(session, Format::named("g1", &model).unwrap(), greedy(), &mut |_, _| ()).unwrap();
    let script = Script::of(&mut talk);
    talk.set("FREE_GEN_LEN", "1").unwrap();
    for i in 0..6 {
        for line in ["light", "+", "+gen x", "+qa y", "+++", "++"] {
            script.says(&[encode(" yes"), vec![0]].concat());
            answer(&mut talk, line);
            script.next.lock().unwrap().clear();
        }
        assert_eq!((talk.stats().n_turns, talk.stats().n_tokens), (i + 1, talk.transcript().len()));
    }
    // A turn that is kept can be taken back, and a branch shares all that it can.
    script.says(&[encode(" yes"), vec![0]].concat());
    answer(&mut talk, "light");
    talk.undo().unwrap();
    assert!(talk.undo().unwrap_err().to_string().starts_with("the turn before this one is not kept"));
    let mut n_branches = 0;
    let said = loop {
        talk.fork(&n_branches.to_string()).unwrap();
        n_branches += 1;
        script.says(&[encode(" yes"), vec![0]].concat());
        if let Err(e) = talk.say("light", &mut |_| ControlFlow::Continue(())) {
            break e;
        }
    };
    assert_eq!(said.to_string(), "expected room for another state, found every slot of the session in use (remove a branch)");
    assert!(n_branches > 1, "{n_branches}");
    script.next.lock().unwrap().clear();
    let read = talk.transcript().to_vec();
    talk.remove("0").unwrap();
    script.says(&[encode(" yes"), vec![0]].concat());
    answer(&mut talk, "light");
    assert!(talk.transcript().starts_with(&read));
}

#[test]
fn reading_is_chunked_and_can_be_interrupted() {
    let mut talk = bob_and_alice();
    let logits = |talk: &Talk| talk.core.session.logits(talk.way.kept()[0].1.slot).unwrap().to_vec();
    let one = logits(&talk);
    talk.set("CHUNK_LEN", "3").unwrap();
    talk.system("").unwrap();
    assert_eq!(talk.transcript(), encode(FIRST));
    assert!(is_near(&logits(&talk), &one), "the length of a chunk changes nothing but the rounding");
    talk.set("CHUNK_LEN", "1").unwrap();
    let text = encode("a text of many tokens, that is to be read one by one");
    let mut saved = talk.core.fresh().unwrap();
    let (stop, mut last) = (talk.stop_flag(), 0);
    let read = talk.core.read(&mut saved, &text, Default::default(), &mut |done, total| {
        assert_eq!(total, text.len());
        last = done;
        if done == 3 {
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    });
    assert_eq!((read.unwrap_err().kind, last), (crate::error::Kind::Interrupted, 3));
    talk.core.drop(saved);
    talk.set("CHUNK_LEN", "256").unwrap();
    answer(&mut talk, "what was said before does not count");
}
