//! What a GLM's `config.json` says, in the words of ChatGLM's own code (`chatglm`) or of `transformers` (`glm`, `glm4`).
//!
//! A key that is missing means what the code that the file belongs to takes it for; but no size of ChatGLM's is guessed, because
//! the defaults in its code are those of none of its models. What changes the formulas and does not run is refused by name.

use super::keys::{Keys, missing, unsupported};
use super::{ModelConfig, Shapes, agree};
use crate::error::{Error, Result, short};
use crate::weights::Glm;
use crate::weights::glm::{DEFAULT_EOS, DEFAULT_THETA};
use std::collections::BTreeMap;

/// Of `transformers`; a vocabulary that has no such id has no such default, nor that of `DEFAULT_EOS`.
const DEFAULT_PAD: u32 = 151329;

/// All that is used of it.
#[derive(Debug)]
pub(in crate::low_level::weights) struct Said {
    pub glm: Glm,
    pub is_tied: bool,
    width: Size,
    vocab: Size,
    n_layer: Size,
    n_ffn: Size,
}

/// A size, with the key that said it.
#[derive(Debug, Clone, Copy)]
struct Size(&'static str, usize);

/// Whether a configuration of this type is read here.
pub(in crate::low_level::weights) fn is_glm(model_type: &str) -> bool {
    crate::weights::glm::MODEL_TYPES.contains(&model_type)
}

impl ModelConfig for Said {
    fn is_tied(&self) -> bool {
        self.is_tied
    }

    fn glm(&self) -> Option<&Glm> {
        Some(&self.glm)
    }

    /// None: the metadata of a GLM are its whole configuration.
    fn metadata(&self, shapes: &Shapes<'_>) -> Result<BTreeMap<String, String>> {
        self.check(shapes).map(|()| BTreeMap::new())
    }
}

impl Said {
    pub(in crate::low_level::weights) fn read(keys: Keys) -> Result<Said> {
        for key in ["vision_config", "quantization_config", "pre_seq_len"] {
            if keys.get(key).is_some() {
                return Err(unsupported(format!("expected no {key}, found one")));
            }
        }
        for key in ["quantization_bit", "num_nextn_predict_layers"] {
            if let Some(n) = keys.number(key)?.filter(|n| *n != 0.0) {
                return Err(unsupported(format!("expected {key} 0 or none, found {n}")));
            }
        }
        if let Some(act) = keys.text("hidden_act")?.filter(|act| !["silu", "swish"].contains(act)) {
            return Err(unsupported(format!("expected the hidden_act silu, found {}", short(act, 64))));
        }
        // The first ChatGLM-6B is a `chatglm` too, and GLM-10B a `glm`.
        keys.switches(&[("position_encoding_2d", false, false), ("block_position_encoding", false, false)])?;
        let rope = Rope::read(keys)?;
        let said = match keys.text("model_type")? {
            Some("chatglm") => chatglm(keys),
            Some(other) => transformers(keys, other, rope),
            None => Err(missing("model_type")),
        }?;
        Ok(Said { glm: said.glm.check()?, ..said })
    }

    /// That the tensors have the sizes of this configuration.
    pub(super) fn check(&self, shapes: &Shapes) -> Result<()> {
        let (emb, up) = ("model.embed_tokens.weight", "model.layers.0.mlp.gate_up_proj.weight");
        let is = |Size(key, said): Size, found: Option<usize>, place: &str| agree(key, Some(said as u64), found, place);
        let table = shapes.matrix(emb);
        is(self.width, table.map(|s| s[1]), emb)?;
        is(self.vocab, table.map(|s| s[0]), emb)?;
        is(self.n_layer, shapes.n_layer(), "the number of layers")?;
        is(self.n_ffn, shapes.matrix(up).map(|s| s[0] / 2), up)
    }
}

fn chatglm(keys: Keys) -> Result<Said> {
    keys.switches(&[
        ("multi_query_attention", true, false),
        ("interleaved_qkv", false, false),
        ("add_bias_linear", false, false),
        ("rmsnorm", true, true),
        ("post_layer_norm", true, true),
        ("apply_residual_connection_post_layernorm", false, false),
        ("original_rope", true, true),
    ])?;
    let needed = |key: &'static str| keys.size(key)?.map(|n| Size(key, n)).ok_or_else(|| missing(key));
    let (width, heads) = (needed("hidden_size")?, needed("num_attention_heads")?);
    let head_size = match keys.size("kv_channels")? {
        Some(size) => size,
        None => divided(width, heads)?,
    };
    let ratio = keys.number("rope_ratio")?.unwrap_or(1.0);
    let glm = Glm {
        model_type: "chatglm".into(),
        n_head: heads.1,
        n_kv_head: needed("multi_query_group_num")?.1,
        head_size,
        rotary_size: head_size / 2,
        rope_theta: DEFAULT_THETA * ratio,
        rms_norm_eps: keys.number("layernorm_epsilon")?.unwrap_or(1e-5) as f32,
        attention_bias: keys.flag("add_qkv_bias")?.unwrap_or(false),
        max_context: keys.context("seq_length")?.ok_or_else(|| missing("seq_length"))?,
        eos: keys.ids("eos_token_id")?.unwrap_or_default(),
        pad: one(keys, "pad_token_id")?,
        labels: keys.labels()?,
    };
    let is_other = keys.get("num_layers").is_none() && keys.get("num_hidden_layers").is_some();
    let n_layer = if is_other { "num_hidden_layers" } else { "num_layers" };
    Ok(Said {
        glm,
        is_tied: keys.flag("tie_word_embeddings")?.unwrap_or(false),
        width,
        vocab: needed("padded_vocab_size")?,
        n_layer: needed(n_layer)?,
        n_ffn: needed("ffn_hidden_size")?,
    })
}

fn transformers(keys: Keys, model_type: &str, rope: Rope) -> Result<Said> {
    let or = |key: &'static str, default: usize| Ok::<_, Error>(Size(key, keys.size(key)?.unwrap_or(default)));
    let (width, heads) = (or("hidden_size", 4096)?, or("num_attention_heads", 32)?);
    let vocab = or("vocab_size", 151552)?;
    // Missing is 128, whatever the width; null is what Llama has.
    let head_size = if keys.is_null("head_dim") { divided(width, heads)? } else { or("head_dim", 128)?.1 };
    let has = |id: u32| (id as usize) < vocab.1;
    let glm = Glm {
        model_type: model_type.into(),
        n_head: heads.1,
        n_kv_head: or("num_key_value_heads", 2)?.1,
        head_size,
        rotary_size: rope.rotary_size(head_size)?,
        rope_theta: rope.theta,
        rms_norm_eps: keys.number("rms_norm_eps")?.unwrap_or(1.5625e-7) as f32,
        attention_bias: keys.flag("attention_bias")?.unwrap_or(true),
        max_context: keys.context("max_position_embeddings")?.unwrap_or(131072),
        eos: keys.ids("eos_token_id")?.unwrap_or_else(|| DEFAULT_EOS.into_iter().filter(|id| has(*id)).collect()),
        pad: if keys.is_null("pad_token_id") { None } else { one(keys, "pad_token_id")?.or(Some(DEFAULT_PAD).filter(|id| has(*id))) },
        labels: keys.labels()?,
    };
    let is_tied = keys.flag("tie_word_embeddings")?.unwrap_or(false);
    let (n_layer, n_ffn) = (or("num_hidden_layers", 40)?, or("intermediate_size", 13696)?);
    Ok(Said { glm, is_tied, width, vocab, n_layer, n_ffn })
}

/// How `transformers` says what turns: in an object from its version 5 on, and before in keys of their own. The object wins.
struct Rope {
    theta: f64,
    /// R / D.
    factor: f64,
}

impl Rope {
    fn read(keys: Keys) -> Result<Rope> {
        // In this order, because an older file's `rope_scaling` becomes the `rope_parameters` of today.
        let objects = [keys.object("rope_scaling")?, keys.object("rope_parameters")?];
        for object in objects.into_iter().flatten() {
            for key in ["rope_type", "type"] {
                if let Some(kind) = object.text(key)?.filter(|kind| *kind != "default") {
                    return Err(unsupported(format!("expected the {key} default of RoPE, found {}", short(kind, 64))));
                }
            }
        }
        let number = |key: &str| {
            let places = objects.into_iter().flatten().chain([keys]);
            places.map(|place| place.number(key)).find_map(Result::transpose).transpose()
        };
        Ok(Rope { theta: number("rope_theta")?.unwrap_or(DEFAULT_THETA), factor: number("partial_rotary_factor")?.unwrap_or(0.5) })
    }

    /// R, rounded down as `int()` does.
    fn rotary_size(&self, head_size: usize) -> Result<usize> {
        if !(self.factor > 0.0 && self.factor <= 1.0) {
            return Err(Error::model(format!("expected a partial_rotary_factor from 0 to 1, found {}", self.factor)));
        }
        Ok((head_size as f64 * self.factor) as usize)
    }
}

fn divided(width: Size, heads: Size) -> Result<usize> {
    match width.1.is_multiple_of(heads.1) {
        true => Ok(width.1 / heads.1),
        false => Err(Error::model(format!("expected a {} that {} divides, found {} and {}", width.0, heads.0, width.1, heads.1))),
    }
}

fn one(keys: Keys, key: &str) -> Result<Option<u32>> {
    Ok(keys.ids(key)?.and_then(|ids| ids.first().copied()))
}

#[cfg(test)]
mod tests;
