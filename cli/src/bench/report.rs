//! The record of one benchmark test, with llama-bench's keys, so that the tools for llama-bench can read it. wingbeat's own keys are in the
//! field `wingbeat`.

use crate::report::BuildReport;
use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub struct BenchRecord {
    /// The commit from which the program was built, or `unknown`.
    pub build_commit: &'static str,
    pub model_type: String,
    pub model_filename: String,
    pub model_size: u64,
    pub model_n_params: u64,
    pub backends: String,
    pub gpu_info: String,
    /// The number of tokens that each slot prefills.
    pub n_prompt: usize,
    /// The number of tokens that each slot decodes.
    pub n_gen: usize,
    /// The number of tokens that each slot prefills before the test, not timed.
    pub n_depth: usize,
    /// The number of slots that step together.
    pub n_batch: usize,
    /// The time at which the test started, in seconds since 1970.
    pub test_time: u64,
    #[serde(flatten)]
    pub samples: Samples,
    pub wingbeat: BenchExtra,
}

/// The time in nanoseconds (`_ns`) and the rate in tokens per second (`_ts`) of each repetition, with mean and standard deviation. The rate
/// counts the tokens of all slots.
#[derive(Debug, Clone, Serialize)]
pub struct Samples {
    pub avg_ns: f64,
    pub stddev_ns: f64,
    pub avg_ts: f64,
    pub stddev_ts: f64,
    pub samples_ns: Vec<u64>,
    pub samples_ts: Vec<f64>,
}

impl Samples {
    pub fn new(n_tokens: usize, samples_ns: Vec<u64>) -> Samples {
        let ns: Vec<f64> = samples_ns.iter().map(|&ns| ns as f64).collect();
        let samples_ts: Vec<f64> = ns.iter().map(|ns| n_tokens as f64 * 1e9 / ns.max(1.0)).collect();
        let ((avg_ns, stddev_ns), (avg_ts, stddev_ts)) = (moments(&ns), moments(&samples_ts));
        Samples { avg_ns, stddev_ns, avg_ts, stddev_ts, samples_ns, samples_ts }
    }
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct BenchExtra {
    pub dtype: String,
    /// `i8` if products round their activations to 8 bits, otherwise `float`.
    pub activations: &'static str,
    pub device: String,
    pub driver: String,
    /// The rate in GB/s at which this device reads weights when it multiplies large matrices by one vector. `None` if not measured.
    pub read_gb_s_ceiling: Option<f64>,
    /// The rate in GFLOP/s at which this device multiplies large matrices by many vectors. `None` if not measured.
    pub gflop_s_ceiling: Option<f64>,
    /// The rate of the test divided by the device's ceiling, the highest rate that was measured. For decoding in one slot, the rate counts the
    /// weight bytes that are read, without weights that are skipped because an input is zero. For prefill, the rate counts operations. `None` for
    /// other tests and if no ceiling was measured.
    pub share_of_ceiling: Option<f64>,
    /// The mean fraction of zeros in the inputs of the ffn's value matrices while one token is decoded. Zeros count even if the device does
    /// not skip zeros. `None` for models without sparse ffn inputs, such as GLM.
    pub ffn_sparsity: Option<f64>,
    pub dispatches_per_token: Option<usize>,
    /// The median time of a decode step in milliseconds. `None` if no token was decoded.
    pub p50_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    /// The number of guessed tokens that steps have checked, in all repetitions. `None` if there were no guesses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drafted: Option<usize>,
    /// The number of guessed tokens that were right. `None` if there were no guesses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<usize>,
    pub build: BuildReport,
}

/// Returns the mean of `x` and its standard deviation with the divisor n − 1. The deviation of fewer than two numbers is 0.
fn moments(x: &[f64]) -> (f64, f64) {
    let n = x.len().max(1) as f64;
    let mean = x.iter().sum::<f64>() / n;
    let squares: f64 = x.iter().map(|v| (v - mean) * (v - mean)).sum();
    (mean, if x.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation_of_a_sample() {
        let s = Samples::new(10, vec![1_000_000_000, 2_000_000_000, 3_000_000_000]);
        assert_eq!((s.avg_ns, s.stddev_ns), (2e9, 1e9));
        assert_eq!(s.samples_ts[1], 5.0);
        assert_eq!(Samples::new(1, vec![5]).stddev_ns, 0.0);
    }
}
