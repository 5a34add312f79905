//! Tests of tools and of the ends of answers: conversations in messages with the embedded model and a small vocabulary of GLM-4's kind.

use super::*;
use crate::chat::format::Messages;
use crate::template::{GenerationConfig, Glm4, Version};
use crate::tensor::DType;
use crate::weights::{NewTensor, write_safetensors};
use serde_json::json;

/// Returns a conversation with the template `Original`, in which answers have at most 64 tokens.
fn chat_with(model: &Model, generation: GenerationConfig) -> Conversation {
    let sampling = generation.sampling();
    let kind = FormatKind::Messages(Box::new(Messages { template: Arc::new(Glm4(Version::Original)), generation }));
    let settings = Settings { sampling, chat_len_max: 64, ..Settings::default() };
    in_messages(model, Format::of_kind(kind), settings)
}

fn chat() -> Conversation {
    chat_with(&model(), GenerationConfig::glm())
}

#[test]
fn a_conversation_goes_through_a_tool() {
    let mut chat = chat();
    let script = Script::of(&mut chat);
    chat.set_tools(vec![Tool::function(json!({"name": "get_weather"})).unwrap()]).unwrap();
    assert!(chat.observe(&["7"], &mut quiet).unwrap_err().to_string().starts_with("a tool result must follow a tool call"));
    // A tool call ends with the special token that begins the tool's result.
    let call_ids = ids("get_weather\n{\"city\": \"x\"}", "<|observation|>");
    script.says(&call_ids);
    let mut heard = Vec::new();
    let mut hear = |part: AnswerPart<'_>| {
        heard.push(format!("{part:?}"));
        ControlFlow::Continue(())
    };
    let called = chat.say("?", &mut hear).unwrap();
    assert_eq!(heard[..2], ["Call(\"get_weather\")", "Arguments(\"{\")"]);
    let call = &called.calls[0];
    assert_eq!((call.name.as_str(), chat.format().parameters(call).unwrap()["city"].as_str()), ("get_weather", Some("x")));
    assert_eq!((called.finish, called.text.as_str(), called.n_guarded), (Finish::Eos, "", 0));
    assert_eq!(called.tokens, call_ids[..call_ids.len() - 1], "the answer's tokens do not include the stop token");
    assert_eq!(chat.transcript(), [Message::user("?"), Message::call("get_weather", "{\"city\": \"x\"}")]);
    let read = chat.tokens().to_vec();
    // The prompt with the tool's result begins with all tokens so far and belongs to the same turn.
    script.says(&ids("\n7 degrees", "<|user|>"));
    let answer = chat.observe(&["7"], &mut quiet).unwrap();
    assert!(answer.text == "7 degrees" && answer.calls.is_empty());
    assert!(chat.tokens().starts_with(&read));
    let said = chat.transcript();
    assert_eq!((said.len(), &said[2..], chat.stats().n_turns), (4, &[Message::observation("7"), Message::assistant("7 degrees")][..], 1));
    // Another answer to the tool's result. Then the whole turn is taken back, and the tools stay.
    script.says(&ids("\nwarm", "<|user|>"));
    chat.retry(&mut quiet).unwrap().unwrap();
    assert_eq!((chat.transcript().len(), chat.transcript()[3].content.as_str(), chat.stats().n_turns), (4, "warm", 1));
    chat.undo().unwrap();
    assert_eq!((chat.transcript().len(), chat.stats().n_turns), (0, 0));
    // If no tools are declared, the first line of an answer is text.
    chat.set_tools(Vec::new()).unwrap();
    script.says(&ids("f\nx", "<|user|>"));
    assert_eq!(chat.say("?", &mut quiet).unwrap().text, "f\nx");
}

#[test]
fn an_answer_ends_at_an_id_a_text_or_its_length() {
    let mut chat = chat();
    let script = Script::of(&mut chat);
    for end in ["<|endoftext|>", "<|user|>", "<|observation|>"] {
        script.says(&ids("\nab", end));
        let answered = answer(&mut chat, "x");
        assert_eq!((answered.finish, answered.text.as_str()), (Finish::Eos, "ab"), "{end}");
    }
    chat.set("CHAT_LEN_MAX", "4").unwrap();
    script.says(&ids("\nabcdef", "<|user|>"));
    let answered = answer(&mut chat, "x");
    assert_eq!((answered.finish, answered.text.as_str(), answered.tokens.len()), (Finish::Length, "abc", 4));
    // The generation settings have their own stop tokens and stop texts.
    let b = small().encode(b"b").unwrap();
    let generation = GenerationConfig { eos: b, stop_strings: vec!["d e".into()], ..GenerationConfig::glm() };
    let mut chat = chat_with(&model(), generation);
    let script = Script::of(&mut chat);
    script.says(&ids("\nab", "<|user|>"));
    let answered = answer(&mut chat, "x");
    assert_eq!((answered.finish, answered.text.as_str()), (Finish::Eos, "a"));
    script.next.lock().unwrap().clear();
    script.says(&ids("\nac d e", "<|user|>"));
    let answered = answer(&mut chat, "x");
    assert_eq!((answered.finish, answered.text.as_str()), (Finish::Stop, "ac"));
}

#[test]
fn the_repetition_penalty_counts_the_prompt() {
    let tokens = |sampling: Sampling| {
        let mut chat = chat_with(&model(), GenerationConfig { do_sample: false, ..GenerationConfig::glm() });
        chat.core.settings.sampling = sampling;
        chat.set("CHAT_LEN_MAX", "12").unwrap();
        let made = answer(&mut chat, "hello").tokens;
        let n = chat.tokens().len() - made.len();
        (made, chat.tokens()[..n].to_vec())
    };
    // The answer has no token of the prompt and no token twice.
    let (mut made, prompt) = tokens(Sampling { repeat_penalty: 1e6, order: crate::sample::Order::Hf, ..Sampling::greedy(0) });
    made.sort_unstable();
    made.dedup();
    assert!(made.len() > 3 && made.iter().all(|id| !prompt.contains(id)), "the penalty counts the prompt");
}

#[test]
fn the_guard_replaces_tokens_and_counts_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut chat = chat_with(&failing(&folder.path().join("failing.safetensors")), GenerationConfig::glm());
    chat.set("CHAT_LEN_MAX", "3").unwrap();
    let answered = answer(&mut chat, "x");
    assert_eq!((answered.tokens, answered.n_guarded, answered.finish), (vec![198; 3], 3, Finish::Length));
}

/// Returns the embedded model with a NaN in its head.
fn failing(path: &std::path::Path) -> Model {
    let checkpoint = crate::session::embedded().unwrap();
    let entry = |name: &str| {
        let view = checkpoint.tensor(name).unwrap();
        let mut numbers = view.to_f32().unwrap();
        if name == "head.weight" {
            *numbers.last_mut().unwrap() = f32::NAN;
        }
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let data = move |out: &mut dyn std::io::Write| out.write_all(&bytes).map_err(|e| Error::io(e, "made".as_ref()));
        NewTensor { name: name.into(), dtype: DType::F32, shape: view.shape().to_vec(), data: Box::new(data) }
    };
    write_safetensors(path, checkpoint.metadata(), checkpoint.names().map(entry).collect(), &mut |_, _| ()).unwrap();
    let options = Options { device: "cpu".parse().unwrap(), vocab: Some("tiny".into()), ..Default::default() };
    Model::load(&ModelSource::Path(path.into()), &options, &mut |_, _| ()).unwrap()
}
