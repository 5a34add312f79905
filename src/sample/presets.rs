//! Presets: sampling settings that have a name.

use super::named::differences;
use super::settings::{Order, Sampling};
use crate::error::{Error, Result};

/// A named set of sampling settings. `origin` is the source of the settings.
struct Preset {
    name: &'static str,
    origin: &'static str,
    sampling: fn() -> Sampling,
}

const PRESETS: &[Preset] = &[
    Preset { name: "pip", origin: "the official RWKV package", sampling: Sampling::rwkv },
    Preset { name: "demo", origin: "RWKV's single-file demos", sampling: || Sampling { top_p: 0.8, ..Sampling::plain(Order::Pip) } },
    Preset { name: "chat", origin: "ChatRWKV", sampling: || Sampling { temperature: 1.2, ..penalised(0.5, 0.4) } },
    Preset { name: "world", origin: "RWKV's chat demo for World and G1 models", sampling: || penalised(0.3, 0.5) },
    Preset { name: "qa", origin: "RWKV's question-answering demo", sampling: || penalised(0.2, 0.4) },
    Preset {
        name: "g1",
        origin: "recommended for RWKV-7 G1 in 2025",
        sampling: || Sampling { top_p: 0.5, top_k: 100, penalty_decay: 0.997, ..Sampling::plain(Order::Pip) },
    },
    Preset {
        name: "g1-think",
        origin: "recommended for RWKV-7 G1 with thoughts",
        sampling: || Sampling { presence_penalty: 1.0, frequency_penalty: 0.1, penalty_decay: 0.988, ..g1(0.96, 0.76) },
    },
    Preset { name: "g1-fast", origin: "recommended for RWKV-7 G1 with empty thoughts", sampling: || g1(1.0, 0.28) },
    Preset { name: "g1-tools", origin: "recommended for RWKV-7 G1 with tools", sampling: || g1(0.96, 0.76) },
    Preset {
        name: "midi",
        origin: "RWKV's MIDI demo, without its position-dependent bias",
        sampling: || Sampling {
            top_p: 0.8,
            top_k: 8,
            frequency_penalty: 0.5,
            penalty_decay: 0.997,
            logit_bias: vec![(127, -1.0)],
            ..Sampling::plain(Order::Pip)
        },
    },
    Preset { name: "glm", origin: "GLM-4 under transformers", sampling: Sampling::glm },
    Preset { name: "glm-4.7", origin: "recommended for GLM-4.7", sampling: Sampling::glm47 },
    Preset { name: "glm-4.7-tools", origin: "recommended for GLM-4.7 with tools", sampling: Sampling::glm47_tools },
    Preset { name: "greedy", origin: "always the most likely token", sampling: || Sampling::greedy(0) },
    Preset {
        name: "creative",
        origin: "high temperature with min-p, as the min-p paper recommends (arXiv 2407.01082)",
        sampling: || Sampling { temperature: 1.5, min_p: 0.1, ..Sampling::plain(Order::Hf) },
    },
    Preset {
        name: "precise",
        origin: "top-n-sigma, as its paper uses it for reasoning (arXiv 2411.07641)",
        sampling: || Sampling { top_n_sigma: 1.0, ..Sampling::plain(Order::Hf) },
    },
];

/// Returns the settings of RWKV's chat demos: a low `top_p`, and one number as presence penalty and as frequency penalty.
fn penalised(top_p: f32, penalty: f32) -> Sampling {
    let plain = Sampling::plain(Order::Pip);
    Sampling { top_p, presence_penalty: penalty, frequency_penalty: penalty, penalty_decay: 0.996, ..plain }
}

/// Returns the settings that the presets of G1 models share, with this temperature and this `top_p`.
fn g1(temperature: f32, top_p: f32) -> Sampling {
    Sampling { temperature, top_p, top_k: 32, penalty_decay: 0.996, ..Sampling::plain(Order::Pip) }
}

impl Sampling {
    /// Returns the settings of the preset `name`. The seed is 0.
    ///
    /// # Errors
    /// `Usage` if no preset has this name.
    pub fn preset(name: &str) -> Result<Sampling> {
        let found = PRESETS.iter().find(|p| p.name == name);
        let names = || PRESETS.iter().map(|p| p.name).collect::<Vec<_>>().join(", ");
        let unknown = || Error::usage(format!("unknown preset {name:?}")).hint(format!("presets: {}", names()));
        found.map(|p| (p.sampling)()).ok_or_else(unknown)
    }

    /// Returns each preset as its name, the source of its settings, and a list of the settings that differ from plain sampling. In plain sampling
    /// the temperature is 1, and all filters and penalties are off.
    pub fn presets() -> impl Iterator<Item = (&'static str, &'static str, String)> {
        PRESETS.iter().map(|p| (p.name, p.origin, differences(&(p.sampling)(), &Sampling::plain(Order::Pip))))
    }
}
