//! Estimates the decode speed of a model on a device, from measured rates. `bench` measures a model.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wingbeat::error::Result;
use wingbeat::low_level::arch;
use wingbeat::low_level::quant::FORMATS;
use wingbeat::low_level::tape::{MatrixSpec, Tape};

/// The weight formats whose rates are measured.
pub const MEASURED: [&str; 3] = ["f16", "i8", "i4"];

/// The models whose speed `doctor` estimates.
const WELL_KNOWN: [&str; 5] = ["rwkv7-0.1b", "rwkv7-0.4b", "rwkv7-1.5b", "rwkv7-2.9b", "rwkv7-7.2b"];

/// The measured rates of a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceRates {
    /// `gpu:N` or `cpu`.
    pub id: String,
    pub name: String,
    /// True for a software adapter, on which models run only if the user asks for it.
    pub is_software: bool,
    /// The size of the device's memory in bytes. `None` if unknown.
    pub memory_bytes: Option<u64>,
    /// The rate at which the device reads weights when it multiplies a matrix by one vector, in GB/s, by weight format.
    pub read_gb_s: BTreeMap<String, f64>,
    /// The time that a word (fused operation) of a model takes beside its reads of weights, in microseconds.
    pub word_us: f64,
}

/// Facts about a model that determine its decode speed.
#[derive(Debug, Clone)]
pub struct DecodeCost {
    /// The number of weight bytes that one decoded token reads, by weight format.
    pub bytes_per_token: BTreeMap<&'static str, u64>,
    /// The bytes of all weights, by weight format. For a model with experts, one token reads only a part of these bytes.
    pub weight_bytes: BTreeMap<&'static str, u64>,
    /// The number of words in the model's program.
    pub n_words: usize,
}

/// An estimate of the decode speed of a model with one slot.
#[derive(Debug, Clone, Serialize)]
pub struct SpeedReport {
    /// The name of the model, such as `rwkv7-1.5b`. `None` in the report of `inspect`, which has the name already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<&'static str>,
    /// The device, such as `gpu:0`. `None` in a report about one device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Always true: the numbers are not measured with this model.
    pub estimate: bool,
    /// The tokens per second, by weight format. `None` if the weights are larger than the device's memory.
    pub tokens_per_second: BTreeMap<&'static str, Option<f64>>,
}

impl DecodeCost {
    /// Computes the cost of the model that `tape` records. Leaves the tape in another weight format.
    pub fn of(tape: &mut Tape) -> DecodeCost {
        let (mut bytes_per_token, mut weight_bytes) = (BTreeMap::new(), BTreeMap::new());
        for format in FORMATS {
            tape.store_as(*format);
            let sum = |of: fn(&MatrixSpec) -> usize| tape.matrices.iter().map(|m| of(m) as u64).sum::<u64>() + vector_bytes(tape);
            bytes_per_token.insert(format.name(), sum(MatrixSpec::token_bytes));
            weight_bytes.insert(format.name(), sum(MatrixSpec::size_bytes));
        }
        DecodeCost { bytes_per_token, weight_bytes, n_words: tape.words.len() }
    }

    /// Estimates the tokens per second on a device: a token reads its weights at the measured rate, and each word adds its own time. `None` for a
    /// format whose weights do not fit the device's memory.
    pub fn tokens_per_second(&self, rates: &DeviceRates) -> BTreeMap<&'static str, Option<f64>> {
        let of_format = |format: &&'static str| {
            let (bytes, all) = (*self.bytes_per_token.get(format)?, *self.weight_bytes.get(format)?);
            let rate = rates.read_gb_s.get(*format).filter(|rate| **rate > 0.0)?;
            let seconds = bytes as f64 / (rate * 1e9) + self.n_words as f64 * rates.word_us * 1e-6;
            Some((*format, rates.memory_bytes.is_none_or(|most| all < most).then(|| 1.0 / seconds)))
        };
        MEASURED.iter().filter_map(of_format).collect()
    }
}

/// Estimates the speed of well-known models.
///
/// # Errors
/// `Usage` if a name in the list of models is unknown.
pub fn well_known(rates: &DeviceRates) -> Result<Vec<SpeedReport>> {
    let of_model = |name: &&'static str| {
        let mut tape = Tape::new();
        arch::synthetic::named(name)?.record(&mut tape);
        let tokens_per_second = DecodeCost::of(&mut tape).tokens_per_second(rates);
        Ok(SpeedReport { model: Some(name), device: None, estimate: true, tokens_per_second })
    };
    WELL_KNOWN.iter().map(of_model).collect()
}

/// Formats a speed with two significant digits: `0.31`, `5.2`, `30`, `150`, `1200`.
pub fn two_digits(speed: f64) -> String {
    if !speed.is_finite() || speed <= 0.0 {
        return "0".into();
    }
    let decimals = 1 - speed.log10().floor() as i32;
    let unit = 10f64.powi(-decimals);
    format!("{:.*}", decimals.max(0) as usize, (speed / unit).round() * unit)
}

/// Returns the bytes of all vectors, which are f32 in every weight format.
fn vector_bytes(tape: &Tape) -> u64 {
    tape.vectors.iter().map(|v| (v.parts.len() * v.stride() * 4) as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(gb_s: f64, word_us: f64, memory_bytes: Option<u64>) -> DeviceRates {
        let read_gb_s = MEASURED.iter().map(|format| (format.to_string(), gb_s)).collect();
        DeviceRates { id: "gpu:0".into(), name: "A".into(), is_software: false, memory_bytes, read_gb_s, word_us }
    }

    #[test]
    fn an_estimate_is_bytes_by_rate_and_words_by_time() {
        let bytes: BTreeMap<_, _> = [("f16", 2_000_000_000), ("i8", 1_000_000_000)].into();
        let cost = DecodeCost { bytes_per_token: bytes.clone(), weight_bytes: bytes, n_words: 1000 };
        let found = cost.tokens_per_second(&rates(100.0, 0.0, None));
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [("f16", Some(50.0)), ("i8", Some(100.0))]);
        let slower = cost.tokens_per_second(&rates(100.0, 10.0, Some(1_500_000_000)));
        assert_eq!(slower["f16"], None, "the weights are larger than the memory");
        assert!((slower["i8"].unwrap() - 50.0).abs() < 1e-9);
    }

    #[test]
    fn well_known_models_are_slower_the_larger_they_are() {
        let all = well_known(&rates(100.0, 1.0, None)).unwrap();
        let of = |format: &str| all.iter().map(|m| m.tokens_per_second[format].unwrap()).collect::<Vec<_>>();
        for format in MEASURED {
            assert!(of(format).windows(2).all(|pair| pair[0] > pair[1]), "{format}: {:?}", of(format));
        }
        // RWKV-7 1.5B reads about 2.8 GB of f16 per token.
        assert!((25.0..40.0).contains(&of("f16")[2]), "{:?}", of("f16"));
    }

    #[test]
    fn a_token_reads_its_own_experts_only() {
        let mut tape = Tape::new();
        arch::synthetic::named("glm4_moe_lite-flash").unwrap().record(&mut tape);
        let cost = DecodeCost::of(&mut tape);
        assert_eq!([cost.weight_bytes["i8"], cost.bytes_per_token["i8"]].map(|bytes| bytes / 100_000_000), [308, 36]);
        // The whole model must fit the memory.
        let of = |memory| cost.tokens_per_second(&rates(100.0, 0.0, Some(memory)))["i8"].map(|speed| speed.round());
        assert_eq!([of(24 << 30), of(32 << 30)], [None, Some(27.0)]);
    }

    #[test]
    fn speeds_have_two_digits() {
        assert_eq!([0.0, 0.3123, 5.249, 30.4, 99.6, 1234.0].map(two_digits), ["0", "0.31", "5.2", "30", "100", "1200"]);
    }
}
