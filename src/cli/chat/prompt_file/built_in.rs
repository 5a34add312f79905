//! The built-in prompt files.

use super::{Language, PromptFile};

/// Names and texts of the files. As in ChatRWKV, a file whose name ends with `-1` contains questions and answers. A file whose name ends
/// with `-2` contains a conversation of two people.
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
    Some(PromptFile::parse(text.as_bytes(), Language::Toml).expect("a test parses every built-in prompt file"))
}
