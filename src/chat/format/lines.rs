//! Conversations in lines: `Name: text`, a blank line between turns.

use super::super::rules::{AnswerPosition, blank_line};
use super::super::think::ReplyStart;
use super::folded;
use crate::error::{Error, Result};
use crate::template::{Message, Role};
use crate::vocab::Vocab;

/// A format of lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lines {
    pub user: String,
    pub bot: String,
    /// Behind both names.
    pub interface: String,
    /// Read before the first turn; empty, or as [`first_prompt`](super::first_prompt) makes it.
    pub init_prompt: String,
    /// What a prompt holds of the reply already.
    pub opening: &'static str,
    pub ending: Ending,
}

/// Stands between a name and what it says.
pub const LEAD: &str = " ";

/// Where a reply ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// At a blank line, as in ChatRWKV: newlines are scheduled, and the end of a text is never drawn.
    BlankLine,
    /// Where the model ends the text, or begins to speak for the user: replies of several paragraphs.
    NextTurn,
}

impl Lines {
    /// What the user says, folded, up to the name of the one who replies.
    pub fn turn(&self, text: &str) -> String {
        let Lines { user, bot, interface, .. } = self;
        format!("{user}{interface} {text}\n\n{bot}{interface}")
    }

    /// Before the first turn: what the system says, if it does, and the first prompt.
    pub fn beginning(&self, system: &str) -> String {
        let system = folded(system);
        let begin = if self.init_prompt.is_empty() { "" } else { "\n" };
        match (system.as_str(), self.init_prompt.strip_prefix('\n').unwrap_or_default()) {
            ("", _) => self.init_prompt.clone(),
            (system, first) => format!("{begin}System{} {system}\n\n{first}", self.interface),
        }
    }

    /// The text that begins the user's next turn: there a reply of several paragraphs ends.
    pub fn next_turn(&self) -> String {
        format!("\n\n{}{}", self.user, self.interface)
    }

    /// How a reply begins after the name. A reply that ends at a blank line has no room for a thought.
    pub fn begins(&self) -> ReplyStart {
        match self.ending {
            Ending::BlankLine => ReplyStart::Answer,
            Ending::NextTurn => ReplyStart::after(self.opening),
        }
    }

    /// Where a reply is after the name, for rules.
    pub fn position(&self, vocab: &Vocab) -> AnswerPosition<'_> {
        AnswerPosition { opening: self.opening, lead: LEAD, blank_line: blank_line(vocab) }
    }

    /// The text before which a reply ends.
    pub fn end(&self) -> String {
        match self.ending {
            Ending::BlankLine => "\n\n".into(),
            Ending::NextTurn => self.next_turn(),
        }
    }

    /// Takes the last `n` turns of a conversation's text apart. A message that holds a line like the beginning of a turn is cut there:
    /// for showing, not for reading again.
    pub fn turns(&self, text: &str, n: usize) -> Vec<Message> {
        let Lines { bot, interface, .. } = self;
        let text = format!("\n\n{}", text.trim_start_matches('\n'));
        let answers = format!("\n\n{bot}{interface}");
        let turns: Vec<&str> = text.split(&self.next_turn()).skip(1).collect();
        let apart = |turn: &&str| match turn.split_once(&answers) {
            Some((question, answer)) => vec![Message::user(question.trim()), Message::assistant(answer.trim())],
            None => vec![Message::user(turn.trim())],
        };
        turns[turns.len().saturating_sub(n)..].iter().flat_map(apart).collect()
    }

    /// All messages as one text, up to where the model goes on.
    ///
    /// # Errors
    /// `Input` at a message that has no place.
    pub fn whole(&self, messages: &[Message]) -> Result<String> {
        let Lines { user, bot, interface, .. } = self;
        let mut text = String::new();
        for message in messages {
            if !message.tools.is_empty() || !message.metadata.is_empty() {
                return Err(Error::input("expected messages without tools, found one with: this format has no place for them"));
            }
            let name = match message.role {
                Role::System => "System",
                Role::User => user,
                Role::Assistant => bot,
                Role::Observation if self.ending == Ending::NextTurn => user,
                Role::Observation => return Err(Error::input("expected no observation: this format has no place for what a tool gave")),
            };
            let content = match message.role {
                // A reply may have paragraphs where the format knows them; what the model thought before it is not repeated.
                Role::Assistant if self.ending == Ending::NextTurn => after_thought(&message.content).to_string(),
                Role::Assistant => folded(after_thought(&message.content)),
                Role::Observation => format!("Function output:\n{}", folded(&message.content)),
                Role::System | Role::User => folded(&message.content),
            };
            text += &format!("{name}{interface} {content}\n\n");
        }
        match messages.last() {
            Some(last) if last.role == Role::Assistant => Err(Error::input("expected the last message to be the user's, found a reply")),
            _ => Ok(text + bot + interface + self.opening),
        }
    }
}

/// An answer without the reasoning before it.
pub fn after_thought(text: &str) -> &str {
    text.rsplit("</think>").next().unwrap_or_default().trim()
}
