//! The two ways to talk have this in common: lines on kept states, and messages through a template.

use super::super::{Format, PromptFile, Settings};
use super::branches::Named;
use super::command::Line;
use super::core::Core;
use super::saved::Saved;
use super::{OnPiece, Said, Told};
use crate::error::Result;
use std::path::Path;

pub trait Way: Send {
    /// Does what a line asks for.
    fn say(&mut self, core: &mut Core, line: Line, on_piece: &mut OnPiece<'_>) -> Result<Told>;
    /// Begins anew under a text of the system.
    fn system(&mut self, core: &mut Core, text: &str) -> Result<()>;
    /// Takes the last turn back.
    fn undo(&mut self, core: &mut Core) -> Result<()>;
    fn branches(&self) -> &dyn Named;
    fn branches_mut(&mut self) -> &mut dyn Named;
    fn remove(&mut self, core: &mut Core, name: &str) -> Result<()>;
    fn format(&self) -> &Format;
    fn n_turns(&self) -> usize;
    /// What was said in the turns so far, oldest first, with the names of who said it.
    fn said(&self, core: &Core) -> Vec<Said>;
    /// What the model has read of the conversation.
    fn transcript(&self) -> &[u32];
    /// The states that are kept, by the original's names.
    fn kept(&self) -> Vec<(&'static str, &Saved)>;
    /// Tokens that it can read yet; none where there is no end.
    fn n_left(&self, core: &Core) -> Option<usize>;
    fn save(&self, core: &mut Core, path: &Path) -> Result<()>;
    fn load(&mut self, core: &mut Core, path: &Path) -> Result<()>;
}

/// The format and the settings with what a prompt file says. Nothing changes yet.
pub fn read_prompt_file(core: &Core, format: &Format, path: &str) -> Result<(Format, Settings)> {
    let file = PromptFile::find(Path::new(path))?;
    let format = format.clone().with_prompt(&file)?;
    let mut settings = core.settings.clone();
    file.set(&mut settings).map_err(|e| e.at(path))?;
    settings.sampling.check(core.session.model().facts().n_vocab).map_err(|e| e.at(path))?;
    Ok((format, settings))
}
