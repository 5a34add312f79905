//! How fast a device reads weights when nothing else is in the way: the ceiling of decoding one token at a time.
//!
//! Large products with a vector, as in a model; so it is what our kernels reach, not what the vendor prints.

use crate::error::Result;
use crate::exec::Loaded;
use crate::exec::gpu::{Device, GpuModel};
use crate::tape::{Part, Rows, Run, Source, Step, Tape};
use crate::tensor::{DType, View};
use crate::words::synthetic::Synthetic;
use std::sync::Arc;
use std::time::Instant;

/// One matrix is 64 MiB of f16: far more than any cache of a GPU, and within every binding limit.
const ROWS: usize = 8192;
const K: usize = 4096;
const REPEATS: usize = 8;

/// What the number is, for reports.
pub const WHAT: &str = "f16 weights read by products of large matrices with a vector, the submission included";

/// The best of a few repeats, in GB/s.
pub fn measure(device: &Arc<Device>) -> Result<f64> {
    let n_matrices = if device.is_slow { 4 } else { 16 };
    let mut tape = Tape::new();
    let y = tape.var("y", Rows::Tokens, &[K]);
    let x = tape.var("x", Rows::Tokens, &[ROWS]);
    for i in 0..n_matrices {
        tape.linear_add(Part::new(format!("w{i}"), ROWS, K), y, x);
    }
    let bytes: usize = tape.matrices.iter().map(|m| m.size_bytes()).sum();
    let model = GpuModel::load(device.clone(), Arc::new(tape), &Repeated::new(), &mut |_, _| ())?;
    let mut executor = model.executor(1)?;
    let run = Run { first_row: 0, len: 1, page_in: 0, page_out: 0, shift_in: 0, shift_out: 1 };
    let step = Step { tokens: vec![0], runs: vec![run], outputs: vec![] };
    let mut best = f64::INFINITY;
    for _ in 0..REPEATS {
        let started = Instant::now();
        executor.run(&step, &mut Vec::new())?;
        best = best.min(started.elapsed().as_secs_f64());
    }
    Ok(bytes as f64 / best / 1e9)
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
