//! Hides `|` and `]` of messages while a template runs. Every special token except `<sop>`, `sop` and `<eop>` contains `|` or `]`. So a special
//! token with one of these characters in the output comes from the template.

use super::super::Message;
use super::super::part::MARKS;
use crate::error::{Error, Result};
use serde_json::Value;

/// The two characters that replace `|` and `]`.
pub struct Veil {
    stand_ins: [char; 2],
    /// True if a message contains `|` or `]`.
    hides: bool,
}

impl Veil {
    /// Chooses two private-use characters that neither the template nor the messages contain.
    ///
    /// # Errors
    /// `Input` if there are no such characters.
    pub fn new(template: &str, messages: &[Message]) -> Result<Veil> {
        let text = serde_json::to_string(messages).expect("messages are plain data");
        let mut free = ('\u{100000}'..='\u{10fffd}').filter(|&c| !text.contains(c) && !template.contains(c));
        let (Some(first), Some(second)) = (free.next(), free.next()) else {
            return Err(Error::input(
                "the conversation uses nearly all private-use characters of Unicode, and none is left for the chat template",
            ));
        };
        // The brackets of JSON itself must not count. So the messages are compared before and after the replacement.
        let mut json = serde_json::to_value(messages).expect("messages are plain data");
        let mut veil = Veil { stand_ins: [first, second], hides: false };
        let before = json.clone();
        veil.hide(&mut json);
        veil.hides = json != before;
        Ok(veil)
    }

    /// Returns `true` if a message contains `|` or `]`.
    pub fn hides_something(&self) -> bool {
        self.hides
    }

    /// Replaces `|` and `]` in every text and every key of a value.
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

    /// Restores `|` and `]` in a text.
    pub fn reveal(&self, text: &str) -> String {
        text.chars().map(|c| self.stand_ins.iter().position(|&s| s == c).map_or(c, |i| MARKS[i])).collect()
    }
}
