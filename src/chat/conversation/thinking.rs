//! Changes of thoughts, and of the sampler settings that follow the format.

use super::Conversation;
use crate::chat::Thinking;
use crate::error::Result;
use crate::sample::{Sampling, Setting};

impl Conversation {
    /// Changes the choice of thoughts for all further answers of the current branch. Sampler settings that the choice determines change, too,
    /// unless [`set`](Self::set) or the caller has changed them.
    ///
    /// # Errors
    /// `Input` if the format has no thoughts.
    pub fn set_thinking(&mut self, thinking: Thinking) -> Result<()> {
        let before = self.format().settings().sampling;
        self.mode.set_thinking(thinking)?;
        self.adopt(&before)
    }

    /// Changes sampler settings to the settings of the format, except settings that differ from `before`, the settings of the earlier format.
    pub(super) fn adopt(&mut self, before: &Sampling) -> Result<()> {
        let after = self.format().settings().sampling;
        let own = &mut self.core.settings.sampling;
        for setting in Setting::all().iter().filter(|setting| setting.is_of_presets() && setting.name != "preset") {
            if own.get(setting.name)? == before.get(setting.name)? {
                own.set(setting.name, &after.get(setting.name)?)?;
            }
        }
        Ok(())
    }
}
