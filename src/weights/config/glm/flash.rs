//! Reads the `config.json` of GLM-4.7-Flash (`glm4_moe_lite`), whose keys and defaults are defined by `transformers`.

use super::super::keys::{ConfigKeys, unsupported};
use super::{GlmConfig, Rope, SizeKey};
use crate::error::{Error, Result, short};
use crate::weights::Glm;
use crate::weights::glm::{FLASH, Flash};

/// The id that ends a text if `eos_token_id` is missing. Published files have the key.
const DEFAULT_EOS: u32 = 1;

/// Reads a configuration. The keys of rotary embeddings are already in `rope`.
///
/// # Errors
///
/// `Model` if a key has a wrong value, or if the variant is not supported.
pub(super) fn read(keys: ConfigKeys, rope: &Rope) -> Result<GlmConfig> {
    keys.switches(&[("rope_interleave", true, true), ("attention_bias", false, false)])?;
    for (key, wanted) in [("scoring_func", "sigmoid"), ("topk_method", "noaux_tc")] {
        if let Some(found) = keys.text(key)?.filter(|found| *found != wanted) {
            return Err(unsupported(format!("the configuration sets {key} to {}, expected {wanted}", short(found, 64))));
        }
    }
    let or = |key: &'static str, default: usize| Ok::<_, Error>(SizeKey(key, keys.size(key)?.unwrap_or(default)));
    let (width, vocab, n_layer) = (or("hidden_size", 2048)?, or("vocab_size", 154880)?, or("num_hidden_layers", 47)?);
    let n_head = or("num_attention_heads", 20)?.1;
    // `transformers` also accepts other models' names for two of the keys: `head_dim` and `num_local_experts`.
    let (rope_size, n_experts) = (keys.size("head_dim")?.unwrap_or(64), keys.size("num_local_experts")?.unwrap_or(64));
    let (rope_size, n_experts) = (or("qk_rope_head_dim", rope_size)?.1, or("n_routed_experts", n_experts)?.1);
    let nope_size = or("qk_nope_head_dim", 192)?.1;
    let head_size = nope_size + rope_size;
    let same = [
        ("num_key_value_heads", n_head),
        ("head_dim", rope_size),
        ("qk_head_dim", head_size),
        ("num_local_experts", n_experts),
        ("moe_layer_freq", 1),
    ];
    for (key, expected) in same {
        if let Some(found) = keys.size(key)?.filter(|found| *found != expected) {
            return Err(unsupported(format!("the configuration sets {key} to {found}, expected {expected}")));
        }
    }
    let rotary_size = rope.rotary_size(rope_size, 1.0)?;
    if rotary_size != rope_size {
        return Err(unsupported(format!("expected all {rope_size} channels of qk_rope_head_dim to be rotated, found {rotary_size}")));
    }
    let flash = Flash {
        q_rank: if keys.is_null("q_lora_rank") { None } else { Some(or("q_lora_rank", 768)?.1) },
        kv_rank: or("kv_lora_rank", 512)?.1,
        nope_size,
        rope_size,
        value_size: or("v_head_dim", 256)?.1,
        n_experts,
        n_used: or("num_experts_per_tok", 4)?.1,
        n_groups: or("n_group", 1)?.1,
        n_used_groups: or("topk_group", 1)?.1,
        n_shared: or("n_shared_experts", 1)?.1,
        expert_ffn: or("moe_intermediate_size", 1536)?.1,
        scale: keys.number("routed_scaling_factor")?.unwrap_or(1.8) as f32,
        normalises: keys.flag("norm_topk_prob")?.unwrap_or(true),
        dense: dense(keys, n_layer)?,
    };
    let glm = Glm {
        model_type: FLASH.into(),
        n_head,
        n_kv_head: n_head,
        head_size,
        rotary_size,
        rope_theta: rope.theta,
        rms_norm_eps: keys.number("rms_norm_eps")?.unwrap_or(1e-5) as f32,
        attention_bias: false,
        max_context: keys.context("max_position_embeddings")?.unwrap_or(202752),
        eos: eos(keys, vocab.1)?,
        pad: keys.ids("pad_token_id")?.and_then(|ids| ids.first().copied()),
        labels: keys.labels()?,
        flash: Some(flash),
    };
    let is_tied = keys.flag("tie_word_embeddings")?.unwrap_or(false);
    Ok(GlmConfig { glm, is_tied, width, vocab, n_layer, n_ffn: or("intermediate_size", 10240)? })
}

/// Returns for each layer whether its mlp is dense. `mlp_layer_types` lists the layers. Without this key, the first `first_k_dense_replace` layers
/// are dense, or one layer if this key is missing, too.
fn dense(keys: ConfigKeys, n_layer: SizeKey) -> Result<Vec<bool>> {
    let Some(listed) = keys.get("mlp_layer_types") else {
        let first = keys.count("first_k_dense_replace")?.unwrap_or(1);
        return Ok((0..n_layer.1).map(|layer| layer < first).collect());
    };
    let unfit = || {
        let expected = format!("a list of {} words, each dense or sparse,", n_layer.1);
        let found = short(&listed.to_string(), 64);
        Error::model(format!("expected {expected} as mlp_layer_types of the configuration, found {found}"))
    };
    let one = |kind: &serde_json::Value| match kind.as_str() {
        Some("dense") => Some(true),
        Some("sparse") => Some(false),
        _ => None,
    };
    let all: Option<Vec<bool>> = listed.as_array().and_then(|list| list.iter().map(one).collect());
    all.filter(|all| all.len() == n_layer.1).ok_or_else(unfit)
}

/// Returns the ids that end a text. The value null means that no id ends a text.
fn eos(keys: ConfigKeys, n_vocab: usize) -> Result<Vec<u32>> {
    let default = Some(DEFAULT_EOS).filter(|id| !keys.is_null("eos_token_id") && (*id as usize) < n_vocab);
    Ok(keys.ids("eos_token_id")?.unwrap_or_else(|| default.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(more: Value) -> Result<GlmConfig> {
        let mut config = json!({"model_type": "glm4_moe_lite"});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        GlmConfig::read(ConfigKeys::of(config.as_object().unwrap()))
    }

    #[test]
    fn defaults_are_those_of_transformers() {
        let config = read(json!({})).unwrap();
        let glm = &config.glm;
        assert_eq!((config.width.1, config.vocab.1, config.n_layer.1, config.n_ffn.1), (2048, 154880, 47, 10240));
        assert_eq!((glm.n_head, glm.n_kv_head, glm.head_size, glm.rotary_size), (20, 20, 256, 64));
        assert_eq!((glm.rope_theta, glm.rms_norm_eps, glm.max_context, config.is_tied), (1e4, 1e-5, 202752, false));
        assert_eq!((glm.eos.as_slice(), glm.pad, glm.attention_bias), (&[1][..], None, false));
        let flash = Flash {
            q_rank: Some(768),
            kv_rank: 512,
            nope_size: 192,
            rope_size: 64,
            value_size: 256,
            n_experts: 64,
            n_used: 4,
            n_groups: 1,
            n_used_groups: 1,
            n_shared: 1,
            expert_ffn: 1536,
            scale: 1.8,
            normalises: true,
            dense: (0..47).map(|layer| layer == 0).collect(),
        };
        assert_eq!(glm.flash.as_ref().unwrap(), &flash);
        assert_eq!(&Glm::parse(&glm.to_json()).unwrap(), glm);
    }

    #[test]
    fn published_keys_are_read() {
        let published = json!({"num_nextn_predict_layers": 1, "rope_theta": 1000000, "rope_scaling": null, "partial_rotary_factor": 1.0,
            "eos_token_id": [154820, 154827, 154829], "pad_token_id": 154820, "first_k_dense_replace": 1, "topk_method": "noaux_tc",
            "num_key_value_heads": 20, "rope_interleave": true, "hidden_act": "silu"});
        let glm = read(published).unwrap().glm;
        assert_eq!((glm.rope_theta, glm.eos.as_slice(), glm.pad), (1e6, &[154820, 154827, 154829][..], Some(154820)));
        let flash = |more| read(more).unwrap().glm.flash.unwrap();
        assert_eq!(flash(json!({"q_lora_rank": null})).q_rank, None);
        assert_eq!(flash(json!({"num_hidden_layers": 3, "first_k_dense_replace": 2})).dense, [true, true, false]);
        assert_eq!(flash(json!({"num_hidden_layers": 2, "first_k_dense_replace": 0})).dense, [false, false]);
        let listed = json!({"num_hidden_layers": 3, "first_k_dense_replace": 3, "mlp_layer_types": ["sparse", "dense", "sparse"]});
        assert_eq!(flash(listed).dense, [false, true, false]);
        let grouped = flash(json!({"n_group": 8, "topk_group": 2, "num_experts_per_tok": 16, "norm_topk_prob": false}));
        assert_eq!((grouped.n_groups, grouped.n_used_groups, grouped.n_used, grouped.normalises), (8, 2, 16, false));
        assert_eq!(flash(json!({"head_dim": 32, "num_local_experts": 8})).rope_size, 32);
        assert!(read(json!({"eos_token_id": null})).unwrap().glm.eos.is_empty());
    }

    #[test]
    fn unsupported_variants_are_refused() {
        let cases = [
            (json!({"attention_bias": true}), "sets attention_bias to true, expected false"),
            (json!({"rope_interleave": false}), "sets rope_interleave to false, expected true"),
            (json!({"hidden_act": "gelu"}), "sets hidden_act to gelu, expected silu"),
            (json!({"quantization_config": {}}), "has the key quantization_config"),
            (json!({"rope_parameters": {"rope_type": "yarn"}}), "sets rope_type of the rotary positions to yarn"),
            (json!({"partial_rotary_factor": 0.5}), "expected all 64 channels of qk_rope_head_dim to be rotated, found 32"),
            (json!({"scoring_func": "softmax"}), "sets scoring_func to softmax, expected sigmoid"),
            (json!({"num_key_value_heads": 4}), "sets num_key_value_heads to 4, expected 20"),
            (json!({"head_dim": 256, "qk_rope_head_dim": 64}), "sets head_dim to 256, expected 64"),
            (json!({"kv_lora_rank": 500}), "expected a multiple of 8 from 8 to 65536 as kv_rank of latent attention, found 500"),
            (json!({"v_head_dim": 4}), "as value_size of latent attention, found 4"),
            (json!({"n_group": 3}), "found 64 experts in 3 groups"),
            (json!({"n_group": 64}), "a token to use 1 to 64 groups of at least 2 experts, found 1 groups of 1"),
            (json!({"topk_group": 2}), "a token to use 1 to 1 groups"),
            (json!({"n_group": 16, "num_experts_per_tok": 5}), "expected a token to use 1 to 4 experts, found 5"),
            (json!({"num_experts_per_tok": 17}), "expected a token to use 1 to 16 experts, found 17"),
            (json!({"n_routed_experts": 2048}), "expected 1 to 1024 experts"),
            (json!({"n_shared_experts": 0}), "expected a whole number from 1 to 16777216 as n_shared_experts"),
            (json!({"num_hidden_layers": 1000}), "expected 1 to 256 layers, found 1000"),
            (json!({"num_hidden_layers": 1, "mlp_layer_types": ["moe"]}), "expected a list of 1 words, each dense or sparse, as"),
            (json!({"mlp_layer_types": ["dense"]}), "expected a list of 47 words"),
            (json!({"first_k_dense_replace": -1}), "expected a whole number from 0 to 16777216 as first_k_dense_replace"),
            (json!({"moe_intermediate_size": 16777216}), "expected keys of at most 2048 channels and experts of at most 131072"),
            (json!({"routed_scaling_factor": 0}), "expected a factor of the experts above 0"),
        ];
        for (more, expected) in cases {
            let text = read(more).err().map_or("accepted".to_string(), |e| e.to_string());
            assert!(text.contains(expected) && !text.contains('\n'), "{expected}: {text}");
        }
        // Layers that predict further tokens are ignored in this model only.
        let other = json!({"model_type": "glm4", "num_nextn_predict_layers": 1});
        assert!(GlmConfig::read(ConfigKeys::of(other.as_object().unwrap())).is_err());
    }

    #[test]
    fn settings_of_experts_and_the_model_type_agree() {
        let glm = read(json!({})).unwrap().glm;
        for other in [Glm { flash: None, ..glm.clone() }, Glm { model_type: "glm4".into(), ..glm.clone() }] {
            let text = Glm::parse(&other.to_json()).unwrap_err().to_string();
            assert!(text.contains("expected settings of experts with the model_type glm4_moe_lite only"), "{text}");
        }
        assert!(!Glm { flash: None, ..glm }.to_json().contains("flash"));
    }
}
