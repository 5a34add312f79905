//! Plays tapes of matrix products, some with a norm and a token shift before them. Measures the best throughput of a device, and times candidates for
//! tuning.

use super::cpu::CpuModel;
use super::gpu::{Device, GpuModel};
use super::{Executor, Loaded};
use crate::error::Result;
use crate::tape::{Capacity, Run, Source, Step, Tape, Var};
use crate::tensor::{DType, View};
use crate::words::synthetic::Synthetic;
use std::sync::Arc;
use std::time::Duration;
use web_time::Instant;

/// Measuring stops after this time, but not before two steps were measured.
const ENOUGH: Duration = Duration::from_secs(2);

/// A tape of matrix products, with synthetic weights on a device.
pub struct Products {
    model: Arc<GpuModel>,
    /// The number of weights in all matrices.
    pub n_weights: usize,
    /// The number of bytes of all matrices.
    pub size_bytes: usize,
}

impl Products {
    /// Loads a tape with synthetic weights.
    pub fn load(device: &Arc<Device>, tape: Tape) -> Result<Products> {
        let n_weights = tape.matrices.iter().flat_map(|m| &m.parts).map(|p| p.rows * p.k).sum();
        let size_bytes = tape.matrices.iter().map(|m| m.size_bytes()).sum();
        let weights = RepeatedWeights::new();
        let model = GpuModel::load(device.clone(), Arc::new(tape), &weights, &mut |_, _| ())?;
        Ok(Products { model, n_weights, size_bytes })
    }

    /// Returns a timer with its own executor, on the device that was passed to [`load`](Self::load).
    pub fn timer(&self) -> Result<Timer> {
        Ok(Timer(self.model.clone().executor(Capacity::pages(1))?))
    }

    /// Returns a timer whose kernels have the sizes in `device.caps.tuning`. `device` must be the device that was passed to
    /// [`load`](Self::load), with other capabilities.
    pub fn timer_on(&self, device: Device) -> Result<Timer> {
        Ok(Timer(self.model.on(Arc::new(device)).executor(Capacity::pages(1))?))
    }
}

/// Returns a timer of a tape's steps on the CPU, with synthetic weights.
///
/// # Errors
/// `Memory` if the host has no room for the weights.
pub fn timer_on_cpu(tape: Tape) -> Result<Timer> {
    Ok(Timer(CpuModel::load(Arc::new(tape), &RepeatedWeights::new(), &mut |_, _| ())?.executor(Capacity::pages(1))?))
}

/// Plays steps of [`Products`] and measures their time.
pub struct Timer(Box<dyn Executor>);

impl Timer {
    /// Sets an activation that the steps of `n` tokens read and do not write.
    pub fn write(&mut self, var: Var, n: usize, values: &[f32]) -> Result<()> {
        // The first step of `n` tokens may replace the buffers of activations, and so lose written values. So `write` plays this step before it
        // writes.
        self.best_of(1, n)?;
        self.0.write_var(var, values)
    }

    /// Plays a step of `n` tokens up to `repeats` times. Stops earlier if the steps take more than 2 s. Returns the time of the fastest
    /// step in seconds.
    pub fn best_of(&mut self, repeats: usize, n: usize) -> Result<f64> {
        let run = Run { first_row: 0, len: n as u32, page_in: 0, page_out: 0, shift_in: 0, shift_out: 1, ..Run::default() };
        let step = Step { tokens: vec![0; n], runs: vec![run], outputs: vec![], ..Step::default() };
        let (mut best, began) = (f64::INFINITY, Instant::now());
        for i in 0..repeats {
            if i > 1 && began.elapsed() > ENOUGH {
                break;
            }
            let started = Instant::now();
            self.0.run(&step, &mut Vec::new())?;
            best = best.min(started.elapsed().as_secs_f64());
        }
        Ok(best)
    }
}

/// A source whose tensors repeat the same 1 MiB of weights: generating gigabytes of weights would take longer than the measurement.
struct RepeatedWeights(Vec<u8>);

impl RepeatedWeights {
    fn new() -> RepeatedWeights {
        RepeatedWeights(Synthetic { seed: 1 }.bytes("w", &[512, 1024]))
    }
}

impl Source for RepeatedWeights {
    fn has(&self, _name: &str) -> bool {
        true
    }

    fn dtype(&self, _name: &str) -> Option<DType> {
        Some(DType::F16)
    }

    fn with(&self, _name: &str, shape: &[usize], read: &mut dyn FnMut(&View<'_>) -> Result<()>) -> Result<()> {
        let size = 2 * shape.iter().product::<usize>();
        let mut bytes = self.0.repeat(size.div_ceil(self.0.len()));
        bytes.truncate(size);
        read(&View::dense(DType::F16, shape, &bytes)?)
    }
}
