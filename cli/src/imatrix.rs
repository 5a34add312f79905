//! `imatrix`: measures the importance of a model's weights on a text, and writes it to a file.

use super::calibrate::{Measured, measure, on_cpu};
use super::model_options::{self, SourceArgs, epsilon, rope_theta};
use super::output::{Output, say};
use super::prompt::{InputArgs, LastNewline};
use super::target::ForceArgs;
use super::threads::ThreadArgs;
use super::values::{OUTPUT, within};
use super::{ExitCode, Outcome};
use crate::report::ModelReport;
use serde::Serialize;
use std::path::PathBuf;
use wingbeat::low_level::session::{ModelSource, Options};

const EXAMPLES: &str = "\
Examples:
  wingbeat imatrix -m model.pth -f texts.txt -o imatrix.gguf
  wingbeat convert model.pth model.gguf --layout gguf --quant q4_k --calibrate imatrix.gguf
  wingbeat generate -m model.pth --quant i4 --calibrate imatrix.gguf \"Once\"
  wingbeat imatrix -m glm-4-9b-folder/ -f texts.txt -o imatrix.gguf --window 512 --json";

/// Measure which weights matter, and write an importance matrix for --calibrate and llama-quantize
///
/// Reads a text with the model on the CPU. For every column of every matrix, the file has the sum of the squares of the column's inputs: errors of weights with
/// large inputs change the results most. Encoders of 4 bits and fewer use these numbers (--calibrate). Some ten thousand tokens are enough. The
/// text should have the languages and scripts for which the model will be used.
///
/// The file is an importance matrix of llama.cpp (GGUF), with the names that the matrices have in GGUF files. Matrices of architectures without such
/// names keep their own.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    /// Checkpoint whose weights are measured [default: the embedded model]
    #[arg(short, long, value_name = "PATH", help_heading = "Model")]
    model: Option<PathBuf>,
    #[command(flatten)]
    source: SourceArgs,
    /// Base of the rotary position embedding, if the model's files have a wrong value (GLM) [default: the value in the model's files]
    #[arg(long, value_name = "X", value_parser = rope_theta, hide_short_help = true, help_heading = "Model")]
    rope_theta: Option<f64>,
    /// Epsilon of the group norm (RWKV-5, 6 and 7), if the model was trained with an unusual value [default: the value in the model's file, else 64e-5]
    #[arg(long, value_name = "EPS", value_parser = epsilon, hide_short_help = true, help_heading = "Model")]
    group_norm_eps: Option<f32>,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Write the importance matrix to the GGUF file OUT
    #[arg(short, long, value_name = "OUT", help_heading = OUTPUT)]
    output: PathBuf,
    #[command(flatten)]
    existing: ForceArgs,
    /// Cut the text into windows of at most N tokens, at least 2, each of which begins with an empty state [default: 2048, or the context length of the model if that is shorter]
    #[arg(long, value_name = "N", value_parser = within(2..=u32::MAX), help_heading = "Input")]
    window: Option<u32>,
    /// Print the results as one JSON object
    #[arg(help_heading = OUTPUT, long)]
    json: bool,
}

/// The JSON of `imatrix`.
#[derive(Serialize)]
struct ImatrixReport {
    version: &'static str,
    model: ModelReport,
    /// The number of tokens of the text.
    n: usize,
    /// The maximum number of tokens per window.
    window: usize,
    n_windows: u32,
    /// The number of tensors in the file whose importance was measured.
    n_tensors: usize,
    output: PathBuf,
}

pub fn run(args: Args) -> Outcome {
    args.existing.check(&args.output)?;
    let name = args.input.name();
    let given = args.input.require(LastNewline::Keep)?;
    let source = args.model.clone().map_or(ModelSource::Embedded, ModelSource::Path);
    let options =
        Options { vocab: args.source.vocab, rope_theta: args.rope_theta, group_norm_eps: args.group_norm_eps, ..Options::default() };
    let model = model_options::load(&source, &on_cpu(&options))?;
    let Measured { calibration, n_tokens, window } = measure(&model, given, args.window, &name)?;
    calibration.write(&args.output)?;
    let n_tensors = calibration.names().count();
    if !args.json {
        say(format_args!("wrote {}: {n_tensors} tensors, {n_tokens} tokens in {} windows", args.output.display(), calibration.n_chunks));
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = Output::new(false);
    out.json(&ImatrixReport {
        version: env!("CARGO_PKG_VERSION"),
        model: ModelReport::from(&model),
        n: n_tokens,
        window,
        n_windows: calibration.n_chunks,
        n_tensors,
        output: args.output,
    })?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
