//! Renders conversations as prompts of RWKV-7 G1, in one of four built-in styles or with the checkpoint's own template.
//!
//! An RWKV vocabulary has no special tokens in prompts, so a prompt is one text.

mod clean;
#[cfg(test)]
mod tests;
mod write;

use super::{Family, Jinja, Message, Opening, Part, Role, Template, Tool};
use crate::error::{Error, Result};
pub(crate) use clean::cleaned;
use clean::{CleanTurn, turns};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// A built-in style of prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Paragraphs that begin with `User:` and `Assistant:`.
    Assistant,
    /// Lines with `User✿` and `Bot✿`.
    Bot,
    /// Sections with headings, and full descriptions of the tools. Conversations with tools, calls or results always have this style, unless `Short`
    /// is chosen.
    Tools,
    /// Paragraphs as in `Assistant`. The system message has one line per tool.
    Short,
}

/// The texts with which checkpoints' own templates begin an answer at the end of the prompt.
const OPENINGS: [&str; 6] = ["<think></think", "<think>\n</think", "<think></think>", "<think>\n</think>", "<think>", "<think"];

/// The template of an RWKV-7 G1 model.
#[derive(Debug, Clone)]
pub struct G1 {
    /// The chosen style. Conversations with tools have the style `Tools` unless `Short` is chosen.
    pub style: Style,
    pub opening: Opening,
    /// The checkpoint's own template. If `None`, the built-in styles are used.
    pub own: Option<Arc<Jinja>>,
}

impl G1 {
    /// Returns the style of a conversation: `Tools` if it uses tools and `Short` is not chosen, else the chosen style.
    fn style_of(&self, messages: &[Message]) -> Style {
        let uses_tools = |m: &Message| !m.tools.is_empty() || !m.metadata.is_empty() || m.role == Role::Observation;
        if self.style != Style::Short && messages.iter().any(uses_tools) { Style::Tools } else { self.style }
    }

    /// Renders a conversation with the checkpoint's own template.
    fn run(&self, jinja: &Jinja, style: Style, turns: &[CleanTurn], tools: &[&Tool]) -> Result<String> {
        let style = match style {
            Style::Assistant | Style::Short => "assistant",
            Style::Bot => "bot",
            Style::Tools => "function_calling",
        };
        let opening = if self.opening == Opening::EmptyThought { "fake_think" } else { "open_think" };
        let tools = if tools.is_empty() { Value::Null } else { json!(tools) };
        let mut context = Map::new();
        let mut set = |name: &str, value: Value| drop(context.insert(name.into(), value));
        set("messages", turns.iter().map(CleanTurn::json).collect());
        set("tools", tools);
        set("add_generation_prompt", true.into());
        set("rwkv_prompt_template", style.into());
        set("rwkv_generation_prompt", opening.into());
        set("rwkv_add_bos", false.into());
        let text = jinja.text(context, &[("bos_token", "<|endoftext|>")])?;
        // No value of `rwkv_generation_prompt` omits the beginning of a thought, so the beginning is removed from the output.
        Ok(match text.strip_suffix(Opening::Thought.text()) {
            Some(text) if self.opening == Opening::Nothing => text.trim_end_matches([' ', '\n']).into(),
            _ => text,
        })
    }
}

impl Template for G1 {
    fn name(&self) -> String {
        match (&self.own, self.style) {
            (Some(jinja), _) => jinja.name(),
            (None, style) => format!("RWKV-7 G1, {style:?}"),
        }
    }

    fn family(&self) -> Family {
        Family::Rwkv
    }

    fn render(&self, messages: &[Message]) -> Result<Vec<Part>> {
        let (style, turns) = (self.style_of(messages), turns(messages));
        let tools: Vec<&Tool> = messages.iter().flat_map(|message| &message.tools).collect();
        if let Some(builtin) = tools.iter().find(|tool| !matches!(tool, Tool::Function(_))) {
            let message = format!("an RWKV model has no built-in tool {}", builtin.name());
            return Err(Error::input(message).hint("describe the tool as a function"));
        }
        let text = match &self.own {
            Some(jinja) => self.run(jinja, style, &turns, &tools)?,
            None => write::prompt(style, self.opening, &turns, &tools),
        };
        Ok(vec![Part::Text(text)])
    }

    fn opening<'a>(&self, prompt: &'a str) -> &'a str {
        let opening = OPENINGS.iter().find(|opening| prompt.ends_with(**opening));
        &prompt[prompt.len() - opening.map_or(0, |opening| opening.len())..]
    }

    fn lead(&self, messages: &[Message]) -> &'static str {
        match self.style_of(messages) {
            Style::Assistant | Style::Short => " ",
            Style::Bot => "",
            Style::Tools => "\n",
        }
    }

    fn stops(&self, messages: &[Message]) -> Vec<String> {
        let stops: &[&str] = match self.style_of(messages) {
            Style::Assistant | Style::Short => &["\nUser:"],
            Style::Bot => &["✿"],
            // Without the stop `### Tool Output`, the model would continue after a call and invent the result.
            Style::Tools => &["\n### User", "\n### Tool Output"],
        };
        stops.iter().map(ToString::to_string).collect()
    }

    fn around_arguments(&self, name: &str) -> Option<[String; 2]> {
        let mark = if self.style == Style::Short { "" } else { "**Tool Call:**\n" };
        Some([format!("{mark}```json\n{{\"name\": {}, \"arguments\": ", Value::from(name)), "}\n```".into()])
    }

    fn with_opening(&self, opening: Opening) -> Option<Arc<dyn Template>> {
        Some(Arc::new(G1 { opening, ..self.clone() }))
    }
}

/// Returns the prompt with which a G1 model generates the text between `prefix` and `suffix`. The suffix comes first, so that the model continues
/// the prefix.
pub fn fill_prompt(prefix: &str, suffix: &str) -> String {
    format!("✿prefix✿✿suffix✿{suffix}✿middle✿{prefix}")
}
