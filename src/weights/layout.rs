//! The layout of a written file: the names and orientations of its tensors.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The metadata key that names a file's layout. The layout determines the orientation of low-rank matrices whose shapes do not show it, such as
/// square matrices.
pub(super) const LAYOUT_KEY: &str = "wingbeat.layout";

/// The layout of a written file: the names and orientations of its tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// The layout of the original `.pth` or, for a GLM, of `transformers`.
    #[default]
    Official,
    /// The layout of web-rwkv's `.st`: some names differ, and low-rank matrices are stored transposed.
    WebRwkv,
    /// A Hugging Face folder of 2026 (`RwkvForCausalLM`) with shards, `config.json` and other small files. This layout exists for RWKV-7 only.
    HuggingFace,
    /// A GGUF file as llama.cpp reads it. This layout exists for RWKV-6, RWKV-7, ARWKV-7, QRWKV-6, GLM-4 and GLM-4.7-Flash.
    Gguf,
}

impl Layout {
    /// All layouts.
    pub const ALL: [Layout; 4] = [Layout::Official, Layout::WebRwkv, Layout::HuggingFace, Layout::Gguf];

    /// Returns the name in options, metadata and reports.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Official => "official",
            Layout::WebRwkv => "web-rwkv",
            Layout::HuggingFace => "hf",
            Layout::Gguf => "gguf",
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Layout {
    type Err = Error;

    fn from_str(name: &str) -> Result<Layout> {
        let found = Layout::ALL.into_iter().find(|layout| layout.name() == name);
        found.ok_or_else(|| Error::usage(format!("expected official, web-rwkv, hf or gguf, found {name:?}")).field("layout"))
    }
}
