//! `tokenize`: converts text to token ids.

use super::ExitCode;
use super::Outcome;
use super::consent::ConsentArgs;
use super::flags;
use super::model_options::vocab_values;
use super::output::{Output, say};
use super::prompt::{NewlineArgs, TextArgs};
use super::published;
use super::values::OUTPUT;
use serde::Serialize;
use std::path::PathBuf;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::arch;
use wingbeat::low_level::front_end::Choice;
use wingbeat::low_level::session::vocabulary;
use wingbeat::low_level::weights::Checkpoint;
use wingbeat::vocab::Vocab;

const EXAMPLES: &str = "\
Examples:
  wingbeat tokenize --vocab world \"Hello, world\"
  wingbeat tokenize -m model.pth -f prompt.txt --pretty
  echo -n \"once upon a time\" | wingbeat tokenize --json";

/// Split a text into token ids
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    text: TextArgs,
    #[command(flatten)]
    newline: NewlineArgs,
    #[command(flatten)]
    vocab: VocabArgs,
    /// Print one token per line, with its bytes
    #[arg(help_heading = OUTPUT, long, conflicts_with = "json")]
    pretty: bool,
    /// Print one JSON object with the token ids and the text of each token
    #[arg(help_heading = OUTPUT, long)]
    json: bool,
}

/// The options that choose a vocabulary.
#[derive(clap::Args)]
pub struct VocabArgs {
    /// Vocabulary: a file (.txt, tokenizer.json or tokenizer.model), or a built-in vocabulary (`world`, `small-world` or `tiny`) [default: the vocabulary of the model of -m]
    #[arg(long, value_name = "PATH", value_parser = vocab_values(), hide_possible_values = true, help_heading = "Model")]
    vocab: Option<PathBuf>,
    /// Checkpoint whose vocabulary is used [default: the embedded model]
    #[arg(short, long, value_name = "PATH", help_heading = "Model")]
    model: Option<PathBuf>,
    #[command(flatten)]
    consent: ConsentArgs,
}

impl VocabArgs {
    /// Opens the vocabulary that the flags choose, without loading a model's weights.
    ///
    /// # Errors
    /// `File` if a file cannot be read, `Input` if no vocabulary fits the model.
    pub fn open(&self) -> Result<Vocab> {
        match (&self.vocab, &self.model) {
            (Some(path), _) => {
                let (vocab, note) = Vocab::find_noting(path)?;
                noted(note);
                Ok(vocab)
            }
            (None, None) => Ok(Vocab::small_world()),
            (None, Some(path)) => {
                let path = &published::resolved(path)?;
                let checkpoint = Checkpoint::open(path)?;
                let n_vocab = arch::detect(&checkpoint).map_err(|e| e.at(path.display()))?.facts().n_vocab;
                let (choice, note) = vocabulary(&checkpoint, n_vocab);
                noted(note);
                match choice {
                    Choice::Found(vocab) => Ok(vocab),
                    Choice::Missing { hint } => Err(Error::input("no vocabulary was found for this model").at(path.display()).hint(hint)),
                }
            }
        }
    }
}

/// Prints a note about a vocabulary.
fn noted(note: Option<String>) {
    if let Some(note) = note {
        say(format_args!("note: {}", flags::in_text(&note)));
    }
}

#[derive(Serialize)]
struct TokenizeReport {
    tokens: Vec<u32>,
    /// The text of each token. Bytes that are not UTF-8 become U+FFFD.
    pieces: Vec<String>,
    n: usize,
}

pub fn run(args: Args) -> Outcome {
    let given = args.text.require(args.newline.last())?;
    let vocab = args.vocab.open()?;
    let tokens = given.tokens(|text| vocab.encode(text.as_bytes()))?;
    let mut out = Output::new(false);
    if args.json {
        let pieces = tokens.iter().map(|&t| String::from_utf8_lossy(vocab.token(t)).into_owned()).collect();
        out.json(&TokenizeReport { n: tokens.len(), tokens, pieces })?;
    } else if args.pretty {
        for &token in &tokens {
            out.line(format_args!("{token:>6}  {}", quoted(vocab.token(token))))?;
        }
    } else {
        let ids: Vec<String> = tokens.iter().map(u32::to_string).collect();
        out.line(ids.join(" "))?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns bytes as quoted text. If the bytes are not UTF-8, each byte that is not printable ASCII is escaped in hexadecimal.
fn quoted(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => format!("{text:?}"),
        Err(_) => format!("b\"{}\"", bytes.escape_ascii()),
    }
}
