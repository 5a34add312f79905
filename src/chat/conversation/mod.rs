//! One conversation with a model: messages and answers, texts that the model goes on with, branches, turns taken back, files.
//!
//! Every answer is drawn through [`session`](crate::session). ChatRWKV's commands are methods here and read exactly the tokens that the
//! original reads; the states that the original keeps are forks of the session's slots, so coming back to one is exact to the bit. Knows no
//! terminal and no text of a command.

mod branch;
mod branches;
mod core;
mod file;
#[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
mod grammar;
mod lines;
mod messages;
mod mode;
mod schedule;
#[cfg(test)]
mod tests;

pub use self::core::OnRead;

use self::core::Core;
use super::format::Kind;
use super::rules::MakeConstraint;
use super::{AnswerPart, Format, Settings, ToolCall};
use crate::error::{Error, Result};
use crate::session::{Finish, Model, Processor, Session, Slot, Timings};
use crate::template::{Message, Tool};
use lines::InLines;
use messages::InMessages;
use mode::{Mode, Task, View};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// Hears an answer while it is written, and may break it off. The parts of a kind together are the answer's text, thought or call.
pub type OnPart<'a> = dyn FnMut(AnswerPart<'_>) -> ControlFlow<()> + 'a;

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// A reply without the blanks around it and without the reasoning; a text that the model went on with as it came.
    pub text: String,
    /// What the model thought before; empty where it did not.
    pub thought: String,
    /// The tool that the model calls. [`Conversation::observe`] tells the model what came of the call.
    pub call: Option<ToolCall>,
    /// Drawn and read. What ends a text without being read is none of them.
    pub tokens: Vec<u32>,
    /// The reason why the answer ended.
    pub finish: Finish,
    /// Whether the answer follows its grammar or schema to the end. `None` without one.
    pub complete: Option<bool>,
    /// Whether the conversation goes on after this answer: there is nothing to keep of a reply without an answer, and its turn is taken back.
    pub is_kept: bool,
    /// Tokens that were read before the first was drawn.
    pub n_prompt: usize,
    /// Tokens that GLM's guard against broken logits drew: above 0 the model's numbers fail.
    pub n_guarded: u64,
    /// The time that the answer took.
    pub timings: Timings,
}

/// Settings of the sampler for one answer alone, in place of the conversation's.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Overrides {
    /// The temperature. `None` keeps the conversation's.
    pub temperature: Option<f32>,
    /// The `top_p`. `None` keeps the conversation's.
    pub top_p: Option<f32>,
}

/// The size of a conversation, and what it took.
#[derive(Debug, Clone, PartialEq)]
pub struct Stats {
    /// Turns so far, in the current branch.
    pub n_turns: usize,
    /// Tokens that the model has read of them.
    pub n_tokens: usize,
    /// Tokens that the model can still read; `None` if there is no end.
    pub n_left: Option<usize>,
    /// States that can be kept beside those that are: for turns to take back, and for branches.
    pub n_free: usize,
    /// Of the last answer; `None` before the first.
    pub last: Option<Timings>,
    /// Of all answers together.
    pub total: Timings,
}

/// A conversation. `Send`: one thread at a time.
///
/// An answer that is broken off, by `on_part` or by the stop flag, is complete, and the conversation goes on after it: what was drawn
/// stays. Where that is nothing the turn is taken back, and [`retry`](Self::retry) asks again. Every method that draws clears the stop flag
/// first. Errors of these methods: `Interrupted` when the stop flag is set before the answer begins; `Memory` where every slot is in use;
/// else as [`Session::prefill`] and [`Session::decode`]. The conversation is then as it was.
///
/// ```
/// # #[cfg(feature = "embedded-model")]
/// # fn main() -> wingbeat::error::Result<()> {
/// use std::ops::ControlFlow;
/// use wingbeat::chat::{Conversation, Format};
/// use wingbeat::session::{Model, ModelSource, Options, Session};
///
/// let mut options = Options::default();
/// options.device = "cpu".parse()?; // default: the fastest GPU
/// let model = Model::load(&ModelSource::Embedded, &options, &mut |_done, _total| ())?;
/// let session = Session::new(&model, Conversation::slots(&model))?;
/// let format = Format::of(&model)?;
/// let settings = format.settings();
/// let mut chat = Conversation::new(session, format, settings, Box::new(|_done, _total| ()))?;
/// let answer = chat.say("light", &mut |_part| ControlFlow::Continue(()))?;
/// assert_eq!(chat.transcript()[1].content, answer.text);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "embedded-model"))]
/// # fn main() {}
/// ```
pub struct Conversation {
    core: Core,
    mode: Box<dyn Mode>,
    last: Option<Timings>,
    total: Timings,
}

/// States that a conversation cannot do without, and those that it can make use of.
const SLOTS: std::ops::RangeInclusive<u64> = 8..=32;

/// What states may take together, where more of them are a comfort only.
const STATES_BYTES: u64 = 256 << 20;

impl Conversation {
    /// How many slots the session of a conversation with this model should have. A model that reads messages goes back in one. Others
    /// keep a state for each turn that can be taken back and for each branch: 8 at least, up to 32 where they are small.
    pub fn slots(model: &Model) -> usize {
        match model.context() {
            Some(_) => 1,
            None => (STATES_BYTES / model.state_bytes().max(1)).clamp(*SLOTS.start(), *SLOTS.end()) as usize,
        }
    }

    /// Begins a conversation: reads the format's first prompt. Progress: its tokens read, its tokens in all. The session's slots are
    /// [`slots`](Self::slots), none of them open.
    ///
    /// # Errors
    /// `Input` where the model has no vocabulary, `Model` where it tells classes, `Usage` at a setting, `Interrupted` when the stop flag
    /// is set while reading.
    pub fn new(session: Session, format: Format, settings: Settings, on_read: OnRead) -> Result<Conversation> {
        let mut core = Core::new(session, settings, on_read)?;
        let mode: Box<dyn Mode> = match &format.kind {
            Kind::Lines(_) => Box::new(InLines::new(&mut core, format)?),
            Kind::Messages(_) => Box::new(InMessages::new(&mut core, format)?),
        };
        Ok(Conversation { core, mode, last: None, total: Timings::default() })
    }

    /// Answers a message: the next turn. Errors as of every [answer](Self).
    pub fn say(&mut self, text: &str, on_part: &mut OnPart<'_>) -> Result<Answer> {
        self.answer(|mode, core| mode.say(core, text, on_part).map(Some)).map(always)
    }

    /// Tells the model what came of the tool that its last answer calls, and answers that. Belongs to the turn of the call.
    ///
    /// # Errors
    /// `Input` where no tool was called; else as [`say`](Self::say).
    pub fn observe(&mut self, result: &str, on_part: &mut OnPart<'_>) -> Result<Answer> {
        self.answer(|mode, core| mode.observe(core, result, on_part).map(Some)).map(always)
    }

    /// Draws another answer to the last message, in the place of the one that there is. `None` if there is no message.
    pub fn retry(&mut self, on_part: &mut OnPart<'_>) -> Result<Option<Answer>> {
        self.answer(|mode, core| mode.retry(core, on_part))
    }

    /// Goes on with a text, apart from the conversation. A model that reads messages through a template cannot.
    ///
    /// # Errors
    /// `Input` where the model cannot; else as [`say`](Self::say).
    pub fn continue_text(&mut self, text: &str, on_part: &mut OnPart<'_>) -> Result<Answer> {
        self.write(Task::Text(text), on_part)
    }

    /// Follows an instruction, apart from the conversation.
    pub fn instruct(&mut self, instruction: &str, on_part: &mut OnPart<'_>) -> Result<Answer> {
        self.write(Task::Instruction(instruction), on_part)
    }

    /// Answers a question, apart from the conversation and without its first prompt.
    pub fn ask(&mut self, question: &str, on_part: &mut OnPart<'_>) -> Result<Answer> {
        self.write(Task::Question(question), on_part)
    }

    /// Answers a question after the first prompt, apart from the conversation.
    pub fn ask_after_prompt(&mut self, question: &str, on_part: &mut OnPart<'_>) -> Result<Answer> {
        self.write(Task::QuestionAfterPrompt(question), on_part)
    }

    /// Draws another answer to the last text, instruction or question that was apart from the conversation. `None` if there is none.
    pub fn retry_text(&mut self, on_part: &mut OnPart<'_>) -> Result<Option<Answer>> {
        self.answer(|mode, core| mode.rewrite(core, on_part))
    }

    /// Goes on with the last answer that was apart from the conversation. `None` if there is none.
    ///
    /// # Errors
    /// `Input` where the model cannot; else as [`say`](Self::say).
    pub fn continue_answer(&mut self, on_part: &mut OnPart<'_>) -> Result<Option<Answer>> {
        self.answer(|mode, core| mode.write_more(core, on_part))
    }

    fn write(&mut self, task: Task<'_>, on_part: &mut OnPart<'_>) -> Result<Answer> {
        self.answer(|mode, core| mode.write(core, task, on_part).map(Some)).map(always)
    }
    fn answer(&mut self, draw: impl FnOnce(&mut dyn Mode, &mut Core) -> Result<Option<Answer>>) -> Result<Option<Answer>> {
        self.core.go_on();
        let answer = draw(self.mode.as_mut(), &mut self.core);
        self.core.overrides = Overrides::default();
        if let Ok(Some(Answer { timings, .. })) = &answer {
            self.last = Some(*timings);
            self.total.prefill_ms += timings.prefill_ms;
            self.total.prefill_tokens += timings.prefill_tokens;
            self.total.decode_ms += timings.decode_ms;
            self.total.decode_tokens += timings.decode_tokens;
        }
        answer
    }

    /// Sets what counts for the next answer alone.
    pub fn override_next(&mut self, overrides: Overrides) {
        self.core.overrides = overrides;
    }

    /// Begins the conversation anew, after its first prompt. In a format of lines, another answer to the last message can still be drawn.
    pub fn reset(&mut self) {
        self.mode.reset(&mut self.core);
    }

    /// Begins the conversation anew in another format and with other settings; the text of the system stays.
    ///
    /// # Errors
    /// `Input` where the model does not read such a format, `Usage` at a setting; else as reading. The conversation is then
    /// as it was.
    pub fn set_format(&mut self, format: Format, settings: Settings) -> Result<()> {
        settings.sampling.check(self.model().facts().n_vocab)?;
        self.core.go_on();
        let system = self.mode.view().system.to_string();
        let before = std::mem::replace(&mut self.core.settings, settings);
        if let Err(e) = self.mode.begin(&mut self.core, format, &system) {
            self.core.settings = before;
            return Err(e);
        }
        if self.core.settings.sampling.seed != before.sampling.seed {
            self.core.draws = 0;
        }
        Ok(())
    }

    /// Begins the conversation anew under this text of the system; under none where it is empty.
    ///
    /// # Errors
    /// As reading. The conversation is then as it was.
    pub fn set_system(&mut self, text: &str) -> Result<()> {
        self.core.go_on();
        let format = self.format().clone();
        self.mode.begin(&mut self.core, format, text)
    }

    /// Begins the conversation anew with tools that the model may call; the text of the system stays.
    ///
    /// # Errors
    /// `Input` where the model reads plain lines.
    pub fn set_tools(&mut self, tools: Vec<Tool>) -> Result<()> {
        self.mode.set_tools(tools)
    }

    /// Begins the conversation anew after a state: a tuned one, or that of a text. All that begins with nothing begins there from now
    /// on, texts apart from the conversation too. `start` was opened in the session before the conversation took it, and is one slot more
    /// than [`slots`](Self::slots); `tokens` led there, as far as they are known.
    ///
    /// # Errors
    /// `Input` where the model reads messages through a template; else as reading. The conversation is then as it was.
    pub fn begin_after(&mut self, start: Slot, tokens: &[u32]) -> Result<()> {
        if self.format().lines().is_none() {
            return Err(Error::input("a state is for models that read plain lines, and this one reads messages through a template"));
        }
        let before = self.core.start.replace((start, tokens.to_vec()));
        let begun = self.set_system("");
        let unused = if begun.is_err() { std::mem::replace(&mut self.core.start, before) } else { before };
        if let Some((slot, _)) = unused {
            self.core.session.close(slot)?;
        }
        begun
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        self.core.session.model()
    }
    /// The format with the names in use now.
    pub fn format(&self) -> &Format {
        self.mode.view().format
    }

    /// Returns the settings of the conversation.
    pub fn settings(&self) -> &Settings {
        &self.core.settings
    }

    /// Sets one of the [`Settings`] by its name; counts from the next answer on, in every branch. A seed begins its random stream anew.
    ///
    /// # Errors
    /// `Usage` at a name that there is not, and at a value that it cannot have.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let mut settings = self.core.settings.clone();
        settings.set(name, value)?;
        settings.sampling.check(self.model().facts().n_vocab)?;
        if name == "seed" {
            self.core.draws = 0;
        }
        self.core.settings = settings;
        Ok(())
    }

    /// Changes logits before each draw, in one answer after the other. It sees them as ChatRWKV changes them, before penalties, and the
    /// tokens of the answer so far.
    pub fn set_processor(&mut self, processor: Option<Processor>) {
        self.core.processor = processor.map(|processor| Arc::new(Mutex::new(processor)));
    }

    /// Holds every answer from the next one on to rules, in every branch; `None` lifts them. The answer ends where they say, and is not
    /// cut at a blank line or at the user's name. A thought before it is free.
    pub fn set_constraint(&mut self, make: Option<MakeConstraint>) {
        self.core.rules = make;
    }

    /// Takes the last turn back, question and answer.
    ///
    /// # Errors
    /// `Input` where there is none, or none is kept so far back.
    pub fn undo(&mut self) -> Result<()> {
        self.mode.undo(&mut self.core)
    }

    /// Begins a branch of that name here, and goes on in it; the one that is left stays as it is.
    ///
    /// # Errors
    /// `Usage` at a name that is taken.
    pub fn fork(&mut self, name: &str) -> Result<()> {
        self.mode.branches_mut().fork(name)
    }

    /// Goes on in that branch.
    ///
    /// # Errors
    /// `Usage` where there is none of that name.
    pub fn switch(&mut self, name: &str) -> Result<()> {
        self.mode.branches_mut().switch(name)
    }

    /// Forgets a branch.
    ///
    /// # Errors
    /// `Usage` where there is none of that name, or it is the current one.
    pub fn remove(&mut self, name: &str) -> Result<()> {
        self.mode.remove(&mut self.core, name)
    }

    /// The current branch: `main` at first.
    pub fn branch(&self) -> &str {
        self.mode.view().branches.name()
    }

    /// All branches, in the order of the alphabet.
    pub fn branches(&self) -> Vec<String> {
        self.mode.view().branches.names()
    }

    /// Writes the conversation to a file: the current branch, its format, the settings and the place of the random stream.
    ///
    /// # Errors
    /// `File` where it cannot be written.
    pub fn save(&mut self, path: &Path) -> Result<()> {
        self.mode.save(&mut self.core, path)
    }

    /// Goes on with a conversation that was saved, in the place of the current branch.
    ///
    /// # Errors
    /// `File` where it is none, `Model` where it is another model's. The conversation is then as it was.
    pub fn load(&mut self, path: &Path) -> Result<()> {
        self.core.go_on();
        self.mode.load(&mut self.core, path)
    }

    /// Returns the size of the conversation and its timings.
    pub fn stats(&self) -> Stats {
        let Conversation { core, mode, last, total } = self;
        let (View { n_turns, tokens, .. }, n_free) = (mode.view(), core.session.n_free());
        Stats { n_turns, n_tokens: tokens.len(), n_left: mode.n_left(core), n_free, last: *last, total: *total }
    }

    /// Returns the messages of the turns so far, oldest first. A format of lines keeps text alone, which is taken apart at the names.
    pub fn transcript(&self) -> Vec<Message> {
        self.mode.transcript(&self.core)
    }

    /// Every token that the model has read of the conversation.
    pub fn tokens(&self) -> &[u32] {
        self.mode.view().tokens
    }

    /// [`tokens`](Self::tokens) as text, special tokens left out.
    pub fn text(&self) -> Vec<u8> {
        self.core.vocab.decode(self.tokens())
    }

    /// The states that are kept, by the original's names, each with every token that led to it: `chat_init`, `chat`, `chat_pre`,
    /// `gen_0`, `gen_1`, as far as there are any. Of a model that reads messages only `chat`.
    pub fn states(&self) -> Vec<(&'static str, &[u32])> {
        let states = self.mode.states();
        if states.is_empty() {
            return vec![("chat", self.tokens())];
        }
        states.into_iter().map(|(name, state)| (name, state.tokens.as_slice())).collect()
    }

    /// Set from another thread or a signal handler it ends the answer in flight, as breaking it off does.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.core.session.stop_flag()
    }
}

fn always(answer: Option<Answer>) -> Answer {
    answer.expect("there is something to answer")
}
