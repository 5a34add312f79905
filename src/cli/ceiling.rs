//! Measures the highest rates that matrix products reach on a device. The rate of reading weights limits the speed of decoding. The rate of
//! arithmetic operations limits the speed of prefill.
//!
//! The measurement runs the models' own kernels on large matrices, so the rates are below the vendor's figures.

use crate::error::Result;
use crate::exec::gpu::Device;
use crate::exec::products::Products;
use crate::tape::{MatrixPart, Rows, Tape};
use std::sync::Arc;

/// The number of rows in each measured matrix. A matrix has `ROWS` rows and `K` columns, and takes 64 MiB in f16: less than any adapter's limit on
/// the size of one buffer binding. All matrices of a measurement together are larger than the caches of a GPU.
const ROWS: usize = 8192;
const K: usize = 4096;
const REPEATS: usize = 8;
/// The number of vectors per product when operations per second are measured.
const CHUNK: usize = 256;

/// The description of `Ceiling::read_gb_s` in reports.
pub const WHAT: &str = "f16 weights read by products of large matrices with a vector, the submission included";

/// The highest rates that matrix products reached on a device.
#[derive(Debug, Clone, Copy)]
pub struct Ceiling {
    /// The rate at which products with one vector read weights, in GB/s.
    pub read_gb_s: f64,
    /// The rate of products with [`CHUNK`] vectors, in GFLOP/s. Each weight counts as two operations per vector.
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
