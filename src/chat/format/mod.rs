//! Formats: how a model wants a conversation written.
//!
//! Models of the RWKV kind read lines, each begun by the name of who speaks; GLM-4 and its relatives read messages through a template.
//! No file says which format a model wants, so it is chosen by what is known of the model, or by name.

mod known;
mod lines;
mod normal;
mod thinking;

use super::Settings;
use crate::error::{Error, Result, short};
use crate::session::Model;
use crate::template::{Family, Files, GenerationConfig, Glm4, Template, Version, builtin};
use crate::vocab::Vocab;
use known::{KNOWN, Known};
pub(super) use lines::{Ending, LEAD, Lines, after_thought};
pub(crate) use normal::first_prompt;
pub(super) use normal::folded;
use std::fmt;
use std::sync::Arc;
pub use thinking::Thinking;

/// How one kind of model is talked to.
#[derive(Clone)]
pub struct Format {
    name: &'static str,
    pub(super) kind: Kind,
}

#[derive(Clone)]
pub(super) enum Kind {
    Lines(Lines),
    Messages(Box<Messages>),
}

/// A format of messages: a template, and how its answers are drawn.
#[derive(Clone)]
pub(super) struct Messages {
    pub template: Arc<dyn Template>,
    pub generation: GenerationConfig,
}

impl Messages {
    /// Ids that end an answer: the family's and `generation`'s.
    pub fn stop_ids(&self, vocab: &Vocab) -> Result<Vec<u32>> {
        Ok([self.template.family().stop_ids(vocab)?, self.generation.eos.clone()].concat())
    }
}

/// Who speaks in a format of lines, and the conversation before the first message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitialPrompt {
    /// The name of the user.
    pub user: String,
    /// The name of the model.
    pub bot: String,
    /// What is after both names: as a rule a colon.
    pub interface: String,
    /// The conversation so far. It is read without blanks around it and around its lines, between a newline and a blank line.
    pub init_prompt: String,
}

impl InitialPrompt {
    /// Whether its names can be before a message.
    ///
    /// # Errors
    /// `File`, if a name is empty or has several lines.
    pub fn check(&self) -> Result<()> {
        for (what, name) in [("user", &self.user), ("bot", &self.bot)] {
            if name.trim().is_empty() || name.contains('\n') {
                return Err(Error::file(format!("expected a name in one line as {what}, found {:?}", short(name, 40))));
            }
        }
        Ok(())
    }
}

/// The name of the format that is a model's own template.
const TEMPLATE: (&str, &str) = ("template", "the template of GLM-4 and its relatives: the checkpoint's own, or the published one");

impl Format {
    /// The format of a model, by its architecture, its vocabulary and what its file is called: `World`, `G1` and `Raven` are told from
    /// each other by nothing else. A model with a template has that.
    ///
    /// # Errors
    /// `File` at a template beside the checkpoint that cannot be read; `Model` where a model of GLM's kind has none.
    pub fn of(model: &Model) -> Result<Format> {
        match has_template(model) {
            true => template(model),
            false => Ok(Known::of(model).format()),
        }
    }

    /// A format by its name, for a model.
    ///
    /// # Errors
    /// `Usage` where there is none of that name, or the model cannot have it; else as [`Format::of`].
    pub fn named(name: &str, model: &Model) -> Result<Format> {
        let found = KNOWN.iter().find(|known| known.name.eq_ignore_ascii_case(name));
        match (found, has_template(model)) {
            (Some(known), false) => Ok(known.format()),
            (None, true) if name.eq_ignore_ascii_case(TEMPLATE.0) => template(model),
            (Some(_), true) => {
                let e = Error::usage(format!("expected the format {} for a model that has a template, found {name:?}", TEMPLATE.0));
                Err(e.hint("leave the format out"))
            }
            (None, _) => {
                let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
                Err(Error::usage(format!("expected the name of a format, found {name:?}")).hint(format!("one of {}", names.join(", "))))
            }
        }
    }

    #[cfg(test)]
    pub(super) fn of_kind(kind: Kind) -> Format {
        Format { name: TEMPLATE.0, kind }
    }

    /// Names of all formats, and what each is for.
    pub fn names() -> Vec<(&'static str, &'static str)> {
        KNOWN.iter().map(|known| (known.name, known.about)).chain([TEMPLATE]).collect()
    }

    /// Returns the name of the format.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What the user is called.
    pub fn user(&self) -> &str {
        self.lines().map_or("User", |lines| &lines.user)
    }

    /// What the model is called.
    pub fn bot(&self) -> &str {
        self.lines().map_or("Assistant", |lines| &lines.bot)
    }

    /// What is after both names: a colon, as a rule.
    pub fn interface(&self) -> &str {
        self.lines().map_or(":", |lines| &lines.interface)
    }

    /// How such a conversation is led, unless told otherwise.
    pub fn settings(&self) -> Settings {
        match &self.kind {
            Kind::Messages(options) => {
                Settings { sampling: options.generation.sampling(), chat_len_max: options.generation.max_length, ..Settings::default() }
            }
            Kind::Lines(_) => self.known().map_or_else(Settings::default, |known| (known.settings)()),
        }
    }

    /// The same format with other names and another first prompt. Other names than the format's own make it a conversation as
    /// ChatRWKV leads it: a reply ends at a blank line.
    ///
    /// # Errors
    /// `Input` where the model has a template, which knows no names; `File` at a name that is none.
    pub fn with_prompt(mut self, prompt: &InitialPrompt) -> Result<Format> {
        let Kind::Lines(lines) = &mut self.kind else {
            let e = Error::input("a prompt file is for models that read plain lines, and this one reads messages through a template");
            return Err(e.hint("tell it what it should know as a text of the system"));
        };
        prompt.check()?;
        let InitialPrompt { user, bot, interface, init_prompt } = prompt.clone();
        let own = KNOWN.iter().find(|known| known.name == self.name).map(|known| known.lines());
        let own = own.filter(|own| (&own.user, &own.bot, &own.interface) == (&user, &bot, &interface));
        let (opening, ending) = own.map_or(("", Ending::BlankLine), |own| (own.opening, own.ending));
        *lines = Lines { user, bot, interface, init_prompt: first_prompt(&init_prompt), opening, ending };
        Ok(self)
    }

    pub(super) fn lines(&self) -> Option<&Lines> {
        match &self.kind {
            Kind::Lines(lines) => Some(lines),
            Kind::Messages(_) => None,
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
            Kind::Lines(lines) => shown.field("lines", lines),
            Kind::Messages(options) => shown.field("template", &options.template.name()),
        };
        shown.finish()
    }
}

/// The vocabulary, without which nobody can talk.
pub(super) fn vocab_of(model: &Model) -> Result<&Vocab> {
    model.vocab().ok_or_else(|| {
        let e = Error::input("chat needs a vocabulary, and none was found for this model");
        e.hint(model.vocab_hint().unwrap_or("give one with `vocab`"))
    })
}

fn has_template(model: &Model) -> bool {
    model.facts().architecture.starts_with("glm")
}

/// The template beside the checkpoint, or else the built-in one, with what the checkpoint says of generation.
fn template(model: &Model) -> Result<Format> {
    let facts = model.facts();
    let own = builtin(facts.version, facts.n_vocab).ok_or_else(|| Error::model("expected a model with a template, found none for it"))?;
    let files = model.folder().map(|folder| Files::read(folder, own.family())).transpose()?;
    let (found, generation) = files.map_or((None, None), |files| (files.template, Some(files.generation)));
    let template: Arc<dyn Template> = match found {
        Some(template) => Arc::new(template),
        // What tells GLM-Z1 from GLM-4-0414 is its name.
        None if own.family() == Family::Glm4 && facts.version == "glm4" && known::words(model.name()).any(|w| w == "z1") => {
            Arc::new(Glm4(Version::Z1))
        }
        None => own,
    };
    let generation = generation.unwrap_or_else(GenerationConfig::glm);
    Ok(Format { name: TEMPLATE.0, kind: Kind::Messages(Box::new(Messages { template, generation })) })
}

#[cfg(test)]
mod tests;
