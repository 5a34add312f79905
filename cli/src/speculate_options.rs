//! The options of speculative decoding: guess the next tokens, and check several guesses in one step.

use super::model_options::{self, DEVICES, quant_values};
use super::values::{suggested, within};
use clap::builder::StringValueParser;
use std::path::PathBuf;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::session::{MAX_GUESSES, Model, ModelSource, Options, Speculate, Speculation};

#[derive(clap::Args)]
#[command(next_help_heading = "Speculation")]
pub struct SpeculateArgs {
    /// Guess the next tokens, and check several guesses in one step. The text stays the same and is generated faster: ngram guesses that the text repeats itself or the prompt, forced guesses what a grammar requires, draft asks the model of --draft, auto does all of this [default: off, or auto with --draft]
    #[arg(long, value_name = "WHAT", value_parser = suggested(speculate, Speculate::ALL.map(Speculate::name)), hide_possible_values = true, hide_short_help = true)]
    pub speculate: Option<Speculate>,
    /// A smaller model with the same vocabulary, which guesses the next tokens
    #[arg(long, value_name = "MODEL", hide_short_help = true)]
    pub draft: Option<PathBuf>,
    /// Device of the draft model [default: the value of --device]
    #[arg(long, value_name = "DEVICE", requires = "draft", value_parser = suggested(StringValueParser::new(), DEVICES), hide_possible_values = true, hide_short_help = true)]
    pub draft_device: Option<String>,
    /// Quantise the weights of the draft model (the same values as for --quant)
    #[arg(long, value_name = "KIND", requires = "draft", value_parser = quant_values(), hide_possible_values = true, hide_short_help = true)]
    pub draft_quant: Option<String>,
    /// Guess K tokens per step, 1 to 32 [default: as many as measured times show to pay, at most 7]
    #[arg(long, value_name = "K", value_parser = within(1..=MAX_GUESSES as u32), hide_short_help = true)]
    pub draft_tokens: Option<u32>,
}

impl SpeculateArgs {
    /// Returns the method of guessing that the flags select.
    ///
    /// # Errors
    /// `Usage` if flags are missing.
    pub fn speculation(&self) -> Result<Speculation> {
        Speculation::chosen(self.speculate, self.draft_tokens.map(|n| n as usize), self.draft.is_some())
    }

    /// Loads the draft model for `model`. `beside` has the device and weight formats of `model`. Returns `None` without `--draft`.
    ///
    /// # Errors
    /// The errors of loading a model; `Model` if the draft model has another vocabulary.
    pub fn load(&self, model: &Model, beside: Options) -> Result<Option<Model>> {
        let Some(path) = &self.draft else { return Ok(None) };
        let mut options = beside;
        if let Some(device) = &self.draft_device {
            options.device = device.parse().map_err(|e: Error| e.at("--draft-device"))?;
        }
        options.quant = self.draft_quant.as_deref().map(str::parse).transpose()?;
        let draft = model_options::load(&ModelSource::Path(path.clone()), &options).map_err(|e| e.at("--draft"))?;
        draft.check_drafts_for(model)?;
        Ok(Some(draft))
    }
}

/// Parses the value of `--speculate`, for clap's `value_parser`.
fn speculate(text: &str) -> std::result::Result<Speculate, String> {
    text.parse().map_err(|e: Error| e.message)
}
