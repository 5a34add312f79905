//! Changes the choice whether the model writes thoughts, and the sampler settings that depend on this choice.

use super::Conversation;
use crate::chat::Thinking;
use crate::error::Result;
use crate::sample::{Sampling, Setting};

impl Conversation {
    /// Changes whether the model writes a thought, for all further answers of the current branch. Also changes the sampler settings that depend on
    /// this choice, except settings that the caller has changed, for example with [`set`](Self::set).
    ///
    /// # Errors
    /// `Input` if the format has no thoughts.
    pub fn set_thinking(&mut self, thinking: Thinking) -> Result<()> {
        let before = self.format().settings().sampling;
        self.mode.set_thinking(thinking)?;
        self.adopt(&before)
    }

    /// Changes the sampler settings to the format's. `before` has the settings of the earlier format. A setting that differs from `before` stays,
    /// because the caller has changed it.
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
