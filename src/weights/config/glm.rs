//! Reads the `config.json` of a GLM, with the keys of ChatGLM's own code (`chatglm`) or of `transformers` (`glm`, `glm4`). For the vision models
//! `glm4v`, `glm46v` and `glmga`, reads only the text half. [`flash`] reads the further keys of `glm4_moe_lite`.
//!
//! A missing key has the default value of the program that defines the key: ChatGLM's own code or `transformers`. Sizes are an exception: ChatGLM's
//! defaults are not used, because no published model has them. If an unsupported option changes the formulas, the error names the option.

mod flash;

use super::keys::{ConfigKeys, missing, unsupported};
use super::{ModelConfig, Shapes, agree};
use crate::error::{Error, Result, short};
use crate::weights::Glm;
use crate::weights::glm::{DEFAULT_EOS, DEFAULT_THETA, FLASH, VISION};
use std::collections::BTreeMap;

/// The id of the default padding token in `transformers`. If the vocabulary is too small for this id, the model has no padding token.
const DEFAULT_PAD: u32 = 151329;

/// The values of a GLM's `config.json` that the loader uses.
#[derive(Debug)]
pub(in crate::weights) struct GlmConfig {
    pub glm: Glm,
    pub is_tied: bool,
    pub(super) width: SizeKey,
    pub(super) vocab: SizeKey,
    pub(super) n_layer: SizeKey,
    pub(super) n_ffn: SizeKey,
}

/// A key of the configuration and its value, which is a size.
#[derive(Debug, Clone, Copy)]
pub(super) struct SizeKey(pub &'static str, pub usize);

/// The types of vision models whose text half is supported. The text half of each such model has the type [`VISION_TEXT`].
const VISION_TYPES: [&str; 3] = [VISION, "glm46v", "glmga"];
const VISION_TEXT: &str = "glm4v_text";

pub(in crate::weights) fn is_glm(model_type: &str) -> bool {
    crate::weights::glm::MODEL_TYPES.contains(&model_type) || VISION_TYPES.contains(&model_type)
}

impl ModelConfig for GlmConfig {
    fn is_tied(&self) -> bool {
        self.is_tied
    }

    fn glm(&self) -> Option<&Glm> {
        Some(&self.glm)
    }

    /// Checks the shapes and returns an empty map. The whole configuration of a GLM is in the metadata already, under the key `GLM`.
    fn metadata(&self, shapes: &Shapes<'_>) -> Result<BTreeMap<String, String>> {
        self.check(shapes).map(|()| BTreeMap::new())
    }
}

impl GlmConfig {
    /// Reads a configuration.
    ///
    /// # Errors
    ///
    /// `Model` if a key is missing or has a wrong value, or if the variant is not supported.
    pub(in crate::weights) fn read(keys: ConfigKeys) -> Result<GlmConfig> {
        let model_type = keys.text("model_type")?;
        let is_vision = model_type.is_some_and(|found| VISION_TYPES.contains(&found));
        let refused = if is_vision { "quantization_config" } else { "vision_config" };
        for key in [refused, "quantization_config", "pre_seq_len"] {
            if keys.get(key).is_some() {
                return Err(unsupported(format!("the configuration has the key {key}, which is not supported")));
            }
        }
        // Older releases of `transformers` wrote the keys of a vision model's text half at the top level.
        let whole = keys;
        let keys = if is_vision { keys.object("text_config")?.unwrap_or(keys) } else { keys };
        // GLM-4.7-Flash runs without its layers that predict further tokens, so its configuration may have this key.
        let further = Some("num_nextn_predict_layers").filter(|_| model_type != Some(FLASH));
        for key in further.into_iter().chain(["quantization_bit"]) {
            if let Some(n) = keys.number(key)?.filter(|n| *n != 0.0) {
                return Err(unsupported(format!("the configuration sets {key} to {n}, expected 0 or no such key")));
            }
        }
        if let Some(act) = keys.text("hidden_act")?.filter(|act| !["silu", "swish"].contains(act)) {
            return Err(unsupported(format!("the configuration sets hidden_act to {}, expected silu", short(act, 64))));
        }
        // Two older models with other formulas have the same types: ChatGLM-6B `chatglm`, GLM-10B `glm`. These keys identify them.
        keys.switches(&[("position_encoding_2d", false, false), ("block_position_encoding", false, false)])?;
        let rope = Rope::read(keys)?;
        let config = match model_type {
            Some("chatglm") => chatglm(keys),
            Some(FLASH) => flash::read(keys, &rope),
            Some(_) if is_vision => text_half(keys, whole, rope),
            Some(other) => transformers(keys, other, rope),
            None => Err(missing("model_type")),
        }?;
        Ok(GlmConfig { glm: config.glm.check()?, ..config })
    }

    /// Checks that the tensors' sizes equal the sizes in this configuration.
    pub(super) fn check(&self, shapes: &Shapes) -> Result<()> {
        let emb = "model.embed_tokens.weight";
        let (up, n_parts) = match &self.glm.flash {
            Some(flash) => {
                let dense = flash.dense.iter().position(|dense| *dense).unwrap_or(0);
                (format!("model.layers.{dense}.mlp.gate_proj.weight"), 1)
            }
            None => ("model.layers.0.mlp.gate_up_proj.weight".to_string(), 2),
        };
        let is = |SizeKey(key, configured): SizeKey, found: Option<usize>, place: &str| agree(key, Some(configured as u64), found, place);
        let table = shapes.matrix(emb);
        is(self.width, table.map(|s| s[1]), emb)?;
        is(self.vocab, table.map(|s| s[0]), emb)?;
        is(self.n_layer, shapes.n_layer(), "the file")?;
        is(self.n_ffn, shapes.matrix(&up).map(|s| s[0] / n_parts), &up)
    }
}

/// Reads a configuration with the keys of ChatGLM's own code.
fn chatglm(keys: ConfigKeys) -> Result<GlmConfig> {
    keys.switches(&[
        ("multi_query_attention", true, false),
        ("interleaved_qkv", false, false),
        ("add_bias_linear", false, false),
        ("rmsnorm", true, true),
        ("post_layer_norm", true, true),
        ("apply_residual_connection_post_layernorm", false, false),
        ("original_rope", true, true),
    ])?;
    let needed = |key: &'static str| keys.size(key)?.map(|n| SizeKey(key, n)).ok_or_else(|| missing(key));
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
        flash: None,
    };
    let is_other = keys.get("num_layers").is_none() && keys.get("num_hidden_layers").is_some();
    let n_layer = if is_other { "num_hidden_layers" } else { "num_layers" };
    Ok(GlmConfig {
        glm,
        is_tied: keys.flag("tie_word_embeddings")?.unwrap_or(false),
        width,
        vocab: needed("padded_vocab_size")?,
        n_layer: needed(n_layer)?,
        n_ffn: needed("ffn_hidden_size")?,
    })
}

/// Reads a configuration with the keys of `transformers`. The keys of rotary embeddings are already in `rope`.
fn transformers(keys: ConfigKeys, model_type: &str, rope: Rope) -> Result<GlmConfig> {
    let or = |key: &'static str, default: usize| Ok::<_, Error>(SizeKey(key, keys.size(key)?.unwrap_or(default)));
    let (width, heads) = (or("hidden_size", 4096)?, or("num_attention_heads", 32)?);
    let vocab = or("vocab_size", 151552)?;
    // Without head_dim, a head has 128 channels at any width. If head_dim is null, the heads share the width equally, as in Llama.
    let head_size = if keys.is_null("head_dim") { divided(width, heads)? } else { or("head_dim", 128)?.1 };
    let has = |id: u32| (id as usize) < vocab.1;
    let glm = Glm {
        model_type: model_type.into(),
        n_head: heads.1,
        n_kv_head: or("num_key_value_heads", 2)?.1,
        head_size,
        rotary_size: rope.rotary_size(head_size, 0.5)?,
        rope_theta: rope.theta,
        rms_norm_eps: keys.number("rms_norm_eps")?.unwrap_or(1.5625e-7) as f32,
        attention_bias: keys.flag("attention_bias")?.unwrap_or(true),
        max_context: keys.context("max_position_embeddings")?.unwrap_or(131072),
        eos: keys.ids("eos_token_id")?.unwrap_or_else(|| DEFAULT_EOS.into_iter().filter(|id| has(*id)).collect()),
        pad: if keys.is_null("pad_token_id") { None } else { one(keys, "pad_token_id")?.or(Some(DEFAULT_PAD).filter(|id| has(*id))) },
        labels: keys.labels()?,
        flash: None,
    };
    let is_tied = keys.flag("tie_word_embeddings")?.unwrap_or(false);
    let (n_layer, n_ffn) = (or("num_hidden_layers", 40)?, or("intermediate_size", 13696)?);
    Ok(GlmConfig { glm, is_tied, width, vocab, n_layer, n_ffn })
}

/// Reads the text half of a vision model. `keys` are the keys of the text half, `whole` the keys at the top level of the file. As in the code of
/// `transformers`, a text half differs from a `glm4` in three ways. The number of channels of a head is the width divided by the number of heads. All
/// channels of a head are rotated by default. The projections of q, k and v always have biases.
fn text_half(keys: ConfigKeys, whole: ConfigKeys, rope: Rope) -> Result<GlmConfig> {
    if let Some(found) = keys.text("model_type")?.filter(|found| *found != VISION_TEXT && !VISION_TYPES.contains(found)) {
        return Err(unsupported(format!("expected model_type {VISION_TEXT} in text_config, found {}", short(found, 64))));
    }
    let or = |key: &'static str, default: usize| Ok::<_, Error>(SizeKey(key, keys.size(key)?.unwrap_or(default)));
    let (width, heads) = (or("hidden_size", 4096)?, or("num_attention_heads", 32)?);
    let head_size = divided(width, heads)?;
    if let Some(found) = keys.size("head_dim")?.filter(|found| *found != head_size) {
        return Err(unsupported(format!("expected head_dim {head_size}, the width divided by the number of heads, found {found}")));
    }
    let rotary_size = rope.rotary_size(head_size, 1.0)?;
    if let Some(sections) = &rope.sections
        && sections.iter().map(|n| *n as usize).sum::<usize>() * 2 != rotary_size
    {
        let text = format!("expected a mrope_section with the sum {}, half of the rotated components, found {sections:?}", rotary_size / 2);
        return Err(Error::model(text));
    }
    let vocab = or("vocab_size", 151552)?;
    let has = |id: &u32| (*id as usize) < vocab.1;
    let ids = |key| Ok::<_, Error>(keys.ids(key)?.or(whole.ids(key)?));
    let glm = Glm {
        model_type: VISION.into(),
        n_head: heads.1,
        n_kv_head: if keys.is_null("num_key_value_heads") { heads.1 } else { or("num_key_value_heads", 2)?.1 },
        head_size,
        rotary_size,
        rope_theta: rope.theta,
        rms_norm_eps: keys.number("rms_norm_eps")?.unwrap_or(1e-5) as f32,
        attention_bias: true,
        max_context: keys.context("max_position_embeddings")?.unwrap_or(32768),
        eos: ids("eos_token_id")?.unwrap_or_else(|| DEFAULT_EOS.into_iter().filter(has).collect()),
        pad: ids("pad_token_id")?.and_then(|ids| ids.first().copied()),
        labels: vec![],
        flash: None,
    };
    let is_tied = [keys, whole].into_iter().map(|keys| keys.flag("tie_word_embeddings")).find_map(Result::transpose).transpose()?;
    let (n_layer, n_ffn) = (or("num_hidden_layers", 40)?, or("intermediate_size", 13696)?);
    Ok(GlmConfig { glm, is_tied: is_tied.unwrap_or(false), width, vocab, n_layer, n_ffn })
}

/// The settings of rotary embeddings in `transformers`. From version 5 on, a file stores these settings in an object. Older files have
/// top-level keys. A key in the object takes precedence.
pub(super) struct Rope {
    pub(super) theta: f64,
    /// The fraction of a head's channels that are rotated. `None` if the key is missing.
    factor: Option<f64>,
    /// The numbers of rotated pairs that use an image's position in time, height and width. A text token has the same position in all three, so these
    /// numbers have no effect on texts. `None` if the key is missing.
    sections: Option<Vec<u32>>,
}

impl Rope {
    fn read(keys: ConfigKeys) -> Result<Rope> {
        // `rope_scaling` is the older name of `rope_parameters` and takes precedence, as in `transformers`.
        let objects = [keys.object("rope_scaling")?, keys.object("rope_parameters")?];
        for object in objects.into_iter().flatten() {
            for key in ["rope_type", "type"] {
                if let Some(kind) = object.text(key)?.filter(|kind| *kind != "default") {
                    return Err(unsupported(format!(
                        "the configuration sets {key} of the rotary positions to {}, expected default",
                        short(kind, 64)
                    )));
                }
            }
        }
        let number = |key: &str| {
            let places = objects.into_iter().flatten().chain([keys]);
            places.map(|place| place.number(key)).find_map(Result::transpose).transpose()
        };
        let sections = objects.into_iter().flatten().map(|object| object.ids("mrope_section")).find_map(Result::transpose).transpose()?;
        let (theta, factor) = (number("rope_theta")?, number("partial_rotary_factor")?);
        Ok(Rope { theta: theta.unwrap_or(DEFAULT_THETA), factor, sections })
    }

    /// Returns the number of rotated channels of a head with `head_size` channels, rounded down, as by Python's `int()`. `default` is the rotated
    /// fraction of a head if the key `partial_rotary_factor` is missing.
    pub(super) fn rotary_size(&self, head_size: usize, default: f64) -> Result<usize> {
        let factor = self.factor.unwrap_or(default);
        if !(factor > 0.0 && factor <= 1.0) {
            return Err(Error::model(format!(
                "the configuration sets partial_rotary_factor to {factor}, expected a number above 0 and at most 1"
            )));
        }
        Ok((head_size as f64 * factor) as usize)
    }
}

/// Returns the width divided by the number of heads, or an error if the result is not a whole number.
fn divided(width: SizeKey, heads: SizeKey) -> Result<usize> {
    match width.1.is_multiple_of(heads.1) {
        true => Ok(width.1 / heads.1),
        false => Err(Error::model(format!(
            "the configuration sets {} to {}, which is not a multiple of {} ({})",
            width.0, width.1, heads.0, heads.1
        ))),
    }
}

/// Returns the first id in the value of a key, or `None` if the key is missing or the list is empty.
fn one(keys: ConfigKeys, key: &str) -> Result<Option<u32>> {
    Ok(keys.ids(key)?.and_then(|ids| ids.first().copied()))
}

#[cfg(test)]
mod tests;
