//! Chat formats: the form of a conversation in a model's prompt.
//!
//! RWKV models read lines that begin with a name, such as `User: hello`. GLM-4 and its relatives read messages that a template renders. A model's
//! file does not name its format. So the model's name and vocabulary determine the format, or the caller chooses a format by name.

mod choice;
mod g1;
mod known;
mod lines;
mod normal;
mod thinking;

use super::Settings;
use crate::error::{Error, Result, short};
use crate::sample::Sampling;
use crate::session::Model;
use crate::template::{Family, Files, GenerationConfig, Glm4, Message, Opening, Profiles, Template, ToolCall, Version, builtin};
use crate::vocab::Vocab;
use g1::G1_FORMATS;
use known::{KNOWN, Known};
pub(crate) use lines::{LEAD, Lines, ReplyEnd, after_thought};
pub use normal::first_prompt;
pub(crate) use normal::folded;
use std::fmt;
use std::sync::Arc;
pub use thinking::Thinking;

/// The form of a conversation in a prompt, with default settings.
#[derive(Clone)]
pub struct Format {
    name: &'static str,
    pub(crate) kind: FormatKind,
    /// The generation settings that the checkpoint's folder has, for formats of G1 models.
    profiles: Arc<Profiles>,
    /// The choice whether the model writes a thought before an answer. `None` if the format offers no choice.
    thinking: Option<Thinking>,
    /// True if the sampler settings are the settings for conversations with tools.
    is_for_tools: bool,
    /// True if a prompt begins with token 0 (`<|endoftext|>`).
    has_bos: bool,
}

#[derive(Clone)]
pub(crate) enum FormatKind {
    Lines(Lines),
    Messages(Box<Messages>),
}

/// A format of messages: the template, and the generation settings for answers.
#[derive(Clone)]
pub(crate) struct Messages {
    pub template: Arc<dyn Template>,
    pub generation: GenerationConfig,
}

impl Messages {
    /// Returns the ids that end an answer: the stop tokens of the template's family, then the tokens that `generation` lists. Returns `None` for a G1
    /// template: the model's own stop tokens then end an answer.
    pub fn stop_ids(&self, vocab: &Vocab) -> Result<Option<Vec<u32>>> {
        if self.is_rwkv() {
            return Ok(None);
        }
        Ok(Some([self.template.family().stop_ids(vocab)?, self.generation.eos.clone()].concat()))
    }

    /// Returns the texts that end an answer to `messages`.
    pub fn stop_texts(&self, messages: &[Message]) -> Vec<String> {
        let mut texts = self.template.stops(messages);
        texts.extend(self.generation.stop_strings.iter().cloned());
        texts
    }

    /// Returns true if an answer is one text, with thoughts and calls in tags. The answers of GLM-4 consist of segments with special tokens between
    /// them.
    pub fn has_plain_answers(&self) -> bool {
        matches!(self.template.family(), Family::Glm47 | Family::Rwkv | Family::ChatMl)
    }

    /// Returns true for the templates of RWKV-7 G1, whose prompts have no special tokens.
    pub fn is_rwkv(&self) -> bool {
        self.template.family() == Family::Rwkv
    }
}

/// The names of user and model in a format of lines (`Name: text`), and the text with which each conversation begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitialPrompt {
    /// The name of the user.
    pub user: String,
    /// The name of the model.
    pub bot: String,
    /// The text after the name of the user or of the model, usually a colon.
    pub interface: String,
    /// The text before the first message, usually an example conversation. The format trims the text and each of its lines, and puts the text between
    /// a newline and a blank line.
    pub init_prompt: String,
}

impl InitialPrompt {
    /// Checks the names.
    ///
    /// # Errors
    /// `File` if a name is empty or has several lines.
    pub fn check(&self) -> Result<()> {
        for (what, name) in [("user", &self.user), ("bot", &self.bot)] {
            if name.trim().is_empty() || name.contains('\n') {
                return Err(Error::file(format!(
                    "expected a name that is not empty and has no newline as {what}, found {:?}",
                    short(name, 40)
                )));
            }
        }
        Ok(())
    }
}

impl Format {
    /// Converts a rendered prompt, in which special tokens are text, to the ids of the conversation that was rendered. Special tokens in the text of
    /// a message become special tokens, too, so the authors of all messages must be trusted. If `begins` is true, the ids begin with the tokens that
    /// begin every prompt.
    ///
    /// # Errors
    /// The errors of [`Vocab::encode`].
    pub fn encode_rendered(&self, vocab: &Vocab, text: &str, begins: bool) -> Result<Vec<u32>> {
        let before_lines = match &self.kind {
            FormatKind::Messages(options) => options.template.before_lines(),
            FormatKind::Lines(_) => &[],
        };
        match (before_lines, begins) {
            ([], true) => vocab.encode_prompt_marked(text.as_bytes()),
            ([], false) => vocab.encode_further_marked(text.as_bytes()),
            _ => {
                let ids = vocab.encode_cut(text.as_bytes(), before_lines)?;
                Ok(if begins { vocab.begun(ids) } else { ids })
            }
        }
    }
}

/// Name and description of the format with a chat template: the checkpoint's own template, or the built-in one for the model.
const TEMPLATE: (&str, &str) =
    ("template", "the checkpoint's own template, or the published one of GLM-4, its relatives, ARWKV-7 and QRWKV-6");

impl Format {
    /// Returns the format of a model. GLMs, ARWKV-7 and QRWKV-6 use a template, and so do G1 folders with a `chat_template.jinja`. For any other
    /// model, the size of the vocabulary and the name of the file determine the format. Nothing else distinguishes `World`, `G1` and `Raven` models.
    ///
    /// # Errors
    /// `File` if the checkpoint's template or generation settings cannot be read.
    pub fn of(model: &Model) -> Result<Format> {
        match has_template(model) {
            true => template(model),
            false => match g1::own(model)? {
                Some(format) => Ok(format),
                None => plain(Known::of(model), model),
            },
        }
    }

    /// Returns a format by name.
    ///
    /// # Errors
    /// `Usage` if the name is unknown or the model cannot use the format; the errors of [`Format::of`].
    pub fn named(name: &str, model: &Model) -> Result<Format> {
        let found = KNOWN.iter().find(|known| known.name.eq_ignore_ascii_case(name));
        match (found, has_template(model)) {
            (Some(known), false) => plain(known, model),
            (None, true) if name.eq_ignore_ascii_case(TEMPLATE.0) => template(model),
            (Some(_), true) => {
                let e = Error::usage(format!("this model has a chat template and cannot use the chat format {name:?}"));
                Err(e.hint(format!("use the chat format {}, the default", TEMPLATE.0)))
            }
            (None, is_glm) => {
                if let Some(format) = if is_glm { None } else { g1::named(name, model)? } {
                    return Ok(format);
                }
                if let Some(format) = if is_glm || !name.eq_ignore_ascii_case(TEMPLATE.0) { None } else { g1::own(model)? } {
                    return Ok(format);
                }
                let names: Vec<&str> = KNOWN.iter().map(|known| known.name).chain(G1_FORMATS.map(|(name, ..)| name)).collect();
                Err(Error::usage(format!("unknown chat format {name:?} for this model"))
                    .hint(format!("chat formats: {}", names.join(", "))))
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn of_kind(kind: FormatKind) -> Format {
        Format { name: TEMPLATE.0, kind, profiles: Arc::default(), thinking: None, is_for_tools: false, has_bos: false }
    }

    /// Returns the name and a one-line description of every format.
    pub fn names() -> Vec<(&'static str, &'static str)> {
        let g1 = G1_FORMATS.map(|(name, about, _)| (name, about));
        KNOWN.iter().map(|known| (known.name, known.about)).chain(g1).chain([TEMPLATE]).collect()
    }

    /// Returns the name of the format.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the name of the user in the conversation; `User` if the format is a template.
    pub fn user(&self) -> &str {
        self.lines().map_or("User", |lines| &lines.user)
    }

    /// Returns the name of the model in the conversation; `Assistant` if the format is a template.
    pub fn bot(&self) -> &str {
        self.lines().map_or("Assistant", |lines| &lines.bot)
    }

    /// Returns the text after the name of the user or of the model, usually a colon.
    pub fn interface(&self) -> &str {
        self.lines().map_or(":", |lines| &lines.interface)
    }

    /// Returns the default settings of the format.
    pub fn settings(&self) -> Settings {
        match &self.kind {
            FormatKind::Messages(options) => Self::message_settings(&options.generation),
            FormatKind::Lines(_) => self.known().map_or_else(Settings::default, |known| {
                let own = known.profile.and_then(|profile| self.profiles.get(profile)).map(GenerationConfig::sampling);
                let settings = (known.settings)();
                Settings { sampling: own.unwrap_or(settings.sampling), ..settings }
            }),
        }
    }

    /// Returns the format with the names and the first text of `prompt`. If the names differ from the format's own, replies end at a blank line.
    ///
    /// # Errors
    /// `Input` if the format is a template; `File` if a name is empty or has several lines.
    pub fn with_prompt(mut self, prompt: &InitialPrompt) -> Result<Format> {
        let FormatKind::Lines(lines) = &mut self.kind else {
            let e = Error::input("a prompt file needs a chat format without a template, but this conversation uses a chat template");
            return Err(e.hint("use a system message instead"));
        };
        prompt.check()?;
        let InitialPrompt { user, bot, interface, init_prompt } = prompt.clone();
        let own = KNOWN.iter().find(|known| known.name == self.name).map(|known| known.lines());
        let own = own.filter(|own| (&own.user, &own.bot, &own.interface) == (&user, &bot, &interface));
        let (opening, ending) = own.map_or(("", ReplyEnd::BlankLine), |own| (own.opening, own.ending));
        *lines = Lines { user, bot, interface, init_prompt: first_prompt(&init_prompt), opening, ending };
        Ok(self)
    }

    /// Returns the format with other names of the user and of the model. `None` keeps a name.
    ///
    /// # Errors
    /// `Input` with the field `user_name` or `assistant_name`, if the format is a template, or a name is empty, long or has several lines.
    pub fn with_names(mut self, user: Option<&str>, assistant: Option<&str>) -> Result<Format> {
        const MOST: usize = 64;
        let names = [("user_name", user), ("assistant_name", assistant)];
        for (field, name) in names.into_iter().filter_map(|(field, name)| Some((field, name?))) {
            let FormatKind::Lines(lines) = &mut self.kind else {
                let e = Error::input("the chat template of this model has names of its own").field(field);
                return Err(e.hint("leave the field out, or choose a chat format of lines, such as world, with `format`"));
            };
            let name = name.trim();
            if name.is_empty() || name.len() > MOST || name.contains(['\n', '\r']) {
                let found = short(name, 40);
                return Err(Error::input(format!("expected a name of 1 to {MOST} bytes on one line, found {found:?}")).field(field));
            }
            *(if field == "user_name" { &mut lines.user } else { &mut lines.bot }) = name.into();
        }
        Ok(self)
    }

    /// Parses the arguments of a tool call. The arguments are JSON, or a Python call in the format of ChatGLM3.
    ///
    /// # Errors
    /// `Input` if the arguments cannot be parsed. For example, a call of the tool `python` has program text as its arguments.
    pub fn parameters(&self, call: &ToolCall) -> Result<serde_json::Value> {
        let family = if let FormatKind::Messages(options) = &self.kind { options.template.family() } else { Family::Glm4 };
        family.arguments(&call.arguments)
    }

    pub(crate) fn lines(&self) -> Option<&Lines> {
        match &self.kind {
            FormatKind::Lines(lines) => Some(lines),
            FormatKind::Messages(_) => None,
        }
    }

    fn known(&self) -> Option<&'static Known> {
        KNOWN.iter().find(|known| known.name == self.name)
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Format");
        shown.field("name", &self.name);
        match &self.kind {
            FormatKind::Lines(lines) => shown.field("lines", lines),
            FormatKind::Messages(options) => shown.field("template", &options.template.name()),
        };
        shown.finish()
    }
}

/// Returns the model's vocabulary. Returns an `Input` error if the model has no vocabulary.
pub(crate) fn vocab_of(model: &Model) -> Result<&Vocab> {
    model.needed_vocab("chat needs a vocabulary, and none was found for this model")
}

fn has_template(model: &Model) -> bool {
    let facts = model.facts();
    builtin(facts.version, facts.n_vocab).is_some()
}

/// Returns a format of lines. Reads the checkpoint's generation settings if the format uses them.
fn plain(known: &Known, model: &Model) -> Result<Format> {
    let profiles = if known.profile.is_some() { g1::profiles(model)? } else { Arc::default() };
    Ok(Format { profiles, ..known.format() })
}

/// Returns the format of a GLM or of a model with ChatML, with the checkpoint's generation settings. Uses the checkpoint's own template, or else the
/// built-in one.
fn template(model: &Model) -> Result<Format> {
    let facts = model.facts();
    let own =
        builtin(facts.version, facts.n_vocab).ok_or_else(|| Error::model("this version of the model has no built-in chat template"))?;
    // Only the name distinguishes GLM-Z1 from GLM-4-0414.
    let is_z1 = facts.version == "glm4" && known::words(model.name()).any(|w| w == "z1");
    let defaults = match own.family() {
        Family::ChatMl => GenerationConfig::of(&Sampling::qwen()),
        Family::Glm47 => GenerationConfig::of(&Sampling::glm47()),
        _ if is_z1 => GenerationConfig::z1(),
        _ => GenerationConfig::glm(),
    };
    let files = model.folder().map(|folder| Files::read(folder, own.family(), defaults.clone())).transpose()?;
    let (found, generation) = files.map_or((None, defaults), |files| (files.template, files.generation));
    let template: Arc<dyn Template> = match found {
        Some(template) => Arc::new(template),
        None if is_z1 => Arc::new(Glm4(Version::Z1)),
        None => own,
    };
    let thinking = template.with_opening(Opening::Thought).map(|_| Thinking::On);
    let kind = FormatKind::Messages(Box::new(Messages { template, generation }));
    Ok(Format { name: TEMPLATE.0, kind, profiles: Arc::default(), thinking, is_for_tools: false, has_bos: false })
}

#[cfg(test)]
mod tests;
