//! Architectures: from the names and shapes of a checkpoint to a recorded tape.
//!
//! An architecture file holds formulas; it names no device, no kernel and no number format. To add one: a file here and its
//! two lines below.

mod detect;
mod glm4;
mod rwkv4;
mod rwkv5;
mod rwkv6;
mod rwkv7;
mod stack;
pub mod synthetic;

pub use detect::detect;
pub use glm4::Glm4;
pub use rwkv4::Rwkv4;
pub use rwkv5::{Bonus, Rwkv5};
pub use rwkv6::Rwkv6;
pub use rwkv7::{Ranks, Rwkv7};
pub use stack::Base;

use crate::error::Result;
use crate::sample::Sampling;
use crate::tape::Tape;
use crate::tensor::View;
use crate::weights::layer_of;
use std::collections::BTreeMap;

/// Names and shapes of a checkpoint.
pub trait Shapes {
    fn shape(&self, tensor: &str) -> Option<Vec<usize>>;

    /// How many layers there are, `blocks.N.` or `model.layers.N.`, N from 0 on without a gap.
    fn n_layer(&self) -> usize;

    /// A name that is as asked for.
    fn find(&self, is: &dyn Fn(&str) -> bool) -> Option<String>;

    /// What the file or the user says beside the tensors.
    fn metadata(&self, _key: &str) -> Option<&str> {
        None
    }

    /// Whether layer 0 has this tensor of its time mix.
    fn has_att(&self, tensor: &str) -> bool {
        self.shape(&format!("blocks.0.att.{tensor}")).is_some()
    }
}

/// The metadata that sets the epsilon of the group norm over a head.
pub use crate::weights::GROUP_NORM_EPS;

/// A family of models.
pub trait Architecture: Sync {
    /// Its name in reports: `rwkv7`.
    fn name(&self) -> &'static str;

    /// The versions that run, for messages: `RWKV-7 (x070)`.
    fn about(&self) -> &'static str;

    /// Whether these names are its own. Any of several tells: what a broken file lacks is then named as missing.
    fn recognises(&self, shapes: &dyn Shapes) -> bool;

    /// Hyper-parameters from shapes.
    fn read(&self, shapes: &dyn Shapes) -> Result<Box<dyn Blueprint>>;

    /// Sizes that [`Architecture::published`] knows, the largest last.
    fn sizes(&self) -> &'static [&'static str] {
        stack::SIZES
    }

    /// The published size of that name (`0.1b`), for benchmarks without a file.
    fn published(&self, size: &str) -> Option<Box<dyn Blueprint>>;
}

/// All architectures that run. Detection, benchmarks and tests walk this list; the first that recognises a file has it, so what is
/// most particular comes first.
pub static ARCHS: &[&dyn Architecture] = &[&glm4::Glm4Arch, &rwkv7::Rwkv7Arch, &rwkv6::Rwkv6Arch, &rwkv5::Rwkv5Arch, &rwkv4::Rwkv4Arch];

/// Hyper-parameters of one model.
pub trait Blueprint: Send + Sync {
    fn facts(&self) -> Facts;
    fn record(&self, tape: &mut Tape);

    /// What a file of such a model says beside its tensors.
    fn metadata(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// How the family's own program draws, unless told otherwise.
    fn sampling(&self) -> Sampling {
        Sampling::rwkv()
    }
}

/// What every model can say of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub architecture: &'static str,
    /// `x070` and the like.
    pub version: &'static str,
    pub n_layer: usize,
    pub n_embd: usize,
    pub n_ffn: usize,
    pub n_head: usize,
    pub head_size: usize,
    pub n_vocab: usize,
    /// Tokens that it was trained for, where it cannot read on for ever.
    pub context: Option<usize>,
    /// Ids that end a text.
    pub stop_ids: Vec<u32>,
    /// Names of the classes, of a model that tells these instead of the next token.
    pub labels: Option<Vec<String>>,
}

impl Facts {
    /// How many logits there are: as many as tokens, or labels.
    pub fn n_logits(&self) -> usize {
        self.labels.as_ref().map_or(self.n_vocab, Vec::len)
    }
}

impl Shapes for crate::weights::Checkpoint {
    fn shape(&self, tensor: &str) -> Option<Vec<usize>> {
        self.tensor(tensor).as_ref().map(View::shape).map(<[usize]>::to_vec)
    }

    fn find(&self, is: &dyn Fn(&str) -> bool) -> Option<String> {
        self.names().find(|name| is(name)).map(str::to_string)
    }

    fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata().get(key).map(String::as_str)
    }

    fn n_layer(&self) -> usize {
        let layers: std::collections::BTreeSet<usize> = self.names().filter_map(layer_of).collect();
        // Consecutive from 0: a name such as blocks.18446744073709551614 makes no model of that many layers.
        layers.iter().zip(0..).take_while(|(found, expected)| *found == expected).count()
    }
}
