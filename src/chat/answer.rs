//! What a model said, taken apart: a reply, or the call of a tool.
//!
//! An answer is one or more segments, begun by `<|assistant|>` (the first one's stands in the prompt). A segment is a line of
//! metadata, then content. A plain reply therefore begins with a newline.

use crate::error::Result;
use crate::template::{Family, Message, Role};
use serde_json::Value;

/// What models write where the date of their training should be, and what the original code makes of it.
pub(super) const TRAINING_DATE: (&str, &str) = ("[[训练时间]]", "2023年");

/// The last segment of an answer.
#[derive(Debug, Clone)]
pub enum Answer {
    /// A reply, without the blanks around it.
    Text(String),
    /// A call of one of the tools that the conversation begins with.
    Call {
        name: String,
        /// As the model wrote them.
        content: String,
        /// The arguments, read; an error where the content is nothing of the kind. The content of a call of `python` is code.
        parameters: Result<Value>,
    },
    /// A segment under a name, though the conversation begins without tools.
    Named { name: String, content: String },
}

impl Answer {
    /// The name of what is called.
    pub fn name(&self) -> Option<&str> {
        match self {
            Answer::Text(_) => None,
            Answer::Call { name, .. } | Answer::Named { name, .. } => Some(name),
        }
    }

    /// The reply, or what stands under the name.
    pub fn content(&self) -> &str {
        match self {
            Answer::Text(content) | Answer::Call { content, .. } | Answer::Named { content, .. } => content,
        }
    }
}

/// Takes an answer apart and adds its messages to the history. The text is what the model wrote, special tokens included, without the
/// token that ended it.
pub fn process_response(text: &str, history: &mut Vec<Message>, family: Family) -> Answer {
    process_segments(text.split(Role::Assistant.special()), history, family)
}

/// The same for segments that were told apart by the id of their token: a text that only reads like `<|assistant|>` begins none.
pub(super) fn process_segments<'a>(segments: impl Iterator<Item = &'a str>, history: &mut Vec<Message>, family: Family) -> Answer {
    let mut answer = Answer::Text(String::new());
    for segment in segments {
        answer = process(segment, history, family);
    }
    answer
}

fn process(segment: &str, history: &mut Vec<Message>, family: Family) -> Answer {
    let (metadata, content) = segment.split_once('\n').unwrap_or(("", segment));
    let name = metadata.trim().to_string();
    let content = if name.is_empty() { content.trim() } else { content };
    history.push(Message { metadata: metadata.into(), ..Message::assistant(content) });
    let has_tools = history.first().is_some_and(|first| first.role == Role::System && !first.tools.is_empty());
    match (name.is_empty(), has_tools) {
        (true, _) => Answer::Text(content.replace(TRAINING_DATE.0, TRAINING_DATE.1)),
        (false, true) => Answer::Call { name, content: content.into(), parameters: family.arguments(content) },
        (false, false) => Answer::Named { name, content: content.into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::Tool;
    use serde_json::json;

    fn with_tools() -> Vec<Message> {
        vec![Message::system("").with_tools(vec![Tool::Python]), Message::user("?")]
    }

    fn run(text: &str, mut history: Vec<Message>) -> (Answer, Vec<Message>) {
        let before = history.len();
        let answer = process_response(text, &mut history, Family::Glm4);
        (answer, history.split_off(before))
    }

    #[test]
    fn replies_are_trimmed() {
        for (text, want) in [("\nHello", "Hello"), ("Hello", "Hello"), ("\n  a\nb \n", "a\nb"), ("", ""), ("\n", ""), (" \nx", "x")] {
            for history in [with_tools(), vec![], vec![Message::user("?")]] {
                let (answer, added) = run(text, history);
                assert!(matches!(&answer, Answer::Text(found) if found == want), "{text:?}: {answer:?}");
                assert_eq!((added.len(), added[0].role, added[0].content.as_str()), (1, Role::Assistant, want));
                assert_eq!(answer.name(), None);
            }
        }
    }

    #[test]
    fn a_first_line_is_the_name_of_a_tool() {
        let text = "get_weather\n{\"city\": \"x\"}";
        let (answer, added) = run(text, with_tools());
        let Answer::Call { name, content, parameters } = answer else { panic!("{answer:?}") };
        assert_eq!((name.as_str(), content.as_str(), parameters.unwrap()), ("get_weather", "{\"city\": \"x\"}", json!({"city": "x"})));
        assert_eq!(added, [Message::call("get_weather", "{\"city\": \"x\"}")]);
        // without tools, with tools elsewhere, or not in a message of the system
        let elsewhere = vec![Message::user("?"), Message::system("").with_tools(vec![Tool::Python])];
        for history in [vec![Message::system("x")], vec![], elsewhere, vec![Message::user("?").with_tools(vec![Tool::Python])]] {
            let (answer, _) = run(text, history);
            assert!(
                matches!(&answer, Answer::Named { name, content } if name == "get_weather" && content == "{\"city\": \"x\"}"),
                "{answer:?}"
            );
        }
    }

    #[test]
    fn a_name_loses_its_blanks_and_content_keeps_them() {
        let (answer, added) = run(" f \n {\"a\": 1} \n", with_tools());
        assert!(
            matches!(&answer, Answer::Call { name, parameters: Ok(value), .. } if name == "f" && *value == json!({"a": 1})),
            "{answer:?}"
        );
        assert_eq!((added[0].metadata.as_str(), added[0].content.as_str()), (" f ", " {\"a\": 1} \n"));
    }

    #[test]
    fn the_last_segment_is_the_answer() {
        let (answer, added) = run("\nfirst<|assistant|>python\nprint(1)", vec![Message::user("?")]);
        assert!(matches!(&answer, Answer::Named { name, content } if name == "python" && content == "print(1)"), "{answer:?}");
        assert_eq!(added, [Message::assistant("first"), Message::call("python", "print(1)")]);
    }

    #[test]
    fn the_date_of_training_is_put_in_after_the_history() {
        let (answer, added) = run("\n截止[[训练时间]]", with_tools());
        assert_eq!((answer.content(), added[0].content.as_str()), ("截止2023年", "截止[[训练时间]]"));
        let (answer, _) = run("f\n\"[[训练时间]]\"", with_tools());
        assert!(matches!(answer, Answer::Call { parameters: Ok(value), .. } if value == "[[训练时间]]"));
    }

    #[test]
    fn arguments_that_are_no_json_are_a_value() {
        for content in ["print(1)", "", "{", "{\"a\": 1} and so on", "\u{feff}{}", &"[".repeat(100_000)] {
            let (answer, added) = run(&format!("python\n{content}"), with_tools());
            let Answer::Call { name, parameters: Err(e), .. } = &answer else { panic!("{answer:?}") };
            assert!(name == "python" && e.to_string().starts_with("expected the arguments of a call as JSON"), "{e}");
            assert_eq!((answer.content(), added[0].content.as_str()), (content, content));
        }
    }

    #[test]
    fn chatglm3_calls_in_python() {
        let answer = process_response("f\n```python\ntool_call(x='查', y=1)\n```", &mut with_tools(), Family::ChatGlm3);
        assert!(matches!(&answer, Answer::Call { parameters: Ok(value), .. } if *value == json!({"x": "查", "y": 1})), "{answer:?}");
    }
}
