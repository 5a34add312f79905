//! The names of GLM. The names in `transformers` are canonical. Names of ChatGLM's own code are converted, and its fused tensors are split into q, k
//! and v. [`flash`](super::flash) splits the fused tensors of GLM-4.7-Flash.
//!
//! Each of q, k and v is a range of the fused tensor's rows, so no elements are copied. Some files have a table of rotary frequencies (`inv_freq`).
//! This table is left out, because it is rounded and ignores `rope_ratio`.

use super::{NameStyle, bare, flash, with_part_renamed};
use crate::error::{Error, Result};
use crate::weights::glm::{OF_ANOTHER, VISION};
use crate::weights::located::LocatedTensor;
use crate::weights::{Glm, TensorSlot};

/// Names outside of layers, without prefixes, as pairs (name in the file, canonical name).
const TOP: [(&str, &str); 10] = [
    ("embedding.word_embeddings.weight", "model.embed_tokens.weight"),
    ("encoder.final_layernorm.weight", "model.norm.weight"),
    ("output_layer.weight", "lm_head.weight"),
    ("classifier_head.weight", "score.weight"),
    ("classifier_head.bias", "score.bias"),
    ("embed_tokens.weight", "model.embed_tokens.weight"),
    ("norm.weight", "model.norm.weight"),
    ("lm_head.weight", "lm_head.weight"),
    ("score.weight", "score.weight"),
    ("score.bias", "score.bias"),
];
/// Prefixes of names within a layer, as pairs (ChatGLM's prefix, canonical prefix). Norms have the same names in both styles.
const PARTS: [(&str, &str); 3] =
    [("self_attention.dense.", "self_attn.o_proj."), ("mlp.dense_h_to_4h.", "mlp.gate_up_proj."), ("mlp.dense_4h_to_h.", "mlp.down_proj.")];
const FUSED: &str = "self_attention.query_key_value.";
/// The prefixes of the inner model's names: `transformer.` in ChatGLM's own code, `language_model.` in vision models of `transformers`.
const INNER: [&str; 2] = ["transformer.", "language_model."];
/// The first parts of names that only ChatGLM's own code uses.
const OWN: [&str; 4] = ["embedding.", "encoder.", "output_layer.", "classifier_head."];

/// Returns true if the tensors have names that only GLMs have. Names of a LoRA adapter, or names that other models also have, are not enough.
pub(in crate::weights) fn recognises(tensors: &[LocatedTensor]) -> bool {
    let any = |wanted: &str| tensors.iter().any(|t| in_layer(bare(&t.name, &INNER)).is_some_and(|(_, part)| part == wanted));
    let is_table = |t: &LocatedTensor| bare(&t.name, &INNER) == TOP[0].0;
    tensors.iter().any(is_table)
        || any("self_attention.query_key_value.weight")
        || (any("self_attn.q_proj.weight") && any("mlp.gate_up_proj.weight"))
        || (any("self_attn.kv_a_proj_with_mqa.weight") && any("mlp.gate.e_score_correction_bias"))
}

/// Returns the tensors under their canonical names, and the style of the names in the file. `glm` is the configuration. Leaves out the vision encoder
/// of a supported vision model.
///
/// # Errors
///
/// `File` if the configuration is missing. `Model` if a vision encoder contradicts the configuration, if no tensor belongs to a GLM, or if a
/// fused tensor has a wrong shape.
pub(in crate::weights) fn slots(tensors: Vec<LocatedTensor>, glm: Option<&Glm>) -> Result<(Vec<TensorSlot>, NameStyle)> {
    let Some(glm) = glm else {
        let text = "the config.json of this GLM is missing: the shapes of the tensors determine neither the number of heads nor the rotary positions";
        return Err(Error::file(text).hint("download config.json into the same folder"));
    };
    let (slots, style, n_known) = renamed(tensors, glm).map_err(|e| e.hint(OF_ANOTHER))?;
    if n_known == 0 {
        let first = slots.first().map_or(String::new(), |slot| format!("; the first tensor is {}", slot.located.name));
        let text = format!("the configuration describes a GLM, but the file has no tensors of a GLM{first}");
        return Err(Error::model(text).hint(OF_ANOTHER));
    }
    Ok((slots, style))
}

/// Returns the tensors under their canonical names, the style of the names, and the number of tensors with a name of a GLM. `tensors` may also be
/// the tensors that an adapter changes. Leaves out the vision encoder of a supported vision model.
///
/// # Errors
///
/// `Model` if a vision encoder contradicts the configuration, or if a fused or stacked tensor has a wrong shape.
pub(in crate::weights) fn renamed(tensors: Vec<LocatedTensor>, glm: &Glm) -> Result<(Vec<TensorSlot>, NameStyle, usize)> {
    let (mut slots, mut style, mut n_known) = (Vec::with_capacity(tensors.len()), NameStyle::Hf, 0);
    let plain = |located| TensorSlot { located, swapped: false };
    for mut t in tensors {
        let bare = bare(&t.name, &INNER);
        if bare.ends_with(".inv_freq") {
            continue;
        }
        if bare.starts_with("vision") || bare.starts_with("visual") {
            if glm.model_type == VISION {
                continue;
            }
            let text = format!("the file has a vision encoder, which is not supported with model_type {}", glm.model_type);
            return Err(Error::model(text)
                .at(format!("tensor {}", t.name))
                .hint("of the models with vision, wingbeat runs only GLM-4.1V and GLM-4.6V-Flash, without images"));
        }
        if OWN.iter().any(|own| bare.starts_with(own)) {
            style = NameStyle::ChatGlm;
        }
        let Some((layer, part)) = in_layer(bare) else {
            if let Some((_, name)) = TOP.iter().find(|(old, _)| *old == bare) {
                (t.name, n_known) = (name.to_string(), n_known + 1);
            }
            slots.push(plain(t));
            continue;
        };
        n_known += 1;
        if let Some(end) = part.strip_prefix(FUSED) {
            slots.extend(split(&t, layer, end, glm).map_err(|e| e.at(format!("tensor {}", t.name)))?.map(plain));
            continue;
        }
        if let Some(flash) = &glm.flash {
            // Layers beyond the configured number predict further tokens, and are left out. Leading zeros are refused, so that a file cannot name
            // one layer many times.
            let number = layer.parse::<usize>().ok().filter(|n| n.to_string() == layer);
            let number = number
                .ok_or_else(|| Error::model("expected the number of a layer without leading zeros").at(format!("tensor {}", t.name)))?;
            if number >= flash.dense.len() {
                continue;
            }
            if let Some(parts) = flash::split(&t, layer, part, glm.n_head, flash).map_err(|e| e.at(format!("tensor {}", t.name)))? {
                slots.extend(parts);
                continue;
            }
        }
        t.name = format!("model.layers.{layer}.{}", with_part_renamed(part, &PARTS));
        slots.push(plain(t));
    }
    Ok((slots, style, n_known))
}

/// Splits a fused weight or bias by rows into q ([`Glm::q_rows`] rows), k and v ([`Glm::kv_rows`] rows each).
///
/// # Errors
///
/// `Model` if the number of rows is wrong.
pub(in crate::weights) fn split(t: &LocatedTensor, layer: &str, end: &str, glm: &Glm) -> Result<[LocatedTensor; 3]> {
    let (q, kv) = (glm.q_rows(), glm.kv_rows());
    if t.shape.first() != Some(&(q + 2 * kv)) {
        let Glm { n_head, n_kv_head, head_size, .. } = glm;
        let text = format!("expected {} rows, {n_head} + 2 x {n_kv_head} heads of {head_size}, found shape {:?}", q + 2 * kv, t.shape);
        return Err(Error::model(text));
    }
    let part = |letter: &str, rows| t.rows(format!("model.layers.{layer}.self_attn.{letter}_proj.{end}"), rows);
    Ok([part("q", 0..q), part("k", q..q + kv), part("v", q + kv..q + 2 * kv)])
}

/// Splits a name such as `encoder.layers.3.mlp.dense_4h_to_h.weight`, with or without `encoder.`, into the layer's number and the name within
/// the layer. Returns `None` if the name has another form.
fn in_layer(bare: &str) -> Option<(&str, &str)> {
    let rest = bare.strip_prefix("encoder.").unwrap_or(bare).strip_prefix("layers.")?;
    rest.split_once('.').filter(|(number, _)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::super::canonical;
    use super::super::tests::tensor;
    use super::*;
    use crate::weights::orient::Facts;

    fn glm() -> Glm {
        let json = r#"{"model_type":"chatglm","n_head":2,"n_kv_head":1,"head_size":4,"rotary_size":2,"rope_theta":1e4,"rms_norm_eps":1e-5,
            "attention_bias":true,"max_context":9,"eos":[]}"#;
        Glm::parse(json).unwrap()
    }

    fn names(list: &[(&str, &[usize])], glm: Option<&Glm>) -> Result<(Vec<String>, &'static str)> {
        let tensors = list.iter().map(|(n, s)| tensor(n, s)).collect();
        let (slots, style) = canonical(tensors, &Facts::default(), false, glm)?;
        Ok((slots.into_iter().map(|(n, _)| n).collect(), style.name()))
    }

    #[test]
    fn prefixes_of_wrappers_and_of_the_model_are_stripped() {
        let expected = ["model.embed_tokens.weight", "model.layers.3.mlp.gate_up_proj.weight", "model.norm.weight", "score.bias"];
        for prefix in ["transformer.", "", "module.transformer.", "base_model.model.transformer.", "_orig_mod.model.transformer."] {
            let list = ["embedding.word_embeddings.weight", "encoder.layers.3.mlp.dense_h_to_4h.weight", "encoder.final_layernorm.weight"];
            let list: Vec<String> = list.iter().map(|n| format!("{prefix}{n}")).chain(["classifier_head.bias".into()]).collect();
            let list: Vec<(&str, &[usize])> = list.iter().map(|n| (n.as_str(), &[1][..])).collect();
            assert_eq!(names(&list, Some(&glm())).unwrap(), (expected.map(String::from).to_vec(), "chatglm"), "{prefix}");
        }
        for prefix in ["model.", "", "module.model."] {
            let list = ["embed_tokens.weight", "layers.3.mlp.gate_up_proj.weight", "norm.weight"];
            let list: Vec<String> = list.iter().map(|n| format!("{prefix}{n}")).chain(["score.bias".into()]).collect();
            let list: Vec<(&str, &[usize])> = list.iter().map(|n| (n.as_str(), &[1][..])).collect();
            assert_eq!(names(&list, Some(&glm())).unwrap(), (expected.map(String::from).to_vec(), "hf"), "{prefix}");
        }
    }

    #[test]
    fn the_text_half_of_a_vision_model_is_read() {
        let glm = Glm { model_type: VISION.into(), ..glm() };
        let list: [(&str, &[usize]); 6] = [
            ("model.visual.blocks.0.attn.qkv.weight", &[1]),
            ("model.visual.merger.proj.weight", &[1]),
            ("model.language_model.embed_tokens.weight", &[1]),
            ("model.language_model.layers.0.mlp.gate_up_proj.weight", &[1]),
            ("model.language_model.norm.weight", &[1]),
            ("lm_head.weight", &[1]),
        ];
        let expected = ["lm_head.weight", "model.embed_tokens.weight", "model.layers.0.mlp.gate_up_proj.weight", "model.norm.weight"];
        assert_eq!(names(&list, Some(&glm)).unwrap(), (expected.map(String::from).to_vec(), "hf"));
    }

    #[test]
    fn fused_rows_are_split_or_refused() {
        let of = |shape: &[usize]| {
            let fused = "transformer.encoder.layers.0.self_attention.query_key_value.weight";
            names(&[(fused, shape)], Some(&glm())).map_err(|e| e.to_string())
        };
        let parts = ["k", "q", "v"].map(|p| format!("model.layers.0.self_attn.{p}_proj.weight"));
        assert_eq!(of(&[16, 3]).unwrap(), (parts.to_vec(), "chatglm"));
        for shape in [&[][..], &[15, 3], &[3, 16], &[0]] {
            let text = of(shape).unwrap_err();
            assert!(text.contains("query_key_value.weight: expected 16 rows, 2 + 2 x 1 heads of 4, found shape"), "{text}");
        }
    }

    #[test]
    fn other_models_than_glm_of_text_are_refused() {
        let glm = glm();
        let refusal = |list: &[(&str, &[usize])], glm| names(list, glm).unwrap_err().to_string();
        for name in ["transformer.vision.patch_embedding.proj.weight", "model.visual.blocks.0.attn.qkv.weight"] {
            assert!(
                refusal(&[(name, &[1])], Some(&glm)).contains("vision encoder, which is not supported with model_type chatglm"),
                "{name}"
            );
        }
        assert!(
            refusal(&[("emb.weight", &[1, 1])], Some(&glm))
                .contains("the configuration describes a GLM, but the file has no tensors of a GLM; the first tensor is emb.weight")
        );
        for list in [
            &[("transformer.embedding.word_embeddings.weight", &[9usize, 4][..])][..],
            &[("encoder.layers.1.self_attention.query_key_value.weight", &[16, 4])],
            &[("model.layers.0.self_attn.q_proj.weight", &[8, 4]), ("model.layers.0.mlp.gate_up_proj.weight", &[6, 4])],
        ] {
            assert!(refusal(list, None).contains("the config.json of this GLM is missing"), "{list:?}");
        }
        // Each of these names alone does not identify a GLM, because other models have tensors of this name, too. The name of an adapter's
        // matrix does not identify a GLM either.
        for name in ["model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.gate_up_proj.weight", "model.embed_tokens.weight"] {
            assert_eq!(names(&[(name, &[1, 1])], None).unwrap().0, [name]);
        }
        let pair = "base_model.model.transformer.encoder.layers.0.self_attention.query_key_value.lora_A.weight";
        assert_eq!(names(&[(pair, &[1, 1])], None).unwrap().0, [pair]);
    }

    #[test]
    fn wave_lengths_are_left_out_and_duplicates_refused() {
        let list: [(&str, &[usize]); 3] = [
            ("transformer.rotary_pos_emb.inv_freq", &[2]),
            ("model.layers.0.self_attn.rotary_emb.inv_freq", &[2]),
            ("transformer.output_layer.weight", &[9, 4]),
        ];
        assert_eq!(names(&list, Some(&glm())).unwrap().0, ["lm_head.weight"]);
        let twice: [(&str, &[usize]); 2] = [("transformer.output_layer.weight", &[9, 4]), ("lm_head.weight", &[9, 4])];
        assert!(names(&twice, Some(&glm())).unwrap_err().to_string().contains("tensor lm_head.weight: two tensors"));
    }
}
