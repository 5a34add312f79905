//! Prompt files: who talks to whom, and the conversation before the first line.
//!
//! ChatRWKV's are Python. They are read here and never run: see [`python`]. Ours are TOML.

mod built_in;
mod literal;
mod python;
mod toml;

use crate::chat::{Format, InitialPrompt, Settings};
use crate::error::{Error, Result};
use crate::template::read_whole;
use std::path::Path;

/// What a prompt file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptFile {
    pub prompt: InitialPrompt,
    /// Settings by name, of a file in TOML.
    pub settings: Vec<(String, String)>,
}

impl PromptFile {
    /// Opens a file; where there is none of that name, the one that is built in: `English-2`. One whose name ends with `.py` is
    /// ChatRWKV's, any other ours.
    ///
    /// # Errors
    /// `File` at one that is not there or is not what it should be, with the line.
    pub fn find(path: &Path) -> Result<PromptFile> {
        let bytes = match read_whole(path)? {
            Some(bytes) => bytes,
            None => {
                let name = path.to_str().unwrap_or_default();
                return Self::built_in(name).ok_or_else(|| {
                    let e = Error::file("expected a prompt file or the name of a built-in one, found neither").at(path.display());
                    e.hint(format!("built in are {}", Self::names().join(", ")))
                });
            }
        };
        let is_python = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("py"));
        Self::parse(&bytes, if is_python { Language::Python } else { Language::Toml }).map_err(|e| e.at(path.display()))
    }

    /// One that is part of the program.
    pub fn built_in(name: &str) -> Option<PromptFile> {
        built_in::named(name)
    }

    /// Names of those that are built in.
    pub fn names() -> Vec<&'static str> {
        built_in::names().collect()
    }

    /// Reads one from its text.
    fn parse(bytes: &[u8], language: Language) -> Result<PromptFile> {
        let text = std::str::from_utf8(bytes).map_err(|e| {
            let line = 1 + bytes[..e.valid_up_to()].iter().filter(|b| **b == b'\n').count();
            Error::file("expected text in UTF-8").at(format!("line {line}"))
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let file = match language {
            Language::Python => python::parse(text)?,
            Language::Toml => toml::parse(text)?,
        };
        file.prompt.check()?;
        Ok(file)
    }

    /// A format and settings with what the file says of them.
    ///
    /// # Errors
    /// `Input` where the format has no place for a prompt; `Usage` at a name of a setting that there is not, and at a value that it cannot
    /// have.
    pub fn over(&self, format: &Format, settings: &Settings) -> Result<(Format, Settings)> {
        let (format, mut settings) = (format.clone().with_prompt(&self.prompt)?, settings.clone());
        self.set(&mut settings)?;
        Ok((format, settings))
    }

    /// Settings with what the file says of them.
    ///
    /// # Errors
    /// `Usage` at a name that there is not, and at a value that it cannot have.
    pub fn set(&self, settings: &mut Settings) -> Result<()> {
        // The file has the setting, not a flag.
        let in_file = |e: Error| Error { place: e.location(), field: None, ..e };
        self.settings.iter().try_for_each(|(name, value)| settings.set(name, value).map_err(in_file))
    }
}

/// What a prompt file is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Python,
    Toml,
}

#[cfg(test)]
mod tests;
