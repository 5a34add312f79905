//! Tests of the history after interruptions, thoughts, undo, branches and files.

use super::*;
use std::sync::atomic::Ordering;

#[test]
fn a_stopped_answer_ends_with_a_blank_line() {
    let mut chat = bob_and_alice();
    let script = Script::of(&mut chat);
    let turn = "Bob: x\n\nAlice:";
    // The length limit stops these answers. Below, `on_part` and then the stop flag stop an answer.
    let cases: [(&str, &str); 3] = [(" one two three", "\n\n"), (" one\ntwo", "\n\n"), (" one two\n", "\n")];
    for (text, blank_line) in cases {
        chat.reset();
        let ids = encode(text);
        chat.set("CHAT_LEN_MAX", &ids.len().to_string()).unwrap();
        script.says(&ids);
        let answered = answer(&mut chat, "x");
        assert_eq!((answered.finish, answered.text.as_str()), (Finish::Length, text.trim()));
        assert_eq!(chat.tokens(), encoded(&[FIRST, turn, text, blank_line]), "{text:?}");
        chat.set("CHAT_LEN_MAX", "999").unwrap();
    }

    chat.reset();
    script.says_text(" one two three four");
    let mut heard = String::new();
    let told = chat.say("x", &mut |part| {
        let AnswerPart::Text(text) = part else { panic!("no thought") };
        heard += text;
        if heard.ends_with("two") { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let answered = told.unwrap();
    assert_eq!((answered.finish, answered.text.as_str(), heard.as_str()), (Finish::Interrupted, "one two", "one two"));
    let broken = encoded(&[FIRST, turn, " one two", "\n\n"]);
    assert_eq!(chat.tokens(), broken);

    // The stop flag ends the answer after the current token. The next turn has the format's form.
    script.next.lock().unwrap().clear();
    script.says_text(" yes no");
    let stop = chat.stop_flag();
    let told = chat.say("y", &mut |_| {
        stop.store(true, Ordering::Relaxed);
        ControlFlow::Continue(())
    });
    let Ok(Answer { finish: Finish::Interrupted, tokens, .. }) = told else { panic!("{told:?}") };
    assert!(tokens.len() < encode(" yes no").len());
    assert_eq!(chat.tokens(), [broken, encode("Bob: y\n\nAlice:"), tokens, encode("\n\n")].concat());
    assert_eq!(chat.stats().n_turns, 2);
}

#[test]
fn an_answer_without_text_is_taken_back() {
    let mut chat = bob_and_alice();
    let script = Script::of(&mut chat);
    script.says_text(" y\n\n");
    answer(&mut chat, "x");
    let before = chat.tokens().to_vec();
    let stop = chat.stop_flag();
    // The stop flag is set before the first token, a blank that is not passed to `on_part`.
    chat.set_processor(Some(Box::new(move |_, logits| {
        stop.store(true, Ordering::Relaxed);
        logits.fill(-10.0);
        logits[encode(" ")[0] as usize] = 10.0;
    })));
    let answered = answer(&mut chat, "z");
    assert_eq!((answered.text.as_str(), answered.finish, answered.tokens), ("", Finish::Interrupted, encode(" ")));
    assert_eq!((chat.tokens(), chat.stats().n_turns), (before.as_slice(), 1));
    // The question can still be answered.
    let script = Script::of(&mut chat);
    script.says_text(" now\n\n");
    answer(&mut chat, "+");
    assert_eq!(chat.tokens(), [before.clone(), encoded(&["Bob: z\n\nAlice:", " now\n\n"])].concat());
    assert_eq!(chat.stats().n_turns, 2);
    chat.undo().unwrap();
    assert_eq!(chat.tokens(), before);
    // A reply that the model ends at once is kept.
    script.says_text("\n\n");
    let answered = answer(&mut chat, "z");
    assert_eq!((answered.text.as_str(), answered.finish), ("", Finish::Stop));
    assert_eq!(chat.tokens(), [before, encoded(&["Bob: z\n\nAlice:", "\n\n"])].concat());
}

#[test]
fn a_thought_is_shown_and_not_kept() {
    let mut chat = chat_in("g1-think");
    let script = Script::of(&mut chat);
    script.says_text(">\n one\n\ntwo </think>\n\nIt is so.\n\nAnd so.\n\nUser:");
    let (mut thought, mut text) = (String::new(), String::new());
    let told = chat.say("why\n\nso", &mut |part| {
        match part {
            AnswerPart::Thought(piece) => thought += piece,
            AnswerPart::Text(piece) => text += piece,
            part => panic!("{part:?}"),
        }
        ControlFlow::Continue(())
    });
    let answered = told.unwrap();
    assert_eq!((thought.as_str(), text.as_str()), ("one\n\ntwo", "It is so.\n\nAnd so."));
    assert_eq!((answered.thought, answered.text, answered.finish), (thought, text, Finish::Stop));
    assert_eq!(tokens(&chat, "chat_pre"), encode("User: why\nso\n\nAssistant: <think"));
    let kept = encoded(&["User: why\nso\n\nAssistant:", " It is so.\n\nAnd so.\n\n"]);
    assert_eq!(chat.tokens(), kept);
    // The end-of-text token also ends an answer. A thought without text after it is not an answer.
    script.says(&[encode(">hm</think>Yes"), vec![0]].concat());
    let answered = answer(&mut chat, "and");
    assert_eq!((answered.text.as_str(), answered.finish), ("Yes", Finish::Eos));
    let kept = [kept, encoded(&["User: and\n\nAssistant:", " Yes\n\n"])].concat();
    assert_eq!(chat.tokens(), kept);
    script.says(&[encode(">hm"), vec![0]].concat());
    let answered = answer(&mut chat, "again");
    assert_eq!((answered.thought.as_str(), answered.text.as_str()), ("hm", ""));
    assert_eq!((chat.tokens(), chat.stats().n_turns), (kept.as_slice(), 2));
}

#[test]
fn replies_of_several_paragraphs_end_where_the_model_says() {
    let mut chat = chat_in("g1");
    let script = Script::of(&mut chat);
    script.says(&[encode(" One.\n\nTwo."), vec![0]].concat());
    let answered = answer(&mut chat, "a");
    assert_eq!((answered.text.as_str(), answered.finish), ("One.\n\nTwo.", Finish::Eos));
    let kept = encoded(&["User: a\n\nAssistant:", " One.\n\nTwo.", "\n\n"]);
    assert_eq!(chat.tokens(), kept, "sampled tokens are not prefilled again");
    script.says_text(" Three.\n\nUser: b");
    assert_eq!(answer(&mut chat, "b").text, "Three.");
    let kept = [kept, encoded(&["User: b\n\nAssistant:", " Three.\n\n"])].concat();
    assert_eq!(chat.tokens(), kept, "the user's name is not the model's to say");
    // If the length limit is reached within the user's name, the reply ends before the name.
    let cut = encode(" Four.\n\nUser");
    chat.set("CHAT_LEN_MAX", &cut.len().to_string()).unwrap();
    script.next.lock().unwrap().clear();
    script.says(&cut);
    let answered = answer(&mut chat, "c");
    assert_eq!((answered.text.as_str(), answered.finish), ("Four.", Finish::Length));
    assert_eq!(chat.tokens(), [kept, encoded(&["User: c\n\nAssistant:", " Four.\n\n"])].concat());
    let seen = script.seen();
    assert!(seen.iter().all(|logits| logits[0] > -100.0), "the end may be drawn");

    let mut chat = chat_in("g1-fast");
    let script = Script::of(&mut chat);
    script.says(&[encode(">\n\nYes."), vec![0]].concat());
    assert_eq!(answer(&mut chat, "a").text, "Yes.");
    assert_eq!(tokens(&chat, "chat_pre"), encode("User: a\n\nAssistant: <think></think"));
    assert_eq!(chat.tokens(), encoded(&["User: a\n\nAssistant:", " Yes.\n\n"]));
}

#[test]
fn turns_are_taken_back() {
    let mut chat = bob_and_alice();
    assert_eq!(chat.undo().unwrap_err().to_string(), "the conversation has no turn to take back");
    let mut states = vec![exported(&mut chat, "chat")];
    for line in ["light", "water", "fire"] {
        answer(&mut chat, line);
        // Another answer replaces the first answer, so this is still one turn.
        chat.override_next(Overrides { temperature: Some(1.0), top_p: None });
        answer(&mut chat, "+");
        states.push(exported(&mut chat, "chat"));
    }
    assert_eq!(chat.stats().n_turns, 3);
    for (n, state) in states.iter().enumerate().take(3).rev() {
        chat.undo().unwrap();
        assert_eq!((&exported(&mut chat, "chat"), chat.stats().n_turns), (state, n));
        assert!(chat.retry(&mut quiet).unwrap().is_none(), "the question was taken back, too");
    }
    chat.undo().unwrap_err();
}

#[test]
fn branches_are_independent() {
    let mut chat = bob_and_alice();
    answer(&mut chat, "light");
    let begun = exported(&mut chat, "chat");
    chat.fork("other").unwrap();
    assert_eq!((chat.branch(), chat.branches()), ("other", vec!["main".to_string(), "other".into()]));
    answer(&mut chat, "water");
    let other = exported(&mut chat, "chat");
    let format = chat.format().clone().with_prompt(&prompt("User", "Bot", ":", "User: 1")).unwrap();
    chat.set_format(format, chat.settings().clone()).unwrap();
    chat.switch("main").unwrap();
    assert_eq!((exported(&mut chat, "chat"), chat.stats().n_turns, chat.format().bot()), (begun.clone(), 1, "Alice"));
    answer(&mut chat, "water");
    assert_eq!(exported(&mut chat, "chat"), other, "the same turn leads to the same state");
    chat.undo().unwrap();
    assert_eq!(exported(&mut chat, "chat"), begun);
    chat.switch("other").unwrap();
    assert_eq!((chat.format().bot(), chat.stats().n_turns), ("Bot", 0));
    assert!(chat.switch("none").unwrap_err().to_string().starts_with("unknown branch"));
    chat.switch("main").unwrap();
    let n_free = chat.stats().n_free;
    chat.remove("other").unwrap();
    assert!(chat.stats().n_free > n_free);
    assert!(chat.remove("main").is_err());
    chat.undo().unwrap();
    assert_eq!(chat.tokens(), encode(FIRST));
}

#[test]
fn a_conversation_is_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat");
    let mut chat = bob_and_alice();
    for (name, value) in [("preset", "chat"), ("temperature", "1.1"), ("seed", "7"), ("CHAT_LEN_SHORT", "20")] {
        chat.set(name, value).unwrap();
    }
    chat.set_system("Be brief.").unwrap();
    answer(&mut chat, "light");
    answer(&mut chat, "water");
    chat.save(&path).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "one file");
    let (state, init) = (exported(&mut chat, "chat"), exported(&mut chat, "chat_init"));
    let read = chat.tokens().to_vec();
    let next = answer(&mut chat, "fire").text;

    let mut other = chat_in("tiny");
    answer(&mut other, "x");
    other.load(&path).unwrap();
    assert_eq!((exported(&mut other, "chat"), exported(&mut other, "chat_init")), (state.clone(), init));
    assert_eq!((other.tokens(), other.stats().n_turns, other.format().bot()), (read.as_slice(), 2, "Alice"));
    assert_eq!(other.settings(), chat.settings());
    assert_eq!(answer(&mut other, "fire").text, next, "the random stream continues");
    other.undo().unwrap();
    assert_eq!(exported(&mut other, "chat"), state);

    // Files that are not saved conversations leave the conversation unchanged.
    let before = exported(&mut other, "chat");
    let n_free = other.stats().n_free;
    let state_only = folder.path().join("state");
    let kept = super::state(&chat, "chat_init");
    kept.save(chat.model(), &state_only, StateExtras::default()).unwrap();
    std::fs::write(folder.path().join("text"), "hello there, this is a text").unwrap();
    let mut cases = vec![
        (folder.path().join("none"), "no such file"),
        (folder.path().join("text"), "expected a saved state or a tuned initial state, found text"),
        (
            state_only,
            "expected a saved conversation, found a state without a conversation (give a file that `Conversation::save` wrote; pass a state as `state`)",
        ),
    ];
    let record = |version: u32, format: &str, settings: &str| {
        format!(r#"{{"version":{version},"format":"{format}","system":"","n_turns":1,"settings":{settings}}}"#)
    };
    let records = [
        ("{".into(), "the metadata key chat must hold a saved conversation: the JSON ends"),
        (record(2, "raven", "{}"), "expected a saved conversation of version 1, found version 2"),
        (record(1, "raven", r#"{"top_p":"9"}"#), "has an invalid setting: top_p"),
        (record(1, "rave", "{}"), "this model cannot use the format \"rave\" of the saved conversation"),
        (record(1, "raven", r#"{},"earlier":{"undo":[[9999,1]]}"#), "but a turn begins after 9999 tokens"),
        (record(1, "raven", r#"{},"earlier":{"undo":[[0,0],[0,1]]}"#), "broken 5: the saved conversation has turns without tokens"),
        (
            record(1, "raven", r#"{},"earlier":{"request":{"shared":0,"further":[70000],"n_turns":0,"is_answered":false}}"#),
            "expected token ids below 2048 in the saved conversation, found 70000",
        ),
    ];
    for (i, (record, want)) in records.into_iter().enumerate() {
        let path = folder.path().join(format!("broken {i}"));
        let metadata = [("chat", record)];
        kept.save(chat.model(), &path, StateExtras { metadata: &metadata, ..Default::default() }).unwrap();
        cases.push((path, want));
    }
    for (path, want) in cases {
        let said = other.load(&path).unwrap_err().to_string();
        assert!(said.contains(want) && !said.contains('\n'), "{said}");
        assert_eq!(other.stats().n_free, n_free, "{want}");
    }
    assert_eq!(exported(&mut other, "chat"), before);
}

#[test]
fn the_transcript_has_turns_and_prefill_reports_progress() {
    let mut chat = bob_and_alice();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = heard.clone();
    chat.core.on_read = Box::new(move |done, total| ear.lock().unwrap().push((done, total)));
    let script = Script::of(&mut chat);
    for (question, reply) in [("x", " one\n\n"), ("two\nlines", " three\n\n")] {
        script.says_text(reply);
        answer(&mut chat, question);
    }
    let expected = [Message::user("x"), Message::assistant("one"), Message::user("two\nlines"), Message::assistant("three")];
    assert_eq!(chat.transcript(), expected, "the first prompt is no turn");
    let n = encode("Bob: x\n\nAlice:").len();
    assert_eq!(heard.lock().unwrap().first(), Some(&(n, n)));
}

#[test]
fn a_loaded_conversation_repeats_and_takes_back_as_if_it_had_stayed() {
    let folder = tempfile::tempdir().unwrap();
    for format in ["raven", "g1"] {
        let path = folder.path().join(format);
        let mut chat = chat_in(format);
        for (name, value) in [("temperature", "1.1"), ("seed", "7"), ("CHAT_LEN_MAX", "12")] {
            chat.set(name, value).unwrap();
        }
        answer(&mut chat, "light");
        answer(&mut chat, "water");
        chat.save(&path).unwrap();
        let mut loaded = chat_in("tiny");
        loaded.load(&path).unwrap();
        let both = |chat: &mut Conversation, loaded: &mut Conversation, what: &str| {
            assert_eq!((chat.tokens(), chat.transcript()), (loaded.tokens(), loaded.transcript()), "{format}: {what}");
            assert!(exported(chat, "chat") == exported(loaded, "chat"), "{format}: {what}");
        };
        for what in ["+", "+", "fire", "+"] {
            assert_eq!(answer(&mut chat, what).tokens, answer(&mut loaded, what).tokens, "{format}: {what}");
            both(&mut chat, &mut loaded, what);
        }
        // A file of a loaded conversation has its earlier turns, too.
        loaded.save(&path).unwrap();
        loaded.load(&path).unwrap();
        for n_turns in [2, 1, 0] {
            chat.undo().unwrap();
            loaded.undo().unwrap();
            assert_eq!(loaded.stats().n_turns, n_turns);
            both(&mut chat, &mut loaded, "undo");
        }
        assert!(chat.undo().is_err() && loaded.undo().is_err());
    }
    // A message without an answer was taken back.
    let (mut chat, path) = (chat_in("g1"), folder.path().join("unanswered"));
    answer(&mut chat, "light");
    let script = Script::of(&mut chat);
    script.says(&[0]);
    assert!(!answer(&mut chat, "water").is_kept);
    chat.save(&path).unwrap();
    let mut loaded = chat_in("tiny");
    loaded.load(&path).unwrap();
    assert_eq!(answer(&mut chat, "+").tokens, answer(&mut loaded, "+").tokens);
    assert_eq!((loaded.stats().n_turns, chat.transcript()), (2, loaded.transcript()));
}

#[test]
fn the_first_turn_is_taken_back_to_the_loaded_state() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat");
    let begun = || {
        let mut chat = chat_in("g1");
        let mut session = Session::new(chat.model(), 1).unwrap();
        let slot = session.open().unwrap();
        session.prefill(slot, &encode("In the beginning")).unwrap();
        let start = session.snapshot(slot).unwrap();
        chat.begin_after(start, &[]).unwrap();
        chat
    };
    let mut chat = begun();
    let start = exported(&mut chat, "chat");
    answer(&mut chat, "light");
    chat.save(&path).unwrap();
    let mut loaded = begun();
    loaded.load(&path).unwrap();
    for chat in [&mut chat, &mut loaded] {
        chat.undo().unwrap();
        assert!(exported(chat, "chat") == start);
    }
}
