//! `convert`: a checkpoint rewritten as safetensors.

use super::Outcome;
use super::progress::{Progress, Unit};
use crate::error::Error;
use crate::tensor::DType;
use crate::weights::{Checkpoint, Layout, convert};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  wingbeat convert model.pth model.safetensors
  wingbeat convert model.pth model-f16.safetensors --dtype f16
  wingbeat convert model.pth model.st --layout web-rwkv";

/// Rewrite a checkpoint as safetensors
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A checkpoint, its name without the extension, or a folder with one
    input: PathBuf,
    /// The file to write
    output: PathBuf,
    /// Type of the numbers; none: as they are (official), f16 (web-rwkv)
    #[arg(long, value_name = "KIND", value_parser = ["f16", "f32", "bf16"])]
    dtype: Option<String>,
    /// Whose names and orientations: those of the official .pth, or web-rwkv's
    #[arg(long, value_name = "LAYOUT", default_value = "official", value_parser = ["official", "web-rwkv"])]
    layout: String,
}

pub fn run(args: Args) -> Outcome {
    let dtype = match args.dtype.as_deref() {
        Some("f16") => Some(DType::F16),
        Some("bf16") => Some(DType::BF16),
        Some(_) => Some(DType::F32),
        None => None,
    };
    let layout = Layout::from_name(&args.layout).ok_or_else(|| Error::usage(format!("unknown --layout {:?}", args.layout)))?;
    let input = Checkpoint::open(&args.input)?;
    let mut bar = Progress::new("writing", Unit::Bytes);
    convert(&input, &args.output, dtype, layout, &mut |done, total| bar.show(done, total))?;
    Ok(ExitCode::SUCCESS)
}
