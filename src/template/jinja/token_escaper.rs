//! Hides `|` and `]` in messages while a template runs. A special token with `|` or `]` in the output then comes from the template. The special
//! tokens `<sop>`, `sop` and `<eop>` are not hidden. Tokens of newer models, such as `<think>`, are hidden in messages that the model did not write:
//! an unused character, the separator, is inserted after the `<`.

use super::super::Role;
use super::super::part::{MARKS, NEWER};
use crate::error::{Error, Result};
use serde_json::Value;
use std::collections::HashSet;

/// The unused characters that replace `|` and `]`, and the separator.
pub struct TokenEscaper {
    stand_ins: [char; 2],
    /// Inserted after the `<` of tokens of newer models. `None` if these tokens are not hidden.
    separator: Option<char>,
    /// True if a message contains `|`, `]` or a hidden token of a newer model.
    hides: bool,
}

impl TokenEscaper {
    /// Chooses private-use characters that neither the template nor its variables contain. `variables` is an object with `messages` and `tools`.
    /// `hides_newer` is true to hide tokens of newer models, too.
    ///
    /// # Errors
    /// `Input` if fewer than three such characters exist.
    pub fn new(template: &str, variables: &Value, hides_newer: bool) -> Result<TokenEscaper> {
        let text = variables.to_string();
        let used: HashSet<char> = text.chars().chain(template.chars()).collect();
        let mut free = ('\u{100000}'..='\u{10fffd}').filter(|c| !used.contains(c));
        let (Some(first), Some(second), Some(third)) = (free.next(), free.next(), free.next()) else {
            return Err(Error::input(
                "the conversation uses nearly all private-use characters of Unicode, and none is left for the chat template",
            ));
        };
        let mut escaper = TokenEscaper { stand_ins: [first, second], separator: hides_newer.then_some(third), hides: false };
        // The brackets of JSON itself must not count, so the variables are compared before and after the replacement.
        let mut hidden = variables.clone();
        escaper.hide_variables(&mut hidden);
        escaper.hides = hidden != *variables;
        Ok(escaper)
    }

    /// Returns true if the variables contain tokens of newer models that are hidden.
    pub fn hides_newer(&self, variables: &Value) -> bool {
        let has_newer = |value: &Value| {
            let text = value.to_string();
            NEWER.iter().any(|token| text.contains(token))
        };
        let messages = variables["messages"].as_array().into_iter().flatten().filter(|message| !is_answer(message));
        self.separator.is_some() && messages.chain([&variables["tools"]]).any(has_newer)
    }

    /// Returns `true` if a message or a tool contains `|`, `]` or a hidden token of a newer model.
    pub fn hides_something(&self) -> bool {
        self.hides
    }

    /// Hides `|`, `]` and tokens of newer models in the variables of a template.
    pub fn hide_variables(&self, variables: &mut Value) {
        for message in variables["messages"].as_array_mut().into_iter().flatten() {
            // The model's own messages keep tokens such as `<think>`, because templates search these messages for thoughts.
            let separator = self.separator.filter(|_| !is_answer(message));
            self.hide(message, separator);
        }
        self.hide(&mut variables["tools"], self.separator);
    }

    /// Hides `|`, `]` and tokens of newer models in every string and key of a JSON value. `separator` hides these tokens; `None` leaves them
    /// unchanged.
    fn hide(&self, value: &mut Value, separator: Option<char>) {
        match value {
            Value::String(text) => *text = self.hidden(text, separator),
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide(item, separator)),
            Value::Object(map) => {
                let entries = std::mem::take(map).into_iter();
                *map = entries
                    .map(|(key, mut value)| {
                        self.hide(&mut value, separator);
                        (self.hidden(&key, separator), value)
                    })
                    .collect();
            }
            _ => {}
        }
    }

    fn hidden(&self, text: &str, separator: Option<char>) -> String {
        let mut text = text.to_string();
        for (token, separator) in NEWER.iter().zip(separator.into_iter().cycle()) {
            text = text.replace(token, &format!("<{separator}{}", &token[1..]));
        }
        text.chars().map(|c| MARKS.iter().position(|&h| h == c).map_or(c, |i| self.stand_ins[i])).collect()
    }

    /// Restores everything that was hidden in `text`.
    pub fn reveal(&self, text: &str) -> String {
        text.chars()
            .filter(|c| Some(*c) != self.separator)
            .map(|c| self.stand_ins.iter().position(|&s| s == c).map_or(c, |i| MARKS[i]))
            .collect()
    }
}

fn is_answer(message: &Value) -> bool {
    message["role"] == Role::Assistant.name()
}
