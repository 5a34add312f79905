//! Options of a model: its source, its formats and its devices.

use crate::arch::Facts;
use crate::error::{Error, Result};
use crate::exec::gpu::{self, Backend};
use crate::exec::strategy::StrategyChoice;
use crate::exec::{DeviceChoice, FloatChoice, QuantPlan};
use crate::files::Files;
use crate::quant::{Activations, Float};
use crate::weights::Calibration;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

/// The source of a model's weights.
#[derive(Debug, Clone)]
pub enum ModelSource {
    /// The path of a checkpoint: a file, a file name without its extension, or the folder of the files.
    Path(PathBuf),
    /// Files that the caller hands over: one checkpoint, or all its shards with their index. The list may also have small files that belong to the
    /// checkpoint, such as a vocabulary and `config.json`. If files are read by ranges, their tensors are read one after another while the model
    /// loads.
    Files {
        /// The files.
        files: Files,
        /// The name of the checkpoint's file. `None` if there is only one checkpoint.
        main: Option<String>,
    },
    /// The model of the small world, which is embedded in the program.
    #[cfg(feature = "embedded-model")]
    Embedded,
    /// Random weights from a fixed seed. The text names a published model, such as `rwkv7-0.1b`. The synthetic model has the sizes of this published
    /// model.
    Synthetic(String),
}

/// The numbers that a step of a session returns for a token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Output {
    /// Logits of the next token, or of a classifier's labels: `[n_vocab]` or `[n_labels]`.
    #[default]
    Logits,
    /// The hidden state after the last norm: `[n_embd]`. The matrix that computes logits is not loaded, so the model cannot generate text.
    Hidden,
}

/// The default number of prompt tokens per step.
pub const CHUNK: usize = 256;
/// The default number of prompt tokens per step on discrete GPUs. With this many tokens, even the product with a matrix of few rows has enough
/// workgroups for all cores.
pub const LONG_CHUNK: usize = 512;

/// Callback for the progress of loading: the bytes of weights loaded so far, and all bytes.
pub type OnLoad = Arc<Mutex<dyn FnMut(u64, u64) + Send>>;

/// Options for opening a model. Start from `Options::default()`, or end a list of fields with `..Options::default()`: minor versions add fields.
#[derive(Clone)]
pub struct Options {
    /// The device that runs all layers. Has no effect if `parts`, `strategy` or `gpu` is set.
    pub device: DeviceChoice,
    /// The graphics API through which GPUs are used.
    pub backend: Backend,
    /// Groups of consecutive layers, each with its device, in the order of the layers. If empty, all layers are on `device`.
    pub parts: Vec<PartOn>,
    /// The float format of matrices that are not quantised.
    pub dtype: FloatChoice,
    /// The device and the weight format of each layer, as described in `docs/strategies.md`. A strategy replaces `device` and `dtype`, and
    /// cannot be combined with `parts` or `quant`.
    pub strategy: Option<StrategyChoice>,
    /// The formats to which matrices are quantised. `None` quantises no matrix. Matrices that the file stores in a quantised format, such as `i8` or
    /// the block type `Q4_K` of a GGUF, then keep this format.
    pub quant: Option<QuantPlan>,
    /// The importance of matrix columns, which the encoders of quantised formats use. `None` lets all weights count alike. Matrices that the file
    /// stores in their format are not encoded. Has no effect in a browser.
    pub calibration: Option<Arc<Calibration>>,
    /// Rounding of activations to 8 bits where weights are quantised. On the CPU, all such products may round; on a GPU, only products of more than
    /// 16 tokens.
    pub activations: Activations,
    /// The path of a LoRA adapter that is merged into the weights while they are read, and the alpha of the adapter's training. The alpha may be
    /// `None` if the adapter's folder has an `adapter_config.json`.
    pub lora: Option<(PathBuf, Option<f32>)>,
    /// Path of a vocabulary file. `None` chooses the vocabulary in the model's own file (GGUF). If that file has no usable vocabulary, the model's
    /// number of embeddings determines the choice: a built-in vocabulary, or a file in the model's folder.
    pub vocab: Option<PathBuf>,
    /// The largest number of prompt tokens that one step computes. `None` means [`LONG_CHUNK`] on discrete GPUs with enough free memory, otherwise
    /// [`CHUNK`].
    pub chunk: Option<usize>,
    /// The largest number of tokens that a slot of a model with attention can read. `None` means the context that the model was trained with, but at
    /// most [`DEFAULT_CONTEXT`].
    pub context: Option<usize>,
    /// The format of the KV cache.
    pub cache_dtype: Float,
    /// The format in which the state matrices of RWKV-5, 6 and 7 are stored. Sums are computed in f32.
    pub state_dtype: Float,
    /// Base of the rotary position embedding of a GLM. `None` means the base that the file states.
    pub rope_theta: Option<f64>,
    /// True if the kernels add in the same order for every batch size. Then the result of a sequence does not depend on the other sequences of
    /// its batch.
    pub deterministic: bool,
    /// Folder for two kinds of files: compiled kernels, and measurements that determine which kernels an adapter runs.
    /// [`measure_once`](crate::exec::tune::measure_once) writes the measurements, and opening a model reads them. With Vulkan, a model that is
    /// dropped also writes the kernels that the driver compiled. `None` means default kernels, which are compiled at every start.
    pub cache: Option<PathBuf>,
    /// True if a GPU reads only those columns of an ffn's last matrix (the value matrix) whose input is not zero. Set this to false to compare
    /// results or speed.
    pub sparse: bool,
    /// The index order of the state matrices of tuned initial states (trained states in which a text begins). Applies to the model's file and to
    /// separate state files.
    pub state_orientation: StateOrientation,
    /// Epsilon of the group norm of RWKV-5 to 7. `None` means the epsilon that the file states, or 64e-5 if the file states no epsilon.
    pub group_norm_eps: Option<f32>,
    /// A GPU that the caller has opened, in place of `device` and `backend`. The settings with which the caller opened the GPU replace
    /// `deterministic` and `sparse`. An entry of `parts` uses this GPU if its device is [`DeviceChoice::Own`]. `None` lets wingbeat open the devices.
    pub gpu: Option<Arc<gpu::Device>>,
    /// The numbers that a step returns for a token. An embedding model or a reranker ([`Purpose`](crate::arch::Purpose)) always returns hidden
    /// states.
    pub output: Output,
    /// The callback of [`progress`](Self::progress).
    #[doc(hidden)]
    pub progress: Option<OnLoad>,
    /// The callback of [`kernel_progress`](Self::kernel_progress).
    #[doc(hidden)]
    pub kernel_progress: Option<OnLoad>,
}

/// Limit on a model's context if the option `context` is not set, in tokens.
pub const DEFAULT_CONTEXT: usize = 8192;

impl Default for Options {
    fn default() -> Self {
        Options {
            device: DeviceChoice::Auto,
            backend: Backend::Auto,
            parts: Vec::new(),
            dtype: FloatChoice::Auto,
            quant: None,
            calibration: None,
            activations: Activations::Auto,
            strategy: None,
            lora: None,
            vocab: None,
            chunk: None,
            context: None,
            cache_dtype: Float::F16,
            state_dtype: Float::F32,
            rope_theta: None,
            deterministic: false,
            cache: None,
            sparse: true,
            state_orientation: StateOrientation::default(),
            group_norm_eps: None,
            gpu: None,
            output: Output::Logits,
            progress: None,
            kernel_progress: None,
        }
    }
}

impl Options {
    /// Returns the largest number of tokens that a slot can read, for the model that `facts` describe. `None` for a recurrent model without
    /// attention, which has no limit.
    pub fn context_of(&self, facts: &Facts) -> Option<usize> {
        facts.context.map(|trained| self.context.unwrap_or(trained.min(DEFAULT_CONTEXT)))
    }
}

/// A description of a model's device, for output. If a model has several devices, each field joins the texts of all devices by arrows, and the
/// device of experts follows after `, experts`. A text that is equal for all devices appears once, except in `id`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// `cpu` or `gpu:N`, as the option `device` takes them, or `own` for a device that the caller opened.
    pub id: String,
    /// Name of the adapter, or the number of CPU threads.
    pub name: String,
    /// Graphics API of the adapter: `vulkan`, `metal`, `dx12` or `gl`. `wgpu` for a device that the caller opened, and `cpu` for the CPU
    /// executor.
    pub backend: String,
    /// Kind of adapter: `discrete`, `integrated`, `virtual`, `cpu` or `other`. `builtin` for the CPU executor.
    pub kind: String,
    /// Name and version of the driver. Empty if the device has no driver, or if the caller opened the device.
    pub driver: String,
    /// The reason for the choice of the device, in one line.
    pub why: String,
}

/// Consecutive layers of a model, and the device that runs them.
///
/// ```no_run
/// use wingbeat::low_level::exec::DeviceChoice;
/// use wingbeat::{Options, PartOn};
///
/// let mut options = Options::default();
/// options.parts = vec![
///     PartOn { device: "gpu:0".parse()?, layers: 0..12, resident: 12, experts: None },
///     PartOn { device: DeviceChoice::Cpu, layers: 12..25, resident: 13, experts: None },
/// ];
/// # Ok::<(), wingbeat::error::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartOn {
    /// The device. Each part opens its device again, even if two parts name the same device.
    pub device: DeviceChoice,
    /// Indices of the layers. Layer 0 includes the embedding. The final norm and the head together are one more layer after the last block.
    pub layers: Range<usize>,
    /// How many of `layers` stay in device memory, beginning with the first layer. A number above the length of `layers` means all. The remaining
    /// layers stay in host memory, and every step copies them to the device, one after another. Has no effect on the CPU.
    pub resident: usize,
    /// The experts of `layers` that another device computes. `None` if `device` computes all.
    pub experts: Option<ExpertsOn>,
}

/// The experts of a [`PartOn`] that run on another device than the rest of their layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpertsOn {
    /// The device of the experts. It is opened again, even if a part names the same device.
    pub device: DeviceChoice,
    /// The number of layers whose experts are on `device`: the last layers of the part that have experts. A number above the number of these layers
    /// means all.
    pub layers: usize,
}

/// The index order of the state matrices in the file of a tuned initial state (a trained state in which a text begins). The file does not show its
/// index order, because the matrices are square.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StateOrientation {
    /// The index order `[heads, value, key]`, which the official trainer and most other trainers write.
    #[default]
    ValueKey,
    /// The index order `[heads, key, value]`.
    KeyValue,
}

impl StateOrientation {
    /// Both orientations.
    pub const ALL: [StateOrientation; 2] = [StateOrientation::ValueKey, StateOrientation::KeyValue];

    /// Returns the orientation's name, as the option `state_orientation` takes it.
    pub fn name(self) -> &'static str {
        match self {
            StateOrientation::ValueKey => "value-key",
            StateOrientation::KeyValue => "key-value",
        }
    }
}

impl fmt::Display for StateOrientation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for StateOrientation {
    type Err = Error;

    fn from_str(text: &str) -> Result<StateOrientation> {
        let found = StateOrientation::ALL.into_iter().find(|orientation| orientation.name() == text);
        found.ok_or_else(|| Error::usage(format!("expected value-key or key-value, found {text:?}")).field("state_orientation"))
    }
}
