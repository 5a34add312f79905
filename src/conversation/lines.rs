//! Conversations in lines (`Name: text`), with the commands of ChatRWKV. Undo and retry return to kept states.
//!
//! As in ChatRWKV, five states are kept, under ChatRWKV's names. Each branch has `chat_init` after the first prompt, `chat` after the last reply and
//! `chat_pre` before it. All branches share `gen_0` before the last free text (outside the conversation) and `gen_1` after it.

use super::Answer;
use super::branch::{Branch, TurnRequest, TurnStart, begin, close, reply, until_broken};
use super::branches::{Branches, Named};
use super::core::{Core, DrawArgs, TextState};
use super::file::{Loaded, SavedConversation};
use super::mode::{Mode, OneOffPrompt, View};
use super::saved_turns::{SavedTurns, read_again};
use super::schedule::{Change, Schedule};
use crate::chat::format::{LEAD, Lines, folded};
use crate::chat::rules::AnswerPlace;
use crate::chat::{AnswerPart, Format, OnPart, Thinking};
use crate::engine::{no_room, since};
use crate::error::{Error, Result};
use crate::session::Timings;
use crate::template::Message;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use web_time::Instant;

/// The maximum number of tokens that a free text has beyond its length limit, to complete its last character.
const GRACE: usize = 99;

/// The number that is added to the newline's logit in the answer to a [`OneOffPrompt::QuestionAfterPrompt`].
const ASKED: f32 = -2.0;

pub struct InLines {
    branches: Branches<Branch>,
    gen_0: Option<TextState>,
    gen_1: Option<TextState>,
    free: FreeText,
}

/// The last free text: an answer outside the conversation. When this answer is continued, a new constraint first accepts the tokens in `before`.
#[derive(Default)]
struct FreeText {
    /// The text that the model writes between the prompt and the answer.
    lead: &'static str,
    /// The tokens of the answer that earlier commands sampled. The state `gen_0` has read these tokens.
    before: Vec<u32>,
    /// The tokens of the answer that the last command sampled. Only the state `gen_1` has read these tokens.
    last: Vec<u32>,
}

impl OneOffPrompt<'_> {
    /// Returns the text of the prompt, in the form that ChatRWKV (the reference chat program) uses.
    fn text(&self, lines: &Lines) -> String {
        match self {
            OneOffPrompt::Text(text) => format!("\n{text}"),
            OneOffPrompt::Instruction(text) => format!(
                "\nBelow is an instruction that describes a task. Write a response that appropriately completes the request.\n\n\
                 # Instruction:\n{}\n\n# Response:\n",
                folded(text)
            ),
            OneOffPrompt::Question(text) => format!("\nQ: {text}\nA:"),
            OneOffPrompt::QuestionAfterPrompt(text) => lines.turn(text),
        }
    }

    /// Returns the text that the model writes between the prompt and the answer.
    fn lead(&self) -> &'static str {
        match self {
            OneOffPrompt::Question(_) | OneOffPrompt::QuestionAfterPrompt(_) => LEAD,
            OneOffPrompt::Text(_) | OneOffPrompt::Instruction(_) => "",
        }
    }

    /// Returns the number that is added to the newline's logit before each token is sampled.
    fn newline(&self) -> f32 {
        if matches!(self, OneOffPrompt::QuestionAfterPrompt(_)) { ASKED } else { 0.0 }
    }
}

impl InLines {
    /// Begins a conversation: prefills the text before the first turn.
    pub fn new(core: &mut Core, format: Format) -> Result<InLines> {
        let init = begin(core, &format, "")?;
        let branches = Branches::new(Branch::new(format, String::new(), init));
        Ok(InLines { branches, gen_0: None, gen_1: None, free: FreeText::default() })
    }

    /// Makes room for `n` further states of the engine. Drops states before earlier turns, the oldest first, then states of messages that could be
    /// answered again. An undo or a retry prefills a dropped state again. If all these states are too few, drops no state and returns a `Memory`
    /// error.
    fn make_room(&mut self, core: &Core, n: usize) -> Result<()> {
        if core.engine.n_unpinned() + self.n_spare() < n {
            return Err(no_room());
        }
        while core.engine.n_unpinned() < n {
            let undo = |branch: &mut Branch| branch.undo.iter_mut().find_map(|start| start.pinned.take());
            let request = |branch: &mut Branch| branch.request.as_mut()?.states_mut().find_map(|state| state.pinned.take());
            let mut dropped = self.branches.all_mut().find_map(undo);
            if dropped.is_none() {
                dropped = self.branches.all_mut().find_map(request);
            }
            dropped.ok_or_else(no_room)?;
        }
        Ok(())
    }

    /// Returns the number of states that [`make_room`](Self::make_room) can drop. A state counts only if all its handles are droppable: otherwise the
    /// engine would still hold the state.
    fn n_spare(&mut self) -> usize {
        let mut uses: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
        for branch in self.branches.all_mut() {
            let request = branch.request.iter_mut().flat_map(TurnRequest::states_mut).filter_map(|state| state.pinned.as_ref());
            for pinned in branch.undo.iter().filter_map(|start| start.pinned.as_ref()).chain(request) {
                uses.entry(pinned.id()).or_insert((0, pinned.n_handles())).0 += 1;
            }
        }
        uses.values().filter(|(spare, all)| spare == all).count()
    }

    /// Prefills the states of a request that were dropped or that the conversation's file lacks.
    fn asked_again(&mut self, core: &mut Core, request: &mut TurnRequest) -> Result<()> {
        if request.states_mut().any(|state| state.is_dropped()) {
            self.make_room(core, 3)?;
        }
        request.read_again(core, &self.branches.here.init)
    }

    /// Samples a reply to the message `request`, and replaces an earlier reply to this message.
    fn answer_to(&mut self, core: &mut Core, request: &mut TurnRequest, on_part: &mut OnPart<'_>) -> Result<Answer> {
        self.make_room(core, 1)?;
        let branch = &mut self.branches.here;
        let lines = branch.lines().clone();
        let constraint = core.constraint(&lines.answer_place(&core.vocab))?;
        let timings = std::mem::take(&mut request.read);
        let (state, reply) = reply(core, &request.prompt, &lines, constraint, timings, on_part)?;
        // A stopped reply gets its blank line, too, and prefilling it needs a cleared stop flag.
        core.go_on();
        let closed = close(core, &lines, request, &state, &reply)?;
        let is_kept = closed.is_some();
        if let Some(chat) = closed {
            branch.replied(chat, request);
        }
        Ok(Answer { is_kept, ..reply.answer })
    }

    /// Samples a continuation of `gen_0`, the state before the last part of a free text. `newline` is added to the newline's logit before each token
    /// is sampled. Returns `None` if `gen_0` is not set.
    fn go_on(&mut self, core: &mut Core, newline: f32, read: Timings, on_part: &mut OnPart<'_>) -> Result<Option<Answer>> {
        self.make_room(core, 1)?;
        let Some(start) = &self.gen_0 else { return Ok(None) };
        let mut constraint = core.constraint(&AnswerPlace { opening: String::new(), lead: self.free.lead, blank_line: None })?;
        if let Some(rules) = &mut constraint {
            // The constraint is new, so it must first accept the text that is continued.
            self.free.before.iter().try_for_each(|id| rules.accept(*id)).map_err(|e| e.hint("begin a new text"))?;
        }
        let schedule = Schedule::Same(Change { newline, bans_end: false });
        let draw = DrawArgs { schedule, constraint, ends: true, max_tokens: core.settings.free_gen_len + 1, grace: GRACE };
        let mut text = String::new();
        let mut hear = until_broken(on_part);
        let (state, answer) = core.draw(start, draw, read, &mut |piece| {
            text.push_str(piece);
            if piece.is_empty() { ControlFlow::Continue(()) } else { hear(AnswerPart::Text(piece)) }
        })?;
        self.gen_1 = Some(state);
        self.free.last.clone_from(&answer.tokens);
        Ok(Some(Answer { text, ..answer }))
    }
}

impl Mode for InLines {
    fn say(&mut self, core: &mut Core, text: &str, on_part: &mut OnPart<'_>) -> Result<Answer> {
        self.make_room(core, 3)?;
        let request = self.branches.here.ask(core, text)?;
        self.branches.here.request = Some(request);
        Ok(self.retry(core, on_part)?.expect("a message was said"))
    }

    fn retry(&mut self, core: &mut Core, on_part: &mut OnPart<'_>) -> Result<Option<Answer>> {
        let Some(mut request) = self.branches.here.request.take() else { return Ok(None) };
        let answer = self.asked_again(core, &mut request).and_then(|()| self.answer_to(core, &mut request, on_part));
        self.branches.here.request = Some(request);
        answer.map(Some)
    }

    fn write(&mut self, core: &mut Core, prompt: OneOffPrompt<'_>, on_part: &mut OnPart<'_>) -> Result<Answer> {
        self.make_room(core, 2)?;
        let branch = &self.branches.here;
        let tokens = core.encode(&prompt.text(branch.lines()))?;
        let started = Instant::now();
        let start = if matches!(prompt, OneOffPrompt::QuestionAfterPrompt(_)) { branch.init.clone() } else { core.start.clone() };
        let state = core.read(&start, &tokens, Change::default())?;
        let read = Timings { prefill_ms: since(started), prefill_tokens: tokens.len(), ..Timings::default() };
        self.gen_0 = Some(state);
        self.free = FreeText { lead: prompt.lead(), ..FreeText::default() };
        Ok(self.go_on(core, prompt.newline(), read, on_part)?.expect("a text was begun"))
    }

    fn rewrite(&mut self, core: &mut Core, on_part: &mut OnPart<'_>) -> Result<Option<Answer>> {
        self.go_on(core, 0.0, Timings::default(), on_part)
    }

    fn write_more(&mut self, core: &mut Core, on_part: &mut OnPart<'_>) -> Result<Option<Answer>> {
        let Some(after) = self.gen_1.clone() else { return Ok(None) };
        self.gen_0 = Some(after);
        let last = std::mem::take(&mut self.free.last);
        self.free.before.extend(last);
        self.go_on(core, 0.0, Timings::default(), on_part)
    }

    fn reset(&mut self) {
        self.branches.here.reset();
    }

    fn set_thinking(&mut self, thinking: Thinking) -> Result<()> {
        let branch = &mut self.branches.here;
        branch.format = branch.format.clone().with_thinking(thinking)?;
        Ok(())
    }

    fn begin(&mut self, core: &mut Core, format: Format, system: &str) -> Result<()> {
        if format.lines().is_none() {
            return Err(Error::input("this conversation uses a chat format without a template, and cannot change to a chat template"));
        }
        self.make_room(core, 1)?;
        let init = begin(core, &format, system)?;
        self.branches.here = Branch::new(format, system.into(), init);
        Ok(())
    }

    fn undo(&mut self, core: &mut Core) -> Result<()> {
        let branch = &self.branches.here;
        let TurnStart { pinned, n_tokens, n_turns } = branch.undo.back().cloned().ok_or_else(|| match branch.n_turns {
            0 => Error::input("the conversation has no turn to take back"),
            _ => Error::input("the last turn cannot be taken back: the state before it was not kept"),
        })?;
        let before = TextState { pinned, tokens: branch.chat.tokens[..n_tokens].to_vec(), change: Change::default() };
        if before.is_dropped() {
            self.make_room(core, 1)?;
        }
        let before = read_again(core, &self.branches.here.init, &before)?;
        let branch = &mut self.branches.here;
        branch.undo.pop_back();
        (branch.chat, branch.n_turns, branch.request) = (before, n_turns, None);
        Ok(())
    }

    fn view(&self) -> View<'_> {
        let Branch { format, system, chat, n_turns, .. } = &self.branches.here;
        View { branches: &self.branches, format, system, n_turns: *n_turns, tokens: &chat.tokens }
    }

    fn branches_mut(&mut self) -> &mut dyn Named {
        &mut self.branches
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        self.branches.remove(name).map(|_| ())
    }

    fn transcript(&self, core: &Core) -> Vec<Message> {
        let here = &self.branches.here;
        let text = core.vocab.decode(&here.chat.tokens);
        here.lines().turns(&String::from_utf8_lossy(&text), here.n_turns)
    }

    #[cfg(test)]
    fn states(&self) -> Vec<(&'static str, &TextState)> {
        let Branch { init, chat, request, .. } = &self.branches.here;
        let all = [
            ("chat_init", Some(init)),
            ("chat", Some(chat)),
            ("chat_pre", request.as_ref().map(|request| &request.prompt)),
            ("gen_0", self.gen_0.as_ref()),
            ("gen_1", self.gen_1.as_ref()),
        ];
        all.into_iter().filter_map(|(name, state)| Some((name, state?))).collect()
    }

    fn n_left(&self, _core: &Core) -> Option<usize> {
        None
    }

    fn save(&self, core: &Core, path: &Path) -> Result<()> {
        let branch = &self.branches.here;
        let Lines { user, bot, interface, init_prompt, .. } = branch.lines().clone();
        let record = SavedConversation {
            names: Some([user, bot, interface]),
            init_prompt,
            earlier: SavedTurns::of(branch),
            ..SavedConversation::new(core, &branch.format, &branch.system, branch.n_turns)
        };
        record.save(core, &core.engine.copy_of(branch.chat.pinned.as_ref())?, &branch.chat.tokens, path)
    }

    fn load(&mut self, core: &mut Core, format: Format, loaded: Loaded) -> Result<()> {
        self.make_room(core, 2)?;
        let Loaded { snapshot, tokens, record, .. } = loaded;
        let chat = TextState { pinned: Some(core.engine.pin(snapshot)?), tokens, change: Change::default() };
        let init = begin(core, &format, &record.system)?;
        let mut branch = Branch { n_turns: record.n_turns, chat, ..Branch::new(format, record.system, init) };
        record.earlier.restore(&mut branch, core.model().facts().n_vocab)?;
        self.branches.here = branch;
        Ok(())
    }
}
