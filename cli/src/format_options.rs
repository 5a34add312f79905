//! The flags `--format` and `--thinking`, which choose a chat format. A chat format determines how messages become a prompt.

use clap::builder::{PossibleValue, PossibleValuesParser};
use wingbeat::chat::{Format, Thinking};
use wingbeat::error::Result;
use wingbeat::low_level::session::Model;

#[derive(clap::Args)]
pub struct FormatArgs {
    /// Chat format, which turns messages into a prompt: world, raven, instruct, g1, g1-think, g1-fast, template, … [default: detected from the model]
    #[arg(long, value_name = "NAME", value_parser = names(), ignore_case = true, hide_possible_values = true, help_heading = "Chat")]
    format: Option<String>,
    /// How an RWKV-7 G1 model, GLM-4.7-Flash or the embedded model thinks before an answer: off (the prompt has no thought), fast (the prompt has an empty thought; better answers than off), on (a thought of any length), short or long (the prompt asks for a short or long thought) [default: on; for the embedded model off]
    #[arg(long, value_name = "HOW", value_parser = PossibleValuesParser::new(Thinking::names()), hide_possible_values = true, help_heading = "Chat")]
    thinking: Option<String>,
    /// Begin the prompt with token 0 (<|endoftext|>). Only for RWKV-7 G1 models, whose official template has this option as `rwkv_add_bos`
    #[arg(hide_short_help = true, long, help_heading = "Chat")]
    add_bos: bool,
}

impl FormatArgs {
    /// Returns the value of `--format`, or `None` without the flag.
    pub fn name(&self) -> Option<&str> {
        self.format.as_deref()
    }

    /// Returns the value of `--thinking`, or `None` without the flag.
    pub fn thinking(&self) -> Option<&str> {
        self.thinking.as_deref()
    }

    /// Returns true if `--add-bos` is given.
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// Returns the format that `--format`, `--thinking` and `--add-bos` choose, or `None` if none of these flags is given.
    ///
    /// # Errors
    /// `Usage` if the model cannot use the format.
    pub fn selected(&self, model: &Model) -> Result<Option<Format>> {
        let named = self.format.as_ref().map(|name| Format::named(name, model).map_err(|e| e.at("--format"))).transpose()?;
        if self.thinking.is_none() && !self.add_bos {
            return Ok(named);
        }
        let mut format = named.map_or_else(|| Format::of(model), Ok)?;
        if let Some(thinking) = &self.thinking {
            format = thinking.parse().and_then(|thinking| format.with_thinking(thinking)).map_err(|e| e.at("--thinking"))?;
        }
        Ok(Some(if self.add_bos { format.with_bos(true).map_err(|e| e.at("--add-bos"))? } else { format }))
    }
}

fn names() -> PossibleValuesParser {
    let value = |(name, about): (&'static str, &'static str)| PossibleValue::new(name).help(about);
    Format::names().into_iter().map(value).collect::<Vec<_>>().into()
}
