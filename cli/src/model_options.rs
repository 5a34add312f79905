//! Options of every subcommand that runs a model, and functions that load the model.

use super::calibrate::calibration;
use super::consent::ConsentArgs;
use super::output::say;
use super::progress::{Progress, Unit};
use super::published;
use super::threads::ThreadArgs;
use super::values::{DEVICE_HEADING, suggested, within};
use super::variables::{CACHE, DEVICE};
use super::{flags, foreign};
use clap::ValueHint;
use clap::builder::{PathBufValueParser, StringValueParser, TypedValueParser};
use std::path::{Path, PathBuf};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::exec::gpu::Backend;
use wingbeat::low_level::exec::strategy::StrategyChoice;
use wingbeat::low_level::exec::{ChosenDevice, DeviceChoice, QuantPlan, choose, tune};
use wingbeat::low_level::session::{
    LoadedState, Model, ModelSource, Options, Output as Results, Session, Slot, Snapshot, StateOrientation,
};

/// The model and its initial state.
#[derive(clap::Args)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// Model to run: a checkpoint file (.pth, .safetensors, .st or .gguf), the file's path without the extension, the file's folder, the name of a published model, or hf:OWNER/REPO[/FILE] [default: the embedded model]
    #[arg(short, long, value_name = "PATH|NAME")]
    pub model: Option<PathBuf>,
    #[command(flatten)]
    pub consent: ConsentArgs,
    #[command(flatten)]
    pub weights: WeightArgs,
    /// Start from the state in FILE: a state that `generate --save-state` wrote, or an initial state from RWKV's state tuning
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub state: Option<PathBuf>,
    /// With --state: accept a state that was saved with other weights than this model's
    #[arg(long, requires = "state", hide_short_help = true)]
    pub state_any: bool,
}

/// The options beside `--model` of a verb that measures a model and chooses its weight formats itself.
#[derive(clap::Args)]
#[command(next_help_heading = "Model")]
pub struct SourceArgs {
    #[command(flatten)]
    consent: ConsentArgs,
    /// Vocabulary: a file, or a built-in vocabulary (`world`, `small-world` or `tiny`) [default: the vocabulary that fits the model]
    #[arg(long, value_name = "PATH", value_parser = vocab_values(), hide_possible_values = true, hide_short_help = true)]
    pub vocab: Option<PathBuf>,
}

/// The options that determine how the weights of a model are stored, and how the model runs.
#[derive(clap::Args)]
#[command(next_help_heading = "Model")]
pub struct WeightArgs {
    /// Vocabulary: a file, or a built-in vocabulary (`world`, `small-world` or `tiny`) [default: the vocabulary that fits the model]
    #[arg(long, value_name = "PATH", value_parser = vocab_values(), hide_possible_values = true, hide_short_help = true)]
    pub vocab: Option<PathBuf>,
    /// Number type of weights that are not quantised: f16, f32 or auto. With auto, a matrix is f16 if all its values are in the range of f16, else f32
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = ["auto", "f16", "f32"], hide_possible_values = true, hide_short_help = true)]
    pub dtype: String,
    #[arg(long, value_name = "KIND", help = quant_help(), value_parser = quant_values(), hide_possible_values = true)]
    pub quant: Option<String>,
    #[arg(long, value_name = "FILE", help = calibrate_help(), value_hint = ValueHint::FilePath, requires = "quant", hide_short_help = true)]
    pub calibrate: Option<PathBuf>,
    /// Merge the LoRA adapter at PATH (a file, or PEFT's folder) into the weights while they are loaded. `wingbeat convert --lora` writes the merged model to a file
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    pub lora: Option<PathBuf>,
    /// LoRA alpha of the adapter's training, for an adapter without an adapter_config.json in its folder; required with such an adapter
    #[arg(long, value_name = "ALPHA", requires = "lora", hide_short_help = true)]
    pub lora_alpha: Option<f32>,
    /// Place layers on devices, in ChatRWKV's notation: `gpu fp16i8 *10 -> cpu fp32` runs 10 layers in 8 bits on the GPU and the rest on the CPU; `auto` chooses a placement that fits the free memory (docs/strategies.md). Replaces --device, --dtype and --quant
    #[arg(long, value_name = "STRING", conflicts_with_all = ["device", "dtype", "quant"], hide_short_help = true)]
    pub strategy: Option<String>,
    #[command(flatten)]
    pub run: RunArgs,
}

/// The options that determine how a model runs.
#[derive(clap::Args)]
#[command(next_help_heading = "Model")]
pub struct RunArgs {
    /// Context length: the maximum number of tokens of a sequence, prompt included. Only for models with attention (GLM, RWKV-7b) [default: the length that the model was trained with, at most 8192]
    #[arg(short, long, value_name = "N", value_parser = within(1..=u32::MAX))]
    pub context: Option<u32>,
    /// Number type of the key-value cache (GLM, RWKV-7b)
    #[arg(long, value_name = "KIND", default_value = "f16", value_parser = ["f16", "f32"], hide_short_help = true)]
    pub cache_dtype: String,
    /// Number type of the recurrent state (RWKV-5, 6 and 7); f16 takes half the memory
    #[arg(long, value_name = "KIND", default_value = "f32", value_parser = ["f16", "f32"], hide_short_help = true)]
    pub state_dtype: String,
    /// Activations that are multiplied with quantised weights: i8 rounds them to 8 bits (on a GPU in prefill), float does not, auto rounds where this costs little and gains speed (docs/quantisation.md)
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = ["auto", "i8", "float"], hide_short_help = true)]
    pub activations: String,
    /// Base of the rotary position embedding, if the model's files have a wrong value (GLM) [default: the value in the model's files]
    #[arg(long, value_name = "X", value_parser = rope_theta, hide_short_help = true)]
    pub rope_theta: Option<f64>,
    /// Axis order of the matrices in a tuned initial state: value-key (files of RWKV's official trainer, .st files of web-rwkv) or key-value (files of trainers that write the key axis first)
    #[arg(long, value_name = "ORDER", default_value = "value-key", value_parser = suggested(orientation, ORIENTATIONS), hide_possible_values = true, hide_short_help = true)]
    pub state_orientation: StateOrientation,
    /// Epsilon of the group norm (RWKV-5, 6 and 7), if the model was trained with an unusual value [default: the value in the model's file, else 64e-5]
    #[arg(long, value_name = "EPS", value_parser = epsilon, hide_short_help = true)]
    pub group_norm_eps: Option<f32>,
    #[command(flatten)]
    pub on: DeviceArgs,
    /// Prefill at most N prompt tokens per step; fewer tokens take less memory [default: 512 on discrete GPUs with enough free memory, else 256]
    #[arg(long, value_name = "N", value_parser = within(1..=u32::MAX), help_heading = DEVICE_HEADING, hide_short_help = true)]
    pub chunk: Option<u32>,
    /// Use the same kernels for every batch size, so that a text does not depend on the other texts in its batch
    #[arg(long, help_heading = DEVICE_HEADING, hide_short_help = true)]
    pub deterministic: bool,
    /// Neither read nor write the saved kernel timings and compiled kernels of this GPU. Does not affect the key-value cache
    #[arg(long, help_heading = DEVICE_HEADING, hide_short_help = true)]
    pub no_cache: bool,
}

/// The options that choose the device.
#[derive(clap::Args)]
#[command(next_help_heading = DEVICE_HEADING)]
pub struct DeviceArgs {
    /// Device to use: auto (a GPU, else the CPU), cpu, gpu (the first GPU), gpu:N, or a part of a GPU's name. `wingbeat devices` lists all devices [default: the environment variable WINGBEAT_DEVICE, else auto]
    #[arg(long, value_name = "DEVICE", value_parser = suggested(StringValueParser::new(), DEVICES), hide_possible_values = true)]
    pub device: Option<String>,
    /// Graphics API for GPUs. If this API finds no device, the program stops with an error
    #[arg(long, value_name = "API", default_value = "auto", value_parser = ["auto", "vulkan", "metal", "dx12", "gl"], ignore_case = true, hide_short_help = true)]
    pub backend: String,
    #[command(flatten)]
    pub threads: ThreadArgs,
}

/// Values of `--device` that completion and help suggest without listing the adapters.
pub const DEVICES: [&str; 5] = ["auto", "cpu", "gpu", "gpu:0", "gpu:1"];

/// The possible values of `--state-orientation`.
pub const ORIENTATIONS: [&str; 2] = ["value-key", "key-value"];

/// Returns clap's parser for a vocabulary: a path, or the name of a built-in vocabulary.
pub fn vocab_values() -> impl TypedValueParser<Value = PathBuf> {
    suggested(PathBufValueParser::new(), ["world", "small-world", "tiny"])
}

/// Returns clap's parser for the value of `--quant`: a weight format, or formats for parts of the model.
pub fn quant_values() -> impl TypedValueParser<Value = String> {
    suggested(quant, QuantPlan::names().chain([QuantPlan::KEEP]))
}

/// Returns the help text of `--quant`, which lists every format.
fn quant_help() -> String {
    let named = QuantPlan::described().map(|(name, about)| if about.is_empty() { name.into() } else { format!("{name} ({about})") });
    let named = named.collect::<Vec<_>>().join(", ");
    format!(
        "Quantise the weights: {named}, keep (the formats of the file, also the block types of a GGUF; the default) or f16 (turn quantised weights into floats). To give a part of the model another format, add PART=FORMAT after a comma: i4,head=i8,low-rank=f16 (docs/quantisation.md lists the parts)"
    )
}

/// Returns the help text of `--calibrate`.
pub fn calibrate_help() -> &'static str {
    "Encode the quantised weights with regard to the importance of their columns. FILE is an importance matrix of `wingbeat imatrix` or llama-imatrix (.gguf or .dat), or a text from which the importance is measured on the CPU first"
}

/// Returns the device that the environment variable `WINGBEAT_DEVICE` names.
pub fn device_of_environment() -> Option<String> {
    std::env::var_os(DEVICE).map(|d| d.to_string_lossy().into_owned()).filter(|d| !d.is_empty())
}

/// Returns the folder for measurements and compiled kernels: `WINGBEAT_CACHE`, else `wingbeat` in the system's cache folder. Returns `None` if the
/// system has no such folder.
pub fn cache_folder() -> Option<PathBuf> {
    let folder = std::env::var_os(CACHE).filter(|f| !f.is_empty()).map(PathBuf::from);
    folder.or_else(|| dirs::cache_dir().map(|f| f.join("wingbeat")))
}

impl DeviceArgs {
    /// Returns the device that `--device` names, or else the device that the environment variable `WINGBEAT_DEVICE` names. Returns `None`
    /// if neither is set.
    pub fn named(&self) -> Option<String> {
        self.device.clone().or_else(device_of_environment)
    }

    /// Returns the device choice of the flag or of the environment variable, or `Auto` if neither is set.
    ///
    /// # Errors
    /// `Usage` if the device's name cannot be parsed.
    pub fn device(&self) -> Result<DeviceChoice> {
        self.named().map_or(Ok(DeviceChoice::Auto), |text| text.parse())
    }

    pub fn backend(&self) -> Result<Backend> {
        let backend = self.backend.parse::<Backend>()?;
        if backend != Backend::Auto && self.device.as_deref().is_some_and(|d| d.trim().eq_ignore_ascii_case("cpu")) {
            let e = Error::usage(format!("the backend {} needs a GPU, but the device is cpu", backend.name())).field("backend");
            return Err(e.hint("leave out `backend`, or choose `device=gpu`"));
        }
        Ok(backend)
    }
}

impl RunArgs {
    /// Returns the folder for measurements and compiled kernels of GPUs: `WINGBEAT_CACHE`, else `wingbeat` in the system's cache folder. Returns
    /// `None` with `--no-cache`, or if the system has no such folder.
    pub fn cache(&self) -> Option<PathBuf> {
        cache_folder().filter(|_| !self.no_cache)
    }

    /// Measures which kernel sizes are fastest on the chosen GPU, and saves the result in the folder of [`cache`](Self::cache). Does nothing if
    /// the GPU was measured before, if the chosen device is the CPU, or if no folder is known.
    pub fn measure_once(&self) -> Result<()> {
        self.measure(&self.on.device()?)
    }

    fn measure(&self, device: &DeviceChoice) -> Result<()> {
        let Some(folder) = self.cache() else { return Ok(()) };
        if let ChosenDevice::Gpu(adapter) = choose(device, self.on.backend()?)?.chosen {
            let mut bar = Progress::new("measuring this GPU, once", Unit::Steps);
            tune::measure_once(&adapter, &folder, &mut |done, total| bar.show(done as u64, total as u64))?;
        }
        Ok(())
    }

    pub fn options(&self, vocab: Option<PathBuf>) -> Result<Options> {
        Ok(Options {
            device: self.on.device()?,
            backend: self.on.backend()?,
            vocab,
            chunk: self.chunk.map(|n| n as usize),
            context: self.context.map(|n| n as usize),
            cache_dtype: self.cache_dtype.parse()?,
            state_dtype: self.state_dtype.parse()?,
            activations: self.activations.parse()?,
            rope_theta: self.rope_theta,
            deterministic: self.deterministic,
            state_orientation: self.state_orientation,
            group_norm_eps: self.group_norm_eps,
            cache: self.cache(),
            ..Options::default()
        })
    }
}

/// Replaces the name of a published model, or an address on Hugging Face, by the path of the model's file, as `published::resolved` does.
pub fn resolved(source: &ModelSource) -> Result<ModelSource> {
    match source {
        ModelSource::Path(path) => published::resolved(path).map(ModelSource::Path),
        other => Ok(other.clone()),
    }
}

/// Loads a model. Prints notes about the model and the chosen device on stderr.
pub fn load(source: &ModelSource, options: &Options) -> Result<Model> {
    load_saying(source, options, &mut Vec::new())
}

/// Loads a model as [`load`] does, but prints no notes.
pub fn load_quietly(source: &ModelSource, options: &Options) -> Result<Model> {
    let source = &resolved(source)?;
    let mut bar = Progress::new("loading", Unit::Bytes);
    Model::load(source, options, &mut |done, total| bar.show(done, total))
}

/// Loads a model as [`load`] does, but prints only the lines that `said` does not contain yet, and adds them to `said`. Several variants of a model
/// then name their device once.
pub fn load_saying(source: &ModelSource, options: &Options, said: &mut Vec<String>) -> Result<Model> {
    let model = load_quietly(source, options)?;
    let notes = model.notes().iter().map(|note| format!("note: {}", flags::in_text(note)));
    for line in notes.chain([format!("device: {}", model.device().why)]) {
        if !said.contains(&line) {
            say(format_args!("{line}"));
            said.push(line);
        }
    }
    Ok(model)
}

impl ModelArgs {
    pub fn source(&self) -> ModelSource {
        self.model.clone().map_or(ModelSource::Embedded, ModelSource::Path)
    }

    pub fn load(&self) -> Result<Model> {
        self.load_for(Results::Logits)
    }

    /// Loads a second model with the options of [`WeightArgs::options_beside`].
    pub fn load_beside(&self, path: &Path) -> Result<Model> {
        self.weights.load_beside(path)
    }

    /// Loads the model. `output` selects the result of the model's steps: logits or hidden states.
    pub fn load_for(&self, output: Results) -> Result<Model> {
        self.weights.load(&self.source(), output)
    }

    /// Reads the state file that `--state` names. Returns `None` without the flag.
    pub fn read_state(&self, model: &Model) -> Result<Option<(Snapshot, LoadedState)>> {
        let Some(path) = &self.state else { return Ok(None) };
        let (snapshot, loaded) = Snapshot::load(model, path, self.state_any)?;
        if let Some(note) = &loaded.note {
            say(format_args!("note: {}: {note}", path.display()));
        }
        Ok(Some((snapshot, loaded)))
    }

    /// Opens a slot with the state that `--state` names. Without the flag, opens an empty slot.
    pub fn open_slot(&self, session: &mut Session) -> Result<(Slot, LoadedState)> {
        match self.read_state(session.model())? {
            Some((snapshot, loaded)) => Ok((session.restore(&snapshot)?, loaded)),
            None => Ok((session.open()?, LoadedState::default())),
        }
    }
}

impl WeightArgs {
    /// Loads a model. `output` selects the result of the model's steps: logits or hidden states.
    pub fn load(&self, source: &ModelSource, output: Results) -> Result<Model> {
        let source = &resolved(source)?;
        let strategy = self.strategy.as_deref().map(str::parse).transpose()?;
        match &strategy {
            // With `--strategy auto`, the devices are chosen while the model loads, so no GPU can be measured here. Measurements of earlier runs
            // are used.
            Some(StrategyChoice::Auto) => {}
            // Errors are ignored: a part that gets no layers may name a missing device, and loading reports all other missing devices.
            Some(StrategyChoice::Given(strategy)) => {
                strategy.devices().iter().flat_map(|device| device.parse()).for_each(|device| self.run.measure(&device).unwrap_or(()));
            }
            None => self.run.measure_once()?,
        }
        let (dtype, quant) = (self.dtype.parse()?, self.quant.as_deref().map(str::parse).transpose()?);
        let lora = self.lora.clone().map(|path| (path, self.lora_alpha));
        let options = Options { dtype, quant, strategy, output, lora, ..self.run.options(self.vocab.clone())? };
        let calibration = self.calibrate.as_deref().map(|path| calibration(path, source, &options)).transpose()?;
        load(source, &Options { calibration, ..options })
    }

    /// Loads an embedding model. Ignores `--lora`, because the adapter belongs to the models that generate text. Also ignores `--strategy` and
    /// `--calibrate`.
    pub fn load_for_vectors(&self, path: &Path) -> Result<Model> {
        let (dtype, quant) = (self.dtype.parse()?, self.quant.as_deref().map(str::parse).transpose()?);
        let options = Options { dtype, quant, output: Results::Hidden, ..self.run.options(self.vocab.clone())? };
        load(&ModelSource::Path(path.to_path_buf()), &options)
    }

    /// Loads a second model with the options of [`options_beside`](Self::options_beside).
    pub fn load_beside(&self, path: &Path) -> Result<Model> {
        load(&ModelSource::Path(path.to_path_buf()), &self.options_beside()?)
    }

    /// Returns the options of a second model: the device and weight formats of the first model. The vocabulary, the placement of layers, the
    /// adapter and the calibration belong only to the first model.
    pub fn options_beside(&self) -> Result<Options> {
        let (dtype, quant) = (self.dtype.parse()?, self.quant.as_deref().map(str::parse).transpose()?);
        Ok(Options { dtype, quant, ..self.run.options(None)? })
    }
}

/// Parses the value of `--state-orientation`, for clap's `value_parser`.
pub fn orientation(text: &str) -> std::result::Result<StateOrientation, String> {
    text.parse().map_err(|e: Error| e.message)
}

/// Checks the value of `--quant` and returns it unchanged.
fn quant(text: &str) -> std::result::Result<String, String> {
    let known = if text.contains(',') { None } else { foreign::quant(text) };
    let hint = |e: &Error| known.map_or_else(|| e.hint.clone().unwrap_or_default(), Into::into);
    text.parse::<QuantPlan>().map(|_| text.to_string()).map_err(|e| format!("{}; hint: {}", e.message, hint(&e)))
}

pub fn epsilon(text: &str) -> std::result::Result<f32, String> {
    text.parse().ok().filter(|e: &f32| *e > 0.0 && e.is_finite()).ok_or_else(|| "expected a positive number".into())
}

pub fn rope_theta(text: &str) -> std::result::Result<f64, String> {
    text.parse().ok().filter(|x: &f64| *x > 1.0 && x.is_finite()).ok_or_else(|| "expected a number above 1".into())
}
