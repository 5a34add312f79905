//! Measures the highest rates that matrix products reach on a device. The rate of reading weights limits the speed of decoding. The rate of
//! arithmetic operations limits the speed of prefill.
//!
//! The measurement runs the models' own kernels on large matrices, so the rates are below the vendor's figures.

use crate::report::{DeviceRates, MEASURED};
use std::sync::Arc;
use wingbeat::error::Result;
use wingbeat::low_level::exec::gpu::Device;
use wingbeat::low_level::exec::products::{Products, Timer, timer_on_cpu};
use wingbeat::low_level::exec::{ChosenDevice, DeviceDecision, host_memory};
use wingbeat::low_level::quant;
use wingbeat::low_level::tape::{MatrixPart, Rows, Tape};

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
    Products::load(device, tape(if device.is_slow { 4 } else { 16 }, ROWS, K))
}

/// Records `n` products of matrices with `rows` rows and `k` columns.
fn tape(n: usize, rows: usize, k: usize) -> Tape {
    let mut tape = Tape::new();
    let y = tape.var("y", Rows::Tokens, &[k]);
    let x = tape.var("x", Rows::Tokens, &[rows]);
    for i in 0..n {
        tape.linear_add(MatrixPart::new(format!("w{i}"), rows, k), y, x);
    }
    tape
}

/// The number of small products whose time is the time of a word beside its reads.
const WORDS: usize = 64;
/// The number of rows and columns of a small product's matrix.
const SMALL: usize = 64;

/// Measures the rates from which the speed of decoding is estimated, in each format of [`MEASURED`]. Takes a few seconds.
///
/// # Errors
/// `Device` or `Memory` if the device cannot run the products.
pub fn rates(choice: &DeviceDecision) -> Result<DeviceRates> {
    let (device, name, memory) = match &choice.chosen {
        ChosenDevice::Gpu(adapter) => (Some(Arc::new(Device::open(adapter, false)?)), adapter.name.clone(), adapter.memory()),
        ChosenDevice::Cpu => (None, "cpu".into(), host_memory()),
    };
    // A test build computes slowly on the CPU.
    let rows = if device.is_none() && cfg!(debug_assertions) { ROWS / 16 } else { ROWS };
    // Fewer matrices than for the ceiling, because they are encoded on the CPU.
    let n = match &device {
        Some(device) if !device.is_slow => 4,
        Some(_) => 1,
        None => 2,
    };
    let timer = |tape: Tape| -> Result<Timer> {
        match &device {
            Some(device) => Products::load(device, tape)?.timer(),
            None => timer_on_cpu(tape),
        }
    };
    let word = timer(tape(WORDS, SMALL, SMALL))?.best_of(REPEATS, 1)? / WORDS as f64;
    let rate = |format: &&'static str| {
        let mut tape = tape(n, rows, K);
        tape.store_as(quant::find(format)?);
        let bytes: usize = tape.matrices.iter().map(|m| m.size_bytes()).sum();
        // What the products take beside their reads is counted as the time of their words.
        let seconds = timer(tape)?.best_of(REPEATS, 1)?;
        Ok((format.to_string(), bytes as f64 / (seconds - n as f64 * word).max(seconds / 2.0) / 1e9))
    };
    let read_gb_s = MEASURED.iter().map(rate).collect::<Result<_>>()?;
    Ok(DeviceRates { id: choice.id.clone(), name, memory_bytes: memory.map(|m| m.total), read_gb_s, word_us: 1e6 * word })
}

pub fn read_gb_s(products: &Products) -> Result<f64> {
    Ok(products.size_bytes as f64 / products.timer()?.best_of(REPEATS, 1)? / 1e9)
}
