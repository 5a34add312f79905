//! Words: the fused operations that make up a layer. Each word has dispatches for a GPU, and a reference implementation on the CPU, its *twin*.
//!
//! A word knows the names of its shaders and the layout of host memory, but no device API, no files and no architecture. To add a word, write a file
//! here, a shader, and two lines below: the `mod` line and the entry in [`WORDS`].

mod attention;
mod deep_embed;
mod deep_embed_qkv;
mod embed;
mod experts;
mod head;
mod head_kernel;
mod head_products;
mod latent;
mod linear_add;
mod linear_add_sparse;
mod linear_norm_add;
mod norm;
mod norm_ddlerp_linear;
mod norm_linear;
mod norm_shift_linear;
mod recurrence;
mod rounded;
mod route;
mod shape;
mod shift_mix;
mod spans;
pub mod stack;
mod state_rows;
mod swiglu;
pub mod synthetic;
pub mod testing;
mod windows;
mod wkv4;
mod wkv6;
mod wkv7;

pub use attention::{Attention, LatentAttention, LimitedAttention};
pub use deep_embed::DeepEmbed;
pub use deep_embed_qkv::{DeepEmbedQkv, TokenColumn};
pub use experts::ExpertMatrices;
pub use head_products::HeadPlaces;
pub use latent::LatentInputs;
pub use norm::Norm;
pub use norm_ddlerp_linear::DdLerp;
pub use norm_shift_linear::Projection;
pub use route::{Routed, Router};
pub use spans::{IN_SPANS, SPAN};
pub use stack::Activation;
pub use windows::GROUP;
pub use wkv6::{Decay, Wkv6, WkvLinear};
pub use wkv7::{Expansion, HeadNorm, ValueResidual, Wkv7};

use crate::quant::isa::sum;
use testing::Case;

/// A word and its test cases.
pub struct WordEntry {
    /// The word's name in profiles, tests and errors.
    pub name: &'static str,
    /// Returns the cases in which the kernels must agree with the word's twin.
    pub cases: fn() -> Vec<Case>,
}

/// All words. The self-test of `doctor`, the tests and the benches walk this list.
pub static WORDS: &[WordEntry] = &[
    WordEntry { name: "embed", cases: embed::cases },
    WordEntry { name: "deep_embed", cases: deep_embed::cases },
    WordEntry { name: "deep_embed_qkv", cases: deep_embed_qkv::cases },
    WordEntry { name: "norm_shift_linear", cases: norm_shift_linear::cases },
    WordEntry { name: "norm_ddlerp_linear", cases: norm_ddlerp_linear::cases },
    WordEntry { name: "wkv4_linear_add", cases: wkv4::cases },
    WordEntry { name: "wkv6", cases: wkv6::cases },
    WordEntry { name: "wkv_linear", cases: wkv6::linear_cases },
    WordEntry { name: "wkv7", cases: wkv7::cases },
    WordEntry { name: "linear_add", cases: linear_add::cases },
    WordEntry { name: "linear_add_sparse", cases: linear_add_sparse::cases },
    WordEntry { name: "norm_linear", cases: norm_linear::cases },
    WordEntry { name: "attention", cases: attention::cases },
    WordEntry { name: "latent", cases: latent::cases },
    WordEntry { name: "head_products", cases: head_products::cases },
    WordEntry { name: "route", cases: route::cases },
    WordEntry { name: "experts", cases: experts::cases },
    WordEntry { name: "swiglu", cases: swiglu::cases },
    WordEntry { name: "linear_norm_add", cases: linear_norm_add::cases },
    WordEntry { name: "head", cases: head::cases },
    WordEntry { name: "hidden", cases: head::hidden_cases },
];

/// The ε of the layer norms in every published RWKV.
pub const LAYER_NORM_EPS: f32 = 1e-5;

/// Returns the mean of a vector and 1 / sqrt(variance + eps). The variance takes a second pass: the mean of the squares minus the square of
/// the mean would lose digits.
#[inline(always)]
fn moments(x: &[f32], eps: f32) -> (f32, f32) {
    let n = x.len() as f32;
    let mean = sum(
        x,
        #[inline(always)]
        |v| v,
    ) / n;
    let variance = sum(
        x,
        #[inline(always)]
        |v| (v - mean) * (v - mean),
    ) / n;
    (mean, 1.0 / (variance + eps).sqrt())
}
