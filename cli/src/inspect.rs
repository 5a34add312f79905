//! `inspect`: describes a checkpoint from its header, without loading its weights.

mod memory;
mod report;
mod sizes;

use super::ExitCode;
use super::consent::ConsentArgs;
use super::model_options::quant_values;
use super::output::{Output, say};
use super::published;
use super::values::within;
use super::{Outcome, flags, model_options, speed};
use crate::report::{DeviceRates, MEASURED, SpeedReport, two_digits};
pub use report::inspect;
use report::{DeviceMemory, InspectReport, TensorReport};
use sizes::published_sizes;
use std::path::PathBuf;
use wingbeat::error::Result;
use wingbeat::low_level::exec::gpu::Backend;
use wingbeat::low_level::exec::{DeviceChoice, choose};
use wingbeat::low_level::front_end::size;
use wingbeat::low_level::session::{Options, embedded};
use wingbeat::low_level::weights::Checkpoint;

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
    /// Checkpoint to describe: a file (.pth, .safetensors, .st or .gguf), the file's path without the extension, or the file's folder [default: the embedded model]
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
    /// Measure how fast this machine reads weights, to estimate the speed of the model (a few seconds). Without this flag, the estimate uses the last measurement, of `doctor` or of this flag
    #[arg(long)]
    speed: bool,
    /// List the published models whose sizes wingbeat knows, with the memory that their weights need in each weight format
    #[arg(long, conflicts_with_all = ["path", "model", "tensors", "context", "quant", "strategy", "speed"])]
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
    if let Some(cost) = &report.cost
        && let Some(rates) = rates(args.speed)?
    {
        let tokens_per_second = cost.tokens_per_second(&rates);
        let device = Some(if rates.id == rates.name { rates.id } else { format!("{} ({})", rates.id, rates.name) });
        report.speed = Some(SpeedReport { model: None, device, estimate: true, tokens_per_second });
    }
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

/// Returns the rates of the device that models run on, if they are known. With `measures`, opens the device and measures them.
fn rates(measures: bool) -> Result<Option<DeviceRates>> {
    let (folder, named) = (model_options::cache_folder(), model_options::device_of_environment());
    if !measures {
        return Ok(folder.and_then(|folder| speed::known(&folder, named.as_deref())));
    }
    let choice = choose(&named.map_or(Ok(DeviceChoice::Auto), |name| name.parse())?, Backend::Auto)?;
    speed::announce(&choice);
    speed::measure(&choice, folder.as_deref()).map(Some)
}

/// Prints the published models as a table or as JSON.
fn list(json: bool) -> Outcome {
    let models = published_sizes()?;
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

fn page(r: &InspectReport, out: &mut Output) -> std::result::Result<(), super::Failure> {
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
    if let Some(shape) = shape(r) {
        line("shape", shape)?;
    }
    if let Some(n) = r.hyper.vocab {
        line("vocabulary", format!("{n} tokens, {}", vocabulary(r)))?;
    } else if let Some(own) = &r.own_vocab {
        line("vocabulary", format!("{} tokens of kind {} in the file", own.n_tokens, own.kind))?;
    }
    let active = r.n_active_params.map_or(String::new(), |active| format!(", {active} of them per token"));
    line("parameters", format!("{}{active}", r.n_params))?;
    if let Some(name) = &r.published {
        line("published as", name.clone())?;
    }
    line("tensors", r.dtypes.iter().map(|(dtype, n)| format!("{n} {dtype}")).collect::<Vec<_>>().join(", "))?;
    for (key, sizes) in [("weights", &r.weight_bytes), ("reads a token", &r.bytes_per_token)] {
        if !sizes.is_empty() {
            let sizes: Vec<String> = sizes.iter().map(|(format, bytes)| format!("{} as {format}", size(*bytes))).collect();
            line(key, sizes.join(", "))?;
        }
    }
    if let Some(speed) = &r.speed {
        let device = speed.device.as_deref().unwrap_or("this machine");
        line("speed, estimate", format!("tokens/s on {device}: {}", speeds(speed)))?;
    }
    if let Some(m) = r.memory.as_ref().filter(|_| r.devices.is_empty()) {
        let further = format!("each further slot {}", size(m.state_per_slot));
        line("memory", format!("{}; {further}", sum(&format!(" as {}", r.weights), [m.weights, m.state, m.scratch, m.total])))?;
    }
    for d in &r.devices {
        let mapped = if d.mapped == 0 { String::new() } else { format!("; {} of weights stay in the file", size(d.mapped)) };
        line(&format!("on {}", d.id), sum("", [d.weights, d.state, d.scratch, d.total]) + &mapped)?;
    }
    if r.devices.len() > 1 {
        let all = |part: fn(&DeviceMemory) -> u64| r.devices.iter().map(part).sum();
        let parts = [all(|d| d.weights), all(|d| d.state), all(|d| d.scratch), all(|d| d.total)];
        line("on all devices", sum(&format!(" as {}", r.weights), parts))?;
    }
    for TensorReport { name, dtype, shape } in r.tensors.iter().flatten() {
        out.line(format_args!("{name}  {dtype} {shape:?}"))?;
    }
    Ok(())
}

/// Returns the sizes of the layers in one line, or `None` if the architecture is unknown.
fn shape(r: &InspectReport) -> Option<String> {
    let h = &r.hyper;
    let mut shape = format!("{} layers, embedding {}, ffn {}", h.n_layer?, h.n_embd?, h.n_ffn?);
    shape += &format!(", {} heads of {}", h.n_head?, h.head_size?);
    shape += &r.context.map_or_else(String::new, |n| format!(", context {n}"));
    Some(shape)
}

/// Describes the model's vocabulary: where it is stored, or why there is no usable vocabulary.
fn vocabulary(r: &InspectReport) -> String {
    match (r.vocabulary, &r.own_vocab) {
        (Some("own"), Some(own)) => format!("{} of kind {} in the file", own.n_tokens, own.kind),
        (Some("file"), _) => "a file in the model's folder".into(),
        (Some(name), _) => format!("{name} (built in)"),
        (None, Some(own)) => format!("the file's {} of kind {} cannot be used", own.n_tokens, own.kind),
        (None, None) => "no vocabulary found: name one with --vocab".into(),
    }
}

/// Formats the memory of a session with one slot as a sum: weights, state and scratch, then the total. Leaves out terms of zero bytes. `format` is
/// appended to the word `weights`, such as ` as f16`.
fn sum(format: &str, [weights, state, scratch, total]: [u64; 4]) -> String {
    let parts = [(weights, format!("weights{format}")), (state, "state".into()), (scratch, "scratch".into())];
    let shown: Vec<String> = parts.iter().filter(|(bytes, _)| *bytes > 0).map(|(bytes, what)| format!("{} {what}", size(*bytes))).collect();
    format!("{} = {}", shown.join(" + "), size(total))
}

/// Formats the tokens per second in each weight format: `30 in f16, 55 in i8`. A format whose weights do not fit the memory is `no room in f16`.
pub fn speeds(speed: &SpeedReport) -> String {
    let of = |(format, speed): (&&str, &Option<f64>)| match speed {
        Some(speed) => format!("{} in {format}", two_digits(*speed)),
        None => format!("no room in {format}"),
    };
    // The map is sorted by name. `MEASURED` lists the widest format first.
    let shown: Vec<String> = MEASURED.iter().filter_map(|format| speed.tokens_per_second.get_key_value(format)).map(of).collect();
    shown.join(", ")
}
