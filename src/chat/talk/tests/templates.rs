//! The same conversations in messages, through GLM-4's template.

use super::*;
use crate::template::testing::small;
use crate::template::{Glm4, Version};
use std::path::Path;

/// With the tiny GLM and a vocabulary of GLM-4's kind; none where the model is not there, since its file is no part of the package.
fn talk(version: Version) -> Option<Talk> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/tiny-glm4"));
    if !folder.is_dir() {
        println!("SKIPPED a conversation in messages: there is no {}", folder.display());
        return None;
    }
    let options = Options { device: "cpu".into(), vocab: Some("tiny".into()), context: Some(512), ..Default::default() };
    let model = Model::load(&ModelSource::Path(folder.into()), &options, &mut |_, _| ()).unwrap();
    let mut format = Format::of(&model).unwrap();
    let Kind::Messages(options) = &mut format.kind else { panic!("a model of GLM's kind has a template") };
    options.template = Arc::new(Glm4(version));
    assert_eq!(Talk::slots(&model), 1);
    let session = Session::new(&model, 1).unwrap();
    let settings = format.settings();
    let mut talk = Talk::new(session, format, settings, &mut |_, _| ()).unwrap();
    talk.core.vocab = small();
    Some(talk)
}

fn ids(text: &str) -> Vec<u32> {
    let user = small().special("<|user|>").unwrap();
    [small().encode(text.as_bytes()).unwrap(), vec![user]].concat()
}

/// What the template makes of a conversation so far.
fn rendered(talk: &Talk) -> String {
    let vocab = small();
    let special = |id: &u32| crate::vocab::GLM4_SPECIAL.iter().find(|text| vocab.special(text) == Some(*id)).map(|text| text.to_string());
    talk.transcript().iter().map(|id| special(id).unwrap_or_else(|| String::from_utf8_lossy(vocab.token(*id)).into())).collect()
}

#[test]
fn a_conversation_has_a_history() {
    let Some(mut talk) = talk(Version::Original) else { return };
    let script = Script::of(&mut talk);
    assert!(matches!(say(&mut talk, "+"), Told::Nothing));
    assert!(matches!(say(&mut talk, "++"), Told::Nothing));
    script.says(&ids("\nhello"));
    let first = answer(&mut talk, "hi\\n\\nyou -temp=0.5");
    assert_eq!((first.text.as_str(), first.finish), ("hello", Finish::Eos));
    assert_eq!(rendered(&talk), "[gMASK]<sop><|user|>\nhi\n\nyou<|assistant|>\nhello");
    script.says(&ids("\nA"));
    let second = answer(&mut talk, "two");
    assert!(second.n_prompt < 10, "what was read is not read again");
    script.says(&ids("\nB"));
    answer(&mut talk, "+");
    let history = "[gMASK]<sop><|user|>\nhi\n\nyou<|assistant|>\nhello<|user|>\ntwo<|assistant|>\nB";
    assert_eq!((rendered(&talk).as_str(), talk.stats().n_turns), (history, 2));
    assert_eq!(talk.stats().n_left, Some(512 - talk.transcript().len()));
    assert_eq!(talk.transcripts(), [("chat", talk.transcript())]);
    let said: Vec<String> = talk.said().iter().map(|s| format!("{}: {}", s.name, s.text)).collect();
    assert_eq!(said, ["User: hi\n\nyou", "Assistant: hello", "User: two", "Assistant: B"]);

    talk.fork("other").unwrap();
    talk.undo().unwrap();
    script.says(&ids("\nC"));
    answer(&mut talk, "three");
    assert_eq!(rendered(&talk), "[gMASK]<sop><|user|>\nhi\n\nyou<|assistant|>\nhello<|user|>\nthree<|assistant|>\nC");
    talk.switch("main").unwrap();
    script.says(&ids("\nD"));
    answer(&mut talk, "four");
    assert_eq!(rendered(&talk), format!("{history}<|user|>\nfour<|assistant|>\nD"));
    talk.remove("other").unwrap();

    // Apart from the conversation, and once more.
    talk.system("Be brief.").unwrap();
    assert_eq!(talk.stats().n_turns, 0);
    for line in ["+qa why", "++"] {
        script.says(&ids("\nso"));
        assert_eq!(answer(&mut talk, line).text, "so");
        assert_eq!(rendered(&talk), "[gMASK]<sop><|system|>\nBe brief.<|user|>\nwhy<|assistant|>\nso");
    }
    assert_eq!(talk.stats().n_turns, 0);
    script.says(&ids("\nE"));
    answer(&mut talk, "five");
    assert_eq!(message(say(&mut talk, "+reset")), "Chat reset.");
    script.says(&ids("\nF"));
    answer(&mut talk, "six");
    assert_eq!(rendered(&talk), "[gMASK]<sop><|system|>\nBe brief.<|user|>\nsix<|assistant|>\nF");
    talk.undo().unwrap();
    assert_eq!(talk.undo().unwrap_err().to_string(), "there is no turn to take back");
    for line in ["+gen x", "+++"] {
        let said = talk.say(line, &mut |_| ControlFlow::Continue(())).unwrap_err().to_string();
        assert!(said.starts_with("this model answers messages"), "{said}");
    }
    let said = message(say(&mut talk, "+prompt English-1"));
    assert!(said.starts_with("Path error. a prompt file is for models that read plain lines"), "{said}");
}

#[test]
fn thoughts_and_broken_answers_are_not_kept() {
    let Some(mut talk) = talk(Version::Z1) else { return };
    let script = Script::of(&mut talk);
    script.says(&ids("\nhm</think>\nYes."));
    let answered = answer(&mut talk, "a");
    assert_eq!((answered.thought.as_str(), answered.text.as_str()), ("hm", "Yes."));
    script.says(&ids("\nso</think>No."));
    let told = talk.say("b", &mut |piece| match piece {
        Piece::Thought(_) => ControlFlow::Break(()),
        Piece::Text(text) => panic!("{text}"),
    });
    assert!(matches!(&told, Ok(Told::Answer(Answered { finish: Finish::Interrupted, text, .. })) if text.is_empty()), "{told:?}");
    assert_eq!(talk.stats().n_turns, 1, "the turn is taken back");
    script.next.lock().unwrap().clear();
    script.says(&ids("\n</think>No."));
    answer(&mut talk, "+");
    assert_eq!(rendered(&talk), "[gMASK]<sop><|user|>\na<|assistant|>\nYes.<|user|>\nb<|assistant|>\n<think>\n</think>No.");
    assert_eq!(talk.stats().n_turns, 2);
}

#[test]
fn another_answer_that_is_stopped_before_it_begins_leaves_the_first() {
    let Some(mut talk) = talk(Version::Original) else { return };
    let script = Script::of(&mut talk);
    script.says(&ids("\nhello"));
    answer(&mut talk, "hi");
    let stop = talk.stop_flag();
    let newline = small().encode(b"\n").unwrap()[0] as usize;
    talk.set_processor(Some(Box::new(move |_, logits| {
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        logits.fill(-10.0);
        logits[newline] = 10.0;
    })));
    let answered = answer(&mut talk, "+");
    assert_eq!((answered.text.as_str(), answered.finish), ("", Finish::Interrupted));
    assert_eq!(talk.stats().n_turns, 1);
    let script = Script::of(&mut talk);
    script.says(&ids("\nB"));
    answer(&mut talk, "two");
    assert_eq!(
        rendered(&talk),
        "[gMASK]<sop><|user|>\nhi<|assistant|>\nhello<|user|>\ntwo<|assistant|>\nB",
        "the first answer is still there"
    );
}

#[test]
fn a_conversation_in_messages_is_one_file() {
    let (Some(mut one), Some(mut other)) = (talk(Version::Original), talk(Version::Original)) else { return };
    let path = tempfile::tempdir().unwrap().keep().join("talk");
    let script = Script::of(&mut one);
    one.system("Be brief.").unwrap();
    one.set("temperature", "0.3").unwrap();
    script.says(&ids("\nhello"));
    answer(&mut one, "hi");
    one.save(&path).unwrap();
    assert!(other.load(Path::new("nowhere")).is_err());
    let script = Script::of(&mut other);
    script.says(&ids("\nx"));
    answer(&mut other, "after what went wrong");
    other.load(&path).unwrap();
    assert_eq!((other.transcript(), other.settings(), other.stats().n_turns), (one.transcript(), one.settings(), 1));
    script.says(&ids("\nA"));
    let answered = answer(&mut other, "two");
    assert!(answered.n_prompt < 10, "the state came with it");
    assert_eq!(rendered(&other), "[gMASK]<sop><|system|>\nBe brief.<|user|>\nhi<|assistant|>\nhello<|user|>\ntwo<|assistant|>\nA");
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[cfg(feature = "grammar")]
#[test]
fn answers_follow_a_grammar() {
    let grammar = crate::constrain::Grammar::gbnf(r#"root ::= "yes" | "no" [a-z]{1,3}"#).unwrap();
    for version in [Version::Original, Version::Z1] {
        let Some(mut talk) = talk(version) else { return };
        talk.set_grammar(Some(&grammar)).unwrap();
        for line in ["one", "+", "+qq two", "++"] {
            let script = Script::of(&mut talk);
            if version == Version::Z1 {
                script.says(&small().encode(b"hm</think>\n").unwrap());
            }
            let answered = answer(&mut talk, line);
            let (text, is_end) = (answered.text.as_str(), answered.finish == Finish::Eos);
            let is_no = text.strip_prefix("no").is_some_and(|rest| (1..=3).contains(&rest.len()));
            assert!((text == "yes" || is_no) && is_end, "{line}: {answered:?}");
        }
        assert!(rendered(&talk).contains("<|assistant|>\n"), "{}", rendered(&talk));
    }
}
