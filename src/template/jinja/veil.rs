//! Hides what a special token could be made of while a template runs: every special token has a `|` or a `]`, and of these only the
//! template's own are left.

use super::super::Message;
use super::super::part::MARKS;
use crate::error::{Error, Result};
use serde_json::Value;

/// Two characters that stand for `|` and `]`.
pub struct Veil {
    stand_ins: [char; 2],
    hides: bool,
}

impl Veil {
    /// For a template and a conversation: characters for private use that neither has.
    ///
    /// # Errors
    /// `Input` when they have them all.
    pub fn new(template: &str, messages: &[Message]) -> Result<Veil> {
        let text = serde_json::to_string(messages).expect("messages are plain data");
        let mut free = ('\u{100000}'..='\u{10fffd}').filter(|&c| !text.contains(c) && !template.contains(c));
        let (Some(first), Some(second)) = (free.next(), free.next()) else {
            return Err(Error::input("expected a conversation without characters for private use, found nearly all of them"));
        };
        // JSON has brackets of its own: look at what is hidden, not at the text
        let mut json = serde_json::to_value(messages).expect("messages are plain data");
        let mut veil = Veil { stand_ins: [first, second], hides: false };
        let before = json.clone();
        veil.hide(&mut json);
        veil.hides = json != before;
        Ok(veil)
    }

    /// Whether a message has something to hide.
    pub fn hides_something(&self) -> bool {
        self.hides
    }

    /// In every text of a value, keys included.
    pub fn hide(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.hidden(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide(item)),
            Value::Object(map) => {
                let entries = std::mem::take(map).into_iter();
                *map = entries
                    .map(|(key, mut value)| {
                        self.hide(&mut value);
                        (self.hidden(&key), value)
                    })
                    .collect();
            }
            _ => {}
        }
    }

    fn hidden(&self, text: &str) -> String {
        text.chars().map(|c| MARKS.iter().position(|&h| h == c).map_or(c, |i| self.stand_ins[i])).collect()
    }

    pub fn reveal(&self, text: &str) -> String {
        text.chars().map(|c| self.stand_ins.iter().position(|&s| s == c).map_or(c, |i| MARKS[i])).collect()
    }
}
