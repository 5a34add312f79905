//! Tests of conversations in messages with GLM-4's template.

use super::*;
use crate::template::{Glm4, Version};
use std::path::Path;

/// Returns a conversation with the tiny GLM. `None` if the model's file is missing; the published package does not contain it.
fn chat(version: Version) -> Option<Conversation> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/tiny-glm4"));
    if !folder.is_dir() {
        println!("SKIPPED a conversation in messages: there is no {}", folder.display());
        return None;
    }
    let options = Options { device: "cpu".parse().unwrap(), vocab: Some("tiny".into()), context: Some(512), ..Default::default() };
    let model = Model::load(&ModelSource::Path(folder.into()), &options, &mut |_, _| ()).unwrap();
    let mut format = Format::of(&model).unwrap();
    let FormatKind::Messages(messages) = &mut format.kind else { panic!("a model of GLM's kind has a template") };
    messages.template = Arc::new(Glm4(version));
    let settings = format.settings();
    let refused = Conversation::new(&model, format.clone(), settings.clone(), Box::new(|_, _| ())).err().unwrap().to_string();
    assert!(refused.contains("no special token [gMASK]"), "the embedded model's own vocabulary has no special tokens: {refused}");
    Some(in_messages(&model, format, settings))
}

/// Returns the conversation's tokens as text, with special tokens.
fn rendered(chat: &Conversation) -> String {
    let vocab = small();
    let special = |id: &u32| crate::vocab::GLM4_SPECIAL.iter().find(|text| vocab.special(text) == Some(*id)).map(|text| text.to_string());
    chat.tokens().iter().map(|id| special(id).unwrap_or_else(|| String::from_utf8_lossy(vocab.token(*id)).into())).collect()
}

#[test]
fn a_conversation_has_a_history() {
    let Some(mut chat) = chat(Version::Original) else { return };
    let script = Script::of(&mut chat);
    assert!(chat.retry(&mut quiet).unwrap().is_none() && chat.retry_text(&mut quiet).unwrap().is_none());
    script.says(&ids("\nhello", "<|user|>"));
    let first = answer(&mut chat, "hi\n\nyou");
    assert_eq!((first.text.as_str(), first.finish), ("hello", Finish::Eos));
    assert_eq!(rendered(&chat), "[gMASK]<sop><|user|>\nhi\n\nyou<|assistant|>\nhello");
    script.says(&ids("\nA", "<|user|>"));
    let second = answer(&mut chat, "two");
    assert!(second.n_prompt < 10, "the common beginning is not prefilled again");
    script.says(&ids("\nB", "<|user|>"));
    answer(&mut chat, "+");
    let history = "[gMASK]<sop><|user|>\nhi\n\nyou<|assistant|>\nhello<|user|>\ntwo<|assistant|>\nB";
    assert_eq!((rendered(&chat).as_str(), chat.stats().n_turns), (history, 2));
    assert_eq!(chat.stats().n_left, Some(512 - chat.tokens().len()));
    let said = [Message::user("hi\n\nyou"), Message::assistant("hello"), Message::user("two"), Message::assistant("B")];
    assert_eq!(chat.transcript(), said);

    // An undo and a switch of the branch change `tokens` at once.
    let n_tokens = chat.tokens().len();
    chat.fork("other").unwrap();
    chat.undo().unwrap();
    assert_eq!(rendered(&chat), "[gMASK]<sop><|user|>\nhi\n\nyou<|assistant|>\nhello");
    assert_eq!(chat.stats().n_left, Some(512 - chat.tokens().len()));
    chat.switch("main").unwrap();
    assert_eq!((rendered(&chat).as_str(), chat.stats().n_tokens), (history, n_tokens));
    chat.switch("other").unwrap();
    script.says(&ids("\nC", "<|user|>"));
    answer(&mut chat, "three");
    assert_eq!(rendered(&chat), "[gMASK]<sop><|user|>\nhi\n\nyou<|assistant|>\nhello<|user|>\nthree<|assistant|>\nC");
    chat.switch("main").unwrap();
    script.says(&ids("\nD", "<|user|>"));
    answer(&mut chat, "four");
    assert_eq!(rendered(&chat), format!("{history}<|user|>\nfour<|assistant|>\nD"));
    chat.remove("other").unwrap();

    // Two answers outside the conversation.
    chat.set_system("Be brief.").unwrap();
    assert_eq!(chat.stats().n_turns, 0);
    // The first answer prefills its prompt after `[gMASK]<sop>`, which the slot has already read. The second answer has the same prompt and
    // prefills only the last token.
    let n_aside = ["\nBe brief.", "\nwhy"].iter().map(|text| small().encode(text.as_bytes()).unwrap().len() + 1).sum::<usize>() + 1;
    for (line, n_prompt) in [("+qa why", n_aside), ("++", 1)] {
        script.says(&ids("\nso", "<|user|>"));
        let answered = answer(&mut chat, line);
        assert_eq!((answered.text.as_str(), answered.n_prompt), ("so", n_prompt));
    }
    assert_eq!((chat.stats().n_turns, chat.stats().n_tokens), (0, 0));
    script.says(&ids("\nE", "<|user|>"));
    answer(&mut chat, "five");
    chat.reset();
    script.says(&ids("\nF", "<|user|>"));
    answer(&mut chat, "six");
    assert_eq!(rendered(&chat), "[gMASK]<sop><|system|>\nBe brief.<|user|>\nsix<|assistant|>\nF");
    chat.undo().unwrap();
    assert_eq!(chat.undo().unwrap_err().to_string(), "the conversation has no turn to take back");
    for line in ["+gen x", "+++"] {
        let said = refusal(&mut chat, line).to_string();
        assert!(said.starts_with("this model has a chat template"), "{said}");
    }
    let lines = Format::named("world", &model()).unwrap();
    assert!(chat.set_format(lines, greedy()).unwrap_err().to_string().starts_with("this conversation uses a chat template"));
}

#[test]
fn thoughts_and_broken_answers_are_not_kept() {
    let Some(mut chat) = chat(Version::Z1) else { return };
    let script = Script::of(&mut chat);
    script.says(&ids("\nhm</think>\nYes.", "<|user|>"));
    let answered = answer(&mut chat, "a");
    assert_eq!((answered.thought.as_str(), answered.text.as_str()), ("hm", "Yes."));
    script.says(&ids("\nso</think>No.", "<|user|>"));
    let told = chat.say("b", &mut |part| match part {
        AnswerPart::Thought(_) => ControlFlow::Break(()),
        part => panic!("{part:?}"),
    });
    assert!(matches!(&told, Ok(Answer { finish: Finish::Interrupted, text, .. }) if text.is_empty()), "{told:?}");
    assert_eq!(chat.stats().n_turns, 1, "the turn is taken back");
    script.next.lock().unwrap().clear();
    script.says(&ids("\n</think>No.", "<|user|>"));
    answer(&mut chat, "+");
    assert_eq!(rendered(&chat), "[gMASK]<sop><|user|>\na<|assistant|>\nYes.<|user|>\nb<|assistant|>\n<think>\n</think>No.");
    assert_eq!(chat.stats().n_turns, 2);
}

#[test]
fn another_answer_that_is_stopped_before_it_begins_leaves_the_first() {
    let Some(mut chat) = chat(Version::Original) else { return };
    let script = Script::of(&mut chat);
    script.says(&ids("\nhello", "<|user|>"));
    answer(&mut chat, "hi");
    let stop = chat.stop_flag();
    let newline = small().encode(b"\n").unwrap()[0] as usize;
    chat.set_processor(Some(Box::new(move |_, logits| {
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        logits.fill(-10.0);
        logits[newline] = 10.0;
    })));
    let answered = answer(&mut chat, "+");
    assert_eq!((answered.text.as_str(), answered.finish), ("", Finish::Interrupted));
    assert_eq!(chat.stats().n_turns, 1);
    let script = Script::of(&mut chat);
    script.says(&ids("\nB", "<|user|>"));
    answer(&mut chat, "two");
    assert_eq!(
        rendered(&chat),
        "[gMASK]<sop><|user|>\nhi<|assistant|>\nhello<|user|>\ntwo<|assistant|>\nB",
        "the first answer is still there"
    );
}

#[test]
fn a_conversation_in_messages_is_one_file() {
    let (Some(mut one), Some(mut other)) = (chat(Version::Original), chat(Version::Original)) else { return };
    let path = tempfile::tempdir().unwrap().keep().join("chat");
    let script = Script::of(&mut one);
    one.set_system("Be brief.").unwrap();
    one.set("temperature", "0.3").unwrap();
    script.says(&ids("\nhello", "<|user|>"));
    answer(&mut one, "hi");
    one.save(&path).unwrap();
    assert!(other.load(Path::new("nowhere")).is_err());
    let script = Script::of(&mut other);
    script.says(&ids("\nx", "<|user|>"));
    answer(&mut other, "after what went wrong");
    other.load(&path).unwrap();
    assert_eq!((other.tokens(), other.settings(), other.stats().n_turns), (one.tokens(), one.settings(), 1));
    script.says(&ids("\nA", "<|user|>"));
    let answered = answer(&mut other, "two");
    assert!(answered.n_prompt < 10, "the state came with it");
    assert_eq!(rendered(&other), "[gMASK]<sop><|system|>\nBe brief.<|user|>\nhi<|assistant|>\nhello<|user|>\ntwo<|assistant|>\nA");
    other.undo().unwrap();
    assert_eq!(other.tokens(), one.tokens());
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[cfg(feature = "grammar")]
#[test]
fn answers_follow_a_grammar() {
    let grammar = crate::constrain::Grammar::gbnf(r#"root ::= "yes" | "no" [a-z]{1,3}"#).unwrap();
    for version in [Version::Original, Version::Z1] {
        let Some(mut chat) = chat(version) else { return };
        chat.set_grammar(Some(&grammar)).unwrap();
        for line in ["one", "+", "+qq two", "++"] {
            let script = Script::of(&mut chat);
            if version == Version::Z1 {
                script.says(&small().encode(b"hm</think>\n").unwrap());
            }
            let answered = answer(&mut chat, line);
            let (text, is_end) = (answered.text.as_str(), answered.finish == Finish::Eos);
            let is_no = text.strip_prefix("no").is_some_and(|rest| (1..=3).contains(&rest.len()));
            assert!((text == "yes" || is_no) && is_end, "{line}: {answered:?}");
        }
        assert!(rendered(&chat).contains("<|assistant|>\n"), "{}", rendered(&chat));
    }
}
