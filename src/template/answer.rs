//! What a model said, taken apart: a reply, or the call of a tool.
//!
//! An answer is one or more segments, begun by `<|assistant|>` (the first one's is in the prompt). A segment is a line of
//! metadata, then content. A plain reply therefore begins with a newline.

use super::{Family, Message};
use crate::error::Result;
use serde_json::Value;

/// What models write where the date of their training should be, and what the original code makes of it.
pub(super) const TRAINING_DATE: (&str, &str) = ("[[训练时间]]", "2023年");

/// The call of a tool.
#[derive(Debug, Clone)]
pub struct ToolCall {
    pub name: String,
    /// As the model wrote them.
    pub arguments: String,
    /// The arguments, read; an error where they are nothing of the kind. The arguments of a call of `python` are code.
    pub parameters: Result<Value>,
}

/// Takes the segments of an answer apart: all as messages, and the call of a tool if the last segment is one. A text that only reads like
/// `<|assistant|>` begins no segment: they were told apart by the ids of their tokens.
pub fn process_segments<'a>(segments: impl Iterator<Item = &'a str>, has_tools: bool, family: Family) -> (Vec<Message>, Option<ToolCall>) {
    let (mut messages, mut call) = (Vec::new(), None);
    for segment in segments {
        let (metadata, content) = segment.split_once('\n').unwrap_or(("", segment));
        let name = metadata.trim();
        let content = if name.is_empty() { content.trim() } else { content };
        messages.push(Message { metadata: metadata.into(), ..Message::assistant(content) });
        call = (has_tools && !name.is_empty()).then(|| ToolCall {
            name: name.into(),
            arguments: content.into(),
            parameters: family.arguments(content),
        });
    }
    (messages, call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// An answer of one segment.
    fn run(text: &str, has_tools: bool) -> (Message, Option<ToolCall>) {
        let (mut messages, call) = process_segments([text].into_iter(), has_tools, Family::Glm4);
        assert_eq!(messages.len(), 1);
        (messages.remove(0), call)
    }

    #[test]
    fn replies_are_trimmed() {
        for (text, want) in [("\nHello", "Hello"), ("Hello", "Hello"), ("\n  a\nb \n", "a\nb"), ("", ""), ("\n", ""), (" \nx", "x")] {
            for has_tools in [false, true] {
                let (message, call) = run(text, has_tools);
                assert!(call.is_none() && message.content == want, "{text:?}: {message:?}");
            }
        }
    }

    #[test]
    fn a_first_line_is_the_name_of_a_tool() {
        let text = "get_weather\n{\"city\": \"x\"}";
        let (message, call) = run(text, true);
        let ToolCall { name, arguments, parameters } = call.unwrap();
        assert_eq!((name.as_str(), arguments.as_str(), parameters.unwrap()), ("get_weather", "{\"city\": \"x\"}", json!({"city": "x"})));
        assert_eq!(message, Message::call("get_weather", "{\"city\": \"x\"}"));
        assert!(run(text, false).1.is_none());
        // A name loses its blanks, and content keeps them.
        let (message, call) = run(" f \n {\"a\": 1} \n", true);
        let call = call.unwrap();
        assert_eq!((call.name.as_str(), call.parameters.unwrap()), ("f", json!({"a": 1})));
        assert_eq!(message, Message::call(" f ", " {\"a\": 1} \n"));
    }

    #[test]
    fn the_last_segment_may_be_a_call() {
        let (messages, call) = process_segments(["\nfirst", "python\nprint(1)"].into_iter(), true, Family::Glm4);
        assert_eq!(messages, [Message::assistant("first"), Message::call("python", "print(1)")]);
        assert_eq!(call.unwrap().arguments, "print(1)");
        assert!(process_segments(["python\nprint(1)", "\nlast"].into_iter(), true, Family::Glm4).1.is_none());
    }

    #[test]
    fn arguments_that_are_no_json_are_a_value() {
        for content in ["print(1)", "", "{", "{\"a\": 1} and so on", "\u{feff}{}", &"[".repeat(100_000)] {
            let call = run(&format!("python\n{content}"), true).1.unwrap();
            let said = call.parameters.unwrap_err().to_string();
            assert!(said.starts_with("expected the arguments of a call as JSON") && call.arguments == content, "{said}");
        }
        let python = ["f\n```python\ntool_call(x='查', y=1)\n```"].into_iter();
        let call = process_segments(python, true, Family::ChatGlm3).1.unwrap();
        assert_eq!(call.parameters.unwrap(), json!({"x": "查", "y": 1}));
    }
}
