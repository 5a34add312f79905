//! Formats of lines: each message is `Name: text`, with a blank line between messages.

use super::super::rules::{AnswerPlace, blank_line};
use super::super::think::ReplyStart;
use super::folded;
use crate::error::{Error, Result};
use crate::template::{Message, Role, cleaned};
use crate::vocab::Vocab;

/// The hint for messages that only a format with a chat template can write.
const GLM: &str = "use a model with a chat template, such as GLM-4";

/// A format of lines: the names, the text before the first turn, and the form of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lines {
    pub user: String,
    pub bot: String,
    /// The text after the name of the user or of the bot, usually a colon.
    pub interface: String,
    /// The text before the first turn (a message and its reply). Empty, or the result of [`first_prompt`](super::first_prompt).
    pub init_prompt: String,
    /// The part of a reply that the prompt already contains, such as ` <think`.
    pub opening: &'static str,
    pub ending: ReplyEnd,
}

/// The text between `Name:` and a message.
pub const LEAD: &str = " ";

/// The rule that determines where a reply ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyEnd {
    /// At a blank line, as in ChatRWKV. The logits of newlines get a bias that depends on the reply's length. The end-of-text token does not
    /// end the reply.
    BlankLine,
    /// At the end-of-text token or before the next message of the user. A reply can have several paragraphs.
    NextTurn,
}

impl Lines {
    /// Returns `text`, a message of the user or a system message, in the form of the training data: trimmed, and without blank lines.
    pub fn clean(&self, text: &str) -> String {
        match self.ending {
            ReplyEnd::BlankLine => folded(text),
            ReplyEnd::NextTurn => cleaned(text, true),
        }
    }

    /// Returns the part of a turn before the reply: the user's name and message, then the bot's name. `text` is a message after
    /// [`clean`](Self::clean).
    pub fn turn(&self, text: &str) -> String {
        let Lines { user, bot, interface, .. } = self;
        format!("{user}{interface} {text}\n\n{bot}{interface}")
    }

    /// Returns the text before the first turn: the system message unless it is blank, then `init_prompt`.
    pub fn beginning(&self, system: &str) -> String {
        let system = self.clean(system);
        let begin = if self.init_prompt.is_empty() { "" } else { "\n" };
        match (system.as_str(), self.init_prompt.strip_prefix('\n').unwrap_or_default()) {
            ("", _) => self.init_prompt.clone(),
            (system, first) => format!("{begin}System{} {system}\n\n{first}", self.interface),
        }
    }

    /// Returns the beginning of the user's next turn.
    pub fn next_turn(&self) -> String {
        format!("\n\n{}{}", self.user, self.interface)
    }

    /// Returns whether a reply begins with a thought or with the answer. A reply that ends at a blank line has no thought.
    pub fn begins(&self) -> ReplyStart {
        match self.ending {
            ReplyEnd::BlankLine => ReplyStart::Answer,
            ReplyEnd::NextTurn => ReplyStart::after(self.opening),
        }
    }

    /// Returns the texts before the reply, and the token that can end the reply. A constraint of the reply needs both.
    pub fn answer_place(&self, vocab: &Vocab) -> AnswerPlace {
        AnswerPlace { opening: self.opening.into(), lead: LEAD, blank_line: blank_line(vocab) }
    }

    /// Returns the text before which a reply ends.
    pub fn end(&self) -> String {
        match self.ending {
            ReplyEnd::BlankLine => "\n\n".into(),
            ReplyEnd::NextTurn => format!("\n{}{}", self.user, self.interface),
        }
    }

    /// Splits a conversation's text into messages and returns the messages of the last `n` turns. For display only: a line within a message that
    /// looks like the beginning of a message splits this message, too.
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

    /// Returns all messages as one prompt that ends where the model's reply begins.
    ///
    /// # Errors
    /// `Input` if the format does not support a message's role or tools.
    pub fn whole(&self, messages: &[Message]) -> Result<String> {
        let Lines { user, bot, interface, .. } = self;
        let mut text = String::new();
        for message in messages {
            if !message.tools.is_empty() || !message.metadata.is_empty() {
                return Err(Error::input("the chat format of this model does not support tools and tool calls").hint(GLM));
            }
            let name = match message.role {
                Role::System => "System",
                Role::User => user,
                Role::Assistant => bot,
                Role::Observation if self.ending == ReplyEnd::NextTurn => user,
                Role::Observation => {
                    return Err(Error::input("the chat format of this model does not support tool results").hint(GLM));
                }
            };
            let content = match message.role {
                // The prompt leaves thoughts out. Replies keep their paragraphs if the format allows them.
                Role::Assistant if self.ending == ReplyEnd::NextTurn => cleaned(after_thought(&message.content), false),
                Role::Assistant => folded(after_thought(&message.content)),
                Role::Observation => format!("Function output:\n{}", self.clean(&message.content)),
                Role::System | Role::User => self.clean(&message.content),
            };
            let space = if content.is_empty() && self.ending == ReplyEnd::NextTurn { "" } else { LEAD };
            text += &format!("{name}{interface}{space}{content}\n\n");
        }
        Ok(text + bot + interface + self.opening)
    }
}

/// Returns the part of a reply after its thought, trimmed.
pub fn after_thought(text: &str) -> &str {
    text.rsplit("</think>").next().unwrap_or_default().trim()
}
