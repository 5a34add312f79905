//! ChatGLM3's template: GLM-4's form with the prefix `[gMASK]sop`, and tools as plain JSON after the system message.
//!
//! The vocabulary puts a space before every text that it encodes. So every text that ChatGLM3's own code encodes separately is a separate part here.

use super::glm4::add;
use super::json::{JsonStyle, dumps};
use super::{Family, Message, Part, Role, Template, Tool};
use crate::error::{Error, Result};
use serde_json::Value;

/// The built-in template of ChatGLM3-6B. Renders every message, even an empty message.
#[derive(Debug, Clone, Copy)]
pub struct ChatGlm3;

impl Template for ChatGlm3 {
    fn name(&self) -> String {
        "ChatGLM3".into()
    }

    fn family(&self) -> Family {
        Family::ChatGlm3
    }

    fn render(&self, messages: &[Message]) -> Result<Vec<Part>> {
        let mut parts: Vec<Part> = Family::ChatGlm3.prefix().iter().copied().map(Part::Special).collect();
        for message in messages {
            match message.tools.as_slice() {
                [] => add(&mut parts, message.role, &message.metadata, &message.content),
                tools if message.role == Role::System => {
                    let content = format!("{}\n{}", message.content, dumps(&functions(tools)?, &JsonStyle::tools()));
                    add(&mut parts, message.role, &message.metadata, &content);
                }
                _ => {
                    return Err(Error::input(format!(
                        "tools must be in a message of the role system, found tools in a message of the role {}",
                        message.role.name()
                    )));
                }
            }
        }
        parts.push(Part::Special(Role::Assistant.special()));
        Ok(parts)
    }
}

/// Returns a JSON list of the function objects, as in ChatGLM3's training data.
fn functions(tools: &[Tool]) -> Result<Value> {
    let function = |tool: &Tool| match tool {
        Tool::Function(function) => Ok(function.object().clone()),
        other => {
            let message = format!("ChatGLM3 has no built-in tool {}", other.name());
            Err(Error::input(message).hint("describe the tool as a function"))
        }
    };
    tools.iter().map(function).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{encode, whole};
    use super::*;
    use crate::vocab::Vocab;
    use serde_json::json;
    use std::path::Path;

    #[test]
    fn text_is_the_original_codes() {
        let tools = vec![Tool::function(json!({"name": "查", "a": 1})).unwrap()];
        let messages = [
            Message::system("Answer.").with_tools(tools),
            Message::user("hi"),
            Message::call("查", "```python\ntool_call(x=1)\n```"),
            Message::observation("7"),
        ];
        let parts = ChatGlm3.render(&messages).unwrap();
        let want = "[gMASK]sop<|system|>\nAnswer.\n[\n    {\n        \"name\": \"查\",\n        \"a\": 1\n    }\n]<|user|>\nhi<|assistant|>查\n\
                    ```python\ntool_call(x=1)\n```<|observation|>\n7<|assistant|>";
        assert_eq!(whole(&parts), want);
        // The newline after a role and the content are separate parts, because the vocabulary puts a space before each part.
        let text = |t: &str| Part::Text(t.into());
        assert_eq!(parts[5..8], [Part::Special("<|user|>"), text("\n"), text("hi")]);
        let one = ChatGlm3.render(&[Message::user("")]).unwrap();
        assert_eq!(whole(&one), "[gMASK]sop<|user|>\n<|assistant|>", "nothing is left out");
    }

    /// Needs ChatGLM3's `tokenizer.model`, which is too large for the repository. The environment variable `WINGBEAT_CHATGLM3_VOCAB` names a copy.
    #[test]
    fn conversations_have_the_published_ids() {
        let Some(path) = std::env::var_os("WINGBEAT_CHATGLM3_VOCAB") else {
            println!(
                "SKIPPED conversations_have_the_published_ids: WINGBEAT_CHATGLM3_VOCAB does not name a copy of ChatGLM3's tokenizer.model"
            );
            return;
        };
        let vocab = Vocab::open(Path::new(&path)).unwrap();
        let ids = |text: &str| encode(&ChatGlm3.render(&[Message::user(text)]).unwrap(), &vocab).unwrap();
        assert_eq!(ids("你好"), [64790, 64792, 64795, 30910, 13, 36474, 54591, 64796]);
        assert_eq!(ids("hi"), [64790, 64792, 64795, 30910, 13, 14980, 64796]);
        assert_eq!(Family::ChatGlm3.stop_ids(&vocab).unwrap(), [2, 64795, 64797]);
    }

    #[test]
    fn other_tools_and_places_are_refused() {
        let builtin = Message::system("").with_tools(vec![Tool::Python]);
        assert!(ChatGlm3.render(&[builtin]).unwrap_err().to_string().contains("ChatGLM3 has no built-in tool python"));
        let misplaced = Message::user("x").with_tools(vec![Tool::Python]);
        assert!(ChatGlm3.render(&[misplaced]).unwrap_err().to_string().contains("in a message of the role user"));
    }
}
