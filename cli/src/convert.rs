//! `convert`: rewrites a checkpoint as safetensors or GGUF and can merge a LoRA adapter into it. Also converts a tuned initial state into a state
//! file.

use super::ExitCode;
use super::Outcome;
use super::calibrate::calibration;
use super::consent::ConsentArgs;
use super::model_options::{ORIENTATIONS, calibrate_help, orientation, quant_values};
use super::output::say;
use super::progress::{Progress, Unit};
use super::published;
use super::target::{ForceArgs, check_folder};
use super::threads::ThreadArgs;
use super::values::{bytes, suggested};
use clap::ValueHint;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::arch;
use wingbeat::low_level::exec::{QuantPlan, wait};
use wingbeat::low_level::front_end::Choice;
use wingbeat::low_level::front_end::size;
use wingbeat::low_level::session::{
    GgufVocab, ModelSource, Options, StateOrientation, convert_coded, convert_gguf, is_saved, is_tuned, side_files, tuned_into_state,
    vocabulary,
};
use wingbeat::low_level::tensor::DType;
use wingbeat::low_level::weights::convert::refuse_same_path;
use wingbeat::low_level::weights::shards::{SideFile, check_new_folder};
use wingbeat::low_level::weights::{Checkpoint, Conversion, Layout, Lora, convert};
use wingbeat::vocab::Vocab;

const EXAMPLES: &str = "\
Examples:
  wingbeat convert model.pth model.safetensors
  wingbeat convert model.pth model-f16.safetensors --dtype f16
  wingbeat convert model.pth model-i8.safetensors --quant i8
  wingbeat convert model.pth model.st --layout web-rwkv
  wingbeat convert model.pth folder --quant i8 --shard 256M
  wingbeat convert rwkv7-hf-folder/ model.safetensors
  wingbeat convert model.pth rwkv7-hf-folder --layout hf
  wingbeat convert model.pth model.gguf --layout gguf
  wingbeat convert glm-4-9b-folder/ model-Q4_K.gguf --layout gguf --quant q4_k,head=q6_k
  wingbeat convert model.pth model-i4.safetensors --quant i4 --calibrate texts.txt
  wingbeat convert model.pth merged.safetensors --lora rwkv-9.pth --lora-alpha 64
  wingbeat convert tuned.pth chat.state --state-of model.pth";

/// Rewrite a checkpoint as safetensors, or as GGUF for llama.cpp
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Checkpoint to read: a file, the file's path without the extension, or the file's folder. A Hugging Face folder may have several weight files
    input: PathBuf,
    /// File to write; with --layout hf or --shard, a folder to create
    #[arg(required_unless_present = "model", conflicts_with = "model")]
    output: Option<PathBuf>,
    /// Checkpoint to read, in place of the argument INPUT: `convert -m INPUT OUTPUT`
    #[arg(short, long, value_name = "PATH")]
    model: Option<PathBuf>,
    #[command(flatten)]
    consent: ConsentArgs,
    /// Number type of the tensors in OUTPUT [default: as in the input; f16 for --layout web-rwkv and gguf]
    #[arg(long, value_name = "KIND", value_parser = ["f16", "f32", "bf16"])]
    dtype: Option<String>,
    /// Quantise matrices to the format KIND (the same values as for `generate --quant`), so that later runs need not quantise. f16 turns the quantised weights of the input into floats. With --layout gguf: GGUF's block types, such as q4_k,head=q6_k
    #[arg(long, value_name = "KIND", value_parser = quant_values(), hide_possible_values = true)]
    quant: Option<String>,
    #[arg(long, value_name = "FILE", help = calibrate_help(), value_hint = ValueHint::FilePath, requires = "quant", hide_short_help = true)]
    calibrate: Option<PathBuf>,
    /// Tensor names and axis orders of the output: official (as in RWKV's .pth files), web-rwkv, hf (a Hugging Face folder with config.json and tokenizer.json; RWKV-7 only), or gguf (a GGUF file for llama.cpp; RWKV-6, RWKV-7, ARWKV-7, QRWKV-6 and GLM-4)
    #[arg(long, value_name = "LAYOUT", default_value = "official", value_parser = ["official", "web-rwkv", "hf", "gguf"])]
    layout: String,
    /// Write a folder: the weights in files of at most SIZE (256M, 1G), an index of them, and wingbeat.manifest.json with the SHA-256 of each file. Suits downloads in pieces, as in a browser
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    shard: Option<u64>,
    /// Vocabulary file to write into the folder of --layout hf or the file of --layout gguf [default: the model's vocabulary]. With --layout gguf, none writes no vocabulary. --calibrate TEXT needs the vocabulary, too
    #[arg(hide_short_help = true, long, value_name = "FILE")]
    vocab: Option<PathBuf>,
    /// Merge the LoRA adapter at PATH (a file, or PEFT's folder) into the weights. A tensor that is whole in the adapter, not a pair lora_A and lora_B, replaces the model's tensor
    #[arg(hide_short_help = true, long, value_name = "PATH")]
    lora: Option<PathBuf>,
    /// LoRA alpha of the adapter's training, for an adapter without an adapter_config.json in its folder; required with such an adapter. A weight matrix W with the pair (A, B) becomes W + ALPHA / rank * B * A
    #[arg(hide_short_help = true, long, value_name = "ALPHA", requires = "lora")]
    lora_alpha: Option<f32>,
    /// Convert a tuned initial state (INPUT, with tensors blocks.N.att.time_state) into a state file for the checkpoint MODEL
    #[arg(hide_short_help = true, long, value_name = "MODEL", conflicts_with_all = ["lora", "dtype", "layout", "quant", "calibrate", "shard", "vocab"])]
    state_of: Option<PathBuf>,
    /// With --state-of: axis order of the matrices in the tuned initial state: value-key (files of RWKV's official trainer, .st files of web-rwkv) or key-value (files of trainers that write the key axis first) [default: value-key]
    #[arg(hide_short_help = true, long, value_name = "ORDER", value_parser = suggested(orientation, ORIENTATIONS), hide_possible_values = true)]
    state_orientation: Option<StateOrientation>,
    #[command(flatten)]
    existing: ForceArgs,
    #[command(flatten)]
    threads: ThreadArgs,
}

impl Args {
    /// Returns the paths of input and output. With `-m`, the first argument is the output.
    fn paths(&self) -> (&Path, &Path) {
        match (&self.model, &self.output) {
            (Some(model), _) => (model, &self.input),
            (None, Some(output)) => (&self.input, output),
            (None, None) => unreachable!("an output is required without -m"),
        }
    }
}

pub fn run(args: Args) -> Outcome {
    let (input, output) = args.paths();
    let (input, state_of) = (&published::resolved(input)?, args.state_of.as_deref().map(published::resolved).transpose()?);
    if args.state_of.is_none() && args.state_orientation.is_some() {
        return Err(Error::usage("--state-orientation works only together with --state-of MODEL")
            .hint("add --state-of MODEL, or leave out --state-orientation")
            .into());
    }
    check_extension(output, &args.layout)?;
    let inputs = [Some(input.as_path()), state_of.as_deref(), args.lora.as_deref()].into_iter().flatten();
    for path in inputs {
        refuse_same_path(path, output)?;
    }
    if let Some(model) = &state_of {
        args.existing.check_state(output, None)?;
        let options = Options { state_orientation: args.state_orientation.unwrap_or_default(), ..Options::default() };
        let started = Instant::now();
        wait::block_on(tuned_into_state(input, model, &options, output))?;
        let (bytes, seconds) = (size_of(output)?, started.elapsed().as_secs_f64());
        say(format_args!("wrote {}: a state for {}, {}, in {seconds:.1} s", output.display(), model.display(), size(bytes)));
        return Ok(ExitCode::SUCCESS);
    }
    let layout: Layout = args.layout.parse()?;
    if ![Layout::HuggingFace, Layout::Gguf].contains(&layout) && args.vocab.is_some() && args.calibrate.is_none() {
        return Err(Error::usage("--vocab needs --layout hf or --layout gguf: other layouts have no vocabulary").into());
    }
    if layout == Layout::Gguf && args.shard.is_some() {
        return Err(Error::usage("--layout gguf writes one file, but --shard asks for a folder").hint("leave out --shard").into());
    }
    if layout == Layout::HuggingFace || args.shard.is_some() {
        check_new_folder(output)?;
        check_folder(output)?;
    } else {
        args.existing.check(output)?;
    }
    let dtype = match args.dtype.as_deref() {
        Some("f16") => Some(DType::F16),
        Some("bf16") => Some(DType::BF16),
        Some(_) => Some(DType::F32),
        None => None,
    };
    let path = input;
    let input = Checkpoint::open(path)?;
    refuse_states(&input).map_err(|e| e.at(path.display()))?;
    let lora = args.lora.as_deref().map(|path| Lora::open(path, args.lora_alpha, &input)).transpose()?;
    let files = match (layout, args.shard) {
        (Layout::HuggingFace, _) => files_beside(&input, args.vocab.as_deref())?,
        (_, Some(_)) => side_files(&input, None)?,
        (_, None) => Vec::new(),
    };
    let calibration =
        args.calibrate.as_deref().map(|file| calibration(file, &ModelSource::Path(path.into()), &measuring(&args))).transpose()?;
    let what = Conversion {
        layout,
        dtype,
        lora: lora.as_ref(),
        calibration: calibration.as_deref(),
        files: &files,
        shard_bytes: args.shard,
        ..Conversion::default()
    };
    let started = Instant::now();
    let mut bar = Progress::new("writing", Unit::Bytes);
    let mut show = |done, total| bar.show(done, total);
    let plan: Option<QuantPlan> = args.quant.as_deref().map(str::parse).transpose()?;
    match &plan {
        plan if layout == Layout::Gguf => {
            let vocab = gguf_vocab(args.vocab.as_deref())?;
            convert_gguf(&input, output, &vocab, plan.as_ref(), &what, &mut show)?;
        }
        Some(plan) => convert_coded(&input, output, plan, &what, &mut show)?,
        None => convert(&input, output, &what, &mut show)?,
    }
    drop(bar);
    let seconds = started.elapsed().as_secs_f64();
    say(format_args!("wrote {}: {}, in {seconds:.1} s", output.display(), written(output)?));
    if let Some(lora) = &lora {
        say(format_args!("merged {} pairs, replaced {} tensors", lora.n_pairs(), lora.n_replaced()));
    }
    if layout == Layout::HuggingFace && !files.iter().any(|(name, _)| name == "tokenizer.json") {
        say(format_args!(
            "wrote no tokenizer.json, because the model has no vocabulary that fits this format; add an RWKV vocabulary with --vocab FILE"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the options of the model that measures the importance of weights with a text.
fn measuring(args: &Args) -> Options {
    let lora = args.lora.clone().map(|path| (path, args.lora_alpha));
    let vocab = args.vocab.clone().filter(|vocab| vocab != Path::new("none"));
    Options { lora, vocab, ..Options::default() }
}

/// Returns an error if the extension of the output file belongs to a format that the layout does not write.
fn check_extension(output: &Path, layout: &str) -> Result<()> {
    let extension = output.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    let is_gguf = layout == Layout::Gguf.name();
    let (written, hint) = match (extension.as_str(), is_gguf) {
        ("gguf", false) => ("safetensors", "add --layout gguf, or use the extension .safetensors or .st"),
        ("pth" | "pt" | "bin", false) => ("safetensors", "use the extension .safetensors or .st"),
        ("pth" | "pt" | "bin" | "safetensors" | "st", true) => ("GGUF", "use the extension .gguf, or leave out --layout gguf"),
        _ => return Ok(()),
    };
    let layout = if is_gguf { "with --layout gguf" } else { "without --layout gguf" };
    let text = format!("{layout}, convert writes {written}, but the output file has the extension .{extension}");
    Err(Error::usage(text).at(output.display()).hint(hint))
}

/// Returns the vocabulary of a GGUF file. `vocab` is the user's vocabulary file or the word `none`, or `None` for the model's own vocabulary.
fn gguf_vocab(vocab: Option<&Path>) -> Result<GgufVocab> {
    Ok(match vocab {
        None => GgufVocab::Own,
        Some(path) if path == Path::new("none") && !path.exists() => GgufVocab::Without,
        Some(path) => GgufVocab::Given(Vocab::find(path)?),
    })
}

/// Returns the files of a Hugging Face folder other than the weights, such as configuration and tokenizer. `vocab` is the user's vocabulary
/// file, or `None` for the model's own vocabulary.
fn files_beside(input: &Checkpoint, vocab: Option<&Path>) -> Result<Vec<SideFile>> {
    let vocab = match vocab {
        Some(path) => Some(Vocab::find(path)?),
        // The folder of the input already has a vocabulary, which is copied unchanged.
        None if input.config_path().is_some_and(|config| config.with_file_name("tokenizer.json").is_file()) => None,
        None => match vocabulary(input, arch::detect(input)?.facts().n_vocab).0 {
            Choice::Found(vocab) => Some(vocab),
            Choice::Missing { .. } => None,
        },
    };
    side_files(input, vocab.as_ref())
}

/// Returns an error if `input` is a state file, because no program reads a state that is written as a checkpoint.
fn refuse_states(input: &Checkpoint) -> Result<()> {
    if is_tuned(input) {
        let e = Error::input("expected a checkpoint, found a tuned initial state");
        return Err(e.hint("convert the state with --state-of MODEL, or pass the file to --state unchanged"));
    }
    if is_saved(input) {
        return Err(Error::input("expected a checkpoint, found a state file of wingbeat").hint("pass the file to --state unchanged"));
    }
    Ok(())
}

/// Reads the headers of the written checkpoint and describes its files: `402 tensors (380 F16, 22 F32), 382.10 MiB`.
fn written(path: &Path) -> Result<String> {
    let checkpoint = Checkpoint::open(path)?;
    let mut dtypes: BTreeMap<&str, usize> = BTreeMap::new();
    for view in checkpoint.names().filter_map(|name| checkpoint.tensor(name)) {
        *dtypes.entry(view.dtype().name()).or_default() += 1;
    }
    let by_dtype: Vec<String> = dtypes.iter().map(|(dtype, n)| format!("{n} {dtype}")).collect();
    Ok(format!(
        "{} tensors ({}), {}",
        dtypes.values().sum::<usize>(),
        by_dtype.join(", "),
        size(checkpoint.files().collect::<BTreeSet<_>>().into_iter().map(size_of).sum::<Result<u64>>()?)
    ))
}

fn size_of(path: &Path) -> Result<u64> {
    Ok(std::fs::metadata(path).map_err(|e| Error::io(e, path))?.len())
}
