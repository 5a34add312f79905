//! Architectures: from the names and shapes of a checkpoint to a recorded tape.
//!
//! An architecture file holds formulas; it names no device, no kernel and no number format. To add one: a file here and its
//! two lines below.

mod detect;
mod rwkv7;
mod stack;
pub mod synthetic;

pub use detect::detect;
pub use rwkv7::{Ranks, Rwkv7};

use crate::error::Result;
use crate::tape::Tape;
use crate::tensor::View;

/// Names and shapes of a checkpoint.
pub trait Shapes {
    fn shape(&self, tensor: &str) -> Option<Vec<usize>>;
    /// How many `blocks.N.` there are, N from 0 on without a gap.
    fn n_layer(&self) -> usize;
}

/// A family of models.
pub trait Architecture: Sync {
    /// As in `inspect --json`: `rwkv7`.
    fn name(&self) -> &'static str;

    /// Whether these names are its own.
    fn recognises(&self, shapes: &dyn Shapes) -> bool;

    /// Hyper-parameters from shapes.
    fn read(&self, shapes: &dyn Shapes) -> Result<Box<dyn Blueprint>>;

    /// The published size of that name (`0.1b`), for benchmarks without a file.
    fn published(&self, size: &str) -> Option<Box<dyn Blueprint>>;
}

/// All architectures that run. Detection, benchmarks and tests walk this list.
pub static ARCHS: &[&dyn Architecture] = &[&rwkv7::Family];

/// Hyper-parameters of one model.
pub trait Blueprint: Send + Sync {
    fn facts(&self) -> Facts;
    fn record(&self, tape: &mut Tape);
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
}

impl Shapes for crate::weights::Checkpoint {
    fn shape(&self, tensor: &str) -> Option<Vec<usize>> {
        self.tensor(tensor).as_ref().map(View::shape).map(<[usize]>::to_vec)
    }

    fn n_layer(&self) -> usize {
        let layer = |name: &str| name.strip_prefix("blocks.")?.split('.').next()?.parse::<usize>().ok();
        let layers: std::collections::BTreeSet<usize> = self.names().filter_map(layer).collect();
        // Consecutive from 0: a name such as blocks.18446744073709551614 makes no model of that many layers.
        layers.iter().zip(0..).take_while(|(found, expected)| *found == expected).count()
    }
}
