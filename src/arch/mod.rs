//! Architectures. An architecture is one set of formulas, such as RWKV-7. It recognises its checkpoints by tensor names or metadata, reads the
//! model's sizes from shapes and metadata, and records its tape (the model's program).
//!
//! An architecture's file contains formulas only: no device, no kernel, no number format. To add an architecture, write its file in this folder, its
//! `mod` line below, and its entry in [`ARCHS`].

mod arwkv7;
mod deep_attention;
mod detect;
mod glm4;
mod glm_flash;
mod purpose;
mod qrwkv6;
mod qwen;
mod rwkv4;
mod rwkv5;
mod rwkv6;
mod rwkv7;
mod stack;
pub mod synthetic;

pub use arwkv7::Arwkv7;
pub use deep_attention::DeepAttention;
pub use detect::detect;
pub use glm_flash::GlmFlash;
pub use glm4::Glm4;
pub use purpose::{Purpose, Task};
pub use qrwkv6::Qrwkv6;
pub use qwen::QwenBody;
pub use rwkv4::Rwkv4;
pub use rwkv5::{Bonus, Rwkv5};
pub use rwkv6::Rwkv6;
pub use rwkv6::{LerpOrder, LerpRanks};
pub use rwkv7::{Ranks, Rwkv7};
pub use stack::Base;

use crate::error::Result;
use crate::sample::Sampling;
use crate::tape::Tape;
use crate::weights::layer_of;
use std::collections::BTreeMap;

/// The names and shapes of a checkpoint's tensors, and its metadata.
pub trait Shapes {
    /// Returns the shape of a tensor, or `None` if the checkpoint has no tensor of that name.
    fn shape(&self, tensor: &str) -> Option<Vec<usize>>;

    /// Returns the number of layers: the smallest i for which no tensor name begins with `blocks.i.` or `model.layers.i.`.
    fn n_layer(&self) -> usize;

    /// Returns a tensor name for which `is` returns true, or `None` if the checkpoint has no such name.
    fn find(&self, is: &dyn Fn(&str) -> bool) -> Option<String>;

    /// Returns the value of a metadata key, or `None` if the checkpoint has no such key.
    fn metadata(&self, _key: &str) -> Option<&str> {
        None
    }

    /// Returns true if the time mix of layer 0 has the tensor `blocks.0.att.TENSOR`.
    fn has_att(&self, tensor: &str) -> bool {
        self.shape(&format!("blocks.0.att.{tensor}")).is_some()
    }
}

/// The metadata key for the epsilon of the group norm in the time mix.
pub use crate::weights::GROUP_NORM_EPS;

/// One set of formulas, such as RWKV-7. Recognises its checkpoints and reads the sizes of their models.
pub trait Architecture: Sync {
    /// Returns the name in reports, such as `rwkv7`.
    fn name(&self) -> &'static str;

    /// Returns the supported versions as messages name them, such as `RWKV-7 (x070)`.
    fn about(&self) -> &'static str;

    /// Returns true if the checkpoint has names of tensors or metadata that no later architecture in [`ARCHS`] has. A part of these names is
    /// enough, so that [`read`](Self::read) can report which tensors of an incomplete file are missing.
    fn recognises(&self, shapes: &dyn Shapes) -> bool;

    /// Reads the hyper-parameters from shapes and metadata.
    ///
    /// # Errors
    ///
    /// `Model` if a tensor is missing or has an unsupported shape.
    fn read(&self, shapes: &dyn Shapes) -> Result<Box<dyn Blueprint>>;

    /// Returns the names of the sizes that [`Architecture::published`] accepts, smallest first.
    fn sizes(&self) -> &'static [&'static str] {
        stack::SIZES
    }

    /// Returns the hyper-parameters of the model of a size such as `0.1b`, for benchmarks without a model file. Returns `None` if the size
    /// is not one of [`sizes`](Self::sizes).
    fn published(&self, size: &str) -> Option<Box<dyn Blueprint>>;

    /// Returns published variants of the architecture, also for benchmarks without a model file.
    fn variants(&self) -> &'static [Variant] {
        &[]
    }
}

/// A published variant of an architecture: the model's full name, such as `rwkv7a-0.1b`, and a function that returns its hyper-parameters.
pub type Variant = (&'static str, fn() -> Box<dyn Blueprint>);

/// All supported architectures. [`detect()`] takes the first architecture that recognises a file. So an architecture precedes the older architectures
/// whose tensor names it also uses.
pub static ARCHS: &[&dyn Architecture] = &[
    &glm_flash::GlmFlashArch,
    &glm4::Glm4Arch,
    &arwkv7::Arwkv7Arch,
    &qrwkv6::Qrwkv6Arch,
    &rwkv7::Rwkv7Arch,
    &rwkv6::Rwkv6Arch,
    &rwkv5::Rwkv5Arch,
    &rwkv4::Rwkv4Arch,
];

/// The hyper-parameters of one model, from which its tape is recorded.
pub trait Blueprint: Send + Sync {
    /// Returns the sizes and names that reports show.
    fn facts(&self) -> Facts;

    /// Records all words of the model, in order. `tape` must be empty.
    fn record(&self, tape: &mut Tape);

    /// Returns the metadata that a file of this model needs in addition to its tensors.
    fn metadata(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Returns the default sampler settings of the model's original implementation.
    fn sampling(&self) -> Sampling {
        Sampling::rwkv()
    }
}

/// Sizes and names of a model, for reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The name of the architecture, such as `rwkv7`.
    pub architecture: &'static str,
    /// The version within the architecture, such as `x070`.
    pub version: &'static str,
    pub n_layer: usize,
    /// The width of the residual stream.
    pub n_embd: usize,
    /// The width of the channel mix (RWKV) or of the mlp (GLM).
    pub n_ffn: usize,
    /// The number of heads, or 1 for RWKV-4, which has no heads.
    pub n_head: usize,
    /// The number of channels of a head. In RWKV-4, the width of the time mix.
    pub head_size: usize,
    /// The number of rows of the embedding, which may exceed the number of tokens in the vocabulary.
    pub n_vocab: usize,
    /// The context length for which the model was trained, in tokens, or `None` if the context is unbounded.
    pub context: Option<usize>,
    /// The ids of tokens that end a text.
    pub stop_ids: Vec<u32>,
    /// The class names of a classifier, or `None` if the model predicts tokens.
    pub labels: Option<Vec<String>>,
    /// The result of the model: logits, vectors or scores.
    pub purpose: Purpose,
}

impl Shapes for crate::weights::Checkpoint {
    fn shape(&self, tensor: &str) -> Option<Vec<usize>> {
        Self::shape(self, tensor)
    }

    fn find(&self, is: &dyn Fn(&str) -> bool) -> Option<String> {
        self.names().find(|name| is(name)).map(str::to_string)
    }

    fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata().get(key).map(String::as_str)
    }

    fn n_layer(&self) -> usize {
        let layers: std::collections::BTreeSet<usize> = self.names().filter_map(layer_of).collect();
        // Only consecutive indices count: the name blocks.18446744073709551614 must not result in a model of that many layers.
        layers.iter().zip(0..).take_while(|(found, expected)| *found == expected).count()
    }
}
