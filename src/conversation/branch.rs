//! A branch of a conversation in lines (`Name: text`). Prefills a message, samples the reply, and ends the reply so that the next turn can follow.

use super::Answer;
use super::core::{Core, DrawArgs, TextState};
use super::schedule::{Change, Schedule, before_reply};
use crate::chat::format::{Lines, ReplyEnd};
use crate::chat::{AnswerPart, AnswerReader, Format, OnPart, Thinking};
use crate::constrain::Constraint;
use crate::engine::{Pinned, since};
use crate::error::{Error, Result};
use crate::session::{Finish, Timings};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use web_time::Instant;

/// The largest number of tokens that the blank line after a reply takes.
const BLANK_LINE: usize = 4;

/// A branch of a conversation in lines (`Name: text`). Clones share their states.
#[derive(Clone)]
pub struct Branch {
    pub format: Format,
    pub system: String,
    /// The state in which the first turn begins: after the system message and the format's initial text.
    pub init: TextState,
    /// The state after the last turn.
    pub chat: TextState,
    /// The last message. `None` before the first message, and if it cannot be answered again, for example after an undo.
    pub request: Option<TurnRequest>,
    /// The states before the turns that can be taken back, oldest first.
    pub undo: VecDeque<TurnStart>,
    pub n_turns: usize,
}

/// The state before a turn, whose tokens are the first `n_tokens` tokens of [`Branch::chat`].
#[derive(Clone)]
pub struct TurnStart {
    /// `None` for the empty state, and for a state that the engine no longer holds. An undo prefills such a state again.
    pub pinned: Option<Pinned>,
    pub n_tokens: usize,
    /// The number of turns before this turn.
    pub n_turns: usize,
}

/// A message that was prefilled, so that its reply can begin.
#[derive(Clone)]
pub struct TurnRequest {
    /// The state after the message and the beginning of the reply that the format provides.
    pub prompt: TextState,
    /// The state from which a reply is prefilled again without its thought. The list has the tokens between this state and the text of the reply, and
    /// is usually empty. If the prompt ends with the beginning of a thought, such as `<think`, the state has read only the tokens before this
    /// beginning. `None` if replies end at a blank line, because such replies have no thought.
    pub lead: Option<(TextState, Vec<u32>)>,
    /// The timings of the prefill, or zero if an answer has already reported them.
    pub read: Timings,
    /// The number of turns before the message.
    pub n_turns: usize,
    /// `true` if [`Branch::chat`] is the state after a reply to this message.
    pub is_answered: bool,
}

/// A sampled reply. Its blank line has not been prefilled yet.
pub struct Reply {
    pub answer: Answer,
    /// True if the state has read more than the reply's text: a thought (also an empty one), or the beginning of the next turn.
    pub has_more: bool,
}

impl Branch {
    /// Makes a branch without turns. `init` is the state in which the first turn begins.
    pub fn new(format: Format, system: String, init: TextState) -> Branch {
        let chat = init.clone();
        Branch { format, system, init, chat, request: None, undo: VecDeque::new(), n_turns: 0 }
    }

    pub fn lines(&self) -> &Lines {
        lines_of(&self.format)
    }

    /// Prefills the user's message `text`, the bot's name and the beginning of the reply that the format provides.
    pub fn ask(&self, core: &mut Core, text: &str) -> Result<TurnRequest> {
        let lines = self.lines();
        let hint = self.format.thinking().map_or("", Thinking::hint);
        let text = lines.turn(&(lines.clean(text) + hint));
        let (lead, prompt) = (core.encode(&text)?, core.encode(&format!("{text}{}", lines.opening))?);
        let started = Instant::now();
        let n_shared = lead.iter().zip(&prompt).take_while(|(a, b)| a == b).count();
        let change = before_reply(lines.ending);
        let (state, lead) = match lines.ending {
            ReplyEnd::BlankLine => (core.read(&self.chat, &prompt, change)?, None),
            ReplyEnd::NextTurn => {
                let kept = core.read(&self.chat, &prompt[..n_shared], Change::default())?;
                (core.read(&kept, &prompt[n_shared..], change)?, Some((kept, lead[n_shared..].to_vec())))
            }
        };
        let read = Timings { prefill_ms: since(started), prefill_tokens: prompt.len(), ..Timings::default() };
        Ok(TurnRequest { prompt: state, lead, read, n_turns: self.n_turns, is_answered: false })
    }

    /// Sets the current state to `chat`, the state after a reply to `request`. The reply replaces an earlier reply to `request`. Without an earlier
    /// reply, the turn is new, and the state before the turn is kept for an undo.
    pub fn replied(&mut self, chat: TextState, request: &mut TurnRequest) {
        let before = std::mem::replace(&mut self.chat, chat);
        if !request.is_answered {
            self.undo.push_back(TurnStart { pinned: before.pinned, n_tokens: before.tokens.len(), n_turns: self.n_turns });
            request.is_answered = true;
        }
        self.n_turns = request.n_turns.saturating_add(1);
    }

    /// Removes all turns, so that only the text before the first turn remains. The last message can still be answered.
    pub fn reset(&mut self) {
        self.chat = self.init.clone();
        self.undo.clear();
        self.n_turns = 0;
        if let Some(request) = &mut self.request {
            (request.is_answered, request.n_turns) = (false, 0);
        }
    }
}

fn lines_of(format: &Format) -> &Lines {
    format.lines().expect("a conversation in lines has a format of lines")
}

/// Prefills the text before the first turn: the system message, then the format's initial text. Returns the state after this text.
pub fn begin(core: &mut Core, format: &Format, system: &str) -> Result<TextState> {
    let prompt = [format.before_prompt(), &core.encode(&lines_of(format).beginning(system))?].concat();
    core.read(&core.start.clone(), &prompt, Change::default())
}

/// Samples a reply that continues `state`. Returns the state after the reply.
pub fn reply(
    core: &mut Core,
    state: &TextState,
    lines: &Lines,
    constraint: Option<Box<dyn Constraint>>,
    timings: Timings,
    on_part: &mut OnPart<'_>,
) -> Result<(TextState, Reply)> {
    let room = room(core, state)?;
    // A constrained reply ends where its constraint ends, so stop texts do not apply.
    let stop_texts = if constraint.is_some() { Vec::new() } else { vec![lines.end()] };
    let mut reader = AnswerReader::of_line(lines.begins(), stop_texts);
    let draw = DrawArgs {
        schedule: Schedule::reply(lines.ending, &core.settings),
        constraint,
        ends: lines.ending == ReplyEnd::NextTurn,
        max_tokens: core.settings.chat_len_max.min(room),
        grace: 0,
    };
    let mut hear = until_broken(on_part);
    let (state, mut answer) = core.draw(state, draw, timings, &mut |text| reader.push(None, text, &mut hear))?;
    let is_cut = matches!(answer.finish, Finish::Length | Finish::Interrupted) && lines.ending == ReplyEnd::NextTurn;
    let read = if is_cut { reader.end_cut(&mut hear) } else { reader.end(&mut hear) };
    if read.has_stopped {
        answer.finish = Finish::Stop;
    } else if answer.finish == Finish::Length && answer.tokens.len() == room {
        answer.finish = Finish::Context;
    }
    let has_more = read.has_thought || read.has_stopped || !read.dropped.trim().is_empty();
    (answer.text, answer.thought) = (read.text, read.thought);
    Ok((state, Reply { answer, has_more }))
}

/// Returns the maximum length, in tokens, of a reply after `state`. The context must also have room for the blank line after the reply. Returns
/// `usize::MAX` if the model has no context limit.
///
/// # Errors
/// `Input` if the conversation fills the context.
fn room(core: &Core, state: &TextState) -> Result<usize> {
    let Some(context) = core.model().context() else { return Ok(usize::MAX) };
    let n = state.pinned.as_ref().map_or(0, Pinned::n_tokens);
    let left = context.saturating_sub(n);
    if left <= BLANK_LINE {
        let text =
            format!("no room for an answer: the conversation with this message has {n} tokens, and the context holds {context} tokens");
        return Err(Error::input(text).hint("take back some turns, restart the conversation, or set a larger `context`"));
    }
    Ok(left - BLANK_LINE)
}

/// Returns a function that calls `on_part` until `on_part` returns `Break`, and from then on only returns `Break`.
pub fn until_broken<'a>(on_part: &'a mut OnPart<'_>) -> impl FnMut(AnswerPart<'_>) -> ControlFlow<()> + 'a {
    let mut is_broken = false;
    move |part| {
        is_broken = is_broken || on_part(part).is_break();
        if is_broken { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Ends a reply with a blank line, so that the next turn can follow, and returns the state. Returns `None` if the conversation drops the turn: the
/// reply has no text, and it was interrupted or the format's ending is `NextTurn`.
///
/// Usually prefills the newlines that the reply lacks, after `state`. If `state` has read more than the reply (`Reply::has_more`), such as a thought,
/// later turns must not continue it. Then the reply and its blank line are prefilled after the state in `TurnRequest::lead`, if set.
pub fn close(core: &mut Core, lines: &Lines, request: &TurnRequest, state: &TextState, reply: &Reply) -> Result<Option<TextState>> {
    let finish = reply.answer.finish;
    let is_nothing = reply.answer.text.is_empty() && (finish == Finish::Interrupted || lines.ending == ReplyEnd::NextTurn);
    if is_nothing {
        return Ok(None);
    }
    match &request.lead {
        Some((lead, rest)) if reply.has_more => {
            let again = [rest.clone(), core.encode(&format!(" {}\n\n", reply.answer.text))?].concat();
            core.read(lead, &again, Change::default()).map(Some)
        }
        _ => {
            let bytes = core.vocab.decode(&reply.answer.tokens);
            let blank_line = match bytes.as_slice() {
                _ if request.lead.is_none() && finish == Finish::Stop => "",
                [.., b'\n', b'\n'] => "",
                [.., b'\n'] => "\n",
                _ => "\n\n",
            };
            let rest = core.encode(blank_line)?;
            core.read(state, &rest, Change::default()).map(Some)
        }
    }
}
