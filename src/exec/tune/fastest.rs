//! Measures the products of channel mixes with several tunings, and returns the fastest tuning.

use super::sparse::{GAIN, REPEATS, ROUNDS};
use crate::exec::gpu::{AdapterKind, Device};
use crate::exec::products::{Products, Timer};
use crate::tape::{MatrixPart, Rows, Tape, Tuning, vector};
use crate::words::{Activation, LAYER_NORM_EPS, Norm, Projection};

/// Returns a tape of channel mixes. Each channel mix has two products. The first product computes its input with a norm and a token shift.
/// The second product reads its input from memory. On a GPU, the weights are larger than the GPU's caches.
pub fn tape(kind: AdapterKind) -> Tape {
    let (n_layer, width) = match kind {
        AdapterKind::Discrete => (8, 2048),
        AdapterKind::Cpu => (1, 256),
        _ => (4, 1024),
    };
    let mut t = Tape::new();
    let x = t.var("x", Rows::Tokens, &[width]);
    for i in 0..n_layer {
        let norm = t.vectors(width, ["g", "b", "mix"].map(vector).into());
        let shift = t.state(format!("shift{i}"), &[width], true);
        let key = Projection {
            part: MatrixPart::new(format!("k{i}"), 4 * width, width),
            mix: 0,
            activation: Activation::ReluSquared,
            bias: None,
        };
        let k = t.norm_shift_linear("ffn", x, Norm::layer(norm, LAYER_NORM_EPS), vec![key], shift);
        t.linear_add(MatrixPart::new(format!("v{i}"), width, 4 * width), k, x);
    }
    t
}

/// Returns the fastest candidate for steps of `n` tokens, or the first candidate if no other candidate is clearly faster. `on` returns the device
/// with a tuning.
pub fn fastest<'t>(products: &Products, candidates: &'t [Tuning], on: &dyn Fn(&Tuning) -> Device, n: usize) -> &'t Tuning {
    // Skips candidates that the driver refuses.
    let mut timers: Vec<Option<Timer>> = candidates.iter().map(|t| products.timer_on(on(t)).ok()).collect();
    let mut seconds = vec![f64::INFINITY; timers.len()];
    for _ in 0..ROUNDS {
        for (timer, best) in timers.iter_mut().zip(&mut seconds) {
            match timer.as_mut().map(|t| t.best_of(REPEATS, n)) {
                Some(Ok(took)) => *best = best.min(took),
                _ => (*timer, *best) = (None, f64::INFINITY),
            }
        }
    }
    log::debug!("{n} tokens, seconds of each candidate: {seconds:?}");
    let fastest = (0..seconds.len()).min_by(|&a, &b| seconds[a].total_cmp(&seconds[b])).unwrap_or(0);
    &candidates[if seconds[fastest] < GAIN * seconds[0] { fastest } else { 0 }]
}
