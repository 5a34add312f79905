//! How fast a device is when nothing is in the way of the products: the ceilings of decoding and of prefill.
//!
//! Large matrices, as in a model; so it is what our kernels reach, not what the vendor prints.

use crate::error::Result;
use crate::exec::gpu::{Device, GpuModel};
use crate::exec::{Executor, Loaded};
use crate::tape::{Part, Rows, Run, Source, Step, Tape};
use crate::tensor::{DType, View};
use crate::words::synthetic::Synthetic;
use std::sync::Arc;
use std::time::Instant;

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
        let mut products = Products::load(device)?;
        Ok(Ceiling { read_gb_s: products.read_gb_s()?, gflop_s: products.gflop_s()? })
    }
}

/// Matrices on a device, to be multiplied one after another.
pub struct Products {
    executor: Box<dyn Executor>,
    n_weights: usize,
    bytes: usize,
}

impl Products {
    pub fn load(device: &Arc<Device>) -> Result<Products> {
        let n_matrices = if device.is_slow { 4 } else { 16 };
        let mut tape = Tape::new();
        let y = tape.var("y", Rows::Tokens, &[K]);
        let x = tape.var("x", Rows::Tokens, &[ROWS]);
        for i in 0..n_matrices {
            tape.linear_add(Part::new(format!("w{i}"), ROWS, K), y, x);
        }
        let bytes = tape.matrices.iter().map(|m| m.size_bytes()).sum();
        let model = GpuModel::load(device.clone(), Arc::new(tape), &Repeated::new(), &mut |_, _| ())?;
        Ok(Products { executor: model.executor(1)?, n_weights: n_matrices * ROWS * K, bytes })
    }

    pub fn read_gb_s(&mut self) -> Result<f64> {
        Ok(self.bytes as f64 / self.seconds(1)? / 1e9)
    }

    fn gflop_s(&mut self) -> Result<f64> {
        Ok(2.0 * (self.n_weights * CHUNK) as f64 / self.seconds(CHUNK)? / 1e9)
    }

    /// The best of a few repeats.
    fn seconds(&mut self, n_vectors: usize) -> Result<f64> {
        let run = Run { first_row: 0, len: n_vectors as u32, page_in: 0, page_out: 0, shift_in: 0, shift_out: 1 };
        let step = Step { tokens: vec![0; n_vectors], runs: vec![run], outputs: vec![] };
        let mut best = f64::INFINITY;
        for _ in 0..REPEATS {
            let started = Instant::now();
            self.executor.run(&step, &mut Vec::new())?;
            best = best.min(started.elapsed().as_secs_f64());
        }
        Ok(best)
    }
}

/// The same mebibyte of numbers again and again: making gigabytes of them would take longer than the measurement.
struct Repeated(Vec<u8>);

impl Repeated {
    fn new() -> Repeated {
        Repeated(Synthetic { seed: 1 }.bytes("w", &[K / 8, 1024]).repeat(ROWS / 128))
    }
}

impl Source for Repeated {
    fn has(&self, _name: &str) -> bool {
        true
    }

    fn dtype(&self, _name: &str) -> Option<DType> {
        Some(DType::F16)
    }

    fn with(&self, _name: &str, shape: &[usize], read: &mut dyn FnMut(&View<'_>) -> Result<()>) -> Result<()> {
        read(&View::dense(DType::F16, shape, &self.0)?)
    }
}
