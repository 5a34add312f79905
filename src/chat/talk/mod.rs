//! One conversation with a model: what ChatRWKV's `chat.py` does, as a library.
//!
//! A line that the user says is a message or one of its commands. Every command reads exactly the tokens that the original reads, and
//! the states that it keeps (`chat_init`, `chat`, `chat_pre`, `gen_0`, `gen_1`) are forks of the session's slots: coming back to
//! one is exact to the bit. Knows no terminal.

mod branch;
mod branches;
mod command;
mod core;
mod draw;
mod file;
mod free;
#[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
mod grammar;
mod lines;
mod messages;
mod reply;
mod saved;
#[cfg(test)]
mod tests;
mod way;

use self::command::{Command, Line};
use self::core::{Core, SharedProcessor};
use super::format::Kind;
use super::rules::MakeConstraint;
use super::{Format, Settings};
use crate::error::{Error, Result};
use crate::session::{Finish, Model, Processor, Session, Slot, Timings};
use lines::InLines;
use messages::InMessages;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use way::Way;

/// What is new of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Of the answer. All of them together are [`Answered::text`].
    Text(&'a str),
    /// Of what the model thinks before it answers, between `<think>` and `</think>`: not part of the answer, nor of the history.
    Thought(&'a str),
}

/// Who hears of it, and may break it off.
pub type OnPiece<'a> = dyn FnMut(Piece<'_>) -> ControlFlow<()> + 'a;

/// What came of a line.
#[derive(Debug, Clone)]
pub enum Told {
    Answer(Answered),
    /// What to tell the user, in the words of the original: `Chat reset.` and its like.
    Message(String),
    /// The line asked for what cannot be done; why, in the words of the original.
    Wrong(String),
    /// The command had nothing to work on: `+` before the first reply.
    Nothing,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answered {
    /// A reply without the blanks around it and without the reasoning; a free generation as it came.
    pub text: String,
    /// What the model thought before; empty where it did not.
    pub thought: String,
    /// Drawn and read. What ends a text without being read is none of them.
    pub tokens: Vec<u32>,
    pub finish: Finish,
    /// Whether the answer follows its grammar or schema to the end. `None` without one.
    pub complete: Option<bool>,
    /// Whether the conversation goes on behind it: there is nothing to keep of a reply without an answer, and its turn is taken back.
    pub is_kept: bool,
    /// Tokens that were read before the first was drawn.
    pub n_prompt: usize,
    pub timings: Timings,
}

/// A message or an answer of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Who said it, as the format calls them.
    pub name: String,
    pub text: String,
}

/// How it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Stats {
    /// Turns of the conversation so far, in the branch that is gone on in.
    pub n_turns: usize,
    /// Tokens that the model has read of it.
    pub n_tokens: usize,
    /// Tokens that it can still read; none where there is no end.
    pub n_left: Option<usize>,
    /// States that can be kept beside those that are: for turns to take back, and for branches.
    pub n_free: usize,
    /// Of the last answer; none before the first.
    pub last: Option<Timings>,
    /// Of all answers together.
    pub total: Timings,
}

/// A conversation. `Send`: one thread at a time.
pub struct Talk {
    core: Core,
    way: Box<dyn Way>,
    last: Option<Timings>,
    total: Timings,
}

/// States that a conversation cannot do without, and those that it can make use of.
const SLOTS: std::ops::RangeInclusive<u64> = 8..=32;

/// What states may take together, where more of them are a comfort only.
const STATES_BYTES: u64 = 256 << 20;

impl Talk {
    /// How many slots the session of a conversation with this model should have. A model that reads messages goes back in one. Others
    /// keep a state for each turn that can be taken back and for each branch: 8 at least, up to 32 where they are small.
    pub fn slots(model: &Model) -> usize {
        match model.context() {
            Some(_) => 1,
            None => (STATES_BYTES / model.state_bytes().max(1)).clamp(*SLOTS.start(), *SLOTS.end()) as usize,
        }
    }

    /// Begins a conversation: reads the format's first prompt. Progress: its tokens read, its tokens in all. The session's slots are
    /// [`Talk::slots`], none of them open.
    ///
    /// # Errors
    /// `Input` where the model has no vocabulary, `Model` where it tells classes, `Usage` at a setting, `Interrupted` when the stop flag
    /// is set while reading.
    pub fn new(session: Session, format: Format, settings: Settings, progress: &mut dyn FnMut(usize, usize)) -> Result<Talk> {
        let mut core = Core::new(session, settings)?;
        let way: Box<dyn Way> = match &format.kind {
            Kind::Lines(_) => Box::new(InLines::new(&mut core, format, progress)?),
            Kind::Messages(_) => Box::new(InMessages::new(&mut core, format)?),
        };
        Ok(Talk { core, way, last: None, total: Timings::default() })
    }

    /// Takes a line: a message, or one of the commands `+`, `+reset`, `+prompt FILE`, `+gen`, `+i`, `+qq`, `+qa`, `++` and `+++`; with
    /// `-temp=X` and `-top_p=X` anywhere in it. A backslash with an `n` is a newline. Clears the stop flag first.
    ///
    /// An answer that is broken off, by `on_piece` or by the stop flag, is complete, and the conversation goes on behind it: what was
    /// drawn stays, with a blank line behind it. Where that is nothing the turn is taken back, and `+` asks again.
    ///
    /// A model that reads messages through a template answers `+i`, `+qq` and `+qa` apart from the conversation, `++` once more so, and
    /// refuses `+gen`, `+++` and `+prompt`.
    ///
    /// # Errors
    /// `Interrupted` when the stop flag is set before the answer begins; `Usage` at a setting; `Memory` where every slot is in use;
    /// else as [`Session::prefill`] and [`Session::decode`]. The conversation then stands where it stood.
    pub fn say(&mut self, line: &str, on_piece: &mut OnPiece<'_>) -> Result<Told> {
        self.core.go_on();
        let told = self.way.say(&mut self.core, Line::parse(line)?, on_piece)?;
        if let Told::Answer(Answered { timings, .. }) = &told {
            self.last = Some(*timings);
            self.total.prefill_ms += timings.prefill_ms;
            self.total.prefill_tokens += timings.prefill_tokens;
            self.total.decode_ms += timings.decode_ms;
            self.total.decode_tokens += timings.decode_tokens;
        }
        Ok(told)
    }

    /// Whether a line is answered by the one whose name [`Format::bot`] is: a message or `+`. The other commands tell something, or go
    /// on with a text of the user's.
    pub fn is_reply(line: &str) -> bool {
        Line::parse(line).is_ok_and(|line| matches!(line.command, Command::Say(_) | Command::Again))
    }

    pub fn model(&self) -> &Model {
        self.core.session.model()
    }

    /// The format with the names in use now: a prompt file changes them.
    pub fn format(&self) -> &Format {
        self.way.format()
    }

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

    /// Changes logits before each draw, in one answer after the other: a grammar, say. It sees them as ChatRWKV changes them, before
    /// penalties, and the tokens of the answer so far.
    pub fn set_processor(&mut self, processor: Option<Processor>) {
        self.core.processor = processor.map(SharedProcessor::new);
    }

    /// Holds every answer from the next one on to rules, in every branch; none lifts them. The answer ends where they say, and is not
    /// cut at a blank line or at the user's name. A thought before it is free.
    pub fn set_constraint(&mut self, make: Option<MakeConstraint>) {
        self.core.rules = make;
    }

    /// Begins the conversation anew under this text of the system; under none where it is empty.
    ///
    /// # Errors
    /// As reading. The conversation then stands where it stood.
    pub fn system(&mut self, text: &str) -> Result<()> {
        self.core.go_on();
        self.way.system(&mut self.core, text)
    }

    /// Begins the conversation anew behind a state: a tuned one, or that of a text. All that begins with nothing begins there from now
    /// on, free generations too. `start` was opened in the session before the conversation took it, and is one slot more than
    /// [`Talk::slots`]; `tokens` led there, as far as they are known.
    ///
    /// # Errors
    /// `Input` where the model reads messages through a template; else as reading. The conversation then stands where it stood.
    pub fn begin_behind(&mut self, start: Slot, tokens: &[u32]) -> Result<()> {
        if let Kind::Messages(_) = self.format().kind {
            return Err(Error::input("a state is for models that read plain lines, and this one reads messages through a template"));
        }
        self.core.go_on();
        let before = self.core.start.replace((start, tokens.to_vec()));
        let begun = self.way.system(&mut self.core, "");
        let unused = if begun.is_err() { std::mem::replace(&mut self.core.start, before) } else { before };
        if let Some((slot, _)) = unused {
            self.core.session.close(slot)?;
        }
        begun
    }

    /// Takes the last turn back, question and answer.
    ///
    /// # Errors
    /// `Input` where there is none, or none is kept so far back.
    pub fn undo(&mut self) -> Result<()> {
        self.way.undo(&mut self.core)
    }

    /// Begins a branch of that name here, and goes on in it; the one that is left stays as it is.
    ///
    /// # Errors
    /// `Usage` at a name that is taken.
    pub fn fork(&mut self, name: &str) -> Result<()> {
        self.way.branches_mut().fork(name)
    }

    /// Goes on in that branch.
    ///
    /// # Errors
    /// `Usage` where there is none of that name.
    pub fn switch(&mut self, name: &str) -> Result<()> {
        self.way.branches_mut().switch(name)
    }

    /// Forgets a branch.
    ///
    /// # Errors
    /// `Usage` where there is none of that name, or it is the one that is gone on in.
    pub fn remove(&mut self, name: &str) -> Result<()> {
        self.way.remove(&mut self.core, name)
    }

    /// The branch that is gone on in: `main` at first.
    pub fn branch(&self) -> &str {
        self.way.branches().name()
    }

    /// All branches, in the order of the alphabet.
    pub fn branches(&self) -> Vec<String> {
        self.way.branches().names()
    }

    /// Writes the conversation to a file: the branch that is gone on in, its format, the settings and the place of the random stream.
    ///
    /// # Errors
    /// `File` where it cannot be written.
    pub fn save(&mut self, path: &Path) -> Result<()> {
        self.way.save(&mut self.core, path)
    }

    /// Goes on with a conversation that was saved, in the place of the branch of now.
    ///
    /// # Errors
    /// `File` where it is none, `Model` where it is another model's. The conversation then stands where it stood.
    pub fn load(&mut self, path: &Path) -> Result<()> {
        self.core.go_on();
        self.way.load(&mut self.core, path)
    }

    pub fn stats(&self) -> Stats {
        let Talk { core, way, last, total } = self;
        let n_tokens = way.transcript().len();
        let (n_left, n_free) = (way.n_left(core), core.session.n_free());
        Stats { n_turns: way.n_turns(), n_tokens, n_left, n_free, last: *last, total: *total }
    }

    /// Every token that the model has read of the conversation.
    pub fn transcript(&self) -> &[u32] {
        self.way.transcript()
    }

    /// Returns what was said in the turns so far, oldest first. A format of lines keeps text alone, which is taken apart at the names.
    pub fn said(&self) -> Vec<Said> {
        self.way.said(&self.core)
    }

    /// Calls `on_read` while a text is read: a message, a prompt file, what a saved chat begins with. Arguments: tokens read, and tokens to
    /// read in all.
    pub fn set_progress(&mut self, on_read: Box<dyn FnMut(usize, usize) + Send>) {
        self.core.on_read = on_read;
    }

    /// The same as text, special tokens left out.
    pub fn text(&self) -> Vec<u8> {
        self.core.vocab.decode(self.transcript())
    }

    /// The states that are kept, by the original's names, each with every token that led to it: `chat_init`, `chat`, `chat_pre`,
    /// `gen_0`, `gen_1`, as far as there are any. Of a model that reads messages only `chat`.
    pub fn transcripts(&self) -> Vec<(&'static str, &[u32])> {
        let kept = self.way.kept();
        if kept.is_empty() {
            return vec![("chat", self.transcript())];
        }
        kept.into_iter().map(|(name, saved)| (name, saved.tokens.as_slice())).collect()
    }

    /// Set from another thread or a signal handler it ends the answer in flight, as breaking it off does.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.core.session.stop_flag()
    }
}
