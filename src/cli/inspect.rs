//! `inspect`: describes a checkpoint from its header, without loading its weights.

use super::consent::ConsentArgs;
use super::model_options::quant_values;
use super::output::{Output, say};
use super::published;
use super::values::within;
use super::{Outcome, flags};
use crate::error::size;
use crate::report::{self, InspectReport, TensorReport, inspect};
use crate::session::{Options, embedded};
use crate::weights::Checkpoint;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  wingbeat inspect model.pth
  wingbeat inspect model.pth --tensors
  wingbeat inspect model.safetensors --json
  wingbeat inspect model.pth --strategy \"gpu fp16i8 *20 -> cpu fp16\"
  wingbeat inspect rwkv7-hf-folder/
  wingbeat inspect --published";

/// Describe a checkpoint: architecture, sizes, memory
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Checkpoint to describe: a file (.pth, .safetensors, .st or .gguf), the file's path without the extension, or the file's folder [default: the tiny embedded model]
    #[arg(value_name = "MODEL", conflicts_with = "model")]
    path: Option<PathBuf>,
    /// Checkpoint to describe, in place of the argument MODEL
    #[arg(short, long, value_name = "PATH")]
    model: Option<PathBuf>,
    #[command(flatten)]
    consent: ConsentArgs,
    /// Also list each tensor with its number type and shape
    #[arg(long)]
    tensors: bool,
    /// Context length in tokens for which the memory of the key-value cache is computed (GLM, RWKV-7b) [default: the length that the model was trained with, at most 8192]
    #[arg(short, long, value_name = "N", value_parser = within(1..=u32::MAX))]
    context: Option<u32>,
    /// Number type of the key-value cache (GLM, RWKV-7b)
    #[arg(hide_short_help = true, long, value_name = "KIND", default_value = "f16", value_parser = ["f16", "f32"])]
    cache_dtype: String,
    /// Number type of the recurrent state (RWKV-5, 6 and 7)
    #[arg(hide_short_help = true, long, value_name = "KIND", default_value = "f32", value_parser = ["f16", "f32"])]
    state_dtype: String,
    /// Show the memory that quantised weights need: i8, i4-mixed, … (the same values as for `generate --quant`)
    #[arg(long, value_name = "KIND", value_parser = quant_values(), hide_possible_values = true)]
    quant: Option<String>,
    /// Show the memory that a placement of layers needs on each device (the same values as for `generate --strategy`)
    #[arg(long, value_name = "STRING", conflicts_with = "quant")]
    strategy: Option<String>,
    /// List the published models whose sizes wingbeat knows, with the memory that their weights need in each weight format
    #[arg(long, conflicts_with_all = ["path", "model", "tensors", "context", "quant", "strategy"])]
    published: bool,
    /// Print the description as one JSON object; with --published, print an array
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Outcome {
    if args.published {
        return list(args.json);
    }
    let checkpoint = match args.path.as_ref().or(args.model.as_ref()) {
        Some(path) => Checkpoint::open(&published::resolved(path)?)?,
        None => embedded()?,
    };
    let (context, cache_dtype, state_dtype) = (args.context.map(|n| n as usize), args.cache_dtype.parse()?, args.state_dtype.parse()?);
    let quant = args.quant.as_deref().map(str::parse).transpose()?;
    let strategy = args.strategy.as_deref().map(str::parse).transpose()?;
    let options = Options { context, cache_dtype, state_dtype, quant, strategy, ..Options::default() };
    let mut report = inspect(&checkpoint, args.tensors, &options)?;
    report.note = report.note.map(|note| flags::in_text(&note));
    let mut out = Output::new(false);
    if args.json {
        out.json(&report)?;
    } else {
        page(&report, &mut out)?;
    }
    out.finish()?;
    if let Some(note) = &report.note {
        say(format_args!("note: {note}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the published models as a table or as JSON.
fn list(json: bool) -> Outcome {
    let models = report::published()?;
    let mut out = Output::new(false);
    if json {
        out.json(&models)?;
    } else {
        let formats: Vec<&str> = models.first().map(|m| m.weights.keys().copied().collect()).unwrap_or_default();
        let heads = formats.iter().map(|format| format!(" {format:>11}")).collect::<String>();
        out.line(format_args!("{:<16} {:>6} {:>6} {:>15}{heads} {:>11}", "model", "layers", "width", "parameters", "state"))?;
        for m in &models {
            let weights = formats.iter().map(|format| format!(" {:>11}", size(m.weights[format]))).collect::<String>();
            let state = size(m.state_per_slot);
            out.line(format_args!("{:<16} {:>6} {:>6} {:>15}{weights} {state:>11}", m.name, m.n_layer, m.n_embd, m.n_params))?;
        }
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn page(r: &InspectReport, out: &mut Output) -> Result<(), super::Failure> {
    let mut line = |key: &str, value: String| out.line(format_args!("{key:<16} {value}"));
    line("name", r.name.clone())?;
    let files = if r.files == 1 { String::new() } else { format!("{} files, ", r.files) };
    line("file", format!("{}, {files}{} layout", r.kind, r.layout))?;
    let version = r.version.map(|v| format!(" {v}")).unwrap_or_default();
    line("architecture", format!("{}{version}", r.architecture.unwrap_or("unknown")))?;
    if let Some(purpose) = r.purpose {
        let (tasks, verb) = (r.tasks.join(", "), if r.tasks.is_empty() { "rerank" } else { "embed" });
        let of = if tasks.is_empty() { String::new() } else { format!(" ({tasks})") };
        line("purpose", format!("{purpose}{of}, for the command {verb}"))?;
    }
    let h = &r.hyper;
    let sizes = [
        ("layers", h.n_layer),
        ("embedding", h.n_embd),
        ("ffn", h.n_ffn),
        ("heads", h.n_head),
        ("head size", h.head_size),
        ("vocabulary", h.vocab),
        ("context", r.context),
    ];
    for (key, value) in sizes {
        if let Some(value) = value {
            line(key, value.to_string())?;
        }
    }
    if let Some(own) = &r.own_vocab {
        line("tokens in file", format!("{} of kind {}", own.n_tokens, own.kind))?;
    }
    line("parameters", r.n_params.to_string())?;
    if let Some(name) = &r.published {
        line("published as", name.clone())?;
    }
    line("tensors", r.dtypes.iter().map(|(dtype, n)| format!("{n} {dtype}")).collect::<Vec<_>>().join(", "))?;
    if !r.weight_bytes.is_empty() {
        let sizes: Vec<String> = r.weight_bytes.iter().map(|(format, bytes)| format!("{} as {format}", size(*bytes))).collect();
        line("weights", sizes.join(", "))?;
    }
    for (format, bytes) in &r.bytes_per_token {
        line("reads a token", format!("{} as {format}", size(*bytes)))?;
    }
    if let Some(m) = &r.memory {
        let (weights, state, scratch) = (size(m.weights), size(m.state_per_slot), size(m.scratch));
        line("memory", format!("{weights} weights as {}, {state} state a slot, {scratch} scratch", r.weights))?;
    }
    for d in &r.devices {
        let text = format!("{} weights, {} state and caches, {} scratch", size(d.weights), size(d.state), size(d.scratch));
        line(&format!("on {}", d.id), text)?;
    }
    for TensorReport { name, dtype, shape } in r.tensors.iter().flatten() {
        out.line(format_args!("{name}  {dtype} {shape:?}"))?;
    }
    Ok(())
}
