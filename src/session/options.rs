//! What a caller says of a model before it is opened: where it comes from, how it is kept, and what it runs on.

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

/// Where a model comes from.
#[derive(Debug, Clone)]
pub enum ModelSource {
    /// A file, a file without its extension, or a folder.
    Path(PathBuf),
    /// The tiny model that is part of the program.
    #[cfg(feature = "embedded-model")]
    Embedded,
    /// Seeded random weights of a published shape: `rwkv7-0.1b`.
    Synthetic(String),
}

/// How to open a model. Start from `Options::default()`.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// The device: `auto`, `cpu` or a GPU.
    pub device: DeviceChoice,
    /// The graphics API for GPUs.
    pub backend: Backend,
    /// Several devices that share the layers, in order; where it is empty, all are on `device`.
    pub parts: Vec<PartOn>,
    /// The float that matrices are kept in.
    pub dtype: FloatChoice,
    /// Which layers lie on which device and in which format, as `docs/strategies.md` says. In the place of `device`, `dtype`
    /// and `quant`.
    pub strategy: Option<StrategyChoice>,
    /// Which matrices are kept in fewer bits, and how. `None`: those that the file has in fewer bits.
    pub quant: Option<QuantPlan>,
    /// A vocabulary file; else by the number of embeddings: built in, or beside the model.
    pub vocab: Option<PathBuf>,
    /// Tokens of a prompt that a step reads at the most.
    pub chunk: usize,
    /// Tokens that a slot of a model with attention can read; none: as many as it was trained for, at most [`DEFAULT_CONTEXT`].
    pub context: Option<usize>,
    /// How keys and values are kept.
    pub cache_dtype: Float,
    /// How the matrices that RWKV-5, 6 and 7 remember a text in are kept; sums are in f32 either way.
    pub state_dtype: Float,
    /// Base of the rotary position embedding, in the place of what the file says.
    pub rope_theta: Option<f64>,
    /// One kernel class for every batch size.
    pub deterministic: bool,
    /// Where measurements of adapters are kept: [`measure_once`](crate::exec::tune::measure_once) writes them, opening a
    /// model reads them. None: kernels have their default sizes.
    pub cache: Option<PathBuf>,
    /// On a GPU, read of the ffn's value matrix only what its input is not zero for; off to compare.
    pub sparse: bool,
    /// How the matrices of tuned initial states lie, in the model's file or in one of their own.
    pub state_orientation: StateOrientation,
    /// Epsilon of the group norm of RWKV-5 to 7; none: what the file says, else 64e-5.
    pub group_norm_eps: Option<f32>,
    /// A device that the caller opened, which parts know as `own`; `device`, `backend`, `deterministic` and `sparse` are then not looked at: its caps count.
    pub gpu: Option<Arc<gpu::Device>>,
}

/// Tokens of a slot where neither the user nor the model says fewer.
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
    /// Tokens that a slot of such a model can read; none where there is no end.
    pub fn context_of(&self, facts: &Facts) -> Option<usize> {
        facts.context.map(|trained| self.context.unwrap_or(trained.min(DEFAULT_CONTEXT)))
    }
}

/// What a model runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// `cpu` or `gpu:N`, as the option takes it; `own` for the caller's. Several, in this and in the others, have an arrow between them.
    pub id: String,
    /// The name of the adapter.
    pub name: String,
    /// `vulkan`, `metal`, `dx12`, `gl`, or `cpu` for our own executor.
    pub backend: String,
    /// `discrete`, `integrated`, `virtual`, `cpu`, `other`, or `builtin` for our own executor.
    pub kind: String,
    /// The name and version of the driver.
    pub driver: String,
    /// Why it was chosen, in one line.
    pub why: String,
}

/// Consecutive layers of a model, and the device that has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartOn {
    /// Each part opens the device anew.
    pub device: DeviceChoice,
    /// The norm and the head behind the last layer count as one more; the embedding belongs to layer 0.
    pub layers: Range<usize>,
    /// So many of these, the first ones, stay on the device, at most all. The others stay in host memory and come to the device in every
    /// step, one after another. On the CPU there is nothing to stream.
    pub resident: usize,
}

/// Which index of the matrices of a tuned initial state comes first. The file cannot tell: they are square.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StateOrientation {
    /// `[H, value, key]`: the official trainer, and most others.
    #[default]
    ValueKey,
    /// `[H, key, value]`
    KeyValue,
}

impl StateOrientation {
    /// All orientations.
    pub const ALL: [StateOrientation; 2] = [StateOrientation::ValueKey, StateOrientation::KeyValue];

    /// Returns the name of the orientation.
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
