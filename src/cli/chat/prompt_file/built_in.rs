//! The prompts that are part of the program.

use super::{Language, PromptFile};

/// Ours, in the two styles of ChatRWKV's stock set: questions and answers (1), and two people who talk (2).
const PROMPTS: [(&str, &str); 6] = [
    ("English-1", include_str!("../../../../assets/prompts/English-1.toml")),
    ("English-2", include_str!("../../../../assets/prompts/English-2.toml")),
    ("Chinese-1", include_str!("../../../../assets/prompts/Chinese-1.toml")),
    ("Chinese-2", include_str!("../../../../assets/prompts/Chinese-2.toml")),
    ("Japanese-1", include_str!("../../../../assets/prompts/Japanese-1.toml")),
    ("Japanese-2", include_str!("../../../../assets/prompts/Japanese-2.toml")),
];

pub fn names() -> impl Iterator<Item = &'static str> {
    PROMPTS.iter().map(|(name, _)| *name)
}

pub fn named(name: &str) -> Option<PromptFile> {
    let (_, text) = PROMPTS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
    Some(PromptFile::parse(text.as_bytes(), Language::Toml).expect("a built-in prompt parses; a test holds it"))
}
