//! Tests of conversations with the embedded model. Where a test needs certain tokens, a processor makes the model sample them.
#![cfg(feature = "embedded-model")]

mod commands;
mod draws;
mod g1;
mod history;
mod rules;
mod shared;
mod states;
mod templates;
mod tools;

use super::core::Core;
use super::*;
use crate::chat::format::FormatKind;
use crate::chat::{AnswerPart, InitialPrompt};
use crate::engine::{CacheOptions, Engine, EngineOptions};
use crate::error::Error;
use crate::sample::Sampling;
use crate::session::{ModelSource, Options, Session, Snapshot, StateExtras};
use crate::template::testing::small;
use crate::vocab::Vocab;
use std::collections::VecDeque;
use std::ops::ControlFlow;

fn model() -> Model {
    let options = Options { device: "cpu".parse().unwrap(), ..Default::default() };
    Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap()
}

fn greedy() -> Settings {
    Settings { sampling: Sampling::greedy(0), ..Settings::default() }
}

/// Returns a conversation in a format, with greedy sampling.
fn chat_in(format: &str) -> Conversation {
    let model = model();
    let format = Format::named(format, &model).unwrap();
    Conversation::new(&model, format, greedy(), Box::new(|_, _| ())).unwrap()
}

/// Returns a conversation in messages, with a small vocabulary of GLM-4's kind.
fn in_messages(model: &Model, format: Format, settings: Settings) -> Conversation {
    let engine = Engine::start(model, Conversation::engine_options(model)).unwrap();
    let mut core = Core::new(&engine, settings, Box::new(|_, _| ()), Arc::default()).unwrap();
    core.vocab = small();
    Conversation::begin(core, format).unwrap()
}

/// Returns the tokens of an answer, then the special token that ends the answer.
fn ids(text: &str, end: &str) -> Vec<u32> {
    [small().encode(text.as_bytes()).unwrap(), vec![small().special(end).unwrap()]].concat()
}

/// The text with which the tests' conversations begin: a short talk of Bob and Alice.
const FIRST: &str = "\nBob: hi\n\nAlice: hello\n\n";

fn prompt(user: &str, bot: &str, interface: &str, init_prompt: &str) -> InitialPrompt {
    InitialPrompt { user: user.into(), bot: bot.into(), interface: interface.into(), init_prompt: init_prompt.into() }
}

fn bob_and_alice() -> Conversation {
    let model = model();
    let format = Format::named("raven", &model).unwrap().with_prompt(&prompt("Bob", "Alice", ":", FIRST)).unwrap();
    Conversation::new(&model, format, greedy(), Box::new(|_, _| ())).unwrap()
}

fn encode(text: &str) -> Vec<u32> {
    Vocab::small_world().encode(text.as_bytes()).unwrap()
}

/// Returns the tokens of texts that are encoded separately.
fn encoded(texts: &[&str]) -> Vec<u32> {
    texts.iter().flat_map(|text| encode(text)).collect()
}

fn decode(tokens: &[u32]) -> String {
    String::from_utf8(Vocab::small_world().decode(tokens)).unwrap()
}

/// The tokens that the model must sample next, and the model's unchanged logits before each sampled token.
#[derive(Clone, Default)]
struct Script {
    next: Arc<Mutex<VecDeque<u32>>>,
    seen: Arc<Mutex<Vec<Vec<f32>>>>,
}

impl Script {
    /// Makes the model sample the tokens in `next`. If `next` is empty, the model samples freely.
    fn of(chat: &mut Conversation) -> Script {
        let script = Script::default();
        let Script { next, seen } = script.clone();
        chat.set_processor(Some(Box::new(move |_, logits| {
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

    /// Returns the logits before each token that was sampled since the last call.
    fn seen(&self) -> Vec<Vec<f32>> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

/// Samples the answer to `line`, which is a message or one of ChatRWKV's commands.
fn draw(chat: &mut Conversation, line: &str, on_part: &mut OnPart<'_>) -> Result<Option<Answer>> {
    let (word, text) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "+" => chat.retry(on_part),
        "++" => chat.retry_text(on_part),
        "+++" => chat.continue_answer(on_part),
        "+gen" => chat.continue_text(text, on_part).map(Some),
        "+i" => chat.instruct(text, on_part).map(Some),
        "+qq" => chat.ask(text, on_part).map(Some),
        "+qa" => chat.ask_after_prompt(text, on_part).map(Some),
        _ => chat.say(line, on_part).map(Some),
    }
}

/// Returns the answer to `line`, and checks that the answer's parts, joined, are its text.
fn answer(chat: &mut Conversation, line: &str) -> Answer {
    let mut shown = String::new();
    let answer = draw(chat, line, &mut |part| {
        if let AnswerPart::Text(text) = part {
            shown += text;
        }
        ControlFlow::Continue(())
    });
    let answer = answer.unwrap().unwrap_or_else(|| panic!("{line:?} has nothing to answer"));
    assert_eq!(answer.text, shown, "{line:?}");
    answer
}

fn quiet(_: AnswerPart<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Returns the error that answering `line` causes.
fn refusal(chat: &mut Conversation, line: &str) -> Error {
    draw(chat, line, &mut quiet).unwrap_err()
}

/// Returns the tokens of a kept state.
fn tokens(chat: &Conversation, name: &str) -> Vec<u32> {
    chat.mode.states().into_iter().find(|(kept, _)| *kept == name).unwrap_or_else(|| panic!("no {name}")).1.tokens.clone()
}

/// Returns the bytes of the state file of a kept state, which has every bit of the state and the logits.
fn exported(chat: &mut Conversation, name: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    state(chat, name).save(chat.model(), &path, StateExtras::default()).unwrap();
    std::fs::read(path).unwrap()
}

/// Waits until an engine holds `n_pinned` states for conversations, and `n_cached` entries of the prefix cache.
fn holds(engine: &Engine, n_pinned: usize, n_cached: usize) {
    let began = std::time::Instant::now();
    while (engine.stats().pinned, engine.stats().cached) != (n_pinned, n_cached) {
        assert!(began.elapsed().as_secs() < 20, "{n_pinned} {n_cached}: {:?}", engine.stats());
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

fn state(chat: &Conversation, name: &str) -> Snapshot {
    let kept = chat.mode.states().into_iter().find(|(kept, _)| *kept == name).unwrap().1;
    chat.core.engine.copy_of(kept.pinned.as_ref()).unwrap()
}
