//! The option for the chat format, which determines how messages become a prompt.

use crate::chat::{Format, Thinking};
use crate::error::Result;
use crate::session::Model;
use clap::builder::{PossibleValue, PossibleValuesParser};

#[derive(clap::Args)]
pub struct FormatArgs {
    /// Chat format, which makes a prompt of messages: world, raven, instruct, g1, g1-think, g1-fast, template, … [default: detected from the model]
    #[arg(long, value_name = "NAME", value_parser = names(), ignore_case = true, hide_possible_values = true, help_heading = "Chat")]
    format: Option<String>,
    /// Thought before an answer: none (`off`), empty (`fast`), any (`on`), `short` or `long`; for G1 models [default: on]
    #[arg(long, value_name = "HOW", value_parser = PossibleValuesParser::new(Thinking::names()), hide_possible_values = true, help_heading = "Chat")]
    thinking: Option<String>,
}

impl FormatArgs {
    /// Returns the value of `--format`, or `None` without the flag.
    pub fn name(&self) -> Option<&str> {
        self.format.as_deref()
    }

    /// Returns the value of `--thinking`, if it is given.
    pub fn thinking(&self) -> Option<&str> {
        self.thinking.as_deref()
    }

    /// Returns the format that `--format` and `--thinking` choose, or `None` without both flags.
    ///
    /// # Errors
    /// `Usage` if the model cannot use the format.
    pub fn asked(&self, model: &Model) -> Result<Option<Format>> {
        let named = self.format.as_ref().map(|name| Format::named(name, model).map_err(|e| e.at("--format"))).transpose()?;
        let Some(thinking) = &self.thinking else { return Ok(named) };
        let format = named.map_or_else(|| Format::of(model), Ok)?;
        Ok(Some(thinking.parse().and_then(|thinking| format.with_thinking(thinking)).map_err(|e| e.at("--thinking"))?))
    }
}

fn names() -> PossibleValuesParser {
    let value = |(name, about): (&'static str, &'static str)| PossibleValue::new(name).help(about);
    Format::names().into_iter().map(value).collect::<Vec<_>>().into()
}
