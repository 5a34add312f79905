//! `convert`: a checkpoint, in whatever form, rewritten as one safetensors file; with an adapter merged, if there is one. Or a
//! tuned initial state made into a state file.

use super::Outcome;
use super::model_options::{orientation, quant};
use super::output::say;
use super::progress::{Progress, Unit};
use super::target::Existing;
use crate::error::{Error, Result};
use crate::session::{Options, StateOrientation, convert_coded, is_saved, is_tuned, tuned_into_state};
use crate::tensor::DType;
use crate::weights::convert::refuse_same_path;
use crate::weights::{Checkpoint, Conversion, Layout, Lora, convert};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  wingbeat convert model.pth model.safetensors
  wingbeat convert model.pth model-f16.safetensors --dtype f16
  wingbeat convert model.pth model-i8.safetensors --quant i8
  wingbeat convert model.pth model.st --layout web-rwkv
  wingbeat convert rwkv7-hf-folder/ model.safetensors
  wingbeat convert model.pth merged.safetensors --lora rwkv-9.pth --lora-alpha 64
  wingbeat convert tuned.pth chat.state --state-of model.pth";

/// Rewrite a checkpoint as safetensors
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A checkpoint, its name without the extension, or a folder with one (Hugging Face's too, of any number of files)
    input: PathBuf,
    /// The file to write
    output: PathBuf,
    /// Type of the numbers; none: as they are (official), f16 (web-rwkv)
    #[arg(long, value_name = "KIND", value_parser = ["f16", "f32", "bf16"])]
    dtype: Option<String>,
    /// Write matrices in fewer bits, as --quant of other verbs makes them: files that load without being encoded again. f16: floats of what is in few bits
    #[arg(long, value_name = "KIND", value_parser = quant)]
    quant: Option<String>,
    /// Whose names and orientations: those of the official .pth, or web-rwkv's
    #[arg(long, value_name = "LAYOUT", default_value = "official", value_parser = ["official", "web-rwkv"])]
    layout: String,
    /// Merge a LoRA adapter into the weights; tensors that were trained in full replace the model's
    #[arg(long, value_name = "FILE", requires = "lora_alpha")]
    lora: Option<PathBuf>,
    /// The alpha that the adapter's trainer was given: W += alpha / rank * B * A. No file holds it
    #[arg(long, value_name = "ALPHA", requires = "lora")]
    lora_alpha: Option<f32>,
    /// Make a state file for this model of a tuned initial state (blocks.N.att.time_state)
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["lora", "dtype", "layout", "quant"])]
    state_of: Option<PathBuf>,
    /// How the tuned state lies: value-key (as the official trainer writes it) or key-value
    #[arg(long, value_name = "ORDER", value_parser = orientation)]
    state_orientation: Option<StateOrientation>,
    #[command(flatten)]
    existing: Existing,
}

pub fn run(args: Args) -> Outcome {
    if args.state_of.is_none() && args.state_orientation.is_some() {
        return Err(Error::usage("--state-orientation goes with --state-of: whole models keep their states as they lie").into());
    }
    let extension = args.output.extension().map(|e| e.to_string_lossy().to_lowercase());
    if let Some(found) = extension.filter(|e| ["pth", "pt", "bin", "gguf"].contains(&e.as_str())) {
        let text = format!("convert writes safetensors, which nobody would look for in a .{found}");
        return Err(Error::usage(text).at(args.output.display()).hint("name it .safetensors, or .st").into());
    }
    let inputs = [Some(&args.input), args.state_of.as_ref(), args.lora.as_ref()].into_iter().flatten();
    for path in inputs {
        refuse_same_path(path, &args.output)?;
    }
    if let Some(model) = &args.state_of {
        args.existing.check_state(&args.output, None)?;
        let options = Options { state_orientation: args.state_orientation.unwrap_or_default(), ..Options::default() };
        tuned_into_state(&args.input, model, &options, &args.output)?;
        return Ok(ExitCode::SUCCESS);
    }
    args.existing.check(&args.output)?;
    let dtype = match args.dtype.as_deref() {
        Some("f16") => Some(DType::F16),
        Some("bf16") => Some(DType::BF16),
        Some(_) => Some(DType::F32),
        None => None,
    };
    let layout = Layout::from_name(&args.layout).ok_or_else(|| Error::usage(format!("unknown --layout {:?}", args.layout)))?;
    let input = Checkpoint::open(&args.input)?;
    refuse_states(&input).map_err(|e| e.at(args.input.display()))?;
    let lora = match (&args.lora, args.lora_alpha) {
        (Some(path), Some(alpha)) => Some(Lora::open(path, alpha, &input)?),
        _ => None,
    };
    let what = Conversion { dtype, layout, lora: lora.as_ref(), coded: None };
    let mut bar = Progress::new("writing", Unit::Bytes);
    let mut show = |done, total| bar.show(done, total);
    match &args.quant {
        Some(quant) => convert_coded(&input, &args.output, quant, &what, &mut show)?,
        None => convert(&input, &args.output, &what, &mut show)?,
    }
    drop(bar);
    if let Some(lora) = &lora {
        say(format_args!("merged {} pairs, replaced {} tensors", lora.n_pairs(), lora.n_replaced()));
    }
    Ok(ExitCode::SUCCESS)
}

/// A state is no checkpoint: rewritten as one, no verb would take it.
fn refuse_states(input: &Checkpoint) -> Result<()> {
    if is_tuned(input) {
        let e = Error::input("expected a checkpoint, found a tuned initial state");
        return Err(e.hint("make a state file of it with --state-of MODEL, or give it as it is with --state"));
    }
    if is_saved(input) {
        return Err(Error::input("expected a checkpoint, found a state file of wingbeat").hint("give it as it is with --state"));
    }
    Ok(())
}
