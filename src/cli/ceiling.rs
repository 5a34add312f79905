//! How fast a device is when nothing is in the way of the products: the ceilings of decoding and of prefill.
//!
//! Large matrices, as in a model; so it is what our kernels reach, not what the vendor prints.

use crate::error::Result;
use crate::exec::gpu::Device;
use crate::exec::products::Products;
use crate::tape::{MatrixPart, Rows, Tape};
use std::sync::Arc;

/// One matrix is 64 MiB of f16: far more than any cache of a GPU, and within every binding limit.
const ROWS: usize = 8192;
const K: usize = 4096;
const REPEATS: usize = 8;
/// Vectors that are multiplied at once, where operations are counted.
const CHUNK: usize = 256;

/// What the read bandwidth is, for reports.
pub const WHAT: &str = "f16 weights read by products of large matrices with a vector, the submission included";

/// What a device reaches at best.
#[derive(Debug, Clone, Copy)]
pub struct Ceiling {
    /// Weights read by products with one vector.
    pub read_gb_s: f64,
    /// Operations of products with a chunk of vectors, two a weight and vector.
    pub gflop_s: f64,
}

impl Ceiling {
    pub fn measure(device: &Arc<Device>) -> Result<Ceiling> {
        let products = products(device)?;
        let seconds = products.timer()?.best_of(REPEATS, CHUNK)?;
        Ok(Ceiling { read_gb_s: read_gb_s(&products)?, gflop_s: 2.0 * (products.n_weights * CHUNK) as f64 / seconds / 1e9 })
    }
}

pub fn products(device: &Arc<Device>) -> Result<Products> {
    let mut tape = Tape::new();
    let y = tape.var("y", Rows::Tokens, &[K]);
    let x = tape.var("x", Rows::Tokens, &[ROWS]);
    for i in 0..if device.is_slow { 4 } else { 16 } {
        tape.linear_add(MatrixPart::new(format!("w{i}"), ROWS, K), y, x);
    }
    Products::load(device, tape)
}

pub fn read_gb_s(products: &Products) -> Result<f64> {
    Ok(products.size_bytes as f64 / products.timer()?.best_of(REPEATS, 1)? / 1e9)
}
