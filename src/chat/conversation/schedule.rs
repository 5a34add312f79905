//! ChatRWKV's changes of the logits before each token, as a processor of the session: a schedule for newlines, characters that do not repeat,
//! and no end of the text.

use crate::chat::Settings;
use crate::chat::format::Ending;
use crate::session::{Model, Processor};
use std::sync::{Arc, Mutex};

/// A value that bans a token. It is added to the token's logit or replaces it.
pub const BANNED: f32 = -999_999_999.0;

/// The change of the logits before one token.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Change {
    /// The number that is added to a newline's logit.
    pub newline: f32,
    /// True if the end of the text is banned.
    pub bans_end: bool,
}

/// The changes of the logits after each token of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Schedule {
    /// The changes of a reply that ends at a blank line.
    Reply { short: usize, long: usize },
    /// One change for every token.
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

    /// Returns the change after token `i` of the text, counted from 0. In a reply, newlines are banned after the first token. Up to
    /// `CHAT_LEN_SHORT`, they get a negative bias that shrinks to 0. After `CHAT_LEN_LONG`, their bias grows to 3, so that the reply ends.
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

/// Returns the change of the logits before the first token of a reply.
pub fn before_reply(ending: Ending) -> Change {
    match ending {
        Ending::BlankLine => Change { newline: BANNED, bans_end: false },
        Ending::NextTurn => Change::default(),
    }
}

/// The tokens whose logits change.
struct Ids {
    end_of_text: Vec<u32>,
    /// `None` if no token is a single newline.
    newline: Option<u32>,
    /// Tokens that must not follow themselves.
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

/// Returns a processor that changes logits according to a schedule, then calls `own`. `first` is the change before the first token. `last` is
/// the token before the text.
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

/// A processor that all answers use.
pub type SharedProcessor = Arc<Mutex<Processor>>;

/// Returns a processor for one answer that calls the shared processor.
pub fn lend(shared: &SharedProcessor) -> Processor {
    let shared = shared.clone();
    Box::new(move |tokens, logits| (shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))(tokens, logits))
}
