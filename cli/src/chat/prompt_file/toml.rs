//! Parses prompt files in TOML. Their keys are `user`, `bot`, `interface`, `init_prompt`, and the table `settings`.

use super::PromptFile;
use serde::Deserialize;
use toml::Value;
use wingbeat::chat::InitialPrompt;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::front_end::in_words;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    user: String,
    bot: String,
    #[serde(default = "colon")]
    interface: String,
    init_prompt: String,
    #[serde(default)]
    settings: toml::Table,
}

fn colon() -> String {
    ":".into()
}

/// Parses a prompt file.
///
/// # Errors
/// `File` if the text is not TOML, or if a key is missing or unknown. The error names the line.
pub fn parse(text: &str) -> Result<PromptFile> {
    let File { user, bot, interface, init_prompt, settings } = toml::from_str(text).map_err(|e| {
        let before = e.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        Error::file(in_words(&e.message())).at(format!("line {}", 1 + before.matches('\n').count()))
    })?;
    let settings = settings.into_iter().map(|(name, value)| as_text(&name, value)).collect::<Result<_>>()?;
    Ok(PromptFile { prompt: InitialPrompt { user, bot, interface, init_prompt }, settings })
}

/// Returns a setting's name, and its value as text.
fn as_text(name: &str, value: Value) -> Result<(String, String)> {
    let value = match value {
        Value::String(text) => text,
        Value::Integer(n) => n.to_string(),
        Value::Float(x) => x.to_string(),
        other => {
            let found = match other {
                Value::Boolean(_) => "true or false",
                Value::Array(_) => "an array",
                Value::Table(_) => "a table",
                _ => "a date",
            };
            let e = Error::file(format!("expected a number or a string, found {found}"));
            return Err(e.at(format!("settings.{name}")));
        }
    };
    Ok((name.into(), value))
}
