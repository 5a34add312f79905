//! Talking in messages: a history, made a prompt by a template. The model goes back to what it has read of one, so a state is kept for
//! none: taking a turn back and switching a branch read again what differs.

use super::super::format::{Kind, after_thought};
use super::super::rules::Place;
use super::super::think::{Begins, Splitter};
use super::super::turn::answer;
use super::super::{Delta, Format, Options, Turn};
use super::branches::{Branches, Named};
use super::command::{Command, Line, Overrides, Start};
use super::core::{Core, SharedProcessor};
use super::file::{Loaded, Record};
use super::saved::Saved;
use super::way::{Way, read_prompt_file};
use super::{Answered, OnPiece, Said, Told};
use crate::error::{Error, Result};
use crate::session::{Finish, Slot};
use crate::template::{Message, Role, encode, opening, whole};
use std::path::Path;

pub struct InMessages {
    slot: Slot,
    format: Format,
    branches: Branches<Branch>,
    /// What was asked last apart from the conversation.
    aside: Option<String>,
    /// What the slot has read.
    read: Vec<u32>,
}

/// A conversation.
#[derive(Clone, Default)]
struct Branch {
    /// Empty where the system says nothing.
    system: String,
    history: Vec<Message>,
    /// How long the history was before each turn.
    turns: Vec<usize>,
    /// What the user said last.
    question: Option<String>,
    /// The history ends with an answer to it.
    is_answered: bool,
}

impl InMessages {
    pub fn new(core: &mut Core, format: Format) -> Result<InMessages> {
        let slot = core.session.open()?;
        Ok(InMessages { slot, format, branches: Branches::new(Branch::default()), aside: None, read: Vec::new() })
    }

    fn options(&self) -> &Options {
        match &self.format.kind {
            Kind::Messages(options) => options,
            Kind::Lines(_) => unreachable!("a conversation in messages has a template"),
        }
    }

    /// A message, behind this history; the history with the answer then.
    fn ask(
        &mut self,
        core: &mut Core,
        history: &[Message],
        text: &str,
        overrides: Overrides,
        on_piece: &mut OnPiece<'_>,
    ) -> Result<(Answered, Vec<Message>)> {
        let mut sampling = core.sampling(overrides);
        // Every answer has a stream of its own, or another one to the same question would be the same.
        sampling.seed = sampling.seed.wrapping_add(core.draws);
        let mut options = Options { sampling: Some(sampling), ..self.options().clone() };
        let most = core.settings.chat_len_max;
        options.generation.max_new_tokens = Some(options.generation.max_new_tokens.map_or(most, |n| n.min(most)));
        let query = Message::user(text);
        let asked = [history, std::slice::from_ref(&query)].concat();
        let parts = options.template.render(&asked)?;
        if let Some(context) = core.session.model().context() {
            let n = encode(&parts, &core.vocab)?.len();
            if n >= context {
                let e = Error::input(format!("the conversation takes {n} tokens with this message, its context has room for {context}"));
                return Err(e.hint("take turns back, begin again, or give a larger context (/undo, +reset, `context`)"));
            }
        }
        let prompt = whole(&parts);
        let opening = opening(&prompt);
        let begins = Begins::after(opening);
        let mut splitter = Splitter::new(begins, Vec::new());
        let processor = core.processor.as_ref().map(SharedProcessor::lend);
        let constraint = core.constraint(&Place::of_message(opening))?;
        let turn = Turn { processor, constraint, on_read: Some(&mut *core.on_read), ..Turn::new(self.slot, history, query) };
        let reply = answer(&mut core.session, &core.vocab, turn, &options, &mut |delta| match delta {
            Delta::Begin { name: "" } => std::ops::ControlFlow::Continue(()),
            Delta::Begin { name } => splitter.push(&format!("{name}\n"), on_piece),
            Delta::Text(text) => splitter.push(text, on_piece),
        });
        let reply = match reply {
            Ok(reply) => reply,
            Err(e) => {
                // Some of it may be read.
                core.session.tokens(self.slot)?.clone_into(&mut self.read);
                return Err(e);
            }
        };
        splitter.finish(on_piece);
        core.draws = core.draws.wrapping_add(1 + reply.tokens.len() as u64);
        let n_prompt = reply.prompt.len() - reply.n_reused;
        self.read = [reply.prompt, reply.tokens.clone()].concat();
        let mut history = reply.history;
        for message in history[asked.len()..].iter_mut().filter(|m| m.role == Role::Assistant) {
            message.content = after_thought(&message.content).into();
        }
        let (text, thought) = (splitter.answer().to_string(), splitter.thought().to_string());
        // Of an answer that was broken off before it began there is nothing to keep.
        let is_kept = !text.is_empty() || (reply.finish != Finish::Interrupted && thought.is_empty());
        let (finish, complete, timings) = (reply.finish, reply.complete, reply.timings);
        let answered = Answered { text, thought, tokens: reply.tokens, finish, complete, is_kept, n_prompt, timings };
        Ok((answered, history))
    }

    /// The next turn.
    fn turn(&mut self, core: &mut Core, text: &str, overrides: Overrides, on_piece: &mut OnPiece<'_>) -> Result<Told> {
        (self.branches.here.question, self.branches.here.is_answered) = (Some(text.into()), false);
        let before = self.branches.here.before();
        let (answered, history) = self.ask(core, &before, text, overrides, on_piece)?;
        if answered.is_kept {
            let here = &mut self.branches.here;
            let n_system = usize::from(!here.system.is_empty());
            here.turns.push(here.history.len());
            here.history = history[n_system..].to_vec();
            here.is_answered = true;
        }
        Ok(Told::Answer(answered))
    }

    /// Another answer to what was asked last.
    fn again(&mut self, core: &mut Core, overrides: Overrides, on_piece: &mut OnPiece<'_>) -> Result<Told> {
        let Some(question) = self.branches.here.question.clone() else { return Ok(Told::Nothing) };
        let kept = self.branches.here.clone();
        if kept.is_answered {
            self.branches.here.take_back();
        }
        let told = self.turn(core, &question, overrides, on_piece);
        // Also where it was stopped before it began.
        if !self.branches.here.is_answered {
            self.branches.here = kept;
        }
        told
    }

    /// A question apart from the conversation.
    fn ask_aside(&mut self, core: &mut Core, overrides: Overrides, on_piece: &mut OnPiece<'_>) -> Result<Told> {
        let Some(text) = self.aside.clone() else { return Ok(Told::Nothing) };
        let system = self.branches.here.of_system();
        let (answered, _) = self.ask(core, &system, &text, overrides, on_piece)?;
        Ok(Told::Answer(answered))
    }
}

impl Way for InMessages {
    fn say(&mut self, core: &mut Core, line: Line, on_piece: &mut OnPiece<'_>) -> Result<Told> {
        let overrides = line.overrides;
        match line.command {
            Command::Say(text) => self.turn(core, &text, overrides, on_piece),
            Command::Again => self.again(core, overrides, on_piece),
            Command::Reset => {
                let system = std::mem::take(&mut self.branches.here.system);
                self.branches.here = Branch { system, ..Branch::default() };
                Ok(Told::Message("Chat reset.".into()))
            }
            Command::Prompt(path) => match read_prompt_file(core, &self.format, &path) {
                Err(e) => Ok(Told::Wrong(format!("Path error. {e}"))),
                Ok(_) => unreachable!("a template takes no prompt file"),
            },
            Command::Free(Start::Text(_)) | Command::More => {
                let e = Error::input("this model answers messages and does not go on with a text of yours");
                Err(e.hint("ask for it in a message, or use wingbeat generate"))
            }
            Command::Free(Start::Instruction(text) | Start::Question(text) | Start::Asked(text)) => {
                self.aside = Some(text);
                self.ask_aside(core, overrides, on_piece)
            }
            Command::Retry => self.ask_aside(core, overrides, on_piece),
            Command::Wrong(why) => Ok(Told::Wrong(why)),
        }
    }

    fn system(&mut self, _core: &mut Core, text: &str) -> Result<()> {
        self.branches.here = Branch { system: text.trim().into(), ..Branch::default() };
        Ok(())
    }

    fn undo(&mut self, _core: &mut Core) -> Result<()> {
        match self.branches.here.turns.is_empty() {
            true => Err(Error::input("there is no turn to take back")),
            false => {
                self.branches.here.take_back();
                self.branches.here.question = None;
                Ok(())
            }
        }
    }

    fn branches(&self) -> &dyn Named {
        &self.branches
    }

    fn branches_mut(&mut self) -> &mut dyn Named {
        &mut self.branches
    }

    fn remove(&mut self, _core: &mut Core, name: &str) -> Result<()> {
        self.branches.remove(name).map(|_| ())
    }

    fn format(&self) -> &Format {
        &self.format
    }

    fn n_turns(&self) -> usize {
        self.branches.here.turns.len()
    }

    fn transcript(&self) -> &[u32] {
        &self.read
    }

    fn said(&self, _core: &Core) -> Vec<Said> {
        let named = |m: &Message| {
            let name = match m.role {
                Role::Assistant => self.format.bot(),
                Role::Observation => "Tool",
                Role::System | Role::User => self.format.user(),
            };
            Said { name: name.into(), text: m.content.clone() }
        };
        self.branches.here.history.iter().map(named).collect()
    }

    fn kept(&self) -> Vec<(&'static str, &Saved)> {
        Vec::new()
    }

    fn n_left(&self, core: &Core) -> Option<usize> {
        core.session.n_left(self.slot).expect("the slot is open")
    }

    fn save(&self, core: &mut Core, path: &Path) -> Result<()> {
        let Branch { system, history, turns, .. } = &self.branches.here;
        let record = Record { history: history.clone(), ..Record::new(core, &self.format, system, turns.len()) };
        record.save(core, self.slot, &self.read, path)
    }

    fn load(&mut self, core: &mut Core, path: &Path) -> Result<()> {
        // There may be room for no other slot. What this one has read can be read again.
        core.session.close(self.slot)?;
        let loaded = Record::load(core, path).and_then(|loaded| match loaded.record.format(core) {
            Ok(format) => Ok((format, loaded)),
            Err(e) => core.session.close(loaded.slot).and(Err(e.at(path.display()))),
        });
        let (format, Loaded { slot, tokens, record, settings, draws }) = match loaded {
            Ok(loaded) => loaded,
            Err(e) => {
                (self.slot, self.read) = (core.session.open()?, Vec::new());
                return Err(e);
            }
        };
        (self.slot, self.format, self.read) = (slot, format, tokens);
        (core.settings, core.draws) = (settings, draws);
        self.branches.here = Branch::of(record);
        Ok(())
    }
}

impl Branch {
    /// From a file: a turn begins with every message of the user.
    fn of(record: Record) -> Branch {
        let Record { system, history, .. } = record;
        let turns = history.iter().enumerate().filter(|(_, m)| m.role == Role::User).map(|(i, _)| i).collect();
        let question = history.iter().rev().find(|m| m.role == Role::User).map(|m| m.content.clone());
        Branch { system, history, turns, is_answered: question.is_some(), question }
    }

    fn of_system(&self) -> Vec<Message> {
        let system = Message::system(self.system.clone());
        if self.system.is_empty() { Vec::new() } else { vec![system] }
    }

    /// What stands before the next turn.
    fn before(&self) -> Vec<Message> {
        [self.of_system(), self.history.clone()].concat()
    }

    fn take_back(&mut self) {
        if let Some(n) = self.turns.pop() {
            self.history.truncate(n);
        }
    }
}
