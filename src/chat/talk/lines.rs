//! Talking in lines: ChatRWKV's commands on kept states.
//!
//! The original keeps five: `chat_init` behind the first prompt, `chat` behind the last reply, `chat_pre` before it, `gen_0` before the
//! last free generation and `gen_1` behind it. The first three belong to a branch, the last two to all.

use super::super::Format;
use super::super::format::Lines;
use super::super::rules::Place;
use super::branch::{Branch, Pre, begin, close, since};
use super::branches::{Branches, Named};
use super::command::{Command, Line, Overrides, Start};
use super::core::Core;
use super::draw::Drawer;
use super::file::{Loaded, Record};
use super::free;
use super::reply::{Reply, reply};
use super::saved::{Adjust, Kept, Saved, no_room};
use super::way::{Way, read_prompt_file};
use super::{Answered, OnPiece, Said, Told};
use crate::error::{Error, Result};
use crate::session::Timings;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

pub struct InLines {
    branches: Branches<Branch>,
    gen_0: Option<Kept>,
    gen_1: Option<Kept>,
    free: Free,
}

/// A text that is continued, for rules.
#[derive(Default)]
struct Free {
    /// What stands before it.
    lead: &'static str,
    /// What was drawn of it up to `gen_0`, and from there to `gen_1`.
    before: Vec<u32>,
    last: Vec<u32>,
}

impl InLines {
    /// Begins a conversation: reads the first prompt.
    pub fn new(core: &mut Core, format: Format, progress: &mut dyn FnMut(usize, usize)) -> Result<InLines> {
        let init = begin(core, &format, "", progress)?;
        let branches = Branches::new(Branch::new(format, String::new(), init));
        Ok(InLines { branches, gen_0: None, gen_1: None, free: Free::default() })
    }

    /// Makes sure that so many states more can be opened; gives up what can be taken back for it, the oldest first.
    fn make_room(&mut self, core: &mut Core, n: usize) -> Result<()> {
        while core.session.n_free() < n {
            let oldest = self.branches.all_mut().find_map(|branch| branch.undo.pop_front());
            match oldest {
                Some((kept, _)) => core.release(kept),
                None => {
                    let pre = self.branches.all_mut().find_map(|branch| branch.pre.take()).ok_or_else(no_room)?;
                    pre.release(core);
                }
            }
        }
        Ok(())
    }

    /// A message: the next turn.
    fn turn(&mut self, core: &mut Core, text: &str, overrides: Overrides, on_piece: &mut OnPiece<'_>) -> Result<Told> {
        self.make_room(core, 3)?;
        let branch = &mut self.branches.here;
        let pre = branch.ask(core, text)?;
        if let Some(old) = branch.pre.replace(pre) {
            old.release(core);
        }
        self.answer(core, overrides, on_piece)
    }

    /// A reply to what was asked last, in the place of the one that there is.
    fn answer(&mut self, core: &mut Core, overrides: Overrides, on_piece: &mut OnPiece<'_>) -> Result<Told> {
        let Some(mut pre) = self.branches.here.pre.take() else { return Ok(Told::Nothing) };
        let answered = self.answer_to(core, &mut pre, overrides, on_piece);
        self.branches.here.pre = Some(pre);
        answered.map(Told::Answer)
    }

    fn answer_to(&mut self, core: &mut Core, pre: &mut Pre, overrides: Overrides, on_piece: &mut OnPiece<'_>) -> Result<Answered> {
        self.make_room(core, 1)?;
        let branch = &mut self.branches.here;
        let lines = branch.lines().clone();
        let constraint = core.constraint(&lines.place(&core.vocab))?;
        let drawer = Drawer::new(core, overrides, constraint, &pre.prompt)?;
        let read = std::mem::take(&mut pre.read);
        let started = Instant::now();
        let (work, reply) = core.behind(&pre.prompt, |core, work| reply(core, work, &lines, drawer, on_piece))?;
        let timings = Timings { decode_ms: since(started), decode_tokens: reply.tokens.len(), ..read };
        // Who breaks an answer off wants its end to be read all the same.
        core.go_on();
        let closed = close(core, &lines, pre, work, &reply)?;
        let is_kept = closed.is_some();
        if let Some(chat) = closed {
            branch.replied(core, chat, pre);
        }
        let Reply { answer: text, thought, tokens, finish, complete, .. } = reply;
        Ok(Answered { text, thought, tokens, finish, complete, is_kept, n_prompt: read.prefill_tokens, timings })
    }

    /// A text of the user's.
    fn begin_free(&mut self, core: &mut Core, start: &Start, overrides: Overrides, on_piece: &mut OnPiece<'_>) -> Result<Told> {
        self.make_room(core, 2)?;
        let branch = &self.branches.here;
        let prompt = core.encode(&start.prompt(branch.lines()))?;
        let started = Instant::now();
        let read = |core: &mut Core, work: &mut Saved| core.read(work, &prompt, Adjust::default(), &mut |_, _| ());
        let (work, ()) = match start {
            Start::Asked(_) => core.behind(&branch.init, read)?,
            _ => core.anew(read)?,
        };
        let read = Timings { prefill_ms: since(started), prefill_tokens: prompt.len(), ..Timings::default() };
        replace(core, &mut self.gen_0, Arc::new(work));
        self.free = Free { lead: start.lead(), ..Free::default() };
        self.free(core, start.newline(), read, overrides, on_piece)
    }

    /// Goes on from `gen_0`. The original holds newlines off for `+qa` itself only, not for `++` and `+++` behind it.
    fn free(&mut self, core: &mut Core, newline: f32, read: Timings, overrides: Overrides, on_piece: &mut OnPiece<'_>) -> Result<Told> {
        self.make_room(core, 1)?;
        let Some(start) = &self.gen_0 else { return Ok(Told::Nothing) };
        let mut constraint = core.constraint(&Place { opening: "", lead: self.free.lead, blank_line: None })?;
        if let Some(rules) = &mut constraint {
            // More of a text goes on within its rules.
            self.free.before.iter().try_for_each(|id| rules.accept(*id)).map_err(|e| e.hint("begin another text"))?;
        }
        let drawer = Drawer::new(core, overrides, constraint, start)?;
        let started = Instant::now();
        let (work, made) = core.behind(start, |core, work| free::go_on(core, work, newline, drawer, on_piece))?;
        let free::Continuation { text, tokens, finish, complete } = made;
        replace(core, &mut self.gen_1, Arc::new(work));
        self.free.last.clone_from(&tokens);
        let timings = Timings { decode_ms: since(started), decode_tokens: tokens.len(), ..read };
        Ok(Told::Answer(Answered {
            text,
            thought: String::new(),
            tokens,
            finish,
            complete,
            is_kept: true,
            n_prompt: read.prefill_tokens,
            timings,
        }))
    }

    /// Begins the conversation anew, in another format or under another text of the system.
    fn begin_again(&mut self, core: &mut Core, format: Format, system: &str) -> Result<()> {
        self.make_room(core, 1)?;
        let init = begin(core, &format, system, &mut |_, _| ())?;
        std::mem::replace(&mut self.branches.here, Branch::new(format, system.into(), init)).release(core);
        Ok(())
    }

    fn prompt(&mut self, core: &mut Core, path: &str) -> Result<Told> {
        let (format, settings) = match read_prompt_file(core, &self.branches.here.format, path) {
            Ok(read) => read,
            Err(e) => return Ok(Told::Wrong(format!("Path error. {e}"))),
        };
        let system = self.branches.here.system.clone();
        let before = std::mem::replace(&mut core.settings, settings);
        if let Err(e) = self.begin_again(core, format, &system) {
            core.settings = before;
            return Err(e);
        }
        if core.settings.sampling.seed != before.sampling.seed {
            core.draws = 0;
        }
        Ok(Told::Message("Prompt set up.".into()))
    }
}

impl Way for InLines {
    fn say(&mut self, core: &mut Core, line: Line, on_piece: &mut OnPiece<'_>) -> Result<Told> {
        let overrides = line.overrides;
        match line.command {
            Command::Say(text) => self.turn(core, &text, overrides, on_piece),
            Command::Again => self.answer(core, overrides, on_piece),
            Command::Reset => {
                self.branches.here.reset(core);
                Ok(Told::Message("Chat reset.".into()))
            }
            Command::Prompt(path) => self.prompt(core, &path),
            Command::Free(start) => self.begin_free(core, &start, overrides, on_piece),
            Command::Retry => self.free(core, 0.0, Timings::default(), overrides, on_piece),
            Command::More => {
                if let Some(behind) = self.gen_1.clone() {
                    replace(core, &mut self.gen_0, behind);
                    let last = std::mem::take(&mut self.free.last);
                    self.free.before.extend(last);
                    return self.free(core, 0.0, Timings::default(), overrides, on_piece);
                }
                Ok(Told::Nothing)
            }
            Command::Wrong(why) => Ok(Told::Wrong(why)),
        }
    }

    fn system(&mut self, core: &mut Core, text: &str) -> Result<()> {
        let format = self.branches.here.format.clone();
        self.begin_again(core, format, text)
    }

    fn undo(&mut self, core: &mut Core) -> Result<()> {
        let branch = &mut self.branches.here;
        let (before, n_turns) = branch.undo.pop_back().ok_or_else(|| match branch.n_turns {
            0 => Error::input("there is no turn to take back"),
            _ => Error::input("the turn before this one is not kept any more"),
        })?;
        core.release(std::mem::replace(&mut branch.chat, before));
        branch.n_turns = n_turns;
        if let Some(pre) = branch.pre.take() {
            pre.release(core);
        }
        Ok(())
    }

    fn branches(&self) -> &dyn Named {
        &self.branches
    }

    fn branches_mut(&mut self) -> &mut dyn Named {
        &mut self.branches
    }

    fn remove(&mut self, core: &mut Core, name: &str) -> Result<()> {
        self.branches.remove(name).map(|branch| branch.release(core))
    }

    fn format(&self) -> &Format {
        &self.branches.here.format
    }

    fn n_turns(&self) -> usize {
        self.branches.here.n_turns
    }

    fn transcript(&self) -> &[u32] {
        &self.branches.here.chat.tokens
    }

    fn said(&self, core: &Core) -> Vec<Said> {
        let text = core.vocab.decode(self.transcript());
        self.branches.here.lines().said(&String::from_utf8_lossy(&text), self.n_turns())
    }

    fn kept(&self) -> Vec<(&'static str, &Saved)> {
        let Branch { init, chat, pre, .. } = &self.branches.here;
        let all = [
            ("chat_init", Some(init)),
            ("chat", Some(chat)),
            ("chat_pre", pre.as_ref().map(|pre| &pre.prompt)),
            ("gen_0", self.gen_0.as_ref()),
            ("gen_1", self.gen_1.as_ref()),
        ];
        all.into_iter().filter_map(|(name, kept)| Some((name, kept?.as_ref()))).collect()
    }

    fn n_left(&self, _core: &Core) -> Option<usize> {
        None
    }

    fn save(&self, core: &mut Core, path: &Path) -> Result<()> {
        let branch = &self.branches.here;
        let Lines { user, bot, interface, init_prompt, .. } = branch.lines().clone();
        let record = Record {
            names: Some([user, bot, interface]),
            init_prompt,
            ..Record::new(core, &branch.format, &branch.system, branch.n_turns)
        };
        record.save(core, branch.chat.slot, &branch.chat.tokens, path)
    }

    fn load(&mut self, core: &mut Core, path: &Path) -> Result<()> {
        self.make_room(core, 2)?;
        let Loaded { slot, tokens, record, settings, draws } = Record::load(core, path)?;
        let chat = Saved { slot, tokens, adjust: Adjust::default() };
        let (chat, (format, init)) = core.with(chat, |core, _| {
            let format = record.format(core).map_err(|e| e.at(path.display()))?;
            let init = begin(core, &format, &record.system, &mut |_, _| ())?;
            Ok((format, init))
        })?;
        (core.settings, core.draws) = (settings, draws);
        let new = Branch { n_turns: record.n_turns, chat: Arc::new(chat), ..Branch::new(format, record.system, init) };
        std::mem::replace(&mut self.branches.here, new).release(core);
        Ok(())
    }
}

/// Keeps a state in the place of another.
fn replace(core: &mut Core, place: &mut Option<Kept>, kept: Kept) {
    if let Some(old) = place.replace(kept) {
        core.release(old);
    }
}
