//! The built-in prompt files.

use super::{Language, PromptFile};
use wingbeat::low_level::assets::PROMPTS;

pub fn names() -> impl Iterator<Item = &'static str> {
    PROMPTS.iter().map(|(name, _)| *name)
}

pub fn named(name: &str) -> Option<PromptFile> {
    let (_, text) = PROMPTS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
    Some(PromptFile::parse(text.as_bytes(), Language::Toml).expect("a test parses every built-in prompt file"))
}
