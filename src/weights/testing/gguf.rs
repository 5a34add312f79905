//! GGUF files for tests: complete models from canonical tensors, as llama.cpp's converter writes them, and contradictory files.
//!
//! The tables of names and shapes here are independent of the reader's tables, so that a mistake in the reader does not cancel out.

use super::singles;
use crate::tensor::{DType, View};
use std::collections::BTreeMap;

const F32: u32 = 0;
const I32: u32 = 5;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// A GGUF file under construction.
pub struct Gguf {
    pub magic: [u8; 4],
    pub version: u32,
    /// The numbers of tensors and keys in the header. The builder counts them, and a test may change them.
    pub n_tensors: u64,
    pub n_keys: u64,
    pub alignment: usize,
    keys: Vec<u8>,
    infos: Vec<u8>,
    data: Vec<u8>,
}

impl Gguf {
    pub fn new(architecture: &str) -> Self {
        let (magic, version) = (*b"GGUF", 3);
        let mut g = Gguf { magic, version, n_tensors: 0, n_keys: 0, alignment: 32, keys: vec![], infos: vec![], data: vec![] };
        if !architecture.is_empty() {
            g.text("general.architecture", architecture);
        }
        g
    }

    /// Adds a metadata value of any type. `kind` is the number of the type in GGUF, `bytes` the value's bytes.
    pub fn value(&mut self, key: &str, kind: u32, bytes: &[u8]) -> &mut Self {
        self.n_keys += 1;
        string(&mut self.keys, key.as_bytes());
        self.keys.extend(kind.to_le_bytes());
        self.keys.extend(bytes);
        self
    }

    pub fn text(&mut self, key: &str, text: &str) -> &mut Self {
        let mut bytes = vec![];
        string(&mut bytes, text.as_bytes());
        self.value(key, STRING, &bytes)
    }

    pub fn u32(&mut self, key: &str, n: u32) -> &mut Self {
        self.value(key, 4, &n.to_le_bytes())
    }

    /// Adds an array of texts.
    pub fn texts(&mut self, key: &str, texts: &[&str]) -> &mut Self {
        let mut bytes = [STRING.to_le_bytes().as_slice(), &(texts.len() as u64).to_le_bytes()].concat();
        texts.iter().for_each(|text| string(&mut bytes, text.as_bytes()));
        self.value(key, ARRAY, &bytes)
    }

    /// Adds the lists of a vocabulary: its kind, and its tokens with their types in GGUF's numbers.
    pub fn tokens(&mut self, kind: &str, tokens: &[(&str, i32)]) -> &mut Self {
        let types: Vec<u8> = tokens.iter().flat_map(|(_, t)| t.to_le_bytes()).collect();
        let types = [I32.to_le_bytes().as_slice(), &(tokens.len() as u64).to_le_bytes(), &types].concat();
        let texts: Vec<&str> = tokens.iter().map(|(text, _)| *text).collect();
        self.text("tokenizer.ggml.model", kind).texts("tokenizer.ggml.tokens", &texts).value("tokenizer.ggml.token_type", ARRAY, &types)
    }

    /// Adds an entry to the tensor list, but no data. The dimensions are in ggml's order, the contiguous dimension first.
    pub fn info(&mut self, name: &[u8], dims: &[u64], kind: u32, offset: u64) -> &mut Self {
        self.n_tensors += 1;
        string(&mut self.infos, name);
        self.infos.extend((dims.len() as u32).to_le_bytes());
        dims.iter().for_each(|d| self.infos.extend(d.to_le_bytes()));
        self.infos.extend(kind.to_le_bytes());
        self.infos.extend(offset.to_le_bytes());
        self
    }

    /// Adds a tensor with its bytes. The shape is row-major.
    pub fn tensor(&mut self, name: &str, kind: u32, shape: &[usize], bytes: &[u8]) -> &mut Self {
        self.data.resize(self.data.len().next_multiple_of(self.alignment), 0);
        let dims: Vec<u64> = shape.iter().rev().map(|&d| d as u64).collect();
        self.info(name.as_bytes(), &dims, kind, self.data.len() as u64);
        self.data.extend(bytes);
        self
    }

    pub fn finish(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.n_tensors.to_le_bytes());
        out.extend(self.n_keys.to_le_bytes());
        out.extend(&self.keys);
        out.extend(&self.infos);
        out.resize(out.len().next_multiple_of(self.alignment), 0);
        out.extend(&self.data);
        out
    }
}

fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text);
}

/// Returns ggml's number of a type.
fn id(dtype: DType) -> u32 {
    match dtype {
        DType::F32 => F32,
        DType::F16 => 1,
        DType::Q4_0 => 2,
        DType::Q4_1 => 3,
        DType::Q5_0 => 6,
        DType::Q5_1 => 7,
        DType::Q8_0 => 8,
        DType::Q4K => 12,
        DType::Q5K => 13,
        DType::Q6K => 14,
        DType::Q2K => 10,
        DType::Q3K => 11,
        DType::IQ4NL => 20,
        DType::IQ4XS => 23,
        DType::TQ1_0 => 34,
        DType::TQ2_0 => 35,
        DType::MXFP4 => 39,
        DType::BF16 => 30,
        other => panic!("GGUF tests write no {other}"),
    }
}

/// Encodes rows as Q8_0. A block of 32 elements is exact if all its elements are n times one power of two, with whole n in -127 ..= 127.
pub fn q8_0(numbers: &[f32]) -> Vec<u8> {
    let block = |x: &[f32]| {
        let most = x.iter().fold(0f32, |m, x| m.max(x.abs()));
        let d = half::f16::from_f32(2f32.powi((most / 127.0).log2().ceil() as i32)); // 0 for zeros
        let q = x.iter().map(move |x| if most == 0.0 { 0 } else { (x / d.to_f32()).round() as i8 as u8 });
        d.to_le_bytes().into_iter().chain(q).collect::<Vec<_>>()
    };
    numbers.chunks(32).flat_map(block).collect()
}

/// Encodes rows of whole blocks in a block type. Panics if no weight format has the type's name.
#[cfg(feature = "embedded-model")]
pub fn rounded(dtype: DType, numbers: &[f32]) -> Vec<u8> {
    let format = crate::quant::find(&dtype.name().to_lowercase()).expect("the type has a format");
    let blocks = format.file_blocks().expect("the format is a block type");
    let (mut encoded, mut bytes) = (crate::quant::EncodedRows::default(), Vec::new());
    blocks.encode_row(numbers, None, &mut encoded).expect("the weights fit");
    blocks.pack(&encoded.codes, &encoded.scales, &mut bytes);
    bytes
}

/// Returns the byte offsets of the f16 numbers in a block of a block type.
#[cfg(feature = "embedded-model")]
pub fn scale_places(dtype: DType) -> Vec<usize> {
    let (_, size) = dtype.block().expect("the type has blocks");
    match dtype {
        DType::Q2K => vec![80, 82],
        DType::Q3K | DType::Q6K => vec![size - 2],
        DType::Q4K | DType::Q5K | DType::Q4_1 | DType::Q5_1 => vec![0, 2],
        _ => vec![0],
    }
}

/// Returns the type and the bytes of a tensor as its file has them, for [`tiny_gguf`].
#[cfg(feature = "embedded-model")]
pub fn as_stored(_name: &str, view: &View) -> Option<(DType, Vec<u8>)> {
    Some((view.dtype(), view.dense_bytes().expect("the file is dense").to_vec()))
}

/// A function that chooses how a file stores a tensor: it returns the type and the bytes, or `None` to leave the tensor out.
#[cfg(feature = "embedded-model")]
pub type Change<'a> = &'a dyn Fn(&str, &View) -> Option<(DType, Vec<u8>)>;

/// Returns the embedded model as a GGUF file without a vocabulary. `change` applies to each tensor.
#[cfg(feature = "embedded-model")]
pub fn tiny_gguf(change: Change) -> Gguf {
    let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/models/small-world.safetensors"));
    let model = crate::weights::Checkpoint::from_static("tiny", bytes).unwrap();
    // In block 0, the converter writes other tensors under the names of v0 to v2.
    let names = model.names().filter(|name| !["v0", "v1", "v2"].iter().any(|v| *name == format!("blocks.0.att.{v}")));
    let stored: Vec<(&str, DType, Vec<usize>, Vec<u8>)> = names
        .filter_map(|name| {
            let view = model.tensor(name).unwrap();
            let (dtype, bytes) = change(name, &view)?;
            Some((name, dtype, view.shape().to_vec(), bytes))
        })
        .collect();
    let head_size = model.tensor("blocks.0.att.r_k").unwrap().shape()[1] as u32;
    let tensors: Vec<_> = stored.iter().map(|(name, dtype, shape, bytes)| (*name, *dtype, &shape[..], &bytes[..])).collect();
    gguf_model("rwkv7", &[("wkv.head_size", head_size)], &tensors)
}

/// A canonical tensor: name, type, official shape, bytes.
type Tensor<'a> = (&'a str, DType, &'a [usize], &'a [u8]);

/// Returns a GGUF file of a whole model (`rwkv6` or `rwkv7`) in the form that llama.cpp's converter writes. The tensors are canonical.
///
/// The name of the architecture is put before each key of the metadata. If the key `rescale_every_n_layers` is present, the matrices `att.output` and
/// `ffn.value` of the rescaled blocks are divided and stored as F32.
pub fn gguf(architecture: &str, metadata: &[(&str, u32)], tensors: &[Tensor]) -> Vec<u8> {
    gguf_model(architecture, metadata, tensors).finish()
}

/// Returns the file of [`gguf`], to which metadata may still be added.
fn gguf_model(architecture: &str, metadata: &[(&str, u32)], tensors: &[Tensor]) -> Gguf {
    let mut g = Gguf::new(architecture);
    for (key, n) in metadata {
        g.u32(&format!("{architecture}.{key}"), *n);
    }
    let period = metadata.iter().find(|(key, n)| *key == "rescale_every_n_layers" && *n > 0).map(|(_, n)| *n);
    let fused: &[&str] = match architecture {
        "rwkv6" => &["time_maa_w", "time_maa_k", "time_maa_v", "time_maa_r", "time_maa_g"],
        _ => &["x_r", "x_w", "x_k", "x_v", "x_a", "x_g"],
    };
    let mut lerps: BTreeMap<String, Vec<Vec<f32>>> = BTreeMap::new();
    for &(name, dtype, shape, bytes) in tensors {
        let view = View::dense(dtype, shape, bytes).unwrap();
        let Some((block, part)) = name.strip_prefix("blocks.").and_then(|rest| rest.split_once('.')) else {
            g.tensor(top(name), id(dtype), shape, bytes);
            continue;
        };
        if part.starts_with("ln0.") {
            g.tensor(&part.replace("ln0", "token_embd_norm"), id(dtype), shape, bytes);
            continue;
        }
        if let Some(slot) = part.strip_prefix("att.").and_then(|p| fused.iter().position(|f| *f == p)) {
            let slots = lerps.entry(block.to_string()).or_default();
            slots.resize(slots.len().max(slot + 1), vec![]);
            slots[slot] = view.to_f32().unwrap();
            continue;
        }
        let ours = format!("blk.{block}.{}", in_block(part));
        match part.rsplit('.').next().unwrap() {
            "weight" | "bias" => {
                let shift = period.map_or(0, |p| block.parse::<u32>().unwrap() / p);
                if shift > 0 && ["att.output.weight", "ffn.value.weight"].contains(&part) {
                    let smaller = view.scaled(0.5f32.powi(shift as i32)).to_f32().unwrap();
                    g.tensor(&ours, F32, shape, &singles(&smaller));
                } else {
                    g.tensor(&ours, id(dtype), shape, bytes);
                }
            }
            "time_maa_w1" | "time_maa_w2" | "time_decay_w1" | "time_decay_w2" | "w1" | "w2" | "a1" | "a2" | "v1" | "v2" | "g1" | "g2" => {
                let transposed = view.transposed();
                g.tensor(&ours, F32, transposed.shape(), &singles(&transposed.to_f32().unwrap()));
                if ["a1", "a2"].iter().any(|a| part == format!("att.{a}")) && block == "0" {
                    let dummy = ours.replace("_a", "_v");
                    g.tensor(&dummy, F32, transposed.shape(), &singles(&transposed.to_f32().unwrap()));
                }
            }
            "time_faaaa" => {
                g.tensor(&ours, F32, shape, &singles(&view.to_f32().unwrap()));
            }
            _ => {
                let numbers = singles(&view.to_f32().unwrap()); // the file stores these tensors, even r_k, with one dimension
                g.tensor(&ours, F32, &[view.len()], &numbers);
                if part == "att.a0" && block == "0" {
                    g.tensor("blk.0.time_mix_v0.weight", F32, &[view.len()], &numbers);
                }
            }
        }
    }
    for (block, slots) in lerps {
        let shape = [slots.len(), 1, 1, slots[0].len()];
        g.tensor(&format!("blk.{block}.time_mix_lerp_fused.weight"), F32, &shape, &singles(&slots.concat()));
    }
    g
}

fn top(name: &str) -> &str {
    match name {
        "emb.weight" => "token_embd.weight",
        "head.weight" => "output.weight",
        "ln_out.weight" => "output_norm.weight",
        "ln_out.bias" => "output_norm.bias",
        other => other,
    }
}

/// Converts `part`, a tensor's name within its block, to the text that follows `blk.N.` in a GGUF name. `part` must be a tensor that llama.cpp's
/// files have. Do not pass v0, v1 or v2 of block 0: llama.cpp stores copies of a0, a1 and a2 under their names.
fn in_block(part: &str) -> String {
    let ours = match part {
        "att.time_faaaa" => "time_mix_first",
        "ffn.x_k" | "ffn.time_maa_k" => "channel_mix_lerp_k",
        "ffn.time_maa_r" => "channel_mix_lerp_r",
        "att.time_maa_x" => "time_mix_lerp_x",
        "att.time_maa_w1" => "time_mix_w1",
        "att.time_maa_w2" => "time_mix_w2",
        "att.time_decay" => "time_mix_decay",
        "att.time_decay_w1" => "time_mix_decay_w1",
        "att.time_decay_w2" => "time_mix_decay_w2",
        _ => {
            let swaps = [
                ("att.ln_x", "time_mix_ln"),
                ("ln1", "attn_norm"),
                ("ln2", "attn_norm_2"),
                ("att.", "time_mix_"),
                ("ffn.", "channel_mix_"),
            ];
            let (theirs, ours) = swaps.iter().find(|(theirs, _)| part.starts_with(theirs)).expect("a canonical name");
            let name = part.replacen(theirs, ours, 1);
            return if name.ends_with(".weight") || name.ends_with(".bias") { name } else { name + ".weight" };
        }
    };
    format!("{ours}.weight")
}
