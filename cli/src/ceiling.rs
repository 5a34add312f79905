//! Measures the highest rates that matrix products reach on a device. The rate of reading weights limits the speed of decoding. The rate of
//! arithmetic operations limits the speed of prefill.
//!
//! The measurement runs the models' own kernels on large matrices, so the rates are below the vendor's figures.

use crate::report::{DecodeCost, DeviceRates, MEASURED};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;
use wingbeat::error::Result;
use wingbeat::low_level::arch;
use wingbeat::low_level::exec::gpu::{AdapterKind, Device};
use wingbeat::low_level::exec::products::{Products, Timer, timer_on_cpu};
use wingbeat::low_level::exec::{ChosenDevice, DeviceDecision, FloatChoice, host_memory};
use wingbeat::low_level::quant::{self, Float};
use wingbeat::low_level::sample::{Sampler, Sampling};
use wingbeat::low_level::session::{Limits, Model, ModelSource, Options, Session, Text, embedded};
use wingbeat::low_level::tape::{MatrixPart, Rows, Tape};

/// The number of rows in each measured matrix. A matrix has `ROWS` rows and `K` columns, and takes 64 MiB in f16. This is less than any adapter's
/// limit on the size of one buffer binding. All matrices of a measurement together are larger than the caches of a GPU.
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
    /// The rate at which the device reads weights when it multiplies a matrix by one vector, in GB/s.
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

/// The number of small products that are timed. Reading their weights takes almost no time, so their mean time is the fixed cost of one product.
const SMALL_PRODUCTS: usize = 64;
/// The number of rows and columns of a small product's matrix.
const SMALL: usize = 64;
/// The number of tokens that the embedded model decodes to measure the time of a word (fused operation).
const DECODED: usize = 16;
/// The number of rows of a matrix whose weights are read to measure the rate. `WORD_K` is the number of columns. Matrices of models with 0.1 to 3
/// billion parameters have about as many columns.
const WORD_ROWS: usize = 32768;
const WORD_K: usize = 1024;

/// Measures the rates from which the speed of decoding is estimated, in each format of [`MEASURED`]. Takes a few seconds.
///
/// # Errors
/// `Device` or `Memory` if the device cannot run the products.
pub fn rates(choice: &DeviceDecision) -> Result<DeviceRates> {
    let (device, name, memory) = match &choice.chosen {
        ChosenDevice::Gpu(adapter) => (Some(Arc::new(Device::open(adapter, false)?)), adapter.name.clone(), adapter.memory()),
        ChosenDevice::Cpu => (None, "cpu".into(), host_memory()),
    };
    let is_software = matches!(&choice.chosen, ChosenDevice::Gpu(adapter) if adapter.kind == AdapterKind::Cpu);
    // An unoptimised build is slow on the CPU, so measure fewer rows.
    let rows = if device.is_none() && cfg!(debug_assertions) { WORD_ROWS / 16 } else { WORD_ROWS };
    // Measure fewer matrices than for the ceiling, because the CPU encodes their weights. All weights of a format together are larger than the
    // caches.
    let n_f16 = if device.as_ref().is_some_and(|device| !device.is_slow) { 4 } else { 2 };
    let timer = |tape: Tape| -> Result<Timer> {
        match &device {
            Some(device) => Products::load(device, tape)?.timer(),
            None => timer_on_cpu(tape),
        }
    };
    let product = timer(tape(SMALL_PRODUCTS, SMALL, SMALL))?.best_of(REPEATS, 1)? / SMALL_PRODUCTS as f64;
    let rate = |format: &&'static str| {
        let of_format = |n: usize| -> Result<(Tape, usize)> {
            let mut tape = tape(n, rows, WORD_K);
            tape.store_as(quant::find(format)?);
            let bytes = tape.matrices.iter().map(|m| m.size_bytes()).sum();
            Ok((tape, bytes))
        };
        let n = (2 * n_f16 * rows * WORD_K).div_ceil(of_format(1)?.1);
        let (tape, bytes) = of_format(n)?;
        let seconds = timer(tape)?.best_of(REPEATS, 1)?;
        Ok((format.to_string(), bytes as f64 / (seconds - n as f64 * product).max(seconds / 2.0) / 1e9))
    };
    let read_gb_s: BTreeMap<String, f64> = MEASURED.iter().map(rate).collect::<Result<_>>()?;
    let word_us = 1e6 * seconds_per_word(choice, read_gb_s["f16"])?;
    Ok(DeviceRates { id: choice.id.clone(), name, is_software, memory_bytes: memory.map(|m| m.total), read_gb_s, word_us })
}

/// Returns the time that a word (fused operation) takes beside its reads of weights, in seconds. Decodes tokens with the embedded model, subtracts
/// the short time in which its weights are read, and divides the rest by the number of words.
fn seconds_per_word(choice: &DeviceDecision, read_gb_s: f64) -> Result<f64> {
    let options = Options { device: choice.id.parse()?, dtype: FloatChoice::Exactly(Float::F16), ..Options::default() };
    let model = Model::load(&ModelSource::Embedded, &options, &mut |_, _| ())?;
    let mut session = Session::new(&model, 1)?;
    let slot = session.open()?;
    session.prefill(slot, &[1])?;
    let mut best = f64::INFINITY;
    for _ in 0..REPEATS {
        let limits = Limits { stop_ids: Some(Vec::new()), ..Limits::new(DECODED + 1) };
        let mut text = [Text::after(slot, Sampler::new(Sampling::greedy(0)), &limits)];
        let started = Instant::now();
        session.continue_many(&mut text, &mut |_| ControlFlow::Continue(()))?;
        best = best.min(started.elapsed().as_secs_f64() / DECODED as f64);
    }
    let mut tape = Tape::new();
    arch::detect(&embedded()?)?.record(&mut tape);
    let cost = DecodeCost::of(&mut tape);
    Ok((best - cost.bytes_per_token["f16"] as f64 / (read_gb_s * 1e9)).max(0.0) / cost.n_words as f64)
}

pub fn read_gb_s(products: &Products) -> Result<f64> {
    Ok(products.size_bytes as f64 / products.timer()?.best_of(REPEATS, 1)? / 1e9)
}
