//! Conversations of RWKV in messages: tools, thoughts and kept states.

use super::*;
use crate::chat::Thinking;
use crate::template::{Message, Tool};
use serde_json::json;

const CALL: &str = ">hm</think>\nI look.\n\n**Tool Call:**\n```json\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n```\n### User";

fn tools() -> Vec<Tool> {
    vec![Tool::function(json!({"name": "f", "parameters": {"type": "object"}})).unwrap()]
}

/// Returns a conversation with tools, and the script that determines which tokens the model samples. An answer has at most 90 tokens.
fn with_tools() -> (Conversation, Script) {
    with_tools_on(&Engine::start(&model(), Conversation::engine_options(&model())).unwrap())
}

fn with_tools_on(engine: &Engine) -> (Conversation, Script) {
    let format = Format::named("g1-tools", engine.model()).unwrap();
    let mut chat = Conversation::on(engine, format, greedy(), Box::new(|_, _| ())).unwrap();
    chat.set("CHAT_LEN_MAX", "90").unwrap();
    chat.set_tools(tools()).unwrap();
    let script = Script::of(&mut chat);
    (chat, script)
}

#[test]
fn a_conversation_of_rwkv_goes_through_tools() {
    let (mut chat, script) = with_tools();
    script.says_text(CALL);
    let called = answer(&mut chat, "?");
    assert_eq!((called.thought.as_str(), called.text.as_str(), called.finish), ("hm", "I look.", Finish::Stop));
    assert_eq!((called.calls.len(), called.calls[0].name.as_str(), called.calls[0].arguments.as_str()), (1, "f", "{\"a\": 1}"));
    let asked = [Message::user("?"), Message::assistant("I look."), Message::call("f", "{\"a\": 1}")];
    assert_eq!(chat.transcript(), asked);
    let said = chat.observe(&["7", "8"], &mut quiet).unwrap_err().to_string();
    assert!(said.starts_with("expected a result for each of the 1 calls"), "{said}");

    script.next.lock().unwrap().clear();
    script.says(&[encode(">ok</think>\nSeven."), vec![0]].concat());
    let answered = chat.observe(&["7"], &mut quiet).unwrap();
    assert_eq!((answered.text.as_str(), answered.calls.len(), answered.finish), ("Seven.", 0, Finish::Eos));
    // Only the tail of the prompt is prefilled.
    assert!(answered.n_prompt < called.n_prompt, "{} of {}", answered.n_prompt, called.n_prompt);
    let read = decode(chat.tokens());
    let tail = "### Assistant\nI look.\n**Tool Call:**\n```json\n{\n  \"name\": \"f\",\n  \"arguments\": {\n    \"a\": 1\n  }\n}\n```\n\
                ### Tool Output\n```json\n7\n```\n### Assistant\n<think>ok</think>\nSeven.";
    assert!(read.ends_with(tail), "{read}");

    // Samples another answer to the result. Then takes back the whole turn.
    script.says(&[encode(">ok</think>\n7"), vec![0]].concat());
    let again = chat.retry(&mut quiet).unwrap().unwrap();
    assert_eq!((again.text.as_str(), chat.transcript().len(), chat.stats().n_turns), ("7", 5, 1));
    chat.undo().unwrap();
    assert_eq!((chat.transcript().len(), chat.stats().n_turns), (0, 0));
    assert!(chat.observe(&["7"], &mut quiet).is_err());
}

#[test]
fn a_kept_state_gives_the_same_answer_as_a_new_prompt() {
    let ends = |chat: &mut Conversation, script: &Script| {
        script.says(&[encode(">a</think>\nb"), vec![0]].concat());
        answer(chat, "one");
        chat.set("CHAT_LEN_MAX", "3").unwrap();
        let answered = answer(chat, "two");
        (answered.tokens, answered.n_prompt)
    };
    let (mut chat, script) = with_tools();
    let (tokens, n_prompt) = ends(&mut chat, &script);
    // Without room for states, every prompt is prefilled from its beginning.
    let options = EngineOptions { cache: CacheOptions::off(), ..Conversation::engine_options(&model()) };
    let (mut other, script) = with_tools_on(&Engine::start(&model(), options).unwrap());
    let (same, all) = ends(&mut other, &script);
    assert_eq!(tokens, same);
    assert!(n_prompt < all, "{n_prompt} {all}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat");
    chat.save(&path).unwrap();
    let mut loaded = chat_in("world");
    answer(&mut loaded, "x");
    loaded.load(&path).unwrap();
    // The states of the earlier conversation are freed, and the loaded state is kept.
    holds(&loaded.core.engine, 0, 1);
    assert_eq!((loaded.format().name(), loaded.transcript(), loaded.stats().n_turns), ("g1-tools", chat.transcript(), 1));
    let [a, b] = [&mut chat, &mut loaded].map(|chat| answer(chat, "three"));
    assert_eq!(a.tokens, b.tokens);
}

/// Returns the embedded model under another name, so that it has no sampler settings of its own.
fn without_settings() -> Model {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    std::fs::write(&path, crate::assets::MODEL).unwrap();
    let options = Options { device: "cpu".parse().unwrap(), vocab: Some("small-world".into()), ..Default::default() };
    Model::load(&ModelSource::Path(path), &options, &mut |_, _| ()).unwrap()
}

#[test]
fn thoughts_change_between_answers() {
    use crate::chat::Thinking;
    for format in ["g1-think", "g1-bot", "g1-tools"] {
        let model = without_settings();
        let format = Format::named(format, &model).unwrap();
        let settings = format.settings();
        let mut chat = Conversation::new(&model, format, settings, Box::new(|_, _| ())).unwrap();
        chat.set("top_k", "7").unwrap();
        let script = Script::of(&mut chat);
        let read = |chat: &mut Conversation, thinking: Thinking| {
            chat.set_thinking(thinking).unwrap();
            let text = if thinking == Thinking::Fast { ">x" } else { ">a</think>x" };
            script.says(&[encode(text), vec![0]].concat());
            assert_eq!(answer(chat, "q").text, "x");
            decode(chat.tokens())
        };
        let long = read(&mut chat, Thinking::Long);
        assert!(long.contains("q (think a lot)"), "{long}");
        let fast = read(&mut chat, Thinking::Fast);
        assert!(fast.matches("(think a lot)").count() == 1 && fast.matches('q').count() == 2, "{fast}");
        let Settings { sampling, .. } = chat.settings();
        assert_eq!(sampling.top_k, 7, "a changed setting stays");
        let want = if chat.format().name() == "g1-tools" { 0.96 } else { 1.0 };
        assert_eq!(sampling.temperature, want);
    }
    let mut chat = chat_in("world");
    assert!(chat.set_thinking(Thinking::Fast).unwrap_err().to_string().contains("does not support thoughts"));
}

#[test]
fn a_prompt_may_begin_with_token_0() {
    let model = model();
    let folder = tempfile::tempdir().unwrap();
    for name in ["g1", "g1-bot", "g1-tools"] {
        let begin = |has_bos: bool| {
            let format = Format::named(name, &model).unwrap().with_bos(has_bos).unwrap().with_thinking(Thinking::Fast).unwrap();
            Conversation::new(&model, format, greedy(), Box::new(|_, _| ())).unwrap()
        };
        let [mut plain, mut begun] = [false, true].map(begin);
        let prompts = [&mut plain, &mut begun].map(|chat| {
            chat.set("CHAT_LEN_MAX", "4").unwrap();
            answer(chat, "light");
            // The answers differ, and an answer's beginning may change the prompt's last token, so only the first tokens are compared.
            chat.tokens()[..6].to_vec()
        });
        assert_eq!((prompts[1][0], &prompts[1][1..]), (0, &prompts[0][..5]), "{name}");
        // Token 0 stays at the beginning in later turns and in a saved conversation.
        let before = begun.tokens().to_vec();
        let path = folder.path().join(name);
        begun.save(&path).unwrap();
        let mut loaded = begin(false);
        loaded.load(&path).unwrap();
        assert_eq!((loaded.format().has_bos(), loaded.tokens().first()), (true, Some(&0)), "{name}");
        answer(&mut begun, "water");
        assert_eq!(begun.tokens().iter().position(|&id| id == 0), Some(0), "{name}: {:?}", begun.tokens());
        assert!(begun.tokens().len() > before.len(), "{name}");
    }
}
