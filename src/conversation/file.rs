//! Saved conversations. A saved conversation is a state file: the model's state and the tokens, with everything else as metadata.

use super::Conversation;
use super::core::Core;
use super::saved_turns::SavedTurns;
use crate::chat::{Format, InitialPrompt, Settings};
use crate::error::{Error, Kind, Result, short, with_place};
use crate::sample::Memory;
use crate::session::{Snapshot, StateExtras};
use crate::template::{Message, Tool};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The metadata key whose value is the saved conversation as JSON.
pub const METADATA_KEY: &str = "chat";
const VERSION: u32 = 1;

/// The part of a conversation that a file stores as metadata.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SavedConversation {
    pub(super) version: u32,
    pub(super) format: String,
    pub system: String,
    /// The names of user and bot, and the text after each. `None` if a template renders the conversation.
    #[serde(default)]
    pub names: Option<[String; 3]>,
    #[serde(default)]
    pub init_prompt: String,
    pub n_turns: usize,
    /// True if the conversation began in a loaded state instead of the empty state ([`Conversation::begin_after`]).
    #[serde(default, rename = "is_behind")]
    pub(super) is_after_state: bool,
    /// The messages so far. Empty if the conversation is in lines (`Name: text`).
    #[serde(default)]
    pub history: Vec<Message>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// The name of the [`Thinking`](crate::chat::Thinking) choice, or `None` if the format has none. When a file is loaded, `None` selects the choice
    /// that the format's name implies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) thinking: Option<String>,
    /// True if the prompt begins with token 0 (`<|endoftext|>`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) add_bos: bool,
    pub(super) settings: BTreeMap<String, String>,
    /// The states before the last turn of a conversation in lines.
    #[serde(default, skip_serializing_if = "SavedTurns::is_empty")]
    pub earlier: SavedTurns,
}

/// The contents of a saved conversation.
pub struct Loaded {
    pub snapshot: Snapshot,
    pub tokens: Vec<u32>,
    pub record: SavedConversation,
    pub settings: Settings,
    pub draws: u64,
}

impl SavedConversation {
    /// Makes a record. The caller must set the names, the first prompt, the messages and the tools if the conversation has such data.
    pub fn new(core: &Core, format: &Format, system: &str, n_turns: usize) -> SavedConversation {
        // `preset` is left out: it only sets other settings, which the record has.
        let settings = Settings::names().filter(|(name, _)| *name != "preset");
        let said = |name: &str| core.settings.get(name).expect("it is one of the names");
        SavedConversation {
            version: VERSION,
            format: format.name().into(),
            system: system.into(),
            names: None,
            init_prompt: String::new(),
            n_turns,
            is_after_state: core.is_after_state,
            history: Vec::new(),
            tools: Vec::new(),
            thinking: format.thinking().map(|thinking| thinking.name().into()),
            add_bos: format.has_bos(),
            settings: settings.map(|(name, _)| (name.into(), said(name))).collect(),
            earlier: SavedTurns::default(),
        }
    }

    /// Writes a state file with the state `snapshot` after `tokens`, and with this record as metadata.
    pub fn save(&self, core: &Core, snapshot: &Snapshot, tokens: &[u32], path: &Path) -> Result<()> {
        let record = serde_json::to_string(self).expect("a record is plain data");
        let sampler = Memory { seed: core.settings.sampling.seed, draws: core.draws, ..Memory::default() };
        let extras =
            StateExtras { tokens: Some(tokens), sampler: Some(&sampler), metadata: &[(METADATA_KEY, record)], ..StateExtras::default() };
        snapshot.save(core.model(), path, extras)
    }

    /// Reads a saved conversation. Returns a `File` error if the file is not a saved conversation.
    pub fn load(core: &Core, path: &Path) -> Result<Loaded> {
        let (snapshot, state) = Snapshot::load(core.model(), path, false)?;
        let read = || {
            let record = state.metadata.get(METADATA_KEY).ok_or_else(|| {
                Error::file("expected a saved conversation, found a state without a conversation")
                    .hint("give a file that `Conversation::save` wrote; pass a state as `state`")
            })?;
            let record: SavedConversation = serde_json::from_str(record).map_err(|e| {
                Error::file(format!("the metadata key {METADATA_KEY} must hold a saved conversation: {}", with_place(&e))).caused_by(e)
            })?;
            if record.version != VERSION {
                return Err(Error::file(format!("expected a saved conversation of version {VERSION}, found version {}", record.version)));
            }
            if record.is_after_state != core.is_after_state {
                return Err(match record.is_after_state {
                    true => Error::file("the saved conversation began from a loaded state, but no state is given")
                        .hint("pass the same state as `state`"),
                    false => {
                        Error::file("the saved conversation began without a loaded state, but a state is given").hint("leave out `state`")
                    }
                });
            }
            let settings = record.settings(core.model().facts().n_vocab)?;
            Ok((record, settings))
        };
        let (record, settings) = read().map_err(|e: Error| e.at(path.display()))?;
        let draws = state.sampler.map_or(0, |sampler| sampler.draws);
        Ok(Loaded { snapshot, tokens: state.tokens.unwrap_or_default(), record, settings, draws })
    }

    fn settings(&self, n_vocab: usize) -> Result<Settings> {
        let mut settings = Settings::default();
        for (name, value) in &self.settings {
            settings
                .set(name, value)
                .map_err(|e| Error::file(format!("the saved conversation has an invalid setting: {e}")).caused_by(e))?;
        }
        settings.sampling.check(n_vocab)?;
        Ok(settings)
    }

    /// Returns the format of the saved conversation.
    ///
    /// # Errors
    /// `File` if the model cannot use the format.
    pub fn format(&self, core: &Core) -> Result<Format> {
        let wrong = |e: Error| {
            Error::file(format!("this model cannot use the format {:?} of the saved conversation: {e}", short(&self.format, 40)))
        };
        let format = Format::named(&self.format, core.model()).map_err(wrong)?;
        let format = if self.tools.is_empty() { format } else { format.for_tools() };
        let format = match &self.thinking {
            Some(thinking) => thinking.parse().and_then(|thinking| format.with_thinking(thinking)).map_err(wrong)?,
            None => format,
        };
        let format = format.with_bos(self.add_bos).map_err(wrong)?;
        match &self.names {
            None => Ok(format),
            Some([user, bot, interface]) => format.with_prompt(&InitialPrompt {
                user: user.clone(),
                bot: bot.clone(),
                interface: interface.clone(),
                init_prompt: self.init_prompt.clone(),
            }),
        }
    }
}

impl Conversation {
    /// Writes the current branch to a file, with the format, the settings and the position in the random stream.
    ///
    /// # Errors
    /// `File` if the file cannot be written.
    pub fn save(&mut self, path: &Path) -> Result<()> {
        self.mode.save(&self.core, path)
    }

    /// Replaces the current branch by a saved conversation, and the settings by the saved ones. All other branches are dropped, too, if only one of
    /// the two conversations is in lines (`Name: text`).
    ///
    /// # Errors
    /// `File` if the file is not a saved conversation; `Model` if the conversation was saved with another model. After an error, the conversation
    /// is unchanged.
    pub fn load(&mut self, path: &Path) -> Result<()> {
        self.core.go_on();
        let loaded = SavedConversation::load(&self.core, path)?;
        let at = |e: Error| if e.kind == Kind::File { e.at(path.display()) } else { e };
        let format = loaded.record.format(&self.core).map_err(at)?;
        let (settings, draws) = (loaded.settings.clone(), loaded.draws);
        if format.lines().is_some() == self.format().lines().is_some() {
            self.mode.load(&mut self.core, format, loaded).map_err(at)?;
        } else {
            let mut mode = Self::mode(&mut self.core, format.clone())?;
            mode.load(&mut self.core, format, loaded).map_err(at)?;
            self.mode = mode;
        }
        (self.core.settings, self.core.draws) = (settings, draws);
        Ok(())
    }
}
