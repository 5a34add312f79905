//! The chat formats of RWKV-7 G1 that render messages: the built-in styles, and the template in the checkpoint's folder.

use super::known::is_small_world;
use super::thinking::Thinking;
use super::{Format, FormatKind, Messages, TEMPLATE};
use crate::calls::{demanded, undeclared};
use crate::chat::Settings;
use crate::error::{Error, Result};
use crate::sample::Sampling;
use crate::session::Model;
use crate::template::{Family, Files, G1, GenerationConfig, Jinja, Message, Opening, Profile, Profiles, Role, Style, Tool};
use serde_json::Value;
use std::sync::Arc;

/// The built-in formats that render messages: the name, the description and the style of each format.
pub const G1_FORMATS: [(&str, &str, Style); 3] = [
    ("g1-bot", "User✿, Bot✿; for G1 models", Style::Bot),
    ("g1-tools", "sections with headings and descriptions of tools; for G1 models, and their default with tools", Style::Tools),
    ("g1-tools-short", "User, Assistant, and one line per tool; for G1 models", Style::Short),
];

/// A variable that every G1 template mentions, and no other template does. So a template that mentions the variable is treated as G1's.
const VARIABLE: &str = "rwkv_generation_prompt";

/// Reads the generation settings in the model's folder. Returns empty settings if the model has no folder or its files are not safetensors. For the
/// embedded model, returns the preset `g1-fast` for all kinds of answers.
pub fn profiles(model: &Model) -> Result<Arc<Profiles>> {
    if is_small_world(model) {
        return Ok(Arc::new(Profiles::same(&generation(&Profiles::default(), Profile::Fast))));
    }
    let folder = model.folder().filter(|_| model.kind() == "safetensors");
    Ok(Arc::new(folder.map(Profiles::read).transpose()?.unwrap_or_default()))
}

/// Returns the built-in format with this name, or `None` if [`G1_FORMATS`] lacks the name.
pub fn named(name: &str, model: &Model) -> Result<Option<Format>> {
    let Some((name, _, style)) = G1_FORMATS.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name)) else { return Ok(None) };
    Ok(Some(format(name, *style, None, profiles(model)?)))
}

/// Returns the format that uses the template in the folder of an RWKV-7 model, or `None` if the folder has no G1 template.
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
    let kind = FormatKind::Messages(Box::new(Messages { template, generation }));
    Format { name, kind, profiles, thinking: Some(Thinking::On), is_for_tools, has_bos: false }
}

/// Returns the generation settings of a profile (answers with a thought, without one, or with tools): the checkpoint's, or else the preset's.
pub fn generation(profiles: &Profiles, profile: Profile) -> GenerationConfig {
    let preset = match profile {
        Profile::Think => "g1-think",
        Profile::Fast => "g1-fast",
        Profile::Tools => "g1-tools",
    };
    let preset = GenerationConfig::of(&Sampling::preset(preset).expect("it is one of the presets"));
    profiles.get(profile).cloned().unwrap_or(GenerationConfig { max_length: MAX_TOKENS, ..preset })
}

/// The token `<|endoftext|>` of RWKV models, which ends a text and may begin a prompt.
const BOS: u32 = 0;

/// The default limit on the tokens of an answer.
const MAX_TOKENS: usize = 4096;

impl Format {
    /// Returns the format for a conversation with tools, calls or results. A G1 format of lines becomes `g1-tools` with the same [`Thinking`]. Other
    /// formats of lines become `g1-tools-short`, although their models were not trained with tools. A format of messages for G1 gets the sampler
    /// settings for tools, and so does a GLM-4.7 whose checkpoint has no settings of its own. Other formats are unchanged.
    #[must_use]
    pub fn for_tools(self) -> Format {
        let family = if let FormatKind::Messages(options) = &self.kind { Some(options.template.family()) } else { None };
        match (&self.kind, self.thinking) {
            (FormatKind::Lines(_), Some(thinking)) => {
                let tools = Format { has_bos: self.has_bos, ..format("g1-tools", Style::Tools, None, self.profiles) };
                tools.with_thinking(thinking).expect("the format has thoughts")
            }
            (FormatKind::Lines(_), None) => {
                let tools = format("g1-tools-short", Style::Short, None, self.profiles);
                tools.with_thinking(Thinking::Off).expect("the format has thoughts")
            }
            (FormatKind::Messages(options), _) if !self.is_for_tools => {
                let generation = match family {
                    Some(Family::Rwkv) => generation(&self.profiles, Profile::Tools),
                    Some(Family::Glm47) if options.generation.sampling() == Sampling::glm47() => {
                        options.generation.with_sampling(&Sampling::glm47_tools())
                    }
                    _ => return self,
                };
                let kind = FormatKind::Messages(Box::new(Messages { template: options.template.clone(), generation }));
                Format { kind, is_for_tools: true, ..self }
            }
            _ => self,
        }
    }

    /// Returns the format with or without token 0 (`<|endoftext|>`) at the beginning of a prompt. In G1's official template, the variable
    /// `rwkv_add_bos` makes this choice, and the default is no token.
    ///
    /// # Errors
    /// `Input` if `has_bos` is true and the format is not a format of G1.
    pub fn with_bos(self, has_bos: bool) -> Result<Format> {
        let is_g1 = self.thinking.is_some() && !matches!(&self.kind, FormatKind::Messages(options) if !options.is_rwkv());
        if has_bos && !is_g1 {
            let e = Error::input(format!("prompts of the chat format {:?} cannot begin with token 0", self.name));
            return Err(e.hint("choose a chat format of G1 models, such as g1"));
        }
        Ok(Format { has_bos, ..self })
    }

    /// Returns whether a prompt begins with token 0 (`<|endoftext|>`).
    pub fn has_bos(&self) -> bool {
        self.has_bos
    }

    /// Returns the tokens before the text of a prompt.
    pub(crate) fn before_prompt(&self) -> &'static [u32] {
        if self.has_bos { &[BOS] } else { &[] }
    }

    /// Returns the messages with the format's hint appended to the user's last message. The hint asks for a short or a long thought. Without a hint,
    /// the messages are unchanged.
    pub(crate) fn hinted(&self, mut messages: Vec<Message>) -> Vec<Message> {
        let hint = self.thinking.map_or("", Thinking::hint);
        if let Some(last) = messages.iter_mut().rfind(|message| message.role == Role::User).filter(|_| !hint.is_empty()) {
            last.content.truncate(last.content.trim_end().len());
            last.content += hint;
        }
        messages
    }

    /// Returns the form of a demanded call, for each declared tool or only for the tool `name`. A form is the text before the arguments, the JSON
    /// schema of the arguments, and the text after them.
    ///
    /// # Errors
    /// `Input` if no tool is declared, if no tool has this name, if a tool is not a function, or if calls cannot be demanded in this format.
    pub(crate) fn demanded(&self, messages: &[Message], name: Option<&str>) -> Result<Vec<(String, Value, String)>> {
        let tools: Vec<Tool> = messages.iter().flat_map(|message| message.tools.iter().cloned()).collect();
        match &self.kind {
            FormatKind::Messages(options) => demanded(options.template.as_ref(), &tools, name),
            FormatKind::Lines(_) if tools.is_empty() => Err(undeclared()),
            FormatKind::Lines(_) => Err(Error::input("this chat format does not support tools and tool calls")),
        }
    }

    /// Returns the chat settings of a format of messages: the sampler settings and the length limit of `generation`. The limit is 4096 tokens if
    /// `generation` sets none.
    pub(super) fn message_settings(generation: &GenerationConfig) -> Settings {
        let chat_len_max = if generation.max_length == usize::MAX { MAX_TOKENS } else { generation.max_length };
        Settings { sampling: generation.sampling(), chat_len_max, ..Settings::default() }
    }
}
