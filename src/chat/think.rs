//! Splits a model's text into a thought and an answer, and trims both.

use crate::calls::{AnswerPiece, CallReader, Declared};
use crate::template::ToolCall;
use crate::vocab::StopTexts;
use std::ops::ControlFlow;

/// A new piece of a model's answer, thought or tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerPart<'a> {
    /// A piece of the answer's text.
    Text(&'a str),
    /// A piece of the thought before the answer.
    Thought(&'a str),
    /// The name of a tool. A tool call begins.
    Call(&'a str),
    /// A piece of the arguments of the tool call that began last.
    Arguments(&'a str),
}

/// Callback for the parts of an answer while a model writes it. `Break` stops the answer. The joined pieces of a text, a thought or a call are the
/// whole part.
pub type OnPart<'a> = dyn FnMut(AnswerPart<'_>) -> ControlFlow<()> + 'a;

/// The tag that begins a thought.
pub const BEGIN: &str = "<think>";
/// The tag that ends a thought.
pub const END: &str = "</think>";

/// The part that the model writes first: a thought or the answer. If the prompt ends within a tag, such as `<think`, the model first writes the rest
/// of the tag. `Thought` and `AfterThought` hold this rest, which may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyStart {
    /// The model writes only the answer. Tags in the answer are ordinary text.
    Answer,
    /// The model writes a thought first if its text begins with the tag `<think>`. Otherwise the model writes only the answer.
    MaybeThought,
    /// The model writes a thought, then the answer. The prompt has at least the beginning of the tag `<think>`; the field is the rest of the tag.
    Thought(&'static str),
    /// The model writes only the answer, because the prompt already has a thought. The field is the rest of the tag `</think>`.
    AfterThought(&'static str),
}

impl ReplyStart {
    /// Returns the part that the model writes first. `opening` is the beginning of the reply that the prompt already contains.
    pub fn after(opening: &str) -> ReplyStart {
        match opening.trim() {
            "" => ReplyStart::MaybeThought,
            opening if opening.ends_with("</think") => ReplyStart::AfterThought(">"),
            opening if opening.ends_with("</think>") => ReplyStart::AfterThought(""),
            opening if opening.ends_with("<think") => ReplyStart::Thought(">"),
            opening if opening.ends_with(BEGIN) => ReplyStart::Thought(""),
            _ => ReplyStart::MaybeThought,
        }
    }
}

/// Splits a reply into thought and answer while the model writes it.
pub struct Splitter {
    /// The part to which the next text belongs.
    part: ReplyStart,
    /// Text that has not been passed on yet.
    held: String,
    thought: Trimmed,
    answer: Trimmed,
    stops: StopTexts,
    /// Finds tool calls in the answer. `None` if the answer can call no tool.
    calls: Option<CallReader>,
    /// The tool calls that were found in the answer so far.
    pub found: Vec<ToolCall>,
    pub has_thought: bool,
    /// True if a stop text ended the answer.
    pub has_stopped: bool,
    /// The beginning of a stop text that [`finish`](Self::finish) dropped from the end of the answer. `None` if `finish` must keep such text.
    pub dropped: Option<String>,
}

impl Splitter {
    /// Makes a splitter for an answer that ends before the first stop text.
    pub fn new(begins: ReplyStart, stop_texts: Vec<String>) -> Splitter {
        let has_thought = matches!(begins, ReplyStart::Thought(_) | ReplyStart::AfterThought(_));
        Splitter {
            part: begins,
            held: String::new(),
            thought: Trimmed::default(),
            answer: Trimmed::default(),
            stops: StopTexts::new(stop_texts),
            calls: None,
            found: Vec::new(),
            has_thought,
            has_stopped: false,
            dropped: None,
        }
    }

    /// Returns the splitter with a reader for calls of the `declared` tools.
    pub fn with_calls(self, declared: Declared) -> Splitter {
        Splitter { calls: (!declared.is_empty()).then(|| CallReader::new(declared)), ..self }
    }

    /// Returns the splitter of a reply whose beginning is in the prompt. Blanks at the beginning of the next text belong to the reply.
    pub fn going_on(mut self) -> Splitter {
        let part = if self.is_thinking() { &mut self.thought } else { &mut self.answer };
        part.goes_on = true;
        self
    }

    /// Reads the next text of the reply and passes its parts to `on_part`. Returns `Break` if `on_part` does or if a stop text ends the answer.
    pub fn push(&mut self, text: &str, on_part: &mut OnPart<'_>) -> ControlFlow<()> {
        self.held.push_str(text);
        self.go(Rest::Follows, on_part)
    }

    /// Ends the reply: passes the text that was held back to `on_part`.
    pub fn finish(&mut self, on_part: &mut OnPart<'_>) {
        // `answer` and `thought` must have the whole text even if `on_part` returns `Break`.
        let _ = self.go(Rest::IsNothing, on_part);
        let held = if self.has_stopped { String::new() } else { self.stops.finish() };
        if let Some(dropped) = &mut self.dropped {
            *dropped = held;
        } else {
            let _ = self.say(&held, on_part);
        }
        if let Some(mut calls) = self.calls.take() {
            let _ = calls.finish(&mut |piece| self.piece(piece, on_part));
        }
    }

    /// Passes text of the answer to `on_part`. If the answer can call tools, separates the calls from the text first.
    fn say(&mut self, text: &str, on_part: &mut OnPart<'_>) -> ControlFlow<()> {
        let Some(mut calls) = self.calls.take() else { return self.piece(AnswerPiece::Text(text), on_part) };
        let heard = calls.push(text, &mut |piece| self.piece(piece, on_part));
        self.calls = Some(calls);
        heard
    }

    fn piece(&mut self, piece: AnswerPiece<'_>, on_part: &mut OnPart<'_>) -> ControlFlow<()> {
        match piece {
            AnswerPiece::Text(text) => self.answer.push(text, &mut |text| on_part(AnswerPart::Text(text))),
            AnswerPiece::Call(call) => {
                self.found.push(call.clone());
                on_part(AnswerPart::Call(&call.name))?;
                on_part(AnswerPart::Arguments(&call.arguments))
            }
        }
    }

    /// Returns whether the next text belongs to the thought.
    pub fn is_thinking(&self) -> bool {
        matches!(self.part, ReplyStart::Thought(_))
    }

    /// Returns the answer so far.
    pub fn answer(&self) -> &str {
        &self.answer.shown
    }

    /// Returns the thought so far.
    pub fn thought(&self) -> &str {
        &self.thought.shown
    }

    fn go(&mut self, rest: Rest, on_part: &mut OnPart<'_>) -> ControlFlow<()> {
        loop {
            match self.part {
                ReplyStart::Thought(tag) | ReplyStart::AfterThought(tag) if !tag.is_empty() => {
                    if self.held.is_empty() && rest == Rest::Follows {
                        return ControlFlow::Continue(());
                    }
                    if self.held.starts_with(tag) {
                        self.held.drain(..tag.len());
                    }
                    let is_thought = matches!(self.part, ReplyStart::Thought(_));
                    self.part = if is_thought { ReplyStart::Thought("") } else { ReplyStart::Answer };
                }
                ReplyStart::MaybeThought => {
                    let text = self.held.trim_start();
                    if let Some(thought) = text.strip_prefix(BEGIN) {
                        self.held = thought.to_string();
                        (self.part, self.has_thought) = (ReplyStart::Thought(""), true);
                    } else if BEGIN.starts_with(text) && rest == Rest::Follows {
                        return ControlFlow::Continue(());
                    } else {
                        self.part = ReplyStart::Answer;
                    }
                }
                ReplyStart::Thought(_) => {
                    let end = self.held.find(END);
                    let n = end.unwrap_or_else(|| self.held.len() - if rest == Rest::Follows { begun(&self.held, END) } else { 0 });
                    let text: String = self.held.drain(..n).collect();
                    let heard = self.thought.push(&text, &mut |text| on_part(AnswerPart::Thought(text)));
                    if end.is_none() {
                        return heard;
                    }
                    self.held.drain(..END.len());
                    self.part = ReplyStart::Answer;
                    heard?;
                }
                ReplyStart::AfterThought(_) | ReplyStart::Answer => {
                    let held = std::mem::take(&mut self.held);
                    let (certain, has_stopped) = self.stops.push(&held);
                    let certain = certain.to_string();
                    self.has_stopped |= has_stopped;
                    self.say(&certain, on_part)?;
                    return if self.has_stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
                }
            }
        }
    }
}

/// States whether more text of the reply can follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    Follows,
    IsNothing,
}

/// Returns how many bytes at the end of `text` could be the beginning of `mark`. The whole `mark` does not count.
fn begun(text: &str, mark: &str) -> usize {
    (1..mark.len()).rev().find(|&n| text.ends_with(&mark[..n])).unwrap_or(0)
}

/// A text without blanks at its beginning and end. Blanks after `shown` wait in `blanks` until more text follows.
#[derive(Default)]
struct Trimmed {
    shown: String,
    blanks: String,
    /// True if other text precedes this text, so that blanks at its beginning are kept.
    goes_on: bool,
}

impl Trimmed {
    fn push(&mut self, text: &str, show: &mut dyn FnMut(&str) -> ControlFlow<()>) -> ControlFlow<()> {
        let text = if self.shown.is_empty() && !self.goes_on { text.trim_start() } else { text };
        let solid = text.trim_end();
        if solid.is_empty() {
            self.blanks.push_str(text);
            return ControlFlow::Continue(());
        }
        let from = self.shown.len();
        self.shown.push_str(&self.blanks);
        self.shown.push_str(solid);
        text[solid.len()..].clone_into(&mut self.blanks);
        show(&self.shown[from..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the reply's text with thoughts in brackets, and `true` if a stop text ended the answer.
    fn show(begins: ReplyStart, pieces: &[&str], stops: &[&str]) -> (String, bool) {
        let mut splitter = Splitter::new(begins, stops.iter().map(|s| s.to_string()).collect());
        let mut shown = String::new();
        let mut on_part = |piece: AnswerPart<'_>| {
            match piece {
                AnswerPart::Text(text) => shown += text,
                AnswerPart::Thought(text) => shown += &format!("[{text}]"),
                part => panic!("{part:?}"),
            }
            ControlFlow::Continue(())
        };
        let _ = pieces.iter().try_for_each(|piece| splitter.push(piece, &mut on_part));
        splitter.finish(&mut on_part);
        assert_eq!(shown.replace("][", "").replace(&format!("[{}]", splitter.thought()), ""), splitter.answer());
        (shown.replace("][", ""), splitter.has_stopped)
    }

    #[test]
    fn a_splitter_thinks_until_the_tag_ends() {
        let mut splitter = Splitter::new(ReplyStart::Thought(">"), Vec::new());
        let mut thinks = |piece: &str| {
            let _ = splitter.push(piece, &mut |_| ControlFlow::Continue(()));
            splitter.is_thinking()
        };
        assert_eq!(["", ">", " a", " </th", "ink", ">", " b <think>"].map(&mut thinks), [true, true, true, true, true, false, false]);
    }

    #[test]
    fn a_thought_is_separated_from_the_answer_however_the_text_is_cut() {
        let cases = [
            (ReplyStart::MaybeThought, " Hello there \n", "Hello there"),
            (ReplyStart::MaybeThought, "<think>\na b\n</think>\n\nHi\n\nyou ", "[a b]Hi\n\nyou"),
            (ReplyStart::MaybeThought, " <thinker> said", "<thinker> said"),
            (ReplyStart::MaybeThought, "<think></think>Hi", "Hi"),
            (ReplyStart::MaybeThought, "<think> never ended </thin", "[never ended </thin]"),
            (ReplyStart::MaybeThought, "<thi", "<thi"),
            (ReplyStart::Answer, " <think>a</think>b", "<think>a</think>b"),
            (ReplyStart::Thought(">"), ">\na<b</think> Hi </think>", "[a<b]Hi </think>"),
            (ReplyStart::Thought(">"), "er</think>Hi", "[er]Hi"),
            (ReplyStart::Thought(""), "a</think>\nx", "[a]x"),
            (ReplyStart::AfterThought(">"), ">\nHi", "Hi"),
            (ReplyStart::AfterThought(""), "", ""),
        ];
        for (begins, text, want) in cases {
            assert_eq!(show(begins, &[text], &[]), (want.to_string(), false), "{text:?}");
            let chars: Vec<String> = text.chars().map(String::from).collect();
            let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
            assert_eq!(show(begins, &chars, &[]), (want.to_string(), false), "{text:?} by characters");
        }
    }

    #[test]
    fn a_stop_text_ends_the_answer_and_not_the_thought() {
        let next = ["\n\nUser:"];
        let cases = [
            (ReplyStart::MaybeThought, "a\n\nb\n\nUser: c", "a\n\nb", true),
            (ReplyStart::MaybeThought, "<think>\n\nUser: x</think>a\n\nUser:", "[User: x]a", true),
            (ReplyStart::MaybeThought, "a\n\nUse", "a\n\nUse", false),
            (ReplyStart::Answer, "a\n\nUser", "a\n\nUser", false),
        ];
        for (begins, text, want, has_stopped) in cases {
            assert_eq!(show(begins, &[text], &next), (want.to_string(), has_stopped), "{text:?}");
        }
        assert_eq!(show(ReplyStart::Answer, &[" a\n", "b\n", "\nc"], &["\n\n"]), ("a\nb".into(), true));
    }
}
