//! Options of a model: its source, its formats and its devices.

use crate::arch::Facts;
use crate::error::{Error, Result};
use crate::exec::gpu::{self, Backend};
use crate::exec::strategy::StrategyChoice;
use crate::exec::{DeviceChoice, FloatChoice, QuantPlan};
use crate::quant::Float;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// The source of a model.
#[derive(Debug, Clone)]
pub enum ModelSource {
    /// A file, a file without its extension, or a folder.
    Path(PathBuf),
    /// The tiny model that is embedded in the program.
    #[cfg(feature = "embedded-model")]
    Embedded,
    /// Seeded random weights in a published shape, such as `rwkv7-0.1b`.
    Synthetic(String),
}

/// Options to open a model with. Start from `Options::default()`.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// The device of all layers, if `parts` is empty.
    pub device: DeviceChoice,
    /// The graphics API of adapters.
    pub backend: Backend,
    /// Parts on several devices, in the order of layers. If empty, all layers are on `device`.
    pub parts: Vec<PartOn>,
    /// The float format of matrices that are not quantised.
    pub dtype: FloatChoice,
    /// The device and the format of each layer, as in `docs/strategies.md`. Replaces `device` and `dtype`. `parts` and `quant` must not be set
    /// then.
    pub strategy: Option<StrategyChoice>,
    /// The quantised formats of matrices. `None` keeps the file's formats.
    pub quant: Option<QuantPlan>,
    /// A vocabulary file. `None` chooses by the number of embeddings: a built-in vocabulary, or a file beside the model.
    pub vocab: Option<PathBuf>,
    /// The most prompt tokens per step.
    pub chunk: usize,
    /// The most tokens that a slot of a model with attention can read. `None` means the trained context, at most [`DEFAULT_CONTEXT`].
    pub context: Option<usize>,
    /// The format of the KV cache.
    pub cache_dtype: Float,
    /// The format of the state matrices of RWKV-5, 6 and 7. Sums are in f32.
    pub state_dtype: Float,
    /// Base of the rotary position embedding. `None` means the value of the file.
    pub rope_theta: Option<f64>,
    /// True if the same kernel class is used for every batch size, so that results do not depend on the batch.
    pub deterministic: bool,
    /// Folder with measurements of adapters. [`measure_once`](crate::exec::tune::measure_once) writes them, and opening a model reads them.
    /// `None` means kernels of the default sizes.
    pub cache: Option<PathBuf>,
    /// True if a GPU reads only the columns of the ffn's value matrix whose input is not zero. Turn this off to compare.
    pub sparse: bool,
    /// The index order of tuned initial states, in the model's file or in a separate file.
    pub state_orientation: StateOrientation,
    /// Epsilon of the group norm of RWKV-5 to 7. `None` means the value of the file, or 64e-5.
    pub group_norm_eps: Option<f32>,
    /// A device that the caller opened; parts name it `own`. It replaces `device` and `backend`, and its capabilities replace `deterministic` and
    /// `sparse`.
    pub gpu: Option<Arc<gpu::Device>>,
}

/// The largest default context, in tokens.
pub const DEFAULT_CONTEXT: usize = 8192;

impl Default for Options {
    fn default() -> Self {
        Options {
            device: DeviceChoice::Auto,
            backend: Backend::Auto,
            parts: Vec::new(),
            dtype: FloatChoice::Auto,
            quant: None,
            strategy: None,
            vocab: None,
            chunk: 256,
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
        }
    }
}

impl Options {
    /// Returns the most tokens that a slot of a model can read. `None` if there is no limit.
    pub fn context_of(&self, facts: &Facts) -> Option<usize> {
        facts.context.map(|trained| self.context.unwrap_or(trained.min(DEFAULT_CONTEXT)))
    }
}

/// The device of a model, for output. If there are several, each field has their values, joined by arrows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// `cpu` or `gpu:N`, as values of the option `device`, or `own` for the caller's device.
    pub id: String,
    /// Name of the adapter, or the number of CPU threads.
    pub name: String,
    /// `vulkan`, `metal`, `dx12`, `gl`, or `cpu` for the CPU executor.
    pub backend: String,
    /// `discrete`, `integrated`, `virtual`, `cpu`, `other`, or `builtin` for the CPU executor.
    pub kind: String,
    /// Name and version of the driver.
    pub driver: String,
    /// The reason for the choice of the device, in one line.
    pub why: String,
}

/// Consecutive layers of a model, and their device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartOn {
    /// The device. Each part opens its device anew.
    pub device: DeviceChoice,
    /// The layers. The embedding belongs to layer 0; final norm and head are one more layer after the last block.
    pub layers: Range<usize>,
    /// The number of `layers` that stay on the device, counted from the first layer. A larger number than `layers` has means all. The other
    /// layers stay in host memory, and every step streams them through the device, one after another. Has no effect on the CPU.
    pub resident: usize,
}

/// The index order of the matrices of a tuned initial state. The file does not show it, because the matrices are square.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StateOrientation {
    /// `[H, value, key]`, as the official trainer and most others write.
    #[default]
    ValueKey,
    /// `[H, key, value]`
    KeyValue,
}

impl StateOrientation {
    /// Both orientations.
    pub const ALL: [StateOrientation; 2] = [StateOrientation::ValueKey, StateOrientation::KeyValue];

    /// Returns the name that the option `state_orientation` takes.
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
        found.ok_or_else(|| Error::usage("expected value-key or key-value").field("state_orientation"))
    }
}
