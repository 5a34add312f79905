//! A conversation in lines on kept states: before a reply, behind it, and how a reply ends.

use super::super::Format;
use super::super::format::{Ending, Lines};
use super::super::prompt_file::folded;
use super::core::Core;
use super::reply::{Reply, before_reply};
use super::saved::{Adjust, Kept, Saved};
use crate::error::Result;
use crate::session::{Finish, Timings};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// A conversation. A clone shares its states.
#[derive(Clone)]
pub struct Branch {
    pub format: Format,
    pub system: String,
    pub init: Kept,
    pub chat: Kept,
    pub pre: Option<Pre>,
    /// Where it stood before each turn, the last turn's last; as far back as there is room.
    pub undo: VecDeque<(Kept, usize)>,
    pub n_turns: usize,
}

/// Before a reply.
#[derive(Clone)]
pub struct Pre {
    /// Behind the whole prompt.
    pub prompt: Kept,
    /// Behind what stays in the history of it, and the rest of that: where the reply may be read again without its reasoning.
    pub lead: Option<(Kept, Vec<u32>)>,
    /// What reading it took, until that was told.
    pub read: Timings,
    pub n_turns: usize,
    /// `chat` stands behind a reply to it.
    pub is_answered: bool,
}

impl Branch {
    /// Behind the first prompt.
    pub fn new(format: Format, system: String, init: Kept) -> Branch {
        let chat = init.clone();
        Branch { format, system, init, chat, pre: None, undo: VecDeque::new(), n_turns: 0 }
    }

    pub fn lines(&self) -> &Lines {
        lines_of(&self.format)
    }

    /// Reads the user's turn, up to where the reply begins.
    pub fn ask(&self, core: &mut Core, text: &str) -> Result<Pre> {
        let lines = self.lines();
        let text = lines.turn(&folded(text));
        let (lead, prompt) = (core.encode(&text)?, core.encode(&format!("{text}{}", lines.opening))?);
        let started = Instant::now();
        let n_shared = lead.iter().zip(&prompt).take_while(|(a, b)| a == b).count();
        let adjust = before_reply(lines.ending);
        let (work, lead) = core.behind(&self.chat, |core, work| {
            if lines.ending == Ending::BlankLine {
                core.read(work, &prompt, adjust, &mut |_, _| ())?;
                return Ok(None);
            }
            core.read(work, &prompt[..n_shared], Adjust::default(), &mut |_, _| ())?;
            let kept = core.copy(work)?;
            match core.read(work, &prompt[n_shared..], adjust, &mut |_, _| ()) {
                Ok(()) => Ok(Some((Arc::new(kept), lead[n_shared..].to_vec()))),
                Err(e) => {
                    core.drop(kept);
                    Err(e)
                }
            }
        })?;
        let read = Timings { prefill_ms: since(started), prefill_tokens: prompt.len(), ..Timings::default() };
        Ok(Pre { prompt: Arc::new(work), lead, read, n_turns: self.n_turns, is_answered: false })
    }

    /// The conversation stands behind a reply.
    pub fn replied(&mut self, core: &mut Core, chat: Saved, pre: &mut Pre) {
        let before = std::mem::replace(&mut self.chat, Arc::new(chat));
        if pre.is_answered {
            core.release(before);
        } else {
            self.undo.push_back((before, self.n_turns));
            pre.is_answered = true;
        }
        self.n_turns = pre.n_turns.saturating_add(1);
    }

    /// Back to behind the first prompt. A reply to what was asked last can still be had.
    pub fn reset(&mut self, core: &mut Core) {
        core.release(std::mem::replace(&mut self.chat, self.init.clone()));
        self.undo.drain(..).for_each(|(kept, _)| core.release(kept));
        self.n_turns = 0;
        if let Some(pre) = &mut self.pre {
            (pre.is_answered, pre.n_turns) = (false, 0);
        }
    }

    pub fn release(self, core: &mut Core) {
        let Branch { init, chat, pre, undo, .. } = self;
        [init, chat].into_iter().chain(undo.into_iter().map(|(kept, _)| kept)).for_each(|kept| core.release(kept));
        if let Some(pre) = pre {
            pre.release(core);
        }
    }
}

impl Pre {
    pub fn release(self, core: &mut Core) {
        core.release(self.prompt);
        if let Some((lead, _)) = self.lead {
            core.release(lead);
        }
    }
}

fn lines_of(format: &Format) -> &Lines {
    format.lines().expect("a conversation in lines has a format of lines")
}

/// Reads what stands before the first turn.
pub fn begin(core: &mut Core, format: &Format, system: &str, progress: &mut dyn FnMut(usize, usize)) -> Result<Kept> {
    let prompt = core.encode(&lines_of(format).beginning(system))?;
    let (init, ()) = core.anew(|core, work| core.read(work, &prompt, Adjust::default(), progress))?;
    Ok(Arc::new(init))
}

/// Ends a reply as the format has it, so that the next turn can follow; gives none where there is nothing to keep of it: the turn is
/// then taken back.
///
/// What was read stays, and a blank line is read behind it where it lacks one: behind a reply that was broken off or grew too long, and
/// where the model ended the text. A reply with a thought, and one that ran into the next turn, is read again without.
pub fn close(core: &mut Core, lines: &Lines, pre: &Pre, work: Saved, reply: &Reply) -> Result<Option<Saved>> {
    let is_nothing = reply.answer.is_empty() && (reply.finish == Finish::Interrupted || lines.ending == Ending::NextTurn);
    if is_nothing {
        core.drop(work);
        return Ok(None);
    }
    let read = |core: &mut Core, work: &mut Saved, tokens: &[u32]| core.read(work, tokens, Adjust::default(), &mut |_, _| ());
    let closed = match &pre.lead {
        Some((lead, rest)) if reply.has_thought || reply.finish == Finish::Stop => {
            core.drop(work);
            let again = [rest.clone(), core.encode(&format!(" {}\n\n", reply.answer))?].concat();
            core.behind(lead, |core, work| read(core, work, &again))?
        }
        _ => {
            let bytes = core.vocab.decode(&reply.tokens);
            let blank_line = match bytes.as_slice() {
                _ if pre.lead.is_none() && reply.finish == Finish::Stop => "",
                [.., b'\n', b'\n'] => "",
                [.., b'\n'] => "\n",
                _ => "\n\n",
            };
            core.with(work, |core, work| {
                let rest = core.encode(blank_line)?;
                read(core, work, &rest)
            })?
        }
    };
    Ok(Some(closed.0))
}

/// Milliseconds.
pub fn since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}
