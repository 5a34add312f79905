//! The JSON of `wingbeat classify`.

use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub struct ClassifyReport {
    pub tokens: Vec<u32>,
    /// All classes, the most likely class first.
    pub classes: Vec<ClassReport>,
}

#[derive(Debug, Clone, Serialize)]
pub struct ClassReport {
    pub label: String,
    pub logit: f32,
    /// The probability of the class: the softmax over the logits of all classes.
    pub probability: f64,
}

impl ClassifyReport {
    pub fn new(tokens: Vec<u32>, labels: &[String], logits: &[f32]) -> ClassifyReport {
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weight = |logit: f32| f64::from(logit - most).exp();
        let total: f64 = logits.iter().map(|&l| weight(l)).sum();
        let class = |(label, &logit): (&String, &f32)| ClassReport { label: label.clone(), logit, probability: weight(logit) / total };
        let mut classes: Vec<ClassReport> = labels.iter().zip(logits).map(class).collect();
        classes.sort_by(|a, b| b.logit.total_cmp(&a.logit));
        ClassifyReport { tokens, classes }
    }
}
