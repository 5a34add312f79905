//! A conversation as one file: a state file whose metadata says the rest.

use super::core::Core;
use crate::chat::format::InitialPrompt;
use crate::chat::{Format, Settings};
use crate::error::{Error, Result, short};
use crate::sample::Memory;
use crate::session::{Slot, StateExtras};
use crate::template::{Message, Tool};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The key in the metadata.
const KEY: &str = "chat";
const VERSION: u32 = 1;
/// A setting of earlier versions, which every file of theirs has.
const DELETED: &str = "tail-free";

/// What a state does not say.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    pub(super) version: u32,
    pub(super) format: String,
    pub system: String,
    /// Of a conversation in lines: user, bot, and what is after both.
    #[serde(default)]
    pub names: Option<[String; 3]>,
    #[serde(default)]
    pub init_prompt: String,
    pub n_turns: usize,
    /// It began after a state, which is not part of it.
    #[serde(default, rename = "is_behind")]
    pub(super) is_after_state: bool,
    /// Of a conversation in messages.
    #[serde(default)]
    pub history: Vec<Message>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    pub(super) settings: BTreeMap<String, String>,
}

/// What a file brought.
pub struct Loaded {
    pub slot: Slot,
    pub tokens: Vec<u32>,
    pub record: Record,
    pub settings: Settings,
    pub draws: u64,
}

impl Record {
    pub fn new(core: &Core, format: &Format, system: &str, n_turns: usize) -> Record {
        // A preset stands for others, which are all there.
        let settings = Settings::names().filter(|(name, _)| *name != "preset");
        let said = |name: &str| core.settings.get(name).expect("it is one of the names");
        Record {
            version: VERSION,
            format: format.name().into(),
            system: system.into(),
            names: None,
            init_prompt: String::new(),
            n_turns,
            is_after_state: core.start.is_some(),
            history: Vec::new(),
            tools: Vec::new(),
            settings: settings.map(|(name, _)| (name.into(), said(name))).collect(),
        }
    }

    /// Writes it, beside the state of a slot and the tokens that led there.
    pub fn save(&self, core: &mut Core, slot: Slot, tokens: &[u32], path: &Path) -> Result<()> {
        let record = serde_json::to_string(self).expect("a record is plain data");
        let sampler = Memory { seed: core.settings.sampling.seed, draws: core.draws, ..Memory::default() };
        core.session.save_with(
            slot,
            path,
            StateExtras { tokens: Some(tokens), sampler: Some(&sampler), metadata: &[(KEY, record)], ..StateExtras::default() },
        )
    }

    /// Opens a slot from such a file.
    pub fn load(core: &mut Core, path: &Path) -> Result<Loaded> {
        let (slot, state) = core.session.load(path, false)?;
        let read = || {
            let record = state.metadata.get(KEY).ok_or_else(|| {
                Error::file("expected a saved conversation, found the state of a text").hint("make one with /save in wingbeat chat")
            })?;
            let record: Record = serde_json::from_str(record)
                .map_err(|e| Error::file(format!("expected what a conversation was like as {KEY} in the metadata: {e}")).caused_by(e))?;
            if record.version != VERSION {
                return Err(Error::file(format!("expected a conversation of version {VERSION}, found one of {}", record.version)));
            }
            if record.is_after_state != core.start.is_some() {
                return Err(match record.is_after_state {
                    true => Error::file("expected a conversation that began with nothing, found one that began after a state")
                        .hint("give that state again, with `state`"),
                    false => Error::file("expected a conversation that began after a state, found one that began with nothing")
                        .hint("leave out `state`"),
                });
            }
            let settings = record.settings(core.session.model().facts().n_vocab)?;
            Ok((record, settings))
        };
        match read() {
            Ok((record, settings)) => {
                let draws = state.sampler.map_or(0, |sampler| sampler.draws);
                Ok(Loaded { slot, tokens: state.tokens.unwrap_or_default(), record, settings, draws })
            }
            Err(e) => {
                core.session.close(slot)?;
                Err(e.at(path.display()))
            }
        }
    }

    fn settings(&self, n_vocab: usize) -> Result<Settings> {
        let mut settings = Settings::default();
        for (name, value) in self.settings.iter().filter(|(name, _)| name.as_str() != DELETED) {
            settings.set(name, value).map_err(|e| Error::file(format!("expected the settings of a conversation: {e}")).caused_by(e))?;
        }
        if self.settings.get(DELETED).is_some_and(|value| value != "1") {
            log::warn!("this conversation was made with {DELETED} sampling, which is no more: it goes on without");
        }
        settings.sampling.check(n_vocab)?;
        Ok(settings)
    }

    /// The format that it is in.
    pub fn format(&self, core: &Core) -> Result<Format> {
        let wrong = |e: Error| {
            Error::file(format!("expected a conversation that this model can go on with, found format {:?}: {e}", short(&self.format, 40)))
        };
        let format = Format::named(&self.format, core.session.model()).map_err(wrong)?;
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
