//! What formats of the weights cost, against a reference.

use super::{DeviceReport, ModelReport};
use crate::session::{Model, Quality};
use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub struct QualityReport {
    pub version: &'static str,
    /// As the reference runs it.
    pub model: ModelReport,
    pub device: DeviceReport,
    /// Tokens that were predicted.
    pub n: usize,
    /// Tokens of a window at the most, and how many windows there were; each began with an empty state.
    pub window: usize,
    pub n_windows: usize,
    pub reference: WeightsReport,
    pub variants: Vec<VariantReport>,
}

/// How the weights are stored, and how well the text is predicted with them.
#[derive(Debug, Clone, Serialize)]
pub struct WeightsReport {
    /// As it was asked for: `auto`, `f16`.
    pub name: String,
    /// Formats of the matrices, joined by `+`.
    pub dtype: String,
    /// Of the matrices, on average.
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
    /// By how many percent perplexity is above the reference's.
    pub loss_percent: f64,
    /// KL(p of the reference || p of the variant), in nats a token.
    pub kl_mean: f64,
    /// What 99 % of the tokens do not exceed.
    pub kl_p99: f64,
    pub kl_max: f64,
    /// Percent of the tokens before which both find the same one likeliest.
    pub agreement_percent: f64,
}

impl VariantReport {
    pub fn new(name: impl Into<String>, model: &Model, q: &Quality) -> VariantReport {
        VariantReport {
            weights: WeightsReport::new(name, model, q.perplexity),
            loss_percent: q.loss_percent(),
            kl_mean: q.kl_mean,
            kl_p99: q.kl_p99,
            kl_max: q.kl_max,
            agreement_percent: q.agreement_percent,
        }
    }
}
