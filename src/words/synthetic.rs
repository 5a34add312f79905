//! Synthetic weights for any tensor name: seeded random values in the range of trained weights. The self-test, tests and benchmarks use
//! them.

use super::testing::{numbers, seed_of};
use crate::error::Result;
use crate::tape::Source;
use crate::tensor::{DType, View};
use half::f16;

/// The seed of synthetic models. Models in files and models in memory use the same seed, so they have the same weights.
pub const MODEL_SEED: u64 = 42;

/// A source of f16 weights. The weights are computed when a tensor is read, from the seed, the tensor's name and its shape.
#[derive(Debug, Clone, Copy)]
pub struct Synthetic {
    pub seed: u64,
}

impl Synthetic {
    /// Returns the elements of a tensor: f16, little-endian, row-major.
    pub fn bytes(&self, name: &str, shape: &[usize]) -> Vec<u8> {
        let n: usize = shape.iter().product();
        let (scale, centre) = scale(name, shape);
        let values = numbers(self.seed ^ seed_of(name)).map(|v| f16::from_f32(v * scale + centre).to_le_bytes());
        values.take(n).flatten().collect()
    }
}

/// Returns the range of a tensor's elements: half the width of the range, and its centre. Matrices are scaled so that products keep the
/// size of activations. Norm weights are near 1. Decays and mixes are in the range of trained models.
fn scale(name: &str, shape: &[usize]) -> (f32, f32) {
    let last = name.rsplit('.').next().unwrap_or(name);
    let matrix = |fan_in: usize| (1.0 / (fan_in as f32).sqrt(), 0.0);
    match (last, shape) {
        // A row of this table of RWKV-7a is a square matrix, so the number of inputs is the square root of the row's length.
        ("weight", [.., n]) if name.ends_with("s_emb.weight") => (1.0 / (*n as f32).sqrt().sqrt(), 0.0),
        ("s0", _) => (0.1, 1.0),
        // Tables of RWKV-7b. The norms of queries and keys, in the next line, have large weights, so that scores come near their limit.
        ("weight", [_, _]) if [".k_emb.weight", ".v_emb.weight"].iter().any(|end| name.ends_with(end)) => (0.5, 0.0),
        ("weight", [_]) if [".lnq.weight", ".lnk.weight"].iter().any(|end| name.ends_with(end)) => (0.5, 4.0),
        // The matrices of a low-rank pair are stored as inputs x outputs, so the number of inputs is the second to last dimension.
        ("w1" | "a1" | "v1" | "g1" | "s1" | "k1" | "w2" | "a2" | "v2" | "g2" | "s2" | "k2", [.., fan_in, _]) => matrix(*fan_in),
        ("time_maa_w1" | "time_maa_w2" | "time_decay_w1" | "time_decay_w2", [.., fan_in, _]) => matrix(*fan_in),
        ("w0", _) => (2.0, 0.0),
        ("time_decay", _) => (2.5, -3.0),
        ("k_k" | "k_a", _) => (0.1, 1.0),
        ("weight", [_]) => (0.1, 1.0),
        ("weight", [.., fan_in]) => matrix(*fan_in),
        ("bias", _) => (0.05, 0.0),
        ("r_k", _) => (0.2, 0.0),
        (mix, _) if ["x_", "time_mix_", "time_maa_"].iter().any(|p| mix.starts_with(p)) => (0.5, 0.5),
        _ => (0.5, 0.0),
    }
}

impl Source for Synthetic {
    fn has(&self, _name: &str) -> bool {
        true
    }

    fn dtype(&self, _name: &str) -> Option<DType> {
        Some(DType::F16)
    }

    fn with(&self, name: &str, shape: &[usize], read: &mut dyn FnMut(&View<'_>) -> Result<()>) -> Result<()> {
        read(&View::dense(DType::F16, shape, &self.bytes(name, shape))?)
    }
}
