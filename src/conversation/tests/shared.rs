//! Tests of conversations that share an engine: states that move to the host, other texts on the same engine, freed states.

use super::*;
use crate::engine::Request;

fn deterministic() -> Model {
    let options = Options { device: "cpu".parse().unwrap(), deterministic: true, ..Default::default() };
    Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap()
}

fn on(engine: &Engine, format: &str) -> Conversation {
    let format = Format::named(format, engine.model()).unwrap();
    let mut chat = Conversation::on(engine, format, greedy(), Box::new(|_, _| ())).unwrap();
    for (name, value) in [("preset", "chat"), ("FREE_GEN_LEN", "6"), ("CHAT_LEN_MAX", "8")] {
        chat.set(name, value).unwrap();
    }
    chat
}

const LINES: [&str; 7] = ["light", "+gen In the", "water", "+", "++", "+++", "fire"];

/// Returns the tokens of the answers to `LINES`, then the bytes of the states that ChatRWKV keeps.
fn told(chat: &mut Conversation) -> (Vec<Vec<u32>>, Vec<Vec<u8>>) {
    let answers = LINES.map(|line| answer(chat, line).tokens).to_vec();
    (answers, ["chat_init", "chat", "chat_pre", "gen_0", "gen_1"].map(|name| exported(chat, name)).to_vec())
}

#[test]
fn states_that_moved_to_the_host_continue_with_the_same_bits() {
    let model = deterministic();
    let options = |n: u64| {
        let options = Conversation::engine_options(&model);
        let cache = CacheOptions { device_bytes: n * model.slot_bytes(), ..CacheOptions::off() };
        Engine::start(&model, EngineOptions { cache, ..options }).unwrap()
    };
    // The engines have room on the device for all states, for one state, and for none.
    let want = told(&mut on(&options(30), "raven"));
    for n in [1, 0] {
        let mut chat = on(&options(n), "raven");
        assert_eq!(told(&mut chat), want, "{n}");
        chat.undo().unwrap();
        chat.fork("other").unwrap();
        let other = answer(&mut chat, "fire").tokens;
        chat.switch("main").unwrap();
        assert_eq!(answer(&mut chat, "fire").tokens.len(), other.len());
    }
}

#[test]
fn conversations_and_requests_on_one_engine_do_not_disturb_each_other() {
    let model = deterministic();
    let request = || Request::text("In the beginning").max_tokens(40).set("temperature", 0);
    let alone = |format: &str| {
        let mut chat = on(&Engine::start(&model, Conversation::engine_options(&model)).unwrap(), format);
        LINES.map(|line| chat_tokens(&mut chat, line))
    };
    let want = [alone("raven"), alone("g1")];
    let engine = Engine::start(&model, EngineOptions { slots: 3, ..EngineOptions::default() }).unwrap();
    let text = engine.submit(request()).unwrap().wait().unwrap().remove(0).text;
    let got = std::thread::scope(|scope| {
        let chats = ["raven", "g1"].map(|format| {
            let engine = engine.clone();
            scope.spawn(move || {
                let mut chat = on(&engine, format);
                LINES.map(|line| chat_tokens(&mut chat, line))
            })
        });
        for _ in 0..6 {
            assert_eq!(engine.submit(request()).unwrap().wait().unwrap()[0].text, text);
        }
        chats.map(|chat| chat.join().unwrap())
    });
    assert_eq!(got, want);
}

/// Returns the tokens of the answer to a line.
fn chat_tokens(chat: &mut Conversation, line: &str) -> Vec<u32> {
    draw(chat, line, &mut quiet).unwrap().unwrap().tokens
}

#[test]
fn a_dropped_conversation_frees_its_states() {
    let model = model();
    let engine = Engine::start(&model, EngineOptions { slots: 1, pinned: 8, ..EngineOptions::default() }).unwrap();
    let mut chats = ["raven", "g1-tools"].map(|format| on(&engine, format));
    chats.iter_mut().for_each(|chat| drop(answer(chat, "light")));
    // The engine holds the states after the first text, after the message, and after the reply.
    holds(&engine, 3, 1);
    let other = on(&engine, "g1-tools");
    assert_eq!(other.stats().n_free, 5);
    drop(chats);
    holds(&engine, 0, 0);
    assert_eq!((other.stats().n_free, engine.stats().free_slots), (8, 1));
    // An engine ends even if states of a conversation are still held.
    let kept = engine.pin(engine.copy_of(None).unwrap()).unwrap();
    drop((other, engine));
    drop(kept);
}

#[test]
fn a_callback_ends_exactly_its_own_text() {
    let model = deterministic();
    let engine = Engine::start(&model, EngineOptions { slots: 2, ..EngineOptions::default() }).unwrap();
    let mut chat = on(&engine, "raven");
    chat.set("CHAT_LEN_MAX", "99").unwrap();
    let script = Script::of(&mut chat);
    script.says_text(" one two three four");
    let request = Request::text("In the beginning").max_tokens(60).set("temperature", 0);
    let want = engine.submit(request.clone()).unwrap().wait().unwrap().remove(0).tokens;
    let running = engine.submit(request.clone()).unwrap();
    let mut heard = String::new();
    let answered = chat.say("x", &mut |part| {
        let AnswerPart::Text(text) = part else { panic!("no thought") };
        heard += text;
        if heard.ends_with("two") { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(answered.unwrap().text, "one two");
    assert_eq!(running.wait().unwrap()[0].tokens, want);
    assert_eq!(decode(chat.tokens()).split_once("Bob: x").unwrap().1, "\n\nAlice: one two\n\n");
    // A panic of a callback ends the text, and the engine goes on.
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| chat.say("y", &mut |_| panic!("a test"))));
    assert!(panicked.is_err());
    assert_eq!(engine.submit(request.clone()).unwrap().wait().unwrap()[0].tokens, want);
}
