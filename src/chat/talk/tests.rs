//! Conversations with the embedded model, whose words are put in its mouth by a processor where a test needs certain ones.
#![cfg(feature = "embedded-model")]

mod commands;
mod draws;
mod history;
mod rules;
mod states;
mod templates;

use super::*;
use crate::chat::{PromptFile, Settings};
use crate::sample::Sampling;
use crate::session::{ModelSource, Options};
use crate::vocab::Vocab;
use std::collections::VecDeque;
use std::sync::Mutex;

fn model() -> Model {
    let options = Options { device: "cpu".into(), ..Default::default() };
    Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap()
}

fn greedy() -> Settings {
    Settings { sampling: Sampling::greedy(0), ..Settings::default() }
}

/// A conversation in a format, always with the likeliest token.
fn talk_in(format: &str) -> Talk {
    let model = model();
    let format = Format::named(format, &model).unwrap();
    let session = Session::new(&model, Talk::slots(&model)).unwrap();
    Talk::new(session, format, greedy(), &mut |_, _| ()).unwrap()
}

/// Between Bob and Alice, with a short first prompt.
const FIRST: &str = "\nBob: hi\n\nAlice: hello\n\n";

fn bob_and_alice() -> Talk {
    let model = model();
    let file =
        PromptFile { user: "Bob".into(), bot: "Alice".into(), interface: ":".into(), init_prompt: FIRST.into(), settings: Vec::new() };
    let format = Format::named("raven", &model).unwrap().with_prompt(&file).unwrap();
    let session = Session::new(&model, Talk::slots(&model)).unwrap();
    Talk::new(session, format, greedy(), &mut |_, _| ()).unwrap()
}

fn encode(text: &str) -> Vec<u32> {
    Vocab::tiny().encode(text.as_bytes()).unwrap()
}

/// Each text encoded by itself.
fn encoded(texts: &[&str]) -> Vec<u32> {
    texts.iter().flat_map(|text| encode(text)).collect()
}

fn decode(tokens: &[u32]) -> String {
    String::from_utf8(Vocab::tiny().decode(tokens)).unwrap()
}

/// What the model is to say next, and the logits that it had for each of it before it was made to.
#[derive(Clone, Default)]
struct Script {
    next: Arc<Mutex<VecDeque<u32>>>,
    seen: Arc<Mutex<Vec<Vec<f32>>>>,
}

impl Script {
    /// Takes the words out of the model's mouth; where there are none it says what it likes.
    fn of(talk: &mut Talk) -> Script {
        let script = Script::default();
        let Script { next, seen } = script.clone();
        talk.set_processor(Some(Box::new(move |_, logits| {
            seen.lock().unwrap().push(logits.to_vec());
            if let Some(id) = next.lock().unwrap().pop_front() {
                logits.fill(-10.0);
                logits[id as usize] = 10.0;
            }
        })));
        script
    }

    fn says(&self, ids: &[u32]) {
        self.next.lock().unwrap().extend(ids);
    }

    fn says_text(&self, text: &str) {
        self.says(&encode(text));
    }

    /// The logits since it was last asked.
    fn seen(&self) -> Vec<Vec<f32>> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

fn say(talk: &mut Talk, line: &str) -> Told {
    talk.say(line, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// The answer to a line; what was shown of it adds up to it.
fn answer(talk: &mut Talk, line: &str) -> Answered {
    let mut shown = String::new();
    let told = talk.say(line, &mut |piece| {
        if let Piece::Text(text) = piece {
            shown += text;
        }
        ControlFlow::Continue(())
    });
    match told.unwrap() {
        Told::Answer(answered) => {
            assert_eq!(answered.text, shown, "{line:?}");
            answered
        }
        other => panic!("{line:?}: {other:?}"),
    }
}

fn message(told: Told) -> String {
    match told {
        Told::Message(text) | Told::Wrong(text) => text,
        other => panic!("{other:?}"),
    }
}

/// The tokens of a kept state.
fn tokens(talk: &Talk, name: &str) -> Vec<u32> {
    talk.transcripts().into_iter().find(|(kept, _)| *kept == name).unwrap_or_else(|| panic!("no {name}")).1.to_vec()
}

/// A kept state as a file has it: every bit of the state and of the logits.
fn exported(talk: &mut Talk, name: &str) -> Vec<u8> {
    let slot = talk.way.kept().into_iter().find(|(kept, _)| *kept == name).unwrap().1.slot;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    talk.core.session.save(slot, &path, None, None).unwrap();
    std::fs::read(path).unwrap()
}
