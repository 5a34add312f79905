//! `detokenize`: converts token ids to text.

use super::ExitCode;
use super::output::Output;
use super::prompt::no_input;
use super::tokenize::VocabArgs;
use super::values::OUTPUT;
use super::{Outcome, prompt};
use serde::Serialize;
use wingbeat::error::Error;

const EXAMPLES: &str = "\
Examples:
  wingbeat detokenize --vocab world 33155 45 40213
  wingbeat tokenize --vocab world \"Hello\" | wingbeat detokenize --vocab world";

/// Turn token ids back into text
///
/// Prints the bytes of the tokens, even if these bytes are not valid UTF-8. On a terminal, control characters in a valid text are shown as escapes, unless --raw is given.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Token ids, separated by commas or spaces [default: read from standard input]
    ids: Vec<String>,
    #[command(flatten)]
    vocab: VocabArgs,
    /// Print one JSON object with the token ids and the text
    #[arg(help_heading = OUTPUT, long)]
    json: bool,
    /// Print control characters to a terminal unchanged; by default they are shown as escapes such as \u{1b}
    #[arg(help_heading = OUTPUT, long)]
    raw: bool,
}

#[derive(Serialize)]
struct DetokenizeReport {
    tokens: Vec<u32>,
    /// The decoded text. Bytes that are not UTF-8 become U+FFFD.
    text: String,
}

pub fn run(args: Args) -> Outcome {
    let text = match args.ids.as_slice() {
        [] => String::from_utf8_lossy(&prompt::stdin()?.ok_or_else(|| no_input("token IDS"))?).into_owned(),
        ids => ids.join(" "),
    };
    let tokens = prompt::parse_ids(&text)?;
    let vocab = args.vocab.open()?;
    if let Some(&id) = tokens.iter().find(|&&id| id > vocab.max_id()) {
        return Err(Error::input(format!("token id {id} is out of range: the largest id of the vocabulary is {}", vocab.max_id())).into());
    }
    let bytes = vocab.decode(&tokens);
    let mut out = Output::new(args.raw);
    if args.json {
        out.json(&DetokenizeReport { text: String::from_utf8_lossy(&bytes).into_owned(), tokens })?;
    } else {
        match std::str::from_utf8(&bytes) {
            Ok(text) => out.text(text)?,
            Err(_) => out.bytes(&bytes)?,
        }
        out.end_line()?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
