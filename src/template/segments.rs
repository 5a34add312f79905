//! Splits an answer into segments (replies and tool calls) while a model writes it, and finds the text that can be shown at once.
//!
//! The joined pieces of a segment are the content that [`process_segments`](super::answer::process_segments) returns. So some text is held back until
//! the next tokens show whether it belongs to the content. This text is blanks around a reply, and bytes that may begin a character, a stop text or
//! the training-date mark.

use super::answer::TRAINING_DATE;
use super::part::AROUND_ANSWERS;
use super::{Role, specials};
use crate::vocab::{StopTexts, Utf8Stream, Vocab};
use std::ops::ControlFlow;

/// A piece of an answer. An answer consists of segments, which are replies and tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentDelta<'a> {
    /// The beginning of a segment: a tool's name, or an empty name for a reply. Not sent if the segment's first line is in the prompt.
    Begin { name: &'a str },
    /// A piece of the segment's content.
    Text(&'a str),
}

/// A function that receives pieces and can stop the answer.
type OnDelta<'a> = dyn FnMut(SegmentDelta<'_>) -> ControlFlow<()> + 'a;

/// Returns the beginning of the answer that a prompt already contains: the ids after the last `<|assistant|>`.
pub fn opening_ids<'a>(prompt: &'a [u32], vocab: &Vocab) -> &'a [u32] {
    let assistant = vocab.special(Role::Assistant.special());
    prompt.iter().rposition(|id| Some(*id) == assistant).map_or(&[], |at| &prompt[at + 1..])
}

/// Splits the ids of an answer into segments (replies and tool calls), and each segment into pieces of text.
pub struct SegmentWriter {
    vocab: Vocab,
    specials: Vec<(u32, &'static str)>,
    utf8: Utf8Stream,
    stops: StopTexts,
    stopped: bool,
    /// All segments so far. The last one is not complete.
    segments: Vec<String>,
    shown: SegmentOutput,
}

impl SegmentWriter {
    /// Makes a writer for an answer. The first stop text ends the answer. The prompt already contains `opening`, the beginning of the answer.
    pub fn new(vocab: &Vocab, stop_texts: Vec<String>, opening: &[u32]) -> SegmentWriter {
        let mut writer = SegmentWriter {
            vocab: vocab.clone(),
            specials: specials(vocab),
            utf8: Utf8Stream::new(),
            stops: StopTexts::new(Vec::new()),
            stopped: false,
            segments: vec![String::new()],
            shown: SegmentOutput::default(),
        };
        for &id in opening {
            let _ = writer.push(id, &mut |_| ControlFlow::Continue(()));
        }
        writer.stops = StopTexts::new(stop_texts);
        writer
    }

    /// Makes a writer for an answer that is one text. Its first line is text, and blanks around the text are kept.
    pub fn of_text(vocab: &Vocab, stop_texts: Vec<String>) -> SegmentWriter {
        let mut writer = SegmentWriter::new(vocab, stop_texts, &[]);
        writer.shown.is_plain = true;
        writer
    }

    /// Takes the next token of the answer and passes new pieces to `on_delta`. Returns `Break` if `on_delta` returns `Break` or a stop text ends the
    /// answer.
    pub fn push(&mut self, id: u32, on_delta: &mut OnDelta<'_>) -> ControlFlow<()> {
        match self.specials.iter().find(|(special, _)| *special == id).map(|(_, text)| *text) {
            Some(text) if text == Role::Assistant.special() => {
                self.flush(on_delta)?;
                self.shown.end(on_delta)?;
                self.segments.push(String::new());
                ControlFlow::Continue(())
            }
            Some(text) => {
                let pending = self.utf8.finish();
                self.add(&pending, on_delta)?;
                if AROUND_ANSWERS.contains(&text) { ControlFlow::Continue(()) } else { self.add(text, on_delta) }
            }
            None => {
                let text = self.utf8.push(self.vocab.token(id)).to_string();
                self.add(&text, on_delta)
            }
        }
    }

    /// Ends the answer. Returns the segments (no segments if the answer is one text), and `true` if a stop text ended the answer.
    pub fn finish(mut self, on_delta: &mut OnDelta<'_>) -> (Vec<String>, bool) {
        // The segments are returned even if `on_delta` returns `Break`.
        let _ = self.flush(on_delta);
        let _ = self.shown.end(on_delta);
        (if self.shown.is_plain { Vec::new() } else { self.segments }, self.stopped)
    }

    /// Adds text to the current segment, up to a stop text.
    fn add(&mut self, text: &str, on_delta: &mut OnDelta<'_>) -> ControlFlow<()> {
        let (certain, stopped) = self.stops.push(text);
        self.stopped |= stopped;
        self.segments.last_mut().expect("there is always one").push_str(certain);
        self.shown.push(certain, on_delta)?;
        if self.stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Adds all text that was held back, such as the beginning of a stop text, to the current segment.
    fn flush(&mut self, on_delta: &mut OnDelta<'_>) -> ControlFlow<()> {
        let pending = self.utf8.finish();
        let added = self.add(&pending, on_delta);
        let held = self.stops.finish();
        self.segments.last_mut().expect("there is always one").push_str(&held);
        let shown = self.shown.push(&held, on_delta);
        if added.is_break() { added } else { shown }
    }
}

/// The output of the current segment: what was passed to `on_delta`, and what is held back.
#[derive(Default)]
struct SegmentOutput {
    /// The segment's first line, trimmed. `None` until the line ends.
    name: Option<String>,
    /// Text that has not been passed to `on_delta` yet.
    held: String,
    has_shown: bool,
    /// True if the answer is one text, whose pieces are passed on as they are.
    is_plain: bool,
}

impl SegmentOutput {
    fn push(&mut self, text: &str, on_delta: &mut OnDelta<'_>) -> ControlFlow<()> {
        if self.is_plain {
            return if text.is_empty() { ControlFlow::Continue(()) } else { on_delta(SegmentDelta::Text(text)) };
        }
        self.held.push_str(text);
        if self.name.is_none() {
            let Some((line, _)) = self.held.split_once('\n') else { return ControlFlow::Continue(()) };
            let (name, n_read) = (line.trim().to_string(), line.len() + 1);
            self.held.drain(..n_read);
            let name = self.name.insert(name);
            on_delta(SegmentDelta::Begin { name })?;
        }
        self.show(false, on_delta)
    }

    /// Ends the segment. Passes the text that was held back to `on_delta`.
    fn end(&mut self, on_delta: &mut OnDelta<'_>) -> ControlFlow<()> {
        if self.is_plain {
            return ControlFlow::Continue(());
        }
        if self.name.is_none() {
            // A segment without a newline is a reply.
            self.name = Some(String::new());
            on_delta(SegmentDelta::Begin { name: "" })?;
        }
        self.show(true, on_delta)?;
        *self = SegmentOutput::default();
        ControlFlow::Continue(())
    }

    fn show(&mut self, is_last: bool, on_delta: &mut OnDelta<'_>) -> ControlFlow<()> {
        let mut n = self.held.len();
        if self.name.as_deref() == Some("") {
            if !self.has_shown {
                self.held.drain(..n - self.held.trim_start().len());
            }
            self.held = self.held.replace(TRAINING_DATE.0, TRAINING_DATE.1);
            n = self.held.len() - if is_last { 0 } else { begun(&self.held) };
            n = self.held[..n].trim_end().len();
        }
        if n == 0 {
            return ControlFlow::Continue(());
        }
        self.has_shown = true;
        let text: String = self.held.drain(..n).collect();
        on_delta(SegmentDelta::Text(&text))
    }
}

/// Returns how many bytes at the end of `text` could be the beginning of the training-date mark. The whole mark does not count.
fn begun(text: &str) -> usize {
    let mark = TRAINING_DATE.0;
    (1..mark.len()).rev().find(|&n| mark.is_char_boundary(n) && text.ends_with(&mark[..n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::answer::process_segments;
    use super::super::testing::{MERGES, small};
    use super::*;

    /// Returns the segments, the pieces as texts, and `true` if a stop text ended the answer.
    fn write(ids: &[u32], stops: &[&str], opening: &[u32]) -> (Vec<String>, Vec<String>, bool) {
        let mut said = Vec::new();
        let mut on_delta = |delta: SegmentDelta<'_>| {
            said.push(match delta {
                SegmentDelta::Begin { name } => format!("<{name}>"),
                SegmentDelta::Text(text) => text.to_string(),
            });
            ControlFlow::Continue(())
        };
        let mut writer = SegmentWriter::new(&small(), stops.iter().map(|s| s.to_string()).collect(), opening);
        let _ = ids.iter().try_for_each(|&id| writer.push(id, &mut on_delta));
        let (segments, stopped) = writer.finish(&mut on_delta);
        (segments, said, stopped)
    }

    /// Returns one token per byte.
    fn bytes(text: &str) -> Vec<u32> {
        let vocab = small();
        text.bytes().map(|b| (0..256).find(|&id| vocab.token(id) == [b]).unwrap()).collect()
    }

    #[test]
    fn what_is_shown_adds_up_to_the_answer() {
        let texts = [
            "\nHello",
            "Hello",
            "\n  a\nb \n",
            "",
            "\n",
            " \n x ",
            "\n截止[[训练时间]]。 [[训练 [[[训练时间]][[训练时间]]",
            "\na[[",
            "\n[[训练时间",
            "\n 🚀 é ",
            "\n[",
            "\n[a[[b",
            "f\n {\"a\": [[]]} \n",
            "f\n",
            " f \n[[训练时间]] ",
        ];
        for text in texts {
            let (segments, said, _) = write(&bytes(text), &[], &[]);
            assert_eq!(segments, [text]);
            let message = process_segments([text].into_iter(), &|_| false).0.remove(0);
            let (name, content) = (message.metadata.trim(), message.content.as_str());
            let content = if name.is_empty() { content.replace(TRAINING_DATE.0, TRAINING_DATE.1) } else { content.into() };
            assert_eq!(said.concat(), format!("<{name}>{content}"), "{text:?}: {said:?}");
            assert!(said.iter().all(|s| !s.is_empty()), "{said:?}");
        }
    }

    #[test]
    fn text_is_shown_as_soon_as_it_is_certain() {
        assert_eq!(write(&bytes("\nab c[x"), &[], &[]).1, ["<>", "a", "b", " c", "[x"]);
        assert_eq!(write(&bytes("f\n{ }"), &[], &[]).1, ["<f>", "{", " ", "}"]);
        // A character of four tokens.
        assert_eq!(write(&bytes("\n🚀!"), &[], &[]).1, ["<>", "🚀", "!"]);
    }

    #[test]
    fn segments_begin_at_the_token_and_not_at_its_text() {
        let vocab = small();
        let assistant = vocab.special("<|assistant|>").unwrap();
        let ids = [bytes("\nfirst <|assistant|> "), vec![assistant], bytes("f\nx")].concat();
        let (segments, said, _) = write(&ids, &[], &[]);
        assert_eq!(segments, ["\nfirst <|assistant|> ", "f\nx"]);
        assert_eq!(said.concat(), "<>first <|assistant|><f>x");
        // Other special tokens are text and end an incomplete character.
        let sop = vocab.special("<sop>").unwrap();
        assert_eq!(write(&[bytes("\n\u{e9}")[..2].to_vec(), vec![sop]].concat(), &[], &[]).0, ["\n\u{fffd}<sop>"]);
        // Ids without a token have no text.
        assert_eq!(
            write(&[bytes("\na"), vec![256 + MERGES.len() as u32 + 14, 151_551, u32::MAX], bytes("b")].concat(), &[], &[]).0,
            ["\nab"]
        );
    }

    #[test]
    fn tokens_of_thoughts_are_text_and_tokens_around_answers_are_not() {
        let vocab = super::super::testing::newer();
        let id = |text: &str| vocab.special(text).unwrap();
        let ids = [vec![id("<think>")], bytes("a"), vec![id("</think>"), id("<answer>")], bytes("b"), vec![id("</answer>")]].concat();
        let mut writer = SegmentWriter::new(&vocab, Vec::new(), &bytes("\n"));
        let _ = ids.iter().try_for_each(|&id| writer.push(id, &mut |_| ControlFlow::Continue(())));
        assert_eq!(writer.finish(&mut |_| ControlFlow::Continue(())).0, ["\n<think>a</think>b"]);
    }

    #[test]
    fn a_stop_text_ends_it() {
        let (segments, said, stopped) = write(&bytes("\nab END c"), &["END", "x"], &[]);
        assert_eq!((segments, said.concat(), stopped), (vec!["\nab ".into()], "<>ab".into(), true));
        let (segments, _, stopped) = write(&bytes("\nab EN"), &["END"], &[]);
        assert_eq!((segments, stopped), (vec!["\nab EN".into()], false));
    }

    #[test]
    fn what_the_prompt_holds_of_an_answer_belongs_to_it() {
        let (segments, said, _) = write(&bytes("ok</think>\nx"), &["\n<"], &bytes("\n<think>"));
        assert_eq!(segments, ["\n<think>ok</think>\nx"]);
        assert_eq!(said.concat(), "ok</think>\nx", "what is in the prompt is not shown");
        assert!(process_segments([segments[0].as_str()].into_iter(), &|name| !name.is_empty()).1.is_none());
    }
}
