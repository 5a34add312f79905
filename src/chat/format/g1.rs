//! Formats of messages for RWKV-7 G1: the built-in styles, and the template of the checkpoint's folder.

use super::thinking::Thinking;
use super::{Format, Kind, Messages, TEMPLATE};
use crate::calls::{demanded, undeclared};
use crate::chat::Settings;
use crate::error::{Error, Result};
use crate::sample::Sampling;
use crate::session::Model;
use crate::template::{Family, Files, G1, GenerationConfig, Jinja, Message, Opening, Profile, Profiles, Role, Style, Tool};
use serde_json::Value;
use std::sync::Arc;

/// Each built-in format of messages: its name, its description and its style.
pub const G1_FORMATS: [(&str, &str, Style); 3] = [
    ("g1-bot", "User✿, Bot✿; for G1 models", Style::Bot),
    ("g1-tools", "sections with headings and descriptions of tools; for G1 models, and their default with tools", Style::Tools),
    ("g1-tools-short", "User, Assistant, and one line per tool; for G1 models", Style::Short),
];

/// The variable by which a template of G1 is recognised.
const VARIABLE: &str = "rwkv_generation_prompt";

/// Returns the generation settings in the folder of an RWKV model in Hugging Face's layout.
pub fn profiles(model: &Model) -> Result<Arc<Profiles>> {
    let folder = model.folder().filter(|_| model.kind() == "safetensors");
    Ok(Arc::new(folder.map(Profiles::read).transpose()?.unwrap_or_default()))
}

/// Returns the built-in format of messages with this name, or `None`.
pub fn named(name: &str, model: &Model) -> Result<Option<Format>> {
    let Some((name, _, style)) = G1_FORMATS.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name)) else { return Ok(None) };
    Ok(Some(format(name, *style, None, profiles(model)?)))
}

/// Returns the format of the template in the folder of an RWKV model, or `None` if there is no such template for G1.
pub fn own(model: &Model) -> Result<Option<Format>> {
    let folder = model.folder().filter(|_| model.kind() == "safetensors" && model.facts().architecture == "rwkv7");
    let jinja = folder.map(|folder| Files::template(folder, Family::Rwkv)).transpose()?.flatten();
    let Some(jinja) = jinja.filter(|jinja| jinja.mentions(VARIABLE)) else { return Ok(None) };
    Ok(Some(format(TEMPLATE.0, Style::Bot, Some(Arc::new(jinja)), profiles(model)?)))
}

fn format(name: &'static str, style: Style, own: Option<Arc<Jinja>>, profiles: Arc<Profiles>) -> Format {
    let template = Arc::new(G1 { style, opening: Opening::Thought, own });
    let is_for_tools = matches!(style, Style::Tools | Style::Short);
    let generation = generation(&profiles, if is_for_tools { Profile::Tools } else { Profile::Think });
    let kind = Kind::Messages(Box::new(Messages { template, generation }));
    Format { name, kind, profiles, thinking: Some(Thinking::On), is_for_tools }
}

/// Returns the settings of a profile: the preset, with the settings of the checkpoint's file over it.
pub fn generation(profiles: &Profiles, profile: Profile) -> GenerationConfig {
    let preset = match profile {
        Profile::Think => "g1-think",
        Profile::Fast => "g1-fast",
        Profile::Tools => "g1-tools",
    };
    let preset = GenerationConfig::of(&Sampling::preset(preset).expect("it is one of the presets"));
    profiles.get(profile).cloned().unwrap_or(GenerationConfig { max_length: MAX_TOKENS, ..preset })
}

/// The most tokens of an answer, unless a setting changes it.
const MAX_TOKENS: usize = 4096;

impl Format {
    /// Returns the format for a conversation with tools, calls or results. Formats of G1 become `g1-tools`, with the same thoughts. Other
    /// formats stay as they are.
    #[must_use]
    pub fn for_tools(self) -> Format {
        let is_rwkv = matches!(&self.kind, Kind::Messages(options) if options.template.family() == Family::Rwkv);
        match (&self.kind, self.thinking) {
            (Kind::Lines(_), Some(thinking)) => {
                let tools = format("g1-tools", Style::Tools, None, self.profiles);
                tools.with_thinking(thinking).expect("the format has thoughts")
            }
            (Kind::Messages(options), _) if is_rwkv && !self.is_for_tools => {
                let generation = generation(&self.profiles, Profile::Tools);
                let kind = Kind::Messages(Box::new(Messages { template: options.template.clone(), generation }));
                Format { kind, is_for_tools: true, ..self }
            }
            _ => self,
        }
    }

    /// Returns the messages with the text that asks for a short or a long thought at the end of the last message of the user.
    pub(crate) fn hinted(&self, mut messages: Vec<Message>) -> Vec<Message> {
        let hint = self.thinking.map_or("", Thinking::hint);
        if let Some(last) = messages.iter_mut().rfind(|message| message.role == Role::User).filter(|_| !hint.is_empty()) {
            last.content.truncate(last.content.trim_end().len());
            last.content += hint;
        }
        messages
    }

    /// Returns the texts of a call that a request demands: for each tool, the text before the arguments, their JSON schema, and the text after
    /// them. `name` selects one of the tools that the messages declare.
    ///
    /// # Errors
    /// `Input` if no tool has this name, a tool is not a function, or calls cannot be demanded in this format.
    pub(crate) fn demanded(&self, messages: &[Message], name: Option<&str>) -> Result<Vec<(String, Value, String)>> {
        let tools: Vec<Tool> = messages.iter().flat_map(|message| message.tools.iter().cloned()).collect();
        match &self.kind {
            Kind::Messages(options) => demanded(options.template.as_ref(), &tools, name),
            Kind::Lines(_) if tools.is_empty() => Err(undeclared()),
            Kind::Lines(_) => Err(Error::input("this format has no place for tools and tool calls")),
        }
    }

    /// Returns the settings of a format of G1 with this length of answers.
    pub(super) fn message_settings(generation: &GenerationConfig) -> Settings {
        let chat_len_max = if generation.max_length == usize::MAX { MAX_TOKENS } else { generation.max_length };
        Settings { sampling: generation.sampling(), chat_len_max, ..Settings::default() }
    }
}
