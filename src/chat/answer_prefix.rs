//! An answer that the caller has begun: the last message of a conversation, if it is an answer. The model continues its text.

use super::think::{BEGIN, END, ReplyStart};
use crate::template::{Message, Part, Role};

/// The beginning of an answer, as its caller wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerPrefix<'a> {
    text: &'a str,
    /// The thought, if the text begins with `<think>`.
    thought: Option<&'a str>,
    /// The text after the thought. `None` if the thought has no end yet.
    answer: Option<&'a str>,
}

impl<'a> AnswerPrefix<'a> {
    /// Returns the messages before the begun answer, and the begun answer. A tool call and an empty answer count as messages, not as begun answers.
    pub fn split(messages: &'a [Message]) -> (&'a [Message], Option<AnswerPrefix<'a>>) {
        match messages.split_last() {
            Some((last, before)) if is_begun(last) => (before, Some(AnswerPrefix::of(&last.content))),
            _ => (messages, None),
        }
    }

    fn of(text: &'a str) -> AnswerPrefix<'a> {
        let text = text.trim_start();
        let Some(thought) = text.strip_prefix(BEGIN) else { return AnswerPrefix { text, thought: None, answer: Some(text) } };
        match thought.split_once(END) {
            Some((thought, answer)) => AnswerPrefix { text, thought: Some(thought), answer: Some(answer) },
            None => AnswerPrefix { text, thought: Some(thought), answer: None },
        }
    }

    /// Returns the begun answer without its thought, for formats that have no thoughts.
    pub fn without_thought(self) -> AnswerPrefix<'a> {
        let text = self.answer();
        AnswerPrefix { text, thought: None, answer: Some(text) }
    }

    /// Returns the text of the answer without its thought. Empty if the thought has no end yet.
    pub fn answer(self) -> &'a str {
        self.answer.unwrap_or_default().trim_start()
    }

    /// Returns the part that the model writes first.
    pub fn start(self) -> ReplyStart {
        match self.answer {
            Some(_) => ReplyStart::Answer,
            None => ReplyStart::Thought(""),
        }
    }

    /// Returns the tag that begins the thought, if the thought has no end yet.
    pub fn opening(self) -> &'static str {
        if self.answer.is_none() { BEGIN } else { "" }
    }

    /// Appends the begun answer to `prompt`, a prompt in lines that ends with the name of the bot. `lead` is the text between the name and an answer.
    pub fn append_to(self, prompt: &str, lead: &str) -> String {
        format!("{}{lead}{}", prompt.trim_end_matches([' ', '\n']), self.text)
    }

    /// Appends the begun answer to a prompt that ends with the template's own beginning of the answer. The begun answer replaces this beginning. The
    /// tags of a thought are special tokens if the vocabulary has them.
    pub fn append_to_parts(self, mut prompt: Vec<Part>, lead: &str) -> Vec<Part> {
        let mut replaced = Vec::new();
        if let Some(at) = prompt.iter().rposition(|part| *part == Part::Special(Role::Assistant.special())) {
            replaced = prompt.split_off(at + 1);
        }
        if lead.is_empty() {
            // GLM-4.7 begins each answer with the end of a thought, also without a thought.
            let has_tag = matches!(replaced.first(), Some(Part::Special(BEGIN | END)));
            prompt.extend((has_tag && self.thought.is_none()).then_some(Part::Special(END)));
        } else {
            prompt.push(Part::Text(lead.into()));
        }
        if let Some(thought) = self.thought {
            prompt.extend([Part::Special(BEGIN), Part::Text(thought.into())]);
            prompt.extend(self.answer.map(|_| Part::Special(END)));
        }
        prompt.extend(self.answer.map(|answer| Part::Text(answer.into())));
        prompt
    }
}

/// Drops an empty answer at the end of the messages. Some clients add one where the model's answer shall begin.
pub fn without_empty_answer(messages: &[Message]) -> &[Message] {
    match messages.split_last() {
        Some((last, before)) if last.role == Role::Assistant && last.metadata.is_empty() && last.content.trim().is_empty() => before,
        _ => messages,
    }
}

/// Returns whether the model can continue this message.
pub fn is_begun(message: &Message) -> bool {
    message.role == Role::Assistant && message.metadata.is_empty() && !message.content.trim().is_empty()
}

/// Returns the text of an answer with its thought. If `answer` is empty, the text lacks the end of the thought, so that the model continues the
/// thought.
pub fn with_thought(thought: &str, answer: &str) -> String {
    match (thought.is_empty(), answer.is_empty()) {
        (true, _) => answer.into(),
        (false, true) => format!("{BEGIN}{thought}"),
        (false, false) => format!("{BEGIN}{thought}{END}\n{answer}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_answer_is_continued() {
        let user = Message::user("a");
        let split = |text: &str| {
            let messages = [user.clone(), Message::assistant(text)];
            let (before, begun) = AnswerPrefix::split(&messages);
            begun.map(|begun| (before.len(), begun.answer().to_string(), begun.start(), begun.append_to("User: a\n\nAssistant: ", " ")))
        };
        let prompt = |text: &str| format!("User: a\n\nAssistant: {text}");
        assert_eq!(split(" The \n"), Some((1, "The \n".into(), ReplyStart::Answer, prompt("The \n"))));
        assert_eq!(split("<think>b"), Some((1, String::new(), ReplyStart::Thought(""), prompt("<think>b"))));
        assert_eq!(split("<think>b</think>\nThe"), Some((1, "The".into(), ReplyStart::Answer, prompt("<think>b</think>\nThe"))));
        assert_eq!(split(" \n"), None, "an empty answer");
        let called = [user.clone(), Message::call("f", "{}")];
        assert_eq!(AnswerPrefix::split(&called), (&called[..], None));
        assert_eq!(AnswerPrefix::split(&called[..1]), (&called[..1], None));
    }

    #[test]
    fn tags_of_a_template_are_special_tokens() {
        let special = |text| Part::Special(text);
        let text = |text: &str| Part::Text(text.into());
        let rendered = vec![special("<|user|>"), text("\na"), special("<|assistant|>"), text("\n"), special("<think>")];
        let append = |message: &str| AnswerPrefix::of(message).append_to_parts(rendered.clone(), "\n").split_off(3);
        assert_eq!(append("b"), [text("\n"), text("b")]);
        assert_eq!(append("<think>b"), [text("\n"), special("<think>"), text("b")]);
        let marked = [special("<|assistant|>"), special("<think>")];
        let append_marked = |message: &str| AnswerPrefix::of(message).append_to_parts(marked.to_vec(), "").split_off(1);
        assert_eq!(append_marked("b"), [special("</think>"), text("b")]);
        assert_eq!(append_marked("<think>b"), [special("<think>"), text("b")]);
        assert_eq!(append("<think>b</think>c"), [text("\n"), special("<think>"), text("b"), special("</think>"), text("c")]);
    }

    #[test]
    fn a_thought_without_an_answer_stays_open() {
        assert_eq!(["", "b"].map(|answer| with_thought("a", answer)), ["<think>a", "<think>a</think>\nb"]);
        assert_eq!(with_thought("", "b"), "b");
    }
}
