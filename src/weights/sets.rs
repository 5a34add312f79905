//! Tiny RWKV models of every version, for tests. Programs that write RWKV models name the tensors differently. For each program, a function here
//! returns a model with its names. The tables of names were copied from published files, so they do not depend on the code under test.

use super::testing::{Dice, pth, singles};
use crate::error::Error;
use crate::tensor::DType;
use crate::weights::{NewTensor, write_safetensors};
use std::collections::BTreeMap;
use std::path::Path;

pub const C: usize = 8;
const H: usize = 2;
const S: usize = 4;
const F: usize = 12;
pub const V: usize = 11;
pub const N_LAYER: usize = 2;

pub const VERSIONS: [&str; 4] = ["v4", "v5.2", "v6", "v7"];

/// A tensor in F32 whose elements also fit F16.
#[derive(Debug, Clone, PartialEq)]
pub struct Made {
    pub name: String,
    pub shape: Vec<usize>,
    pub numbers: Vec<f32>,
}

impl Made {
    pub fn new(name: &str, shape: &[usize], dice: &mut Dice) -> Made {
        let numbers = (0..shape.iter().product()).map(|_| (dice.roll(999) as f32 - 500.0) / 8.0).collect();
        Made { name: name.into(), shape: shape.to_vec(), numbers }
    }

    fn named(self, name: String) -> Made {
        Made { name, ..self }
    }

    fn transposed(self) -> Made {
        let &[rows, cols] = &self.shape[..] else { panic!("{} is no matrix", self.name) };
        let numbers = (0..rows * cols).map(|i| self.numbers[(i % rows) * cols + i / rows]).collect();
        Made { shape: vec![cols, rows], numbers, ..self }
    }

    fn flat(self) -> Made {
        Made { shape: vec![self.numbers.len()], ..self }
    }
}

/// Returns a whole model of this version under the official names.
pub fn official(version: &str) -> Vec<Made> {
    let mut dice = Dice(0x0ff1c1a1);
    let mut out = Vec::new();
    let mut add = |name: String, shape: &[usize]| out.push(Made::new(&name, shape, &mut dice));
    for (name, shape) in [("emb.weight", &[V, C][..]), ("head.weight", &[V, C]), ("ln_out.weight", &[C]), ("ln_out.bias", &[C])] {
        add(name.into(), shape);
    }
    for layer in 0..N_LAYER {
        let norms = if layer == 0 { &["ln0", "ln1", "ln2"][..] } else { &["ln1", "ln2"] };
        for norm in norms {
            add(format!("blocks.{layer}.{norm}.weight"), &[C]);
            add(format!("blocks.{layer}.{norm}.bias"), &[C]);
        }
        let mut block = |names: &[&str], shape: &[usize]| names.iter().for_each(|n| add(format!("blocks.{layer}.{n}"), shape));
        let (row, square) = (&[1, 1, C][..], &[C, C][..]);
        block(&["att.receptance.weight", "att.key.weight", "att.value.weight", "att.output.weight"], square);
        block(&["ffn.key.weight"], &[F, C]);
        block(&["ffn.value.weight"], &[C, F]);
        if version != "v4" {
            block(&["att.ln_x.weight", "att.ln_x.bias"], &[C]);
        }
        if version != "v7" {
            block(&["ffn.receptance.weight"], square);
        }
        match version {
            "v4" => {
                block(&["att.time_decay", "att.time_first"], &[C]);
                block(&["att.time_mix_k", "att.time_mix_v", "att.time_mix_r", "ffn.time_mix_k", "ffn.time_mix_r"], row);
            }
            "v5.2" => {
                block(&["att.time_decay", "att.time_faaaa"], &[H, S]);
                block(&["att.gate.weight"], square);
                block(&["att.time_mix_k", "att.time_mix_v", "att.time_mix_r", "att.time_mix_g", "ffn.time_mix_k", "ffn.time_mix_r"], row);
            }
            "v6" => {
                block(&["att.time_maa_x", "att.time_maa_w", "att.time_maa_k", "att.time_maa_v", "att.time_maa_r"], row);
                block(&["att.time_maa_g", "att.time_decay", "ffn.time_maa_k", "ffn.time_maa_r"], row);
                block(&["att.time_maa_w1"], &[C, 10]);
                block(&["att.time_maa_w2"], &[5, 2, C]);
                block(&["att.time_decay_w1"], &[C, 3]);
                block(&["att.time_decay_w2"], &[3, C]);
                block(&["att.time_faaaa"], &[H, S]);
                block(&["att.gate.weight"], square);
            }
            _ => {
                block(&["att.x_r", "att.x_w", "att.x_k", "att.x_v", "att.x_a", "att.x_g", "ffn.x_k"], row);
                block(&["att.w0", "att.a0", "att.k_k", "att.k_a"], row);
                block(&["att.w1", "att.g1"], &[C, 3]);
                block(&["att.w2", "att.g2"], &[3, C]);
                block(&["att.a1", "att.a2"], square); // rank = width: shapes do not show the orientation
                block(&["att.r_k"], &[H, S]);
                if layer > 0 {
                    block(&["att.v0"], row);
                    block(&["att.v1"], &[C, 2]);
                    block(&["att.v2"], &[2, C]);
                }
            }
        }
    }
    out
}

/// The spelling of the mixes' names in a file of `transformers`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Words {
    /// `time_maa_k`, as in most files of RWKV-6.
    Maa,
    /// `time_mix_key`, as one converter of RWKV-6 writes it.
    Mix,
}

/// Returns a model of this version under the names of `transformers`.
pub fn hugging_face(version: &str, words: Words) -> Vec<Made> {
    let v7 = version == "v7";
    let rename = |name: &str| -> String {
        if name == "head.weight" {
            return if v7 { "lm_head.weight".into() } else { name.into() };
        }
        let mut name = format!("{}.{name}", if v7 { "model" } else { "rwkv" });
        let ln0 = if v7 { ".pre_norm." } else { ".pre_ln." };
        let both = [(".emb.", ".embeddings."), (".att.", ".attention."), (".ffn.", ".feed_forward."), (".ln0.", ln0)];
        both.iter().for_each(|(from, to)| name = name.replace(from, to));
        if v7 {
            return name.replace(".blocks.", ".layers.");
        }
        if version == "v6" && words == Words::Maa {
            return name;
        }
        name = name.replace(".time_maa_", ".time_mix_");
        for (letter, word) in [("k", "key"), ("v", "value"), ("r", "receptance"), ("g", "gate")] {
            if let Some(stem) = name.strip_suffix(&format!(".time_mix_{letter}")) {
                return format!("{stem}.time_mix_{word}");
            }
        }
        name
    };
    official(version).into_iter().map(|t| t.clone().named(rename(&t.name))).collect()
}

/// Returns an RWKV-7 model of flash-linear-attention, with its six mixes separate or stacked.
pub fn fla(stacked: bool) -> Vec<Made> {
    let mut out: Vec<Made> = Vec::new();
    for t in official("v7") {
        let name = t.name.clone();
        let Some((layer, part)) = name.strip_prefix("blocks.").and_then(|rest| rest.split_once('.')) else {
            let to = match name.as_str() {
                "emb.weight" => "model.embeddings.weight",
                "head.weight" => "lm_head.weight",
                "ln_out.weight" => "model.norm.weight",
                _ => "model.norm.bias",
            };
            out.push(t.named(to.into()));
            continue;
        };
        let at = |part: &str| format!("model.layers.{layer}.{part}");
        let vector = t.clone().flat();
        let renamed = match part {
            "ffn.x_k" => vector.named(at(part)),
            "att.receptance.weight" => t.named(at("attn.r_proj.weight")),
            "att.key.weight" => t.named(at("attn.k_proj.weight")),
            "att.value.weight" => t.named(at("attn.v_proj.weight")),
            "att.output.weight" => t.named(at("attn.o_proj.weight")),
            "att.r_k" => t.named(at("attn.r_k")),
            "att.k_k" | "att.k_a" => vector.named(at(&part.replace("att.", "attn."))),
            "att.w0" | "att.a0" | "att.v0" => vector.named(at(&format!("attn.{}_lora.lora.2.bias", &part[4..5]))),
            "att.w1" | "att.a1" | "att.v1" | "att.g1" => t.transposed().named(at(&format!("attn.{}_lora.lora.0.weight", &part[4..5]))),
            "att.w2" | "att.a2" | "att.v2" | "att.g2" => t.transposed().named(at(&format!("attn.{}_lora.lora.2.weight", &part[4..5]))),
            _ if part.starts_with("att.x_") && stacked => {
                let name = at("attn.x_x");
                match out.iter_mut().find(|o| o.name == name) {
                    Some(stack) => {
                        stack.shape[0] += 1;
                        stack.numbers.extend(t.numbers);
                        continue;
                    }
                    None => Made { name, shape: vec![1, C], numbers: t.numbers },
                }
            }
            _ if part.starts_with("att.x_") => t.named(at(&part.replace("att.", "attn."))),
            _ => {
                let norms = [("ln0.", "pre_norm."), ("ln1.", "attn_norm."), ("ln2.", "ffn_norm."), ("att.ln_x.", "attn.g_norm.")];
                let to = norms.iter().find_map(|(from, to)| Some(format!("{to}{}", part.strip_prefix(from)?)));
                t.named(at(&to.unwrap_or(part.into())))
            }
        };
        out.push(renamed);
    }
    out
}

/// Returns an RWKV-7 model as the Hugging Face folders of 2026 store it: layers named as decoder layers, and vectors stored as 1-D tensors. If
/// `is_late`, the ffn matrices have the names that a later version of the converter writes.
pub fn decoder(is_late: bool) -> Vec<Made> {
    let [key, value] = if is_late { ["up_proj", "down_proj"] } else { ["key", "value"] };
    let rename = |name: &str| -> String {
        let Some((layer, part)) = name.strip_prefix("blocks.").and_then(|rest| rest.split_once('.')) else {
            return match name {
                "emb.weight" => "model.embed_tokens.weight".into(),
                "head.weight" => "lm_head.weight".into(),
                _ => name.replace("ln_out.", "model.norm."),
            };
        };
        let at = |part: String| format!("model.layers.{layer}.{part}");
        match part.split_once('.') {
            Some(("ln0", end)) => format!("model.embedding_norm.{end}"),
            Some(("ln1", end)) => at(format!("input_layernorm.{end}")),
            Some(("ln2", end)) => at(format!("post_attention_layernorm.{end}")),
            Some(("ffn", "key.weight")) => at(format!("mlp.{key}.weight")),
            Some(("ffn", "value.weight")) => at(format!("mlp.{value}.weight")),
            Some(("ffn", end)) => at(format!("mlp.{end}")),
            Some((_, "receptance.weight")) => at("linear_attn.r_proj.weight".into()),
            Some((_, "output.weight")) => at("linear_attn.o_proj.weight".into()),
            Some((_, "key.weight")) => at("linear_attn.k_proj.weight".into()),
            Some((_, "value.weight")) => at("linear_attn.v_proj.weight".into()),
            Some((_, end)) => at(format!("linear_attn.{}", end.replace("ln_x.", "g_norm."))),
            None => at(part.into()),
        }
    };
    official("v7").into_iter().map(|t| (rename(&t.name), t)).map(|(name, t)| squeezed(t).named(name)).collect()
}

/// Reshapes a tensor of C elements from `[1, 1, C]` to `[C]`. Returns any other tensor unchanged.
fn squeezed(t: Made) -> Made {
    if t.shape[..] == [1, 1, C] { t.flat() } else { t }
}

/// Returns an RWKV-7 model with the official names after a prefix, and with vectors of one dimension. `head` is the name of the output matrix.
pub fn prefixed(prefix: &str, head: &str) -> Vec<Made> {
    let rename = |name: &str| if name == "head.weight" { head.to_string() } else { format!("{prefix}{name}") };
    official("v7").into_iter().map(|t| (rename(&t.name), t)).map(|(name, t)| squeezed(t).named(name)).collect()
}

/// Returns the tensors as a `.pth`.
pub fn as_pth(tensors: &[Made]) -> Vec<u8> {
    let bytes: Vec<Vec<u8>> = tensors.iter().map(|t| singles(&t.numbers)).collect();
    let all: Vec<_> = tensors.iter().zip(&bytes).map(|(t, b)| (t.name.as_str(), DType::F32, &t.shape[..], &b[..])).collect();
    pth(&all)
}

pub fn write_plain(path: &Path, tensors: &[Made]) {
    let entry = |t: &Made| {
        let bytes = singles(&t.numbers);
        NewTensor {
            name: t.name.clone(),
            dtype: DType::F32,
            shape: t.shape.clone(),
            data: Box::new(move |out| out.write_all(&bytes).map_err(|e| Error::file(e.to_string()))),
        }
    };
    write_safetensors(path, &BTreeMap::new(), tensors.iter().map(entry).collect(), &mut |_, _| ()).unwrap();
}

/// Writes two shards and their index, as torch's `.bin` files if `bin` is true, otherwise as safetensors.
pub fn write_sharded(folder: &Path, tensors: &[Made], bin: bool) {
    let (stem, extension) = if bin { ("pytorch_model", "bin") } else { ("model", "safetensors") };
    let mut map = BTreeMap::new();
    for (i, half) in tensors.chunks(tensors.len().div_ceil(2)).enumerate() {
        let name = format!("{stem}-0000{}-of-00002.{extension}", i + 1);
        match bin {
            true => std::fs::write(folder.join(&name), as_pth(half)).unwrap(),
            false => write_plain(&folder.join(&name), half),
        }
        map.extend(half.iter().map(|t| (t.name.clone(), name.clone())));
    }
    let index = serde_json::json!({ "metadata": { "total_size": 1 }, "weight_map": map });
    std::fs::write(folder.join(format!("{stem}.{extension}.index.json")), index.to_string()).unwrap();
}
