//! A conversation in lines on kept states: before a reply, after a reply, and how a reply ends.

use super::core::{Core, Draw, SharedState, State};
use super::schedule::{Change, Schedule, before_reply};
use super::{Answer, OnPart};
use crate::chat::AnswerReader;
use crate::chat::Format;
use crate::chat::format::{Ending, Lines, folded};
use crate::constrain::Constraint;
use crate::error::Result;
use crate::session::{Finish, Timings};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use web_time::Instant;

/// A conversation. A clone shares its states.
#[derive(Clone)]
pub struct Branch {
    pub format: Format,
    pub system: String,
    /// After the first prompt.
    pub init: SharedState,
    /// After the last turn.
    pub chat: SharedState,
    pub asked: Option<Asked>,
    /// The state before each turn and its number of turns, the last turn's last; as far back as there is room.
    pub undo: VecDeque<(SharedState, usize)>,
    pub n_turns: usize,
}

/// A message that was read, up to where its reply begins.
#[derive(Clone)]
pub struct Asked {
    /// After the whole prompt.
    pub prompt: SharedState,
    /// After what stays in the history of the prompt, and the rest of that: where the reply may be read again without its reasoning.
    pub lead: Option<(SharedState, Vec<u32>)>,
    /// What reading took, until an answer reported it.
    pub read: Timings,
    pub n_turns: usize,
    /// `chat` is after a reply to this message.
    pub is_answered: bool,
}

/// A reply.
pub struct Reply {
    pub answer: Answer,
    /// Whether there was a thought, be it empty.
    pub has_thought: bool,
}

impl Branch {
    /// After the first prompt.
    pub fn new(format: Format, system: String, init: SharedState) -> Branch {
        let chat = init.clone();
        Branch { format, system, init, chat, asked: None, undo: VecDeque::new(), n_turns: 0 }
    }

    pub fn lines(&self) -> &Lines {
        lines_of(&self.format)
    }

    /// Reads the user's message, up to where the reply begins.
    pub fn ask(&self, core: &mut Core, text: &str) -> Result<Asked> {
        let lines = self.lines();
        let text = lines.turn(&folded(text));
        let (lead, prompt) = (core.encode(&text)?, core.encode(&format!("{text}{}", lines.opening))?);
        let started = Instant::now();
        let n_shared = lead.iter().zip(&prompt).take_while(|(a, b)| a == b).count();
        let change = before_reply(lines.ending);
        let (state, lead) = core.after(&self.chat, |core, state| {
            if lines.ending == Ending::BlankLine {
                core.read(state, &prompt, change)?;
                return Ok(None);
            }
            core.read(state, &prompt[..n_shared], Change::default())?;
            let kept = core.copy(state)?;
            match core.read(state, &prompt[n_shared..], change) {
                Ok(()) => Ok(Some((Arc::new(kept), lead[n_shared..].to_vec()))),
                Err(e) => {
                    core.close(kept);
                    Err(e)
                }
            }
        })?;
        let read = Timings { prefill_ms: since(started), prefill_tokens: prompt.len(), ..Timings::default() };
        Ok(Asked { prompt: Arc::new(state), lead, read, n_turns: self.n_turns, is_answered: false })
    }

    /// The conversation goes on after a reply.
    pub fn replied(&mut self, core: &mut Core, chat: State, asked: &mut Asked) {
        let before = std::mem::replace(&mut self.chat, Arc::new(chat));
        if asked.is_answered {
            core.release(before);
        } else {
            self.undo.push_back((before, self.n_turns));
            asked.is_answered = true;
        }
        self.n_turns = asked.n_turns.saturating_add(1);
    }

    /// Back to the first prompt. A reply to the last message can still be drawn.
    pub fn reset(&mut self, core: &mut Core) {
        core.release(std::mem::replace(&mut self.chat, self.init.clone()));
        self.undo.drain(..).for_each(|(state, _)| core.release(state));
        self.n_turns = 0;
        if let Some(asked) = &mut self.asked {
            (asked.is_answered, asked.n_turns) = (false, 0);
        }
    }

    pub fn release(self, core: &mut Core) {
        let Branch { init, chat, asked, undo, .. } = self;
        [init, chat].into_iter().chain(undo.into_iter().map(|(state, _)| state)).for_each(|state| core.release(state));
        if let Some(asked) = asked {
            asked.release(core);
        }
    }
}

impl Asked {
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

/// Reads what is before the first turn.
pub fn begin(core: &mut Core, format: &Format, system: &str) -> Result<SharedState> {
    let prompt = core.encode(&lines_of(format).beginning(system))?;
    let (init, ()) = core.anew(|core, state| core.read(state, &prompt, Change::default()))?;
    Ok(Arc::new(init))
}

/// Draws a reply from where a state is; the state is after the reply then.
pub fn reply(
    core: &mut Core,
    state: &mut State,
    lines: &Lines,
    constraint: Option<Box<dyn Constraint>>,
    timings: Timings,
    on_part: &mut OnPart<'_>,
) -> Result<Reply> {
    // Rules say where a text ends that follows them.
    let stop_texts = if constraint.is_some() { Vec::new() } else { vec![lines.end()] };
    let mut reader = AnswerReader::of_line(lines.begins(), stop_texts);
    let draw = Draw {
        schedule: Schedule::reply(lines.ending, &core.settings),
        constraint,
        ends: lines.ending == Ending::NextTurn,
        max_tokens: core.settings.chat_len_max,
        grace: 0,
    };
    let mut hear = until_broken(on_part);
    let mut answer = core.draw(state, draw, timings, &mut |text| reader.read(None, text, &mut hear))?;
    let read = reader.end(&mut hear);
    if read.has_stopped {
        answer.finish = Finish::Stop;
    }
    (answer.text, answer.thought) = (read.text, read.thought);
    Ok(Reply { answer, has_thought: read.has_thought })
}

/// Passes parts on until the caller breaks off.
pub fn until_broken<'a>(on_part: &'a mut OnPart<'_>) -> impl FnMut(crate::chat::AnswerPart<'_>) -> ControlFlow<()> + 'a {
    let mut is_broken = false;
    move |part| {
        is_broken = is_broken || on_part(part).is_break();
        if is_broken { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Ends a reply as the format has it, so that the next turn can follow. Returns `None` if there is nothing to keep of the reply: the turn is
/// then taken back.
///
/// What was read stays, and a blank line is read after it where it lacks one: after a reply that was broken off or grew too long, and
/// where the model ended the text. A reply with a thought, and one that ran into the next turn, is read again without.
pub fn close(core: &mut Core, lines: &Lines, asked: &Asked, state: State, reply: &Reply) -> Result<Option<State>> {
    let finish = reply.answer.finish;
    let is_nothing = reply.answer.text.is_empty() && (finish == Finish::Interrupted || lines.ending == Ending::NextTurn);
    if is_nothing {
        core.close(state);
        return Ok(None);
    }
    let read = |core: &mut Core, state: &mut State, tokens: &[u32]| core.read(state, tokens, Change::default());
    let closed = match &asked.lead {
        Some((lead, rest)) if reply.has_thought || finish == Finish::Stop => {
            core.close(state);
            let again = [rest.clone(), core.encode(&format!(" {}\n\n", reply.answer.text))?].concat();
            core.after(lead, |core, state| read(core, state, &again))?
        }
        _ => {
            let bytes = core.vocab.decode(&reply.answer.tokens);
            let blank_line = match bytes.as_slice() {
                _ if asked.lead.is_none() && finish == Finish::Stop => "",
                [.., b'\n', b'\n'] => "",
                [.., b'\n'] => "\n",
                _ => "\n\n",
            };
            core.with(state, |core, state| {
                let rest = core.encode(blank_line)?;
                read(core, state, &rest)
            })?
        }
    };
    Ok(Some(closed.0))
}

/// Milliseconds.
pub fn since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}
