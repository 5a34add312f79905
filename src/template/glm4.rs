//! GLM-4's template: `[gMASK]<sop>` (not for GLM-Edge), then `<|role|>{metadata}\n{content}` for each message, then `<|assistant|>`.
//!
//! The template adds no text between messages. It also adds no text after the last `<|assistant|>`, because the model writes a newline or a tool's
//! name there. Only [`Version::Z1`] and [`Version::Vision`] begin the answer. The texts about tools equal the published texts byte for byte, with
//! full-width punctuation: other bytes would be tokens that the model was not trained on. Tests compare the SHA-256 of all but Z1's text.

use super::json::{JsonStyle, dumps};
use super::{Family, Message, Part, Role, Template, Tool};
use crate::error::{Error, Result};

const SELF: &str = include_str!("glm4/self.txt");
const SELF_Z1: &str = include_str!("glm4/self_z1.txt");
const PYTHON: &str = include_str!("glm4/python.txt");
const SIMPLE_BROWSER: &str = include_str!("glm4/simple_browser.txt");
const COGVIEW: &str = include_str!("glm4/cogview.txt");
const AVAILABLE_TOOLS: &str = "# 可用工具";
const AS_JSON: &str = "在调用上述函数时，请使用 Json 格式表示调用的参数。";

/// The published forms of GLM-4's prompts. They differ in the texts about tools and in the place of system messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// The Python code of glm-4-9b-chat.
    Original,
    /// The template in `tokenizer_config.json` of glm-4-9b-chat and glm-4-9b-chat-hf.
    Template,
    /// GLM-4-0414: all tools and system messages come first.
    V0414,
    /// GLM-Z1-0414: like `V0414`, but thoughts of earlier answers are left out, and the prompt ends with the beginning of a thought.
    Z1,
    /// GLM-Edge: messages in the given order, without tools. No `[gMASK]<sop>` before the first message.
    Edge,
    /// GLM-4.1V, for texts: messages in the given order, without tools. The prompt ends with a newline after the last `<|assistant|>`; the
    /// model continues with a thought or a reply.
    Vision,
}

impl Version {
    /// Returns the name of the version for logs and reports.
    pub fn name(self) -> &'static str {
        match self {
            Version::Original => "glm-4-9b-chat, code",
            Version::Template => "glm-4-9b-chat, template",
            Version::V0414 => "GLM-4-0414",
            Version::Z1 => "GLM-Z1-0414",
            Version::Edge => "GLM-Edge",
            Version::Vision => "GLM-4.1V",
        }
    }

    fn is_0414(self) -> bool {
        matches!(self, Version::V0414 | Version::Z1)
    }
}

/// The built-in template of GLM-4. Omits messages with empty content, but keeps their tools.
#[derive(Debug, Clone, Copy)]
pub struct Glm4(pub Version);

impl Template for Glm4 {
    fn name(&self) -> String {
        self.0.name().into()
    }

    fn family(&self) -> Family {
        if self.0 == Version::Edge { Family::GlmEdge } else { Family::Glm4 }
    }

    fn before_lines(&self) -> &'static [&'static str] {
        const { &[Role::System.special(), Role::User.special(), Role::Assistant.special(), Role::Observation.special()] }
    }

    fn render(&self, messages: &[Message]) -> Result<Vec<Part>> {
        let mut parts: Vec<Part> = self.family().prefix().iter().copied().map(Part::Special).collect();
        if self.0.is_0414() {
            let tools: Vec<&Tool> = messages.iter().flat_map(|m| &m.tools).collect();
            self.add_tools(&mut parts, &tools)?;
            let (first, rest): (Vec<&Message>, Vec<&Message>) = messages.iter().partition(|m| m.role == Role::System);
            first.into_iter().chain(rest).for_each(|m| self.add_message(&mut parts, m));
        } else {
            for message in messages {
                self.add_tools(&mut parts, &message.tools.iter().collect::<Vec<_>>())?;
                self.add_message(&mut parts, message);
            }
        }
        parts.push(Part::Special(Role::Assistant.special()));
        match self.0 {
            Version::Z1 => parts.push(Part::Text("\n<think>".into())),
            Version::Vision => parts.push(Part::Text("\n".into())),
            _ => {}
        }
        Ok(parts)
    }
}

impl Glm4 {
    fn add_message(&self, parts: &mut Vec<Part>, message: &Message) {
        let content = match self.0 {
            Version::Z1 => message.content.rsplit("</think>").next().unwrap_or_default().trim(),
            _ => &message.content,
        };
        if !content.is_empty() {
            add(parts, message.role, &message.metadata, content);
        }
    }

    /// Adds a system message that describes the tools. Adds nothing if `tools` is empty.
    fn add_tools(&self, parts: &mut Vec<Part>, tools: &[&Tool]) -> Result<()> {
        if tools.is_empty() {
            return Ok(());
        }
        let (mut text, between) = match self.0 {
            Version::Original => (SELF.to_string(), "\n\n"),
            Version::Template => (format!("{}\n\n{AVAILABLE_TOOLS}", SELF.replacen("GLM-4", "ChatGLM", 1)), "\n"),
            Version::V0414 => (AVAILABLE_TOOLS.to_string(), "\n"),
            Version::Z1 => (format!("{SELF_Z1}\n\n{AVAILABLE_TOOLS}"), "\n"),
            Version::Edge | Version::Vision => {
                let message = format!("the built-in template of {} has no tools", self.0.name());
                return Err(Error::input(message).hint("remove the tools, or use a GLM-4 model"));
            }
        };
        for tool in tools {
            let about = match tool {
                Tool::Function(function) => format!("{}\n{AS_JSON}", dumps(function.object(), &JsonStyle::tools())),
                _ if self.0.is_0414() => {
                    let message = format!("{} has no built-in tool {}", self.0.name(), tool.name());
                    return Err(Error::input(message).hint("describe the tool as a function"));
                }
                Tool::Python => PYTHON.into(),
                Tool::SimpleBrowser => SIMPLE_BROWSER.into(),
                Tool::Cogview => COGVIEW.into(),
            };
            text += &format!("{between}## {}\n\n{about}", tool.name());
        }
        add(parts, Role::System, "", &text);
        Ok(())
    }
}

/// Adds a message as three parts: the role's token, the metadata followed by a newline, and the content.
pub(super) fn add(parts: &mut Vec<Part>, role: Role, metadata: &str, content: &str) {
    parts.extend([Part::Special(role.special()), Part::Text(format!("{metadata}\n")), Part::Text(content.into())]);
}

#[cfg(test)]
mod tests;
