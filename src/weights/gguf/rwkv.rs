//! Maps the tensors of GGUF files to the official tensors, for RWKV-6, RWKV-7 and their relatives in the body of Qwen2. Changes names and
//! orientation, and splits fused tensors. Also undoes rescaling: some files have matrices divided by powers of two, for engines whose residual
//! stream is f16. Here the residual stream is f32, and undoing is exact.
//!
//! This module knows the names, and the metadata that affect shapes. The module `header` reads the container.

pub mod write;

use super::super::located::LocatedTensor;
use super::header::ListedTensor;
use super::names::{block_parts, located, whole};
use crate::error::{Error, Result, short};
use crate::tensor::dense_strides;
use std::collections::BTreeMap;

/// The names of tensors outside of blocks, as pairs (GGUF name, official name).
const TOP: [(&str, &str); 6] = [
    ("token_embd.weight", "emb.weight"),
    ("token_embd_norm.weight", "blocks.0.ln0.weight"),
    ("token_embd_norm.bias", "blocks.0.ln0.bias"),
    ("output_norm.weight", "ln_out.weight"),
    ("output_norm.bias", "ln_out.bias"),
    ("output.weight", "head.weight"),
];

/// The names of matrices and norms of a block, as pairs (GGUF name, official name) without the ending `.weight` or `.bias`. Only their names
/// change.
const KEPT: [(&str, &str); 15] = [
    ("attn_norm", "ln1"),
    ("attn_norm_2", "ln2"),
    ("time_mix_receptance", "att.receptance"),
    ("time_mix_key", "att.key"),
    ("time_mix_value", "att.value"),
    ("time_mix_gate", "att.gate"),
    ("time_mix_output", "att.output"),
    ("time_mix_ln", "att.ln_x"),
    ("channel_mix_key", "ffn.key"),
    ("channel_mix_value", "ffn.value"),
    ("channel_mix_receptance", "ffn.receptance"),
    ("ffn_norm", "ln2"),
    ("ffn_gate", "ffn.gate"),
    ("ffn_up", "ffn.up"),
    ("ffn_down", "ffn.down"),
];

/// The official form of a tensor, and how the tensor in a GGUF file may differ from this form.
#[derive(Clone, Copy)]
enum TensorForm {
    /// A vector with the shape `[1, 1, C]`. C is the width of the model. The file may store the vector with fewer dimensions.
    Vector,
    /// A matrix of a low-rank pair. The file stores this matrix with its last two dimensions swapped.
    Swapped,
    /// A matrix with one row per head. The file may store the matrix as one vector.
    Heads,
}
use TensorForm::{Heads, Swapped, Vector};

/// A tensor of a block: its GGUF name without the ending `.weight`, its official name, and its form.
type OwnTensor = (&'static str, &'static str, TensorForm);

/// The names of the tensors in files of one architecture.
struct RwkvVersion {
    architecture: &'static str,
    /// The parameters of a block that are not in `KEPT`, as (GGUF name without the ending `.weight`, official name, form).
    own: &'static [OwnTensor],
    /// The official names of the vectors in the fused tensor `time_mix_lerp_fused`, in the order of its rows.
    fused: &'static [&'static str],
    /// The smallest number of rows of `time_mix_lerp_fused`. The last vectors of `fused` may be missing in the file.
    fused_least: usize,
    /// The GGUF names of tensors of block 0 that the model does not use. The reader skips these tensors.
    unused: &'static [&'static str],
    /// Matrices that rescaling divides by 2^⌊block / P⌋, if the metadata have a period P (`rescale_every_n_layers`). Reading undoes this
    /// division.
    rescaled: &'static [&'static str],
}

const VERSIONS: [RwkvVersion; 4] = [
    RwkvVersion { architecture: "rwkv6", rescaled: &["att.output", "ffn.value"], ..LIKE_6 },
    RwkvVersion { architecture: "rwkv7", ..LIKE_7 },
    RwkvVersion { architecture: "arwkv7", ..LIKE_7 },
    RwkvVersion { architecture: "rwkv6qwen2", ..LIKE_6 },
];

#[rustfmt::skip] // rustfmt would write one tensor per line.
const LIKE_6: RwkvVersion = RwkvVersion {
    architecture: "",
    own: &[
        ("time_mix_lerp_x", "att.time_maa_x", Vector),
        ("time_mix_lerp_w", "att.time_maa_w", Vector), // _w to _g are in files older than the fused tensor
        ("time_mix_lerp_k", "att.time_maa_k", Vector),
        ("time_mix_lerp_v", "att.time_maa_v", Vector),
        ("time_mix_lerp_r", "att.time_maa_r", Vector),
        ("time_mix_lerp_g", "att.time_maa_g", Vector),
        ("time_mix_w1", "att.time_maa_w1", Swapped),
        ("time_mix_w2", "att.time_maa_w2", Swapped),
        ("time_mix_decay", "att.time_decay", Vector),
        ("time_mix_decay_w1", "att.time_decay_w1", Swapped),
        ("time_mix_decay_w2", "att.time_decay_w2", Swapped),
        ("time_mix_first", "att.time_faaaa", Heads),
        ("channel_mix_lerp_k", "ffn.time_maa_k", Vector),
        ("channel_mix_lerp_r", "ffn.time_maa_r", Vector),
    ],
    fused: &["att.time_maa_w", "att.time_maa_k", "att.time_maa_v", "att.time_maa_r", "att.time_maa_g"],
    fused_least: 5,
    unused: &[],
    rescaled: &[],
};

#[rustfmt::skip]
const LIKE_7: RwkvVersion = RwkvVersion {
    architecture: "",
    own: &[
        ("time_mix_w0", "att.w0", Vector), ("time_mix_w1", "att.w1", Swapped), ("time_mix_w2", "att.w2", Swapped),
        ("time_mix_a0", "att.a0", Vector), ("time_mix_a1", "att.a1", Swapped), ("time_mix_a2", "att.a2", Swapped),
        ("time_mix_v0", "att.v0", Vector), ("time_mix_v1", "att.v1", Swapped), ("time_mix_v2", "att.v2", Swapped),
        ("time_mix_g1", "att.g1", Swapped), ("time_mix_g2", "att.g2", Swapped),
        ("time_mix_k_k", "att.k_k", Vector), ("time_mix_k_a", "att.k_a", Vector), ("time_mix_r_k", "att.r_k", Heads),
        ("channel_mix_lerp_k", "ffn.x_k", Vector),
    ],
    fused: &["att.x_r", "att.x_w", "att.x_k", "att.x_v", "att.x_a", "att.x_g"],
    fused_least: 5, // without a gate
    unused: &["time_mix_v0", "time_mix_v1", "time_mix_v2"],
    rescaled: &[],
};

/// The supported values of `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["rwkv6", "rwkv7", "arwkv7", "rwkv6qwen2"];
/// The architectures with the body of Qwen2. Their files have RMS norms and Qwen's vocabulary.
pub const IN_QWEN: &[&str] = &["arwkv7", "rwkv6qwen2"];

/// The metadata of a GGUF file that affect the names, the shapes or the scales of tensors.
pub struct RwkvMetadata {
    version: &'static RwkvVersion,
    head_size: Option<usize>,
    /// The period P of rescaling, in blocks (layers), or `None` if the file is not rescaled.
    rescale_every: Option<usize>,
}

impl RwkvMetadata {
    /// Reads the metadata of a file whose architecture must be one of [`ARCHITECTURES`].
    pub fn of(architecture: &str, metadata: &BTreeMap<String, String>) -> Result<RwkvMetadata> {
        let known = VERSIONS.iter().find(|version| version.architecture == architecture);
        let version = known.ok_or_else(|| {
            Error::model(format!(
                "unsupported architecture {} of this GGUF file, expected {}",
                short(architecture, 64),
                ARCHITECTURES.join(" or ")
            ))
        })?;
        let head_size = whole(metadata, architecture, "wkv.head_size")?;
        let rescale_every = whole(metadata, architecture, "rescale_every_n_layers")?;
        Ok(RwkvMetadata { version, head_size, rescale_every })
    }

    /// Returns the official tensors for a tensor of the file: several for a fused tensor, an empty list for an unused tensor. An unknown tensor
    /// keeps its name.
    pub fn canonical(&self, t: &ListedTensor) -> Result<Vec<LocatedTensor>> {
        if let Some((_, name)) = TOP.iter().find(|(ours, _)| *ours == t.name) {
            return Ok(vec![located(t, name.to_string())]);
        }
        let Some((block, stem, end)) = block_parts(t.name) else {
            return Ok(vec![located(t, t.name.to_string())]);
        };
        if let Some((_, name)) = KEPT.iter().find(|(ours, _)| *ours == stem) {
            let scale = if self.version.rescaled.contains(name) { self.undo_rescale(block)? } else { 1.0 };
            return Ok(vec![LocatedTensor { scale, ..located(t, format!("blocks.{block}.{name}.{end}")) }]);
        }
        if end != "weight" {
            return Ok(vec![located(t, t.name.to_string())]);
        }
        if block == 0 && self.version.unused.contains(&stem) {
            return Ok(vec![]);
        }
        if stem == "time_mix_lerp_fused" {
            return self.split(t, block);
        }
        match self.version.own.iter().find(|(ours, _, _)| *ours == stem) {
            Some((_, name, form)) => Ok(vec![self.formed(located(t, format!("blocks.{block}.{name}")), *form)?]),
            None => Ok(vec![located(t, t.name.to_string())]),
        }
    }

    /// Returns the factor that undoes the rescaling of a block: 2^⌊block / P⌋, where P is the period of rescaling.
    fn undo_rescale(&self, block: usize) -> Result<f32> {
        let Some(period) = self.rescale_every else { return Ok(1.0) };
        let factor = 2f32.powi(i32::try_from(block / period).unwrap_or(i32::MAX));
        let text = || format!("the factor that undoes rescaling, 2 to the power of {}, is too large", block / period);
        Some(factor).filter(|f| f.is_finite()).ok_or_else(|| Error::file(text()))
    }

    /// Splits `time_mix_lerp_fused` into one vector per row, with the shape `[1, 1, row width]`. The rows of the fused tensor are contiguous, so
    /// each vector is a range of its bytes.
    fn split(&self, t: &ListedTensor, block: usize) -> Result<Vec<LocatedTensor>> {
        let (width, n) = (t.shape[t.shape.len() - 1], t.shape[..t.shape.len() - 1].iter().product());
        let (least, most) = (self.version.fused_least, self.version.fused.len());
        if !(least..=most).contains(&n) {
            let text = if least == most { format!("{least}") } else { format!("{least} or {most}") };
            return Err(Error::file(format!("expected {text} stacked vectors, found the shape {:?}", t.shape)));
        }
        let size = t.bytes.len() / n;
        let vector = |(i, name): (usize, &&str)| {
            let shape = vec![1, 1, width];
            let start = t.bytes.start + i * size;
            let strides = dense_strides(&shape);
            LocatedTensor {
                coding: None,
                name: format!("blocks.{block}.{name}"),
                dtype: t.dtype,
                shape,
                strides,
                bytes: start..start + size,
                scale: 1.0,
                file: 0,
            }
        };
        Ok(self.version.fused.iter().take(n).enumerate().map(vector).collect())
    }

    /// Changes the shape and the strides of the tensor `t` of the file to the official form `form`.
    fn formed(&self, mut t: LocatedTensor, form: TensorForm) -> Result<LocatedTensor> {
        let n_dims = t.shape.len();
        let len: usize = t.shape.iter().product();
        match form {
            Vector if t.shape[n_dims - 1] == len => t.shape = vec![1, 1, len],
            Vector => return Err(Error::file(format!("expected a vector, found the shape {:?}", t.shape))),
            Swapped if n_dims >= 2 => {
                t.shape.swap(n_dims - 2, n_dims - 1);
                t.strides.swap(n_dims - 2, n_dims - 1);
                return Ok(t);
            }
            Swapped => return Err(Error::file(format!("expected a matrix, found the shape {:?}", t.shape))),
            Heads => match (&t.shape[..], self.head_size) {
                ([heads, _], _) if *heads > 1 => {}
                (_, Some(size)) if len.is_multiple_of(size) => t.shape = vec![len / size, size],
                (_, size) => {
                    let text = match size {
                        Some(size) => format!("expected a multiple of the head size {size} in the metadata, found {len} numbers"),
                        None => format!("the metadata have no head size, which this tensor of {len} numbers needs"),
                    };
                    return Err(Error::file(text));
                }
            },
        }
        t.strides = dense_strides(&t.shape);
        Ok(t)
    }
}
