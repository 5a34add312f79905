//! The JSON of `wingbeat quality`: weight formats compared with a reference format.

use crate::report::{DeviceReport, ModelReport};
use serde::Serialize;
use wingbeat::low_level::session::{Model, Quality, QuantisedTensor};

/// The reference of a comparison, and the text on which it was made.
#[derive(Debug, Clone, Serialize)]
pub struct ComparisonReport {
    pub version: &'static str,
    /// The model with the weights of the reference format.
    pub model: ModelReport,
    pub device: DeviceReport,
    /// The number of tokens whose probabilities were compared.
    pub n: usize,
    /// The maximum number of tokens per window. The text is cut into windows, each of which begins with an empty state.
    pub window: usize,
    /// The number of windows into which the text was divided.
    pub n_windows: usize,
    pub reference: WeightsReport,
}

impl ComparisonReport {
    /// Returns the last line of a table: how much text was compared.
    pub fn counts(&self) -> String {
        format!("{} tokens predicted, windows: {} of {}", self.n, self.n_windows, self.window)
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct QualityReport {
    #[serde(flatten)]
    pub comparison: ComparisonReport,
    pub variants: Vec<VariantReport>,
}

/// A weight format, and the perplexity of the text under a model with these weights.
#[derive(Debug, Clone, Serialize)]
pub struct WeightsReport {
    /// The format that the user named, such as `auto` or `f16`.
    pub name: String,
    /// The formats of the matrices, joined by `+`.
    pub dtype: String,
    /// The mean number of bits per weight over all matrices.
    pub bits_per_weight: f64,
    pub weight_bytes: u64,
    pub perplexity: f64,
}

impl WeightsReport {
    pub fn new(name: impl Into<String>, model: &Model, perplexity: f64) -> WeightsReport {
        WeightsReport {
            name: name.into(),
            dtype: model.dtype().into(),
            bits_per_weight: model.bits_per_weight(),
            weight_bytes: model.weight_bytes(),
            perplexity,
        }
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct VariantReport {
    #[serde(flatten)]
    pub weights: WeightsReport,
    #[serde(flatten)]
    pub loss: LossReport,
}

impl VariantReport {
    pub fn new(name: impl Into<String>, model: &Model, q: &Quality) -> VariantReport {
        VariantReport { weights: WeightsReport::new(name, model, q.perplexity), loss: LossReport::from(q) }
    }
}

/// How the predictions of a weight format differ from the predictions of the reference format.
#[derive(Debug, Clone, Serialize)]
pub struct LossReport {
    /// The increase of this format's perplexity over the reference format's, in percent. Negative if this format's perplexity is lower.
    pub loss_percent: f64,
    /// The mean over all positions of KL(reference || this format), in nats: the divergence between the next-token probabilities of the two
    /// formats.
    pub kl_mean: f64,
    /// The 99th percentile of KL(reference || this format) over all positions, in nats.
    pub kl_p99: f64,
    pub kl_max: f64,
    /// The percentage of positions at which this format and the reference format have the same most likely token.
    pub agreement_percent: f64,
}

impl From<&Quality> for LossReport {
    fn from(q: &Quality) -> LossReport {
        LossReport {
            loss_percent: q.loss_percent(),
            kl_mean: q.kl_mean,
            kl_p99: q.kl_p99,
            kl_max: q.kl_max,
            agreement_percent: q.agreement_percent,
        }
    }
}

/// The JSON of `quality --by-matrix`.
#[derive(Debug, Clone, Serialize)]
pub struct ByMatrixReport {
    #[serde(flatten)]
    pub comparison: ComparisonReport,
    /// The model with all tensors quantised.
    pub all: VariantReport,
    /// One entry per tensor that the plan quantises. All other tensors are then floats. Sorted by `loss_percent_per_mib`, the largest first.
    pub tensors: Vec<TensorReport>,
}

/// The loss that one quantised tensor causes, and the bytes that it saves.
#[derive(Debug, Clone, Serialize)]
pub struct TensorReport {
    pub tensor: String,
    pub format: &'static str,
    pub bytes: u64,
    /// The bytes that the format saves, compared with f16.
    pub bytes_saved: u64,
    #[serde(flatten)]
    pub loss: LossReport,
    /// `loss_percent` divided by the saved MiB.
    pub loss_percent_per_mib: f64,
}

impl TensorReport {
    pub fn new(t: QuantisedTensor, q: &Quality) -> TensorReport {
        let bytes_saved = t.float_bytes.saturating_sub(t.bytes);
        TensorReport {
            tensor: t.tensor,
            format: t.format,
            bytes: t.bytes,
            bytes_saved,
            loss: LossReport::from(q),
            loss_percent_per_mib: q.loss_percent() / (bytes_saved.max(1) as f64 / f64::from(1 << 20)),
        }
    }
}
