//! A chat reply, token by token, as the original draws it.

use super::super::Settings;
use super::super::format::{Ending, Lines};
use super::super::think::Splitter;
use super::OnPiece;
use super::core::Core;
use super::draw::Drawer;
use super::saved::{Adjust, BANNED, Saved};
use crate::error::Result;
use crate::session::Finish;
use crate::vocab::Utf8Stream;
use std::ops::ControlFlow;

/// What came of it.
pub struct Reply {
    pub answer: String,
    pub thought: String,
    /// Whether there was a thought, be it empty.
    pub has_thought: bool,
    pub tokens: Vec<u32>,
    pub finish: Finish,
    pub complete: Option<bool>,
}

/// What is added to a newline's logit behind a token of a reply, the first being 0: at first none is drawn, then they are held off less
/// and less, and past `CHAT_LEN_LONG` they are pressed for, so that a reply ends.
pub fn newline_behind(i: usize, settings: &Settings) -> f32 {
    let (short, long) = (settings.chat_len_short, settings.chat_len_long);
    if i == 0 {
        BANNED
    } else if i <= short {
        (i as f32 - short as f32) / 10.0
    } else if i <= long {
        0.0
    } else {
        ((i - long) as f32 * 0.25).min(3.0)
    }
}

/// The adjustment behind the prompt of a reply.
pub fn before_reply(ending: Ending) -> Adjust {
    match ending {
        Ending::BlankLine => Adjust { newline: BANNED, bans_end: false },
        Ending::NextTurn => Adjust::default(),
    }
}

/// Draws a reply from where `work` stands, which stands behind it then.
pub fn reply(core: &mut Core, work: &mut Saved, lines: &Lines, mut drawer: Drawer, on_piece: &mut OnPiece<'_>) -> Result<Reply> {
    // Rules say where a text ends that follows them.
    let stop_texts = if drawer.follows_rules() { Vec::new() } else { vec![lines.end()] };
    let mut splitter = Splitter::new(lines.begins(), stop_texts);
    let mut utf8 = Utf8Stream::new();
    let mut finish = Finish::Length;
    // Whoever breaks off hears no more.
    let mut is_broken = false;
    let mut hear = |piece: super::Piece<'_>| {
        is_broken = is_broken || on_piece(piece).is_break();
        if is_broken { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    for i in 0..core.settings.chat_len_max {
        if core.is_stopped() {
            finish = Finish::Interrupted;
            break;
        }
        let Some(token) = drawer.draw(core, work, core.settings.chat_len_max - i)? else {
            finish = Finish::Eos;
            break;
        };
        if lines.ending == Ending::NextTurn && drawer.ids.end_of_text.contains(&token) {
            finish = Finish::Eos;
            break;
        }
        drawer.accept(token)?;
        let adjust = match lines.ending {
            Ending::BlankLine => Adjust { newline: newline_behind(i, &core.settings), bans_end: true },
            Ending::NextTurn => Adjust::default(),
        };
        core.feed(work, token, adjust)?;
        if splitter.push(utf8.push(core.vocab.token(token)), &mut hear).is_break() {
            finish = if splitter.has_stopped { Finish::Stop } else { Finish::Interrupted };
            break;
        }
    }
    let complete = drawer.end(&mut finish);
    let _ = splitter.push(&utf8.finish(), &mut hear);
    splitter.finish(&mut hear);
    Ok(Reply {
        answer: splitter.answer().into(),
        thought: splitter.thought().into(),
        has_thought: splitter.has_thought,
        tokens: drawer.tokens,
        finish,
        complete,
    })
}
