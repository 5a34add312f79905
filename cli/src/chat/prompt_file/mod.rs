//! Reads prompt files, which contain the names of user and bot, and the conversation before the first message.
//!
//! ChatRWKV's prompt files are Python code. This module parses the code and never runs it: see [`python`]. wingbeat's prompt files are
//! TOML.

mod built_in;
mod literal;
mod python;
mod toml;

use std::path::Path;
use wingbeat::chat::{Format, InitialPrompt, Settings};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::template::read_whole;

/// The content of a prompt file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptFile {
    pub prompt: InitialPrompt,
    /// Names and values of settings. Only a TOML file can have settings.
    pub settings: Vec<(String, String)>,
}

impl PromptFile {
    /// Reads the prompt file `path`: Python if the name ends with `.py`, else TOML. If the file does not exist, returns the built-in prompt
    /// file named `path`, such as `English-2`.
    ///
    /// # Errors
    /// `File` if the file is invalid, or if neither a file nor a built-in prompt file has this name. The error about an invalid file names
    /// the line.
    pub fn find(path: &Path) -> Result<PromptFile> {
        let bytes = match read_whole(path)? {
            Some(bytes) => bytes,
            None => {
                let name = path.to_str().unwrap_or_default();
                return Self::built_in(name).ok_or_else(|| {
                    let e = Error::file("no such file, and no built-in prompt file of this name").at(path.display());
                    e.hint(format!("built-in prompt files: {}", Self::names().join(", ")))
                });
            }
        };
        let is_python = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("py"));
        Self::parse(&bytes, if is_python { Language::Python } else { Language::Toml }).map_err(|e| e.at(path.display()))
    }

    /// Returns the built-in prompt file of that name, or `None`.
    pub fn built_in(name: &str) -> Option<PromptFile> {
        built_in::named(name)
    }

    /// Returns the names of the built-in prompt files.
    pub fn names() -> Vec<&'static str> {
        built_in::names().collect()
    }

    /// Parses the bytes of a prompt file.
    fn parse(bytes: &[u8], language: Language) -> Result<PromptFile> {
        let text = std::str::from_utf8(bytes).map_err(|e| {
            let line = 1 + bytes[..e.valid_up_to()].iter().filter(|b| **b == b'\n').count();
            Error::file("expected UTF-8 text").at(format!("line {line}"))
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let file = match language {
            Language::Python => python::parse(text)?,
            Language::Toml => toml::parse(text)?,
        };
        file.prompt.check()?;
        Ok(file)
    }

    /// Returns copies of `format` and `settings` with this file's values: the names of user and bot, the first prompt and the settings.
    ///
    /// # Errors
    /// `Input` if the format is a template, `File` if a name is invalid, `Usage` if a setting is unknown or its value is invalid.
    pub fn over(&self, format: &Format, settings: &Settings) -> Result<(Format, Settings)> {
        let (format, mut settings) = (format.clone().with_prompt(&self.prompt)?, settings.clone());
        self.set(&mut settings)?;
        Ok((format, settings))
    }

    /// Overrides `settings` by the settings in the file.
    ///
    /// # Errors
    /// `Usage` if a setting is unknown or its value is invalid.
    pub fn set(&self, settings: &mut Settings) -> Result<()> {
        // The setting comes from the file, not from a flag. So the error names the setting as a place, not as a field.
        let in_file = |mut e: Error| {
            (e.place, e.field) = (e.location(), None);
            e
        };
        self.settings.iter().try_for_each(|(name, value)| settings.set(name, value).map_err(in_file))
    }
}

/// The language of a prompt file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Python,
    Toml,
}

#[cfg(test)]
mod tests;
