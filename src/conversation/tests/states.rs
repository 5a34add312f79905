//! Tests of kept states: returning to a state is exact to the bit.

use super::*;

#[test]
fn returning_to_a_state_is_exact_to_the_bit() {
    let mut chat = bob_and_alice();
    chat.set("preset", "chat").unwrap();
    for (name, value) in [("temperature", "3"), ("top_p", "1"), ("FREE_GEN_LEN", "8")] {
        chat.set(name, value).unwrap();
    }
    let script = Script::of(&mut chat);
    let first_logits = |script: &Script| script.seen().swap_remove(0);
    let init = exported(&mut chat, "chat_init");

    answer(&mut chat, "light");
    let (asked, pre) = (first_logits(&script), exported(&mut chat, "chat_pre"));
    let replies: Vec<Vec<u32>> = (0..3).map(|_| answer(&mut chat, "+").tokens).collect();
    assert!(replies.iter().any(|tokens| *tokens != replies[0]), "answers are sampled");
    assert_eq!(first_logits(&script), asked);
    assert_eq!(exported(&mut chat, "chat_pre"), pre);

    answer(&mut chat, "+gen In the");
    let (begun, gen_0, gen_1) = (first_logits(&script), exported(&mut chat, "gen_0"), exported(&mut chat, "gen_1"));
    assert_ne!(gen_0, gen_1);
    script.seen();
    answer(&mut chat, "+++");
    assert_eq!(exported(&mut chat, "gen_0"), gen_1, "a continuation begins at the end of the last answer");
    let more = first_logits(&script);
    answer(&mut chat, "++");
    assert_eq!((first_logits(&script), exported(&mut chat, "gen_0")), (more, gen_1));
    answer(&mut chat, "+gen In the");
    assert_eq!((first_logits(&script), exported(&mut chat, "gen_0")), (begun, gen_0));

    chat.reset();
    assert_eq!(exported(&mut chat, "chat"), init);
    assert_eq!(exported(&mut chat, "chat_init"), init);
    script.seen();
    answer(&mut chat, "light");
    assert_eq!(first_logits(&script), asked);
    assert_eq!(exported(&mut chat, "chat_pre"), pre);
}

#[test]
fn few_states_are_enough() {
    let model = model();
    let options = Conversation::engine_options(&model);
    assert_eq!(options.pinned, 32);
    let engine = Engine::start(&model, EngineOptions { pinned: 7, ..options }).unwrap();
    let mut chat = Conversation::on(&engine, Format::named("g1", &model).unwrap(), greedy(), Box::new(|_, _| ())).unwrap();
    let script = Script::of(&mut chat);
    chat.set("FREE_GEN_LEN", "1").unwrap();
    for i in 0..6 {
        for line in ["light", "+", "+gen x", "+qa y", "+++", "++"] {
            script.says(&[encode(" yes"), vec![0]].concat());
            answer(&mut chat, line);
            script.next.lock().unwrap().clear();
        }
        assert_eq!((chat.stats().n_turns, chat.stats().n_tokens), (i + 1, chat.tokens().len()));
    }
    // Every turn can be taken back, although the states before the first turns were dropped.
    for n_turns in (0..6).rev() {
        chat.undo().unwrap();
        assert_eq!((chat.stats().n_turns, chat.transcript().len()), (n_turns, 2 * n_turns));
    }
    assert!(exported(&mut chat, "chat") == exported(&mut chat, "chat_init"));
    // A new branch shares the states of the current branch.
    let mut n_branches = 0;
    let said = loop {
        chat.fork(&n_branches.to_string()).unwrap();
        n_branches += 1;
        script.says(&[encode(" yes"), vec![0]].concat());
        let n_free = chat.stats().n_free;
        if let Err(e) = chat.say("light", &mut quiet) {
            assert_eq!(chat.stats().n_free, n_free, "no state was given up");
            break e;
        }
    };
    assert_eq!(said.to_string(), "no memory for another branch: all slots of the session are in use (remove a branch first)");
    assert!(n_branches > 1, "{n_branches}");
    script.next.lock().unwrap().clear();
    let read = chat.tokens().to_vec();
    chat.remove("0").unwrap();
    script.says(&[encode(" yes"), vec![0]].concat());
    answer(&mut chat, "light");
    assert!(chat.tokens().starts_with(&read));
}

#[test]
fn prefill_is_chunked_and_can_be_interrupted() {
    let mut chat = bob_and_alice();
    chat.set("CHUNK_LEN", "3").unwrap();
    chat.set_system("").unwrap();
    assert_eq!(chat.tokens(), encode(FIRST));
    chat.set("CHUNK_LEN", "1").unwrap();
    let text = encode("a text of many tokens, that is to be read one by one");
    let (stop, total, read) = (chat.stop_flag(), text.len(), Arc::new(Mutex::new(Vec::new())));
    let heard = read.clone();
    chat.core.on_read = Box::new(move |done, all| {
        assert_eq!(all, total);
        heard.lock().unwrap().push(done);
        stop.store(done >= 3, std::sync::atomic::Ordering::Relaxed);
    });
    let start = chat.core.start.clone();
    let stopped = chat.core.read(&start, &text, Default::default()).map(drop).unwrap_err();
    assert_eq!((stopped.kind, read.lock().unwrap().as_slice()), (crate::error::Kind::Interrupted, [1, 2, 3].as_slice()));
    chat.core.on_read = Box::new(|_, _| ());
    chat.set("CHUNK_LEN", "256").unwrap();
    answer(&mut chat, "the stop flag was cleared");
}
