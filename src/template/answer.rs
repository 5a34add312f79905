//! Converts complete answers of GLM-4 and its relatives to replies and tool calls.
//!
//! An answer consists of one or more segments, each after a token `<|assistant|>`; the first of these tokens is in the prompt. A segment's first line
//! is the name of a tool, or empty in a reply. The content follows. So a plain reply begins with a newline.

use super::Message;

/// The mark that GLM-4 writes instead of the date of its training, and the text with which GLM-4's own code replaces the mark.
pub(super) const TRAINING_DATE: (&str, &str) = ("[[训练时间]]", "2023年");

/// A call of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// The tool's name.
    pub name: String,
    /// The arguments as the model wrote them: code in a call of `python`, otherwise a text that [`Family::arguments`](super::Family::arguments)
    /// parses.
    pub arguments: String,
}

/// Returns the segments of an answer as messages. Also returns the tool call if the first line of the last segment is the name of a tool. The caller
/// separates segments at the ids of special tokens, so the text `<|assistant|>` within a segment begins no new segment.
pub fn process_segments<'a>(segments: impl Iterator<Item = &'a str>, is_tool: &dyn Fn(&str) -> bool) -> (Vec<Message>, Option<ToolCall>) {
    let (mut messages, mut call) = (Vec::new(), None);
    for segment in segments {
        let (metadata, content) = segment.split_once('\n').unwrap_or(("", segment));
        let name = metadata.trim();
        let content = if name.is_empty() { content.trim() } else { content };
        messages.push(Message { metadata: metadata.into(), ..Message::assistant(content) });
        call = is_tool(name).then(|| ToolCall { name: name.into(), arguments: content.into() });
    }
    (messages, call)
}

#[cfg(test)]
mod tests {
    use super::super::Family;
    use super::*;
    use serde_json::json;

    /// Converts the text of one segment (the text after one `<|assistant|>`) to a message, and to a tool call if the segment calls a tool.
    fn run(text: &str, has_tools: bool) -> (Message, Option<ToolCall>) {
        let (mut messages, call) = process_segments([text].into_iter(), &|name| has_tools && ["f", "get_weather"].contains(&name));
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
        assert_eq!(call, Some(ToolCall { name: "get_weather".into(), arguments: "{\"city\": \"x\"}".into() }));
        assert_eq!(message, Message::call("get_weather", "{\"city\": \"x\"}"));
        assert!(run(text, false).1.is_none() && run("other\n{}", true).1.is_none());
        // The name is trimmed, the arguments are not.
        let (message, call) = run(" f \n {\"a\": 1} \n", true);
        assert_eq!(call.unwrap().name, "f");
        assert_eq!(message, Message::call(" f ", " {\"a\": 1} \n"));
    }

    #[test]
    fn the_last_segment_may_be_a_call() {
        let (messages, call) = process_segments(["\nfirst", "python\nprint(1)"].into_iter(), &|name| name == "python");
        assert_eq!(messages, [Message::assistant("first"), Message::call("python", "print(1)")]);
        assert_eq!(call.unwrap().arguments, "print(1)");
        assert!(process_segments(["python\nprint(1)", "\nlast"].into_iter(), &|name| name == "python").1.is_none());
    }

    #[test]
    fn arguments_are_parsed_by_family() {
        assert_eq!(Family::Glm4.arguments(" {\"a\": 1} \n").unwrap(), json!({"a": 1}));
        for content in ["print(1)", "", "{", "{\"a\": 1} and so on", "\u{feff}{}", &"[".repeat(100_000)] {
            let said = Family::Glm4.arguments(content).unwrap_err().to_string();
            assert!(said.starts_with("the arguments of a tool call must be JSON"), "{said}");
        }
        let python = "```python\ntool_call(x='查', y=1)\n```";
        assert_eq!(Family::ChatGlm3.arguments(python).unwrap(), json!({"x": "查", "y": 1}));
    }
}
