//! The JSON of `wingbeat bench --predict`.

use serde::Serialize;
use wingbeat::low_level::exec::predict::PredictedWord;

/// The estimated speed of a model on a GPU that this machine need not have.
#[derive(Debug, Clone, Serialize)]
pub struct PredictReport {
    /// Always `true`: no number was measured.
    pub is_estimate: bool,
    pub gpu: &'static str,
    pub model: String,
    pub format: String,
    pub steps: Vec<PredictedStep>,
}

/// The estimate of one test, such as `tg128`.
#[derive(Debug, Clone, Serialize)]
pub struct PredictedStep {
    pub test: String,
    pub n_batch: usize,
    pub tokens_per_second: f64,
    /// The words (fused operations) of one decode step, or of one prefill step if the test decodes no tokens.
    pub words: Vec<PredictedWord>,
}

#[cfg(test)]
mod tests {
    use wingbeat::low_level::arch::synthetic;
    use wingbeat::low_level::exec::predict::{GPUS, StepLoad, find, step};
    use wingbeat::low_level::quant;
    use wingbeat::low_level::tape::Tape;

    fn seconds(model: &str, format: &str, gpu: &str, load: StepLoad) -> f64 {
        let mut tape = Tape::new();
        synthetic::named(model).unwrap().record(&mut tape);
        tape.store_as(quant::find(format).unwrap());
        step(&tape, find(gpu).unwrap(), load).iter().map(|word| word.ms * 1e-3).sum()
    }

    /// Every model has a finite estimate on every GPU, and no step is faster than its weights can be read.
    #[test]
    fn no_step_is_faster_than_the_memory() {
        for gpu in GPUS.iter() {
            for (model, format, bytes) in
                [("rwkv7-2.9b", "f16", 5.0e9), ("rwkv6-1.5b", "i8", 1.4e9), ("rwkv4-0.1b", "f16", 0.2e9), ("glm4-9b", "i4", 4.0e9)]
            {
                let took = seconds(model, format, gpu.name, StepLoad { n_slots: 1, n_tokens: 1, depth: 0 });
                // Zeros in the ffn's input save up to a third.
                assert!(took.is_finite() && took > 0.6 * bytes / (gpu.gb_s * 1e9), "{model} on {}: {took}", gpu.name);
                assert!(took < 3.0 * bytes / (gpu.gb_s * 1e9) + 2e-3, "{model} on {}: {took}", gpu.name);
            }
        }
    }

    #[test]
    fn fewer_bits_and_shorter_contexts_are_faster_and_batches_share_weights() {
        let one = |format, depth| seconds("glm4-9b", format, "4090", StepLoad { n_slots: 1, n_tokens: 1, depth });
        assert!(one("i4", 0) < one("i8", 0) && one("i8", 0) < one("f16", 0) && one("f16", 0) < one("f16", 100_000));
        let slots = |n_slots| seconds("rwkv7-2.9b", "f16", "4090", StepLoad { n_slots, n_tokens: 1, depth: 0 });
        assert!(slots(8) < 4.0 * slots(1));
        let prompt = |n_tokens| seconds("rwkv7-2.9b", "f16", "4090", StepLoad { n_slots: 1, n_tokens, depth: 0 });
        assert!(prompt(256) < 256.0 * prompt(1) / 4.0);
    }
}
