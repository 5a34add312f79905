//! What ChatRWKV changes of a model's logits before each draw, as a processor of the session: newlines by a schedule, characters that do
//! not repeat, no end of the text.

use crate::chat::Settings;
use crate::chat::format::Ending;
use crate::session::{Model, Processor};
use std::sync::{Arc, Mutex};

/// A logit that is as good as banned.
pub const BANNED: f32 = -999_999_999.0;

/// What is changed before one draw.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Change {
    /// Added to a newline's logit.
    pub newline: f32,
    /// The end of the text is not drawn.
    pub bans_end: bool,
}

/// What is changed after each token of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Schedule {
    /// A reply that ends at a blank line.
    Reply { short: usize, long: usize },
    /// The same after every token.
    Same(Change),
}

impl Schedule {
    /// Returns the schedule of a reply.
    pub fn reply(ending: Ending, settings: &Settings) -> Schedule {
        match ending {
            Ending::BlankLine => Schedule::Reply { short: settings.chat_len_short, long: settings.chat_len_long },
            Ending::NextTurn => Schedule::Same(Change::default()),
        }
    }

    /// Returns the change after token `i` of the text, the first being 0. In a reply no newline is drawn at first; then newlines are held off
    /// less and less, and past `CHAT_LEN_LONG` they are pressed for, so that a reply ends.
    pub fn after(self, i: usize) -> Change {
        match self {
            Schedule::Same(change) => change,
            Schedule::Reply { short, long } => {
                let newline = if i == 0 {
                    BANNED
                } else if i <= short {
                    (i as f32 - short as f32) / 10.0
                } else if i <= long {
                    0.0
                } else {
                    ((i - long) as f32 * 0.25).min(3.0)
                };
                Change { newline, bans_end: true }
            }
        }
    }
}

/// Returns the change after the prompt of a reply.
pub fn before_reply(ending: Ending) -> Change {
    match ending {
        Ending::BlankLine => Change { newline: BANNED, bans_end: false },
        Ending::NextTurn => Change::default(),
    }
}

/// The ids that ChatRWKV treats in its own way.
struct Ids {
    end_of_text: Vec<u32>,
    /// `None` if the vocabulary has no newline alone.
    newline: Option<u32>,
    /// Ids that do not come twice in a row.
    avoided: Vec<u32>,
}

impl Ids {
    fn of(model: &Model, settings: &Settings) -> Ids {
        let single = |text: &str| match model.vocab()?.encode(text.as_bytes()).as_deref() {
            Ok([id]) => Some(*id),
            _ => None,
        };
        let mut buffer = [0; 4];
        let avoided = settings.avoid_repeat.chars().filter_map(|c| single(c.encode_utf8(&mut buffer))).collect();
        Ids { end_of_text: model.facts().stop_ids.clone(), newline: single("\n"), avoided }
    }

    fn apply(&self, change: Change, last: Option<u32>, logits: &mut [f32]) {
        let mut set = |id: u32, to: &dyn Fn(f32) -> f32| {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = to(*logit);
            }
        };
        if let Some(id) = self.newline {
            set(id, &|logit| logit + change.newline);
        }
        if let Some(last) = last.filter(|last| self.avoided.contains(last)) {
            set(last, &|_| BANNED);
        }
        if change.bans_end {
            self.end_of_text.iter().for_each(|id| set(*id, &|_| BANNED));
        }
    }
}

/// Changes logits by a schedule, then by the caller's processor. `first` is the change before the first draw, `last` the token before it.
pub fn processor(
    model: &Model,
    settings: &Settings,
    (first, schedule): (Change, Schedule),
    last: Option<u32>,
    mut own: Option<Processor>,
) -> Processor {
    let ids = Ids::of(model, settings);
    Box::new(move |tokens, logits| {
        let change = tokens.len().checked_sub(1).map_or(first, |i| schedule.after(i));
        ids.apply(change, tokens.last().copied().or(last), logits);
        if let Some(own) = &mut own {
            own(tokens, logits);
        }
    })
}

/// A processor that is used in one answer after the other.
pub type SharedProcessor = Arc<Mutex<Processor>>;

/// Lends it to one answer.
pub fn lend(shared: &SharedProcessor) -> Processor {
    let shared = shared.clone();
    Box::new(move |tokens, logits| (shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))(tokens, logits))
}
