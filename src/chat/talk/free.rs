//! Free generation: a text of the user's, and how the model goes on with it.

use super::super::format::{LEAD, Lines};
use super::command::Start;
use super::core::Core;
use super::draw::Drawer;
use super::saved::{Adjust, Saved};
use super::{OnPiece, Piece};
use crate::error::Result;
use crate::session::Finish;
use crate::vocab::Utf8Stream;

/// Tokens beyond `FREE_GEN_LEN` in which a character may be completed.
const GRACE: usize = 100;

/// What `+qa` adds to a newline's logit.
pub const ASKED: f32 = -2.0;

impl Start {
    /// What is read, as the original words it.
    pub fn prompt(&self, lines: &Lines) -> String {
        match self {
            Start::Text(text) => format!("\n{text}"),
            Start::Instruction(text) => format!(
                "\nBelow is an instruction that describes a task. Write a response that appropriately completes the request.\n\n\
                 # Instruction:\n{}\n\n# Response:\n",
                super::super::prompt_file::folded(text)
            ),
            Start::Question(text) => format!("\nQ: {text}\nA:"),
            Start::Asked(text) => lines.turn(text),
        }
    }

    /// What stands before the text that is drawn.
    pub fn lead(&self) -> &'static str {
        match self {
            Start::Question(_) | Start::Asked(_) => LEAD,
            Start::Text(_) | Start::Instruction(_) => "",
        }
    }

    /// What is added to a newline's logit behind each token that is drawn.
    pub fn newline(&self) -> f32 {
        match self {
            Start::Asked(_) => ASKED,
            _ => 0.0,
        }
    }
}

/// What came of it.
pub struct Continuation {
    pub text: String,
    pub tokens: Vec<u32>,
    pub finish: Finish,
    pub complete: Option<bool>,
}

/// Goes on from where `work` stands. The end of a text is not read.
pub fn go_on(core: &mut Core, work: &mut Saved, newline: f32, mut drawer: Drawer, on_piece: &mut OnPiece<'_>) -> Result<Continuation> {
    let (mut text, mut utf8) = (String::new(), Utf8Stream::new());
    let mut finish = Finish::Length;
    let len = core.settings.free_gen_len;
    for i in 0..len + GRACE {
        if core.is_stopped() {
            finish = Finish::Interrupted;
            break;
        }
        let Some(token) = drawer.draw(core, work, len.saturating_sub(i).max(1))? else {
            finish = Finish::Eos;
            break;
        };
        if drawer.ids.end_of_text.contains(&token) {
            finish = Finish::Eos;
            break;
        }
        drawer.accept(token)?;
        core.feed(work, token, Adjust { newline, bans_end: false })?;
        let piece = utf8.push(core.vocab.token(token));
        text.push_str(piece);
        if !piece.is_empty() && on_piece(Piece::Text(piece)).is_break() {
            finish = Finish::Interrupted;
            break;
        }
        if i >= len && utf8.is_complete() {
            break;
        }
    }
    let complete = drawer.end(&mut finish);
    let rest = utf8.finish();
    if !rest.is_empty() {
        text.push_str(&rest);
        let _ = on_piece(Piece::Text(&rest));
    }
    Ok(Continuation { text, tokens: drawer.tokens, finish, complete })
}
