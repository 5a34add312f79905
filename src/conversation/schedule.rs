//! ChatRWKV's changes of the logits before each token is sampled, as a processor: a function that the session calls with the logits. Newlines get a
//! bias that depends on the reply's length, some characters must not repeat, and the end-of-text token may be banned.

use crate::chat::Settings;
use crate::chat::format::ReplyEnd;
use crate::session::{Model, Processor};
use std::sync::{Arc, Mutex};

/// Bans a token, whether this number is added to the logit of the token or replaces the logit.
pub const BANNED: f32 = -999_999_999.0;

/// The change that applies to the logits before one token is sampled.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Change {
    /// The number that is added to the logit of the newline token.
    pub newline: f32,
    /// True if the end-of-text token is banned.
    pub bans_end: bool,
}

/// The rule that determines which change applies to the logits after each token of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Schedule {
    /// For a reply that ends at a blank line. `short` and `long` are ChatRWKV's `CHAT_LEN_SHORT` and `CHAT_LEN_LONG`, in tokens.
    Reply { short: usize, long: usize },
    /// For a text in which the same change applies before every token.
    Same(Change),
}

impl Schedule {
    /// Returns the schedule for replies that end at `ending`.
    pub fn reply(ending: ReplyEnd, settings: &Settings) -> Schedule {
        match ending {
            ReplyEnd::BlankLine => Schedule::Reply { short: settings.chat_len_short, long: settings.chat_len_long },
            ReplyEnd::NextTurn => Schedule::Same(Change::default()),
        }
    }

    /// Returns the change of the logits after token `i` of the text, counted from 0. In a reply, the end-of-text token is always banned, and newlines
    /// are banned after token 0. Up to token `short`, newlines get a negative bias that rises to 0. After token `long`, the bias of newlines grows to
    /// 3, so that the reply ends.
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

/// Returns the change that applies to the logits before the first token of a reply is sampled.
pub fn before_reply(ending: ReplyEnd) -> Change {
    match ending {
        ReplyEnd::BlankLine => Change { newline: BANNED, bans_end: false },
        ReplyEnd::NextTurn => Change::default(),
    }
}

/// Ids of the tokens whose logits change.
struct Ids {
    end_of_text: Vec<u32>,
    /// The token of a newline. `None` if the vocabulary has no token for a single newline.
    newline: Option<u32>,
    /// Tokens that must not occur twice in succession.
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

/// Returns a processor that changes logits as the settings and the schedule require, and then calls `own`, the caller's processor. `first` is the
/// change for the first token of the text. `last` is the token before the text.
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

/// The caller's processor. All answers share it.
pub type SharedProcessor = Arc<Mutex<Processor>>;

/// Returns a processor for one answer, which forwards its calls to the shared processor.
pub fn lend(shared: &SharedProcessor) -> Processor {
    let shared = shared.clone();
    Box::new(move |tokens, logits| (shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))(tokens, logits))
}
