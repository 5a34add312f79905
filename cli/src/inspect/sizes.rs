//! The published models whose sizes wingbeat knows, and the memory that each model needs.

use super::memory::{memory, weights_by_format};
use serde::Serialize;
use std::collections::BTreeMap;
use wingbeat::error::Result;
use wingbeat::low_level::arch::{self, ARCHS, Architecture, Facts};
use wingbeat::low_level::quant::Float;
use wingbeat::low_level::session::Options;
use wingbeat::low_level::session::footprint::token_params;
use wingbeat::low_level::tape::Tape;
use wingbeat::low_level::words::synthetic::{MODEL_SEED, Synthetic};

/// The sizes of one published model.
#[derive(Debug, Clone, Serialize)]
pub struct PublishedReport {
    /// The name that a benchmark takes as the option `synthetic`, such as `rwkv7-2.9b`.
    pub name: String,
    pub n_layer: usize,
    pub n_embd: usize,
    pub n_ffn: usize,
    pub vocab: usize,
    pub n_params: u64,
    /// The number of parameters that compute one token, of a model with experts. `None` for other models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_active_params: Option<u64>,
    /// The bytes of all weights, by format: `f32`, `f16` and every value of the option `quant` except `keep`.
    pub weights: BTreeMap<&'static str, u64>,
    /// The bytes of one slot: the recurrent state, or the keys and values of the default context.
    pub state_per_slot: u64,
}

/// Returns how many parameters compute one token of a model with experts, or `None` for a model without experts.
pub fn active_params(tape: &Tape) -> Option<u64> {
    tape.matrices.iter().any(|matrix| matrix.n_used.is_some()).then(|| token_params(tape))
}

/// Returns all published models, ordered by architecture and then by size.
///
/// # Errors
/// The errors of `weights_by_format`. A test checks that no published model causes an error.
pub fn published_sizes() -> Result<Vec<PublishedReport>> {
    let sizes = |arch: &dyn Architecture| arch.sizes().iter().map(|size| format!("{}-{size}", arch.name())).collect::<Vec<_>>();
    let variants = |arch: &dyn Architecture| arch.variants().iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
    ARCHS.iter().rev().flat_map(|arch| [sizes(*arch), variants(*arch)].concat()).map(|name| describe(&name)).collect()
}

/// Returns the name of the published model that has the sizes in `facts`, or `None` if no published model has these sizes.
pub fn published_name(facts: &Facts) -> Option<String> {
    let arch = ARCHS.iter().find(|arch| arch.name() == facts.architecture)?;
    let same = |other: &Facts| {
        let sizes = |f: &Facts| [f.n_layer, f.n_embd, f.n_ffn, f.n_head, f.n_vocab];
        sizes(other) == sizes(facts)
    };
    let variants: Vec<(&str, Facts)> = arch.variants().iter().map(|(name, model)| (*name, model().facts())).collect();
    if variants.iter().any(|(_, variant)| variant.version == facts.version) {
        let found = variants.iter().find(|(_, variant)| variant.version == facts.version && same(variant));
        return found.map(|(name, _)| name.to_string());
    }
    let found = arch.sizes().iter().filter_map(|size| Some((size, arch.published(size)?.facts()))).filter(|(_, other)| same(other));
    // Two GLMs may have the same sizes and differ in their norms. The version then decides.
    let (size, _) = found.min_by_key(|(_, other)| other.version != facts.version)?;
    Some(format!("{}-{size}", arch.name()))
}

fn describe(name: &str) -> Result<PublishedReport> {
    let blueprint = arch::synthetic::named(name)?;
    let facts = blueprint.facts();
    let mut tape = Tape::new();
    blueprint.record(&mut tape);
    let source = Synthetic { seed: MODEL_SEED };
    let weights = weights_by_format(&mut tape, &source)?;
    tape.store_as(Float::F16.format());
    let context = Options::default().context_of(&facts).unwrap_or(0);
    let matrices: usize = tape.matrices.iter().flat_map(|m| &m.parts).map(|part| part.rows * part.k).sum();
    let vectors: usize = tape.vectors.iter().flat_map(|v| v.parts.iter().map(|part| v.len(part))).sum();
    Ok(PublishedReport {
        name: name.into(),
        n_layer: facts.n_layer,
        n_embd: facts.n_embd,
        n_ffn: facts.n_ffn,
        vocab: facts.n_vocab,
        n_params: (matrices + vectors) as u64,
        n_active_params: active_params(&tape),
        weights,
        state_per_slot: memory(&tape, context).state_per_slot,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_models_have_their_published_numbers_of_parameters() {
        let all = published_sizes().unwrap();
        let billions = |name: &str| {
            let found = all.iter().find(|m| m.name == name).unwrap_or_else(|| panic!("{name} is missing"));
            format!("{:.2}", found.n_params as f64 / 1e9)
        };
        for (name, expected) in [
            ("rwkv4-14b", "14.15"),
            ("rwkv7-0.1b", "0.19"),
            ("rwkv7a-0.1b", "1.01"),
            ("rwkv7b-0.1b", "1.83"),
            ("rwkv7-0.4b", "0.45"),
            ("rwkv7-1.5b", "1.53"),
            ("rwkv7-2.9b", "2.95"),
            ("rwkv7-7.2b", "7.20"),
            ("rwkv7-13.3b", "13.24"),
            ("glm4-edge-1.5b", "1.59"),
            ("glm4-edge-4b", "4.33"),
            ("glm4-9b", "9.40"),
            ("glm4-9b-0414", "9.40"),
            ("glm4-32b-0414", "32.57"),
            ("glm4_moe_lite-flash", "29.94"),
        ] {
            assert_eq!(billions(name), expected, "{name}");
        }
        let active = |name: &str| all.iter().find(|m| m.name == name).and_then(|m| m.n_active_params);
        assert_eq!((active("glm4_moe_lite-flash").map(|n| n / 10_000_000), active("glm4-9b")), (Some(357), None));
        for m in &all {
            assert!(m.weights["i4"] < m.weights["i8"] && m.weights["i8"] < m.weights["f16"], "{}: {:?}", m.name, m.weights);
            assert!(m.state_per_slot > 0, "{}", m.name);
        }
    }

    #[test]
    fn a_model_is_recognised_by_its_sizes() {
        let facts = arch::synthetic::named("rwkv7-2.9b").unwrap().facts();
        assert_eq!(published_name(&facts).as_deref(), Some("rwkv7-2.9b"));
        assert_eq!(published_name(&Facts { n_layer: 33, ..facts.clone() }), None);
        for name in ["glm4-9b", "glm4-9b-0414", "glm4-edge-4b"] {
            assert_eq!(published_name(&arch::synthetic::named(name).unwrap().facts()).as_deref(), Some(name));
        }
        assert_eq!(published_name(&Facts { version: "x070a", ..facts }), None);
        for name in ["rwkv7a-0.1b", "rwkv7b-0.1b"] {
            assert_eq!(published_name(&arch::synthetic::named(name).unwrap().facts()).as_deref(), Some(name));
        }
    }
}
