//! `score`: prints the log-probability of each token of a text. Can also write the logits to a file.

use super::ExitCode;
use super::model_options::ModelArgs;
use super::output::{Output, printable};
use super::progress::{Progress, Unit};
use super::prompt::{InputArgs, NewlineArgs};
use super::target::ForceArgs;
use super::values::OUTPUT;
use super::{Outcome, signals};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::session::{Prompt, Session, Slot, logprob, too_short};
use wingbeat::low_level::tensor::DType;
use wingbeat::low_level::weights::{NewTensor, write_safetensors};
use wingbeat::vocab::Vocab;

const EXAMPLES: &str = "\
Examples:
  wingbeat score \"Once upon a time there was\"
  wingbeat score -m model.pth -f chapter.txt --json
  wingbeat score -m model.pth --tokens 33,65,12 --logits logits.safetensors";

/// Show the log-probabilities and the perplexity of a text
///
/// Prints one line per token: id, natural logarithm of the probability, text. The first token has no probability. The last line has the number of tokens with a probability, their negative log-likelihood (nll) and the perplexity.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    newline: NewlineArgs,
    /// Write the logits [T, V] and the T token ids to the safetensors file OUT; V is the size of the vocabulary. Row t has the logits for token t + 1
    #[arg(long, value_name = "OUT", help_heading = OUTPUT, hide_short_help = true)]
    logits: Option<PathBuf>,
    #[command(flatten)]
    existing: ForceArgs,
    /// Print the results as one JSON object
    #[arg(help_heading = OUTPUT, long)]
    json: bool,
    #[command(flatten)]
    model: ModelArgs,
}

pub fn run(args: Args) -> Outcome {
    args.logits.iter().try_for_each(|path| args.existing.check(path))?;
    let given = args.input.require(args.newline.last())?;
    let model = args.model.load()?;
    let mut session = Session::new(&model, 1)?;
    session.model().check_speaks()?;
    signals::stop_on_interrupt(&session.stop_flag());
    let tokens = given.tokens(|text| session.encode(&Prompt::Text(text)))?;
    if tokens.is_empty() || (tokens.len() < 2 && args.logits.is_none()) {
        return Err(too_short(tokens.len()).at(args.input.place()).into());
    }
    let (slot, _) = args.model.open_slot(&mut session)?;
    let mut reader = ScoreReader { bar: Progress::new("scoring", Unit::Tokens), logprobs: vec![None] };
    match &args.logits {
        Some(path) => write_logits(path, &mut session, slot, &tokens, &mut reader)?,
        None => reader.read(&mut session, slot, &tokens, &mut |_| Ok(()))?,
    }
    let report = ScoreReport::new(tokens, reader.logprobs);
    let mut out = Output::new(false);
    if args.json {
        out.json(&report)?;
    } else {
        table(&report, model.vocab(), &mut out)?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Collects the log-probabilities of tokens while their logits are computed.
struct ScoreReader {
    bar: Progress,
    logprobs: Vec<Option<f64>>,
}

impl ScoreReader {
    fn read(&mut self, session: &mut Session, slot: Slot, tokens: &[u32], row: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        let ScoreReader { bar, logprobs } = self;
        let mut each = |t: usize, logits: &[f32]| {
            if let Some(&next) = tokens.get(t + 1) {
                logprobs.push(Some(logprob(logits, next)?));
            }
            row(logits)
        };
        session.score(slot, tokens, &mut each, &mut |done, total| bar.show(done as u64, total as u64))
    }
}

/// Writes the logits to a file while they are computed. Memory holds only the logits of one step.
fn write_logits(path: &Path, session: &mut Session, slot: Slot, tokens: &[u32], reader: &mut ScoreReader) -> Result<()> {
    let n_vocab = session.model().facts().n_vocab;
    let io = |e| Error::io(e, path);
    let logits = |out: &mut dyn Write| {
        let mut bytes = Vec::new();
        reader.read(session, slot, tokens, &mut |row| {
            bytes.clear();
            bytes.extend(row.iter().flat_map(|x| x.to_le_bytes()));
            out.write_all(&bytes).map_err(io)
        })
    };
    let ids = |out: &mut dyn Write| tokens.iter().try_for_each(|t| out.write_all(&t.to_le_bytes())).map_err(io);
    let entries = vec![
        NewTensor { name: "logits".into(), dtype: DType::F32, shape: vec![tokens.len(), n_vocab], data: Box::new(logits) },
        NewTensor { name: "tokens".into(), dtype: DType::I32, shape: vec![tokens.len()], data: Box::new(ids) },
    ];
    write_safetensors(path, &BTreeMap::new(), entries, &mut |_, _| ())
}

fn table(report: &ScoreReport, vocab: Option<&Vocab>, out: &mut Output) -> std::result::Result<(), super::Failure> {
    for (&token, p) in report.tokens.iter().zip(&report.logprobs) {
        let text = vocab.map_or_else(String::new, |v| format!("{:?}", printable(&String::from_utf8_lossy(v.token(token)))));
        match p {
            Some(p) => out.line(format_args!("{token:>6}  {p:>9.4}  {text}"))?,
            None => out.line(format_args!("{token:>6}  {:>9}  {text}", "-"))?,
        }
    }
    if let Some(perplexity) = report.perplexity {
        out.line(format_args!("tokens {}, nll {:.4}, perplexity {perplexity:.4}", report.n, report.nll))?;
    }
    Ok(())
}

#[derive(Debug, Clone, Serialize)]
pub struct ScoreReport {
    pub tokens: Vec<u32>,
    /// The natural logarithm of each token's probability. `None` for the first token.
    pub logprobs: Vec<Option<f64>>,
    /// The negative log-likelihood in nats: the negated sum of `logprobs`.
    pub nll: f64,
    /// The perplexity, exp(nll / n). `None` if `n` is 0.
    pub perplexity: Option<f64>,
    /// The number of tokens that have a probability.
    pub n: usize,
}

impl ScoreReport {
    pub fn new(tokens: Vec<u32>, logprobs: Vec<Option<f64>>) -> ScoreReport {
        let known = logprobs.iter().flatten();
        let (n, nll) = (known.clone().count(), 0.0 - known.sum::<f64>());
        ScoreReport { tokens, logprobs, nll, perplexity: (n > 0).then(|| (nll / n as f64).exp()), n }
    }
}
