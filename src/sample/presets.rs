//! Sampling settings that go by a name.

use super::named::differences;
use super::settings::{Order, Sampling};
use crate::error::{Error, Result};

/// A name and what it stands for.
struct Preset {
    name: &'static str,
    origin: &'static str,
    sampling: fn() -> Sampling,
}

const PRESETS: &[Preset] = &[
    Preset { name: "pip", origin: "the official RWKV package", sampling: Sampling::rwkv },
    Preset { name: "demo", origin: "RWKV's demos in a single file", sampling: || Sampling { top_p: 0.8, ..Sampling::plain(Order::Pip) } },
    Preset { name: "chat", origin: "ChatRWKV", sampling: || Sampling { temperature: 1.2, ..penalised(0.5, 0.4) } },
    Preset { name: "world", origin: "RWKV's chat demo for World and G1 models", sampling: || penalised(0.3, 0.5) },
    Preset { name: "qa", origin: "RWKV's demo of questions and answers", sampling: || penalised(0.2, 0.4) },
    Preset {
        name: "g1",
        origin: "recommended for RWKV-7 G1",
        sampling: || Sampling { top_p: 0.5, top_k: 100, penalty_decay: 0.997, ..Sampling::plain(Order::Pip) },
    },
    Preset {
        name: "midi",
        origin: "RWKV's MIDI demo, without its bias that grows with the text",
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
    Preset { name: "greedy", origin: "always the most likely token", sampling: || Sampling::greedy(0) },
    Preset {
        name: "creative",
        origin: "high temperature held by min-p, as its paper recommends (arXiv 2407.01082)",
        sampling: || Sampling { temperature: 1.5, min_p: 0.1, ..Sampling::plain(Order::Hf) },
    },
    Preset {
        name: "precise",
        origin: "top-n-sigma as its paper uses it for reasoning (arXiv 2411.07641)",
        sampling: || Sampling { top_n_sigma: 1.0, ..Sampling::plain(Order::Hf) },
    },
];

/// RWKV's chat demos: a narrow top_p, and both penalties alike.
fn penalised(top_p: f32, penalty: f32) -> Sampling {
    let plain = Sampling::plain(Order::Pip);
    Sampling { top_p, presence_penalty: penalty, frequency_penalty: penalty, penalty_decay: 0.996, ..plain }
}

impl Sampling {
    /// The settings of a preset, with the seed 0.
    ///
    /// # Errors
    /// `Usage` where no preset has that name.
    pub fn preset(name: &str) -> Result<Sampling> {
        let found = PRESETS.iter().find(|p| p.name == name);
        let names = || PRESETS.iter().map(|p| p.name).collect::<Vec<_>>().join(", ");
        let unknown = || Error::usage(format!("expected the name of a preset, found {name:?}")).hint(format!("one of {}", names()));
        found.map(|p| (p.sampling)()).ok_or_else(unknown)
    }

    /// Each preset: its name, where its settings come from, and what it sets that is else off.
    pub fn presets() -> impl Iterator<Item = (&'static str, &'static str, String)> {
        PRESETS.iter().map(|p| (p.name, p.origin, differences(&(p.sampling)(), &Sampling::plain(Order::Pip))))
    }
}
