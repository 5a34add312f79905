//! Measures whether products of inputs that are mostly zeros should be sparse or dense, for each width of weights.

use crate::error::Result;
use crate::exec::gpu::{AdapterKind, Device};
use crate::exec::products::{Products, Timer};
use crate::quant;
use crate::tape::{Caps, DenseFrom, MatrixPart, Rows, Tape, Tuning, Var};
use crate::words::testing::numbers;
use std::sync::Arc;

/// The number of rounds over all candidates.
pub const ROUNDS: usize = 3;
/// The largest number of steps of a candidate in a round.
pub const REPEATS: usize = 4;
/// A candidate replaces the best choice so far only if the candidate's time is less than this fraction of the best choice's time.
pub const GAIN: f64 = 0.97;
/// The formats that are measured, one for each field of [`DenseFrom`].
pub const FORMATS: [&str; 3] = ["f16", "i8", "i4"];
/// The numbers of tokens of the measured steps.
const STEPS: [usize; 4] = [1, 2, 4, 8];
/// The number of tokens from which products are dense if no measured step is faster with the dense product.
const ALWAYS_SPARSE: usize = 16;
/// The fraction of zeros in the inputs. In trained models, 86 to 90 % of the inputs are zeros.
const ZEROS: f32 = 0.9;

/// Measures, for each format, the number of tokens from which products are dense. Uses the kernel sizes in `device.caps.tuning`. A format that cannot
/// be measured keeps its number in `device.caps.tuning.dense_from`. `other_weights` is played between the measured steps, so that the GPU's caches do
/// not hold the measured weights. `progress` is called with the number of measured formats.
pub fn dense_from(device: &Arc<Device>, other_weights: &mut Timer, kind: AdapterKind, progress: &mut dyn FnMut(usize)) -> DenseFrom {
    let mut found = device.caps.tuning.dense_from;
    for (i, format) in FORMATS.into_iter().enumerate() {
        progress(i);
        let field = match format {
            "f16" => &mut found.f16,
            "i8" => &mut found.i8,
            _ => &mut found.i4,
        };
        match measure(device, other_weights, kind, format, *field) {
            Ok(n) => *field = n,
            Err(e) => log::warn!("sparse products of {format} were not measured: {e}"),
        }
    }
    progress(FORMATS.len());
    found
}

/// Returns a tape of an ffn's value matrices, the activation that all of them read, and the length of its rows. No matrix is read twice in a step.
fn tape(kind: AdapterKind, format: &str) -> Result<(Tape, Var, usize)> {
    let (n_layer, width) = match kind {
        AdapterKind::Discrete => (4, 2048),
        AdapterKind::Cpu => (1, 256),
        _ => (2, 1024),
    };
    let mut t = Tape::new();
    let k = 4 * width;
    let (y, x) = (t.var("y", Rows::Tokens, &[k]), t.var("x", Rows::Tokens, &[width]));
    for i in 0..n_layer {
        t.linear_add_sparse(MatrixPart::new(format!("v{i}"), width, k), y, x);
    }
    t.store_as(quant::find(format)?);
    Ok((t, y, k))
}

/// Returns the smallest number of tokens for which the dense product of a format is faster. `first` is the number that applied before the
/// measurement, and is replaced only if the gain is clear.
fn measure(device: &Arc<Device>, other_weights: &mut Timer, kind: AdapterKind, format: &str, first: usize) -> Result<usize> {
    let on = |n: usize| {
        let tuning = Tuning { dense_from: DenseFrom { f16: n, i8: n, i4: n }, ..device.caps.tuning.clone() };
        device.with_caps(Caps { tuning, sparse: true, ..device.caps.clone() })
    };
    let (recorded, y, k) = tape(kind, format)?;
    let by_rows = Products::load(&Arc::new(on(1)), tape(kind, format)?.0)?;
    let by_columns = Products::load(&Arc::new(on(ALWAYS_SPARSE)), recorded)?;
    for n in STEPS {
        // A step of one token is dense only if the matrix is stored row-major. For larger steps, the layout is column-major.
        let dense = if n == 1 { by_rows.timer()? } else { by_columns.timer_on(on(2))? };
        let mut timers = [by_columns.timer()?, dense];
        let inputs = numbers(1).zip(numbers(2)).map(|(value, draw)| if draw < 2.0 * ZEROS - 1.0 { 0.0 } else { value });
        let inputs: Vec<f32> = inputs.take(n * k).collect();
        timers.iter_mut().try_for_each(|t| t.write(y, n, &inputs))?;
        let mut seconds = [f64::INFINITY; 2];
        for _ in 0..ROUNDS * REPEATS {
            for (timer, best) in timers.iter_mut().zip(&mut seconds) {
                other_weights.best_of(1, 1)?;
                *best = best.min(timer.best_of(1, n)?);
            }
        }
        log::debug!("{format}, {n} tokens, 90 % zeros, seconds of the sparse and the dense product: {seconds:?}");
        if dense_wins(n >= first, seconds) {
            return Ok(n);
        }
    }
    Ok(ALWAYS_SPARSE)
}

/// Returns whether to use dense products. `sparse` and `dense` are the times of both products in seconds. The kind that is used without a measurement
/// is replaced only if the other kind is clearly faster.
fn dense_wins(is_dense_now: bool, [sparse, dense]: [f64; 2]) -> bool {
    if is_dense_now { sparse >= GAIN * dense } else { dense < GAIN * sparse }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_gain_replaces_the_default() {
        for (is_dense_now, seconds, expected) in
            [(false, [1.0, 0.99], false), (false, [1.0, 0.9], true), (true, [0.99, 1.0], true), (true, [0.9, 1.0], false)]
        {
            assert_eq!(dense_wins(is_dense_now, seconds), expected, "{is_dense_now} {seconds:?}");
        }
    }

    #[test]
    fn every_format_uses_the_number_of_a_measured_format_of_its_width() {
        let numbers = DenseFrom { f16: 1, i8: 2, i4: 4 };
        for format in quant::FORMATS {
            let expected = match format.name() {
                "f16" | "f32" => 1,
                "i8" | "i8rc" | "q8_0" | "q6_k" | "q5_k" | "q5_0" | "q5_1" => 2,
                _ => 4,
            };
            assert_eq!(numbers.of(*format), expected, "{}", format.name());
        }
        assert!(STEPS.iter().chain(&[ALWAYS_SPARSE]).eq(&DenseFrom::CANDIDATES));
    }

    /// The measurement returns candidates on every adapter, whatever is faster there.
    #[test]
    fn a_measurement_finds_a_number_for_each_format() {
        let Some(adapter) = crate::exec::gpu::adapters(Default::default()).into_iter().next() else {
            return eprintln!("SKIPPED: there is no adapter");
        };
        let base = Device::open(&adapter, false).unwrap();
        let caps = Caps { cooperative: None, ..Caps::plain(crate::tape::Class::Groups, base.caps.max_binding) };
        let device = Arc::new(base.with_caps(caps));
        let mut other_weights = Products::load(&device, tape(AdapterKind::Cpu, "f16").unwrap().0).unwrap().timer().unwrap();
        let mut steps = Vec::new();
        let found = dense_from(&device, &mut other_weights, AdapterKind::Cpu, &mut |i| steps.push(i));
        let tuning = Tuning { dense_from: found, ..Tuning::default() };
        assert!(tuning.is_sound(), "{found:?}");
        assert_eq!(steps, [0, 1, 2, 3]);
    }
}
