//! A conversation with a model: messages and answers, free texts (texts outside the conversation), branches, undo, files.
//!
//! The commands of ChatRWKV (the reference chat program) are methods here, and prefill exactly the same tokens. Where ChatRWKV saves a state, the
//! [engine](crate::engine) holds the state, or prefills its tokens again if it had to drop it. This module neither reads from a terminal nor parses
//! commands.

mod begin;
mod branch;
mod branches;
mod core;
pub(crate) mod file;
#[cfg(feature = "grammar")]
mod grammar;
mod lines;
mod messages;
mod mode;
mod saved_turns;
mod schedule;
#[cfg(test)]
mod tests;
mod thinking;

pub use self::core::OnRead;

use self::core::Core;
use crate::chat::{Format, MakeConstraint, OnPart, Settings, ToolCall};
use crate::error::Result;
use crate::session::{Finish, Model, Processor, Timings};
use crate::template::{Message, Tool};
use mode::{Mode, OneOffPrompt, View};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// An answer of the model, with its thought, its tool calls and its measurements.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The answer's text. An answer in the conversation has no thought and no blanks at its ends. A free text (outside the conversation) is
    /// unchanged.
    pub text: String,
    /// The thought before the answer; empty if there was no thought.
    pub thought: String,
    /// The tool calls of the answer. Pass their results to [`Conversation::observe`].
    pub calls: Vec<ToolCall>,
    /// The sampled tokens, without a stop token.
    pub tokens: Vec<u32>,
    /// The reason why the answer ended.
    pub finish: Finish,
    /// `true` if the answer satisfies its constraint (a grammar or schema), `false` if it ended too early. `None` without a constraint.
    pub complete: Option<bool>,
    /// `true` if the conversation keeps the answer. `false` if it drops message and answer, because the answer has no text or an incomplete tool
    /// call.
    pub is_kept: bool,
    /// The number of prompt tokens that were prefilled for this answer.
    pub n_prompt: usize,
    /// The number of sampled tokens that the sampler's guard replaced because a logit was NaN or infinite (GLM only). A number above 0 means that
    /// the model computes wrong logits.
    pub n_guarded: u64,
    /// The time and the number of tokens of the answer's prefill and decode.
    pub timings: Timings,
}

/// Sampler settings for one answer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Overrides {
    /// The temperature. `None` keeps the temperature of the conversation.
    pub temperature: Option<f32>,
    /// The `top_p`. `None` keeps the `top_p` of the conversation.
    pub top_p: Option<f32>,
}

/// The size of a conversation, and the timings of its answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Stats {
    /// The number of turns in the current branch.
    pub n_turns: usize,
    /// The number of tokens in the current branch.
    pub n_tokens: usize,
    /// The number of further tokens that fit into the context. `None` if the model has no limit, or with a format of lines (`Name: text`).
    pub n_left: Option<usize>,
    /// The number of further states that the engine can hold for its conversations. Further undo steps and branches need states.
    pub n_free: usize,
    /// Timings of the last answer; `None` before the first answer.
    pub last: Option<Timings>,
    /// The sum of the timings of all answers.
    pub total: Timings,
}

/// A conversation with one model. It runs on an [`Engine`](crate::engine::Engine): an engine of its own, or an engine that it shares with requests
/// and other conversations.
///
/// Callbacks run on the caller's thread, and the engine waits for them. So a callback must not wait for the same engine.
///
/// The callback `on_part` or the stop flag can stop an answer. The conversation keeps the text of a stopped answer. If the answer has no text, the
/// conversation drops the message, but [`retry`](Self::retry) can answer it. Every method that samples clears the stop flag first.
///
/// # Errors
/// Methods that sample return `Interrupted` if the stop flag is set during a prefill, and `Memory` if the engine can hold no further state
/// ([`EngineOptions::pinned`](crate::engine::EngineOptions)). They also return `Input` if the text exceeds the context, `Device` if the device failed
/// or the engine has ended, and the errors of constraints. After an error, the conversation is unchanged.
///
/// ```
/// # #[cfg(feature = "embedded-model")]
/// # fn main() -> wingbeat::error::Result<()> {
/// use std::ops::ControlFlow;
/// use wingbeat::chat::Format;
/// use wingbeat::conversation::Conversation;
/// use wingbeat::low_level::session::{Model, ModelSource, Options};
///
/// let mut options = Options::default();
/// options.device = "cpu".parse()?; // default: the first GPU, or the CPU without one
/// let model = Model::load(&ModelSource::Embedded, &options, &mut |_done, _total| ())?;
/// let format = Format::of(&model)?;
/// let settings = format.settings();
/// let mut chat = Conversation::new(&model, format, settings, Box::new(|_done, _total| ()))?;
/// let answer = chat.say("Tell me a story about a fox.", &mut |_part| ControlFlow::Continue(()))?;
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

impl Conversation {
    /// Adds a message of the user to the conversation and samples the answer. The message and its answer are one turn.
    ///
    /// # Errors
    /// The errors of every [method that samples](Self).
    pub fn say(&mut self, text: &str, on_part: &mut OnPart<'_>) -> Result<Answer> {
        self.answer(|mode, core| mode.say(core, text, on_part).map(Some)).map(always)
    }

    /// Passes the results of tool calls to the model and samples the answer. `results` has one result per call of the last answer, in the order of
    /// the calls. Results and answer belong to the turn of the calls.
    ///
    /// # Errors
    /// `Input` if the number of results differs from the number of calls in the last answer; the errors of [`say`](Self::say).
    pub fn observe(&mut self, results: &[&str], on_part: &mut OnPart<'_>) -> Result<Answer> {
        self.answer(|mode, core| mode.observe(core, results, on_part).map(Some)).map(always)
    }

    /// Samples another answer to the last message. The new answer replaces the last answer. Returns `None` if no message can be answered again, for
    /// example before the first message or after an undo.
    pub fn retry(&mut self, on_part: &mut OnPart<'_>) -> Result<Option<Answer>> {
        self.answer(|mode, core| mode.retry(core, on_part))
    }

    /// Continues a text. The text and the answer stay outside the conversation.
    ///
    /// # Errors
    /// `Input` if the format is a template; the errors of [`say`](Self::say).
    pub fn continue_text(&mut self, text: &str, on_part: &mut OnPart<'_>) -> Result<Answer> {
        self.write(OneOffPrompt::Text(text), on_part)
    }

    /// Follows an instruction. The instruction and the answer stay outside the conversation.
    pub fn instruct(&mut self, instruction: &str, on_part: &mut OnPart<'_>) -> Result<Answer> {
        self.write(OneOffPrompt::Instruction(instruction), on_part)
    }

    /// Answers a question outside the conversation. In a format of lines (`Name: text`), the model does not see the text with which the conversation
    /// begins.
    pub fn ask(&mut self, question: &str, on_part: &mut OnPart<'_>) -> Result<Answer> {
        self.write(OneOffPrompt::Question(question), on_part)
    }

    /// Answers a question outside the conversation. The model sees only the text with which the conversation begins, not the turns.
    pub fn ask_after_prompt(&mut self, question: &str, on_part: &mut OnPart<'_>) -> Result<Answer> {
        self.write(OneOffPrompt::QuestionAfterPrompt(question), on_part)
    }

    /// Samples another answer to the last text, instruction or question outside the conversation. Returns `None` if no text, instruction or
    /// question was given yet.
    pub fn retry_text(&mut self, on_part: &mut OnPart<'_>) -> Result<Option<Answer>> {
        self.answer(|mode, core| mode.rewrite(core, on_part))
    }

    /// Continues the last answer outside the conversation. Returns `None` if no answer was sampled outside the conversation yet.
    ///
    /// # Errors
    /// `Input` if the format is a template; the errors of [`say`](Self::say).
    pub fn continue_answer(&mut self, on_part: &mut OnPart<'_>) -> Result<Option<Answer>> {
        self.answer(|mode, core| mode.write_more(core, on_part))
    }

    fn write(&mut self, prompt: OneOffPrompt<'_>, on_part: &mut OnPart<'_>) -> Result<Answer> {
        self.answer(|mode, core| mode.write(core, prompt, on_part).map(Some)).map(always)
    }

    /// Clears the stop flag, runs `draw`, removes the overrides, and adds the timings of the answer to the total.
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
            self.total.drafted_tokens += timings.drafted_tokens;
            self.total.accepted_tokens += timings.accepted_tokens;
        }
        answer
    }

    /// Sets sampler settings for the next answer only.
    pub fn override_next(&mut self, overrides: Overrides) {
        self.core.overrides = overrides;
    }

    /// Removes all turns of the current branch. In a format of lines (`Name: text`), [`retry`](Self::retry) can still answer the last message.
    pub fn reset(&mut self) {
        self.mode.reset();
    }

    /// Restarts the conversation in another format and with other settings. The system message stays.
    ///
    /// # Errors
    /// `Input` if the model cannot use the format; `Usage` if a setting is invalid; the errors of every [method that prefills](Self). After an error,
    /// the conversation is unchanged.
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

    /// Restarts the conversation with a system message. An empty text removes the system message.
    ///
    /// # Errors
    /// The errors of every [method that prefills](Self). After an error, the conversation is unchanged.
    pub fn set_system(&mut self, text: &str) -> Result<()> {
        self.core.go_on();
        let format = self.format().clone();
        self.mode.begin(&mut self.core, format, text)
    }

    /// Restarts the conversation with tools that the model may call. The system message stays.
    ///
    /// # Errors
    /// `Input` if the format is a format of lines (`Name: text`).
    pub fn set_tools(&mut self, tools: Vec<Tool>) -> Result<()> {
        let before = self.format().settings().sampling;
        self.mode.set_tools(tools)?;
        self.adopt(&before)
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        self.core.model()
    }

    /// Returns the format of the current branch.
    pub fn format(&self) -> &Format {
        self.mode.view().format
    }

    /// Returns the settings of the conversation, without [`Overrides`].
    pub fn settings(&self) -> &Settings {
        &self.core.settings
    }

    /// Sets one of the [`Settings`] by name, for all branches. Setting the seed restarts the random numbers from the beginning.
    ///
    /// # Errors
    /// `Usage` if the name is unknown or the value is invalid.
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

    /// Sets a function that changes the logits before each token of every answer is sampled. `None` removes the function. The function receives the
    /// answer's tokens so far and the logits. In a format of lines (`Name: text`), these logits already have ChatRWKV's biases. Penalties are applied
    /// later.
    pub fn set_processor(&mut self, processor: Option<Processor>) {
        self.core.processor = processor.map(|processor| Arc::new(Mutex::new(processor)));
    }

    /// Constrains all further answers in every branch. `None` removes the constraint. A constrained answer ends where its constraint ends. Stop texts
    /// do not end the answer, except `stop_strings` in a GLM's `generation_config.json`. A thought before the answer is not constrained.
    pub fn set_constraint(&mut self, make: Option<MakeConstraint>) {
        self.core.rules = make;
    }

    /// Takes back the last turn: the message and its answer.
    ///
    /// # Errors
    /// `Input` if there is no turn, or if the conversation was loaded from a file of an earlier version, which has no earlier states; the errors of
    /// every [method that prefills](Self).
    pub fn undo(&mut self) -> Result<()> {
        self.core.go_on();
        self.mode.undo(&mut self.core)
    }

    /// Copies the current branch to a new branch and switches to it.
    ///
    /// # Errors
    /// `Usage` if the name is empty or already used.
    pub fn fork(&mut self, name: &str) -> Result<()> {
        self.mode.branches_mut().fork(name)
    }

    /// Switches to a branch.
    ///
    /// # Errors
    /// `Usage` if the name is unknown.
    pub fn switch(&mut self, name: &str) -> Result<()> {
        self.mode.branches_mut().switch(name)
    }

    /// Removes a branch.
    ///
    /// # Errors
    /// `Usage` if the name is unknown or is the current branch.
    pub fn remove(&mut self, name: &str) -> Result<()> {
        self.mode.remove(name)
    }

    /// Returns the name of the current branch; the first branch is `main`.
    pub fn branch(&self) -> &str {
        self.mode.view().branches.name()
    }

    /// Returns the names of all branches, sorted.
    pub fn branches(&self) -> Vec<String> {
        self.mode.view().branches.names()
    }

    /// Returns the size of the conversation and its timings.
    pub fn stats(&self) -> Stats {
        let Conversation { core, mode, last, total } = self;
        let (View { n_turns, tokens, .. }, n_free) = (mode.view(), core.engine.n_unpinned());
        Stats { n_turns, n_tokens: tokens.len(), n_left: mode.n_left(core), n_free, last: *last, total: *total }
    }

    /// Returns the messages of all turns, oldest first. In a format of lines (`Name: text`), the conversation stores tokens instead of messages. The
    /// tokens are decoded, and the text is split at the names.
    pub fn transcript(&self) -> Vec<Message> {
        self.mode.transcript(&self.core)
    }

    /// Returns every token of the current branch, from the first prompt to the last answer.
    pub fn tokens(&self) -> &[u32] {
        self.mode.view().tokens
    }

    /// Returns [`tokens`](Self::tokens) as text, without special tokens.
    pub fn text(&self) -> Vec<u8> {
        self.core.vocab.decode(self.tokens())
    }

    /// Returns the stop flag. If another thread or a signal handler sets the flag to true, the current answer stops.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.core.stop.clone()
    }
}

fn always(answer: Option<Answer>) -> Answer {
    answer.expect("there is something to answer")
}
