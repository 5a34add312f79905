//! The names of GLM. Canonical are those of `transformers`; those of ChatGLM's own code become them, and what it fused becomes
//! q, k and v.
//!
//! Each part is a range of rows, so no byte moves. A table of wave lengths that some files carry is left out: it is rounded, and
//! does not know of `rope_ratio`.

use super::{Style, bare};
use crate::error::{Error, Result};
use crate::weights::glm::OF_ANOTHER;
use crate::weights::located::Located;
use crate::weights::{Glm, Slot};

/// Outside of the layers, prefixes stripped.
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
/// In a layer. Norms have one name in both.
const PARTS: [(&str, &str); 3] =
    [("self_attention.dense.", "self_attn.o_proj."), ("mlp.dense_h_to_4h.", "mlp.gate_up_proj."), ("mlp.dense_4h_to_h.", "mlp.down_proj.")];
const FUSED: &str = "self_attention.query_key_value.";
/// The model within, as ChatGLM's own code calls it.
const INNER: [&str; 1] = ["transformer."];
/// What ChatGLM's own names begin with.
const OWN: [&str; 4] = ["embedding.", "encoder.", "output_layer.", "classifier_head."];

/// Whether the names alone show a GLM. An adapter's, and those of a part of a model, do not.
pub(in crate::low_level::weights) fn recognises(tensors: &[Located]) -> bool {
    let any = |wanted: &str| tensors.iter().any(|t| in_layer(bare(&t.name, &INNER)).is_some_and(|(_, part)| part == wanted));
    let is_table = |t: &Located| bare(&t.name, &INNER) == TOP[0].0;
    tensors.iter().any(is_table)
        || any("self_attention.query_key_value.weight")
        || (any("self_attn.q_proj.weight") && any("mlp.gate_up_proj.weight"))
}

/// Under their canonical names.
pub(in crate::low_level::weights) fn slots(tensors: Vec<Located>, glm: Option<&Glm>) -> Result<(Vec<Slot>, Style)> {
    let Some(glm) = glm else {
        let text = "expected a config.json of a GLM beside it, found none: no shape tells how many heads there are and how they turn";
        return Err(Error::file(text).hint("download config.json into the same folder"));
    };
    let (mut slots, mut style, mut n_known) = (Vec::with_capacity(tensors.len()), Style::Hf, 0);
    for mut t in tensors {
        let bare = bare(&t.name, &INNER);
        if bare.ends_with(".inv_freq") {
            continue;
        }
        if bare.starts_with("vision") || bare.starts_with("visual") {
            return Err(Error::model("expected a GLM of text, found one with vision").at(format!("tensor {}", t.name)));
        }
        if OWN.iter().any(|own| bare.starts_with(own)) {
            style = Style::ChatGlm;
        }
        let Some((layer, part)) = in_layer(bare) else {
            if let Some((_, name)) = TOP.iter().find(|(old, _)| *old == bare) {
                (t.name, n_known) = (name.to_string(), n_known + 1);
            }
            slots.push(t);
            continue;
        };
        n_known += 1;
        if let Some(end) = part.strip_prefix(FUSED) {
            slots.extend(split(&t, layer, end, glm).map_err(|e| e.at(format!("tensor {}", t.name)).hint(OF_ANOTHER))?);
            continue;
        }
        let renamed = PARTS.iter().find_map(|(old, new)| Some(format!("{new}{}", part.strip_prefix(old)?)));
        t.name = format!("model.layers.{layer}.{}", renamed.as_deref().unwrap_or(part));
        slots.push(t);
    }
    if n_known == 0 {
        let found = slots.first().map_or("none", |t| t.name.as_str());
        return Err(Error::model(format!("expected the tensors of a GLM, as its configuration says, found {found}")));
    }
    Ok((slots.into_iter().map(|located| Slot { located, swapped: false }).collect(), style))
}

/// The rows of a fused weight or bias: H · D of the queries, G · D of the keys, as many of the values.
pub(in crate::low_level::weights) fn split(t: &Located, layer: &str, end: &str, glm: &Glm) -> Result<[Located; 3]> {
    let (q, kv) = (glm.q_rows(), glm.kv_rows());
    if t.shape.first() != Some(&(q + 2 * kv)) {
        let Glm { n_head, n_kv_head, head_size, .. } = glm;
        let text =
            format!("expected {} rows, of {n_head} + 2 x {n_kv_head} heads of {head_size}, found the shape {:?}", q + 2 * kv, t.shape);
        return Err(Error::model(text));
    }
    let part = |letter: &str, rows| t.rows(format!("model.layers.{layer}.self_attn.{letter}_proj.{end}"), rows);
    Ok([part("q", 0..q), part("k", q..q + kv), part("v", q + kv..q + 2 * kv)])
}

/// `encoder.layers.3.mlp.dense_4h_to_h.weight`, or without `encoder.`: the number, and what follows it.
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
    fn wrappers_and_the_models_own_name_go() {
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
    fn fused_rows_are_split_or_refused() {
        let of = |shape: &[usize]| {
            let fused = "transformer.encoder.layers.0.self_attention.query_key_value.weight";
            names(&[(fused, shape)], Some(&glm())).map_err(|e| e.to_string())
        };
        let parts = ["k", "q", "v"].map(|p| format!("model.layers.0.self_attn.{p}_proj.weight"));
        assert_eq!(of(&[16, 3]).unwrap(), (parts.to_vec(), "chatglm"));
        for shape in [&[][..], &[15, 3], &[3, 16], &[0]] {
            let text = of(shape).unwrap_err();
            assert!(text.contains("query_key_value.weight: expected 16 rows, of 2 + 2 x 1 heads of 4, found the shape"), "{text}");
        }
    }

    #[test]
    fn what_is_no_glm_of_text_is_refused() {
        let glm = glm();
        let refusal = |list: &[(&str, &[usize])], glm| names(list, glm).unwrap_err().to_string();
        for name in ["transformer.vision.patch_embedding.proj.weight", "model.visual.blocks.0.attn.qkv.weight"] {
            assert!(refusal(&[(name, &[1])], Some(&glm)).contains("found one with vision"), "{name}");
        }
        assert!(refusal(&[("emb.weight", &[1, 1])], Some(&glm)).contains("expected the tensors of a GLM, as its configuration says"));
        for list in [
            &[("transformer.embedding.word_embeddings.weight", &[9usize, 4][..])][..],
            &[("encoder.layers.1.self_attention.query_key_value.weight", &[16, 4])],
            &[("model.layers.0.self_attn.q_proj.weight", &[8, 4]), ("model.layers.0.mlp.gate_up_proj.weight", &[6, 4])],
        ] {
            assert!(refusal(list, None).contains("expected a config.json of a GLM beside it, found none: no shape tells"), "{list:?}");
        }
        // Others have some of these names too, and an adapter has none of them.
        for name in ["model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.gate_up_proj.weight", "model.embed_tokens.weight"] {
            assert_eq!(names(&[(name, &[1, 1])], None).unwrap().0, [name]);
        }
        let pair = "base_model.model.transformer.encoder.layers.0.self_attention.query_key_value.lora_A.weight";
        assert_eq!(names(&[(pair, &[1, 1])], None).unwrap().0, [pair]);
    }

    #[test]
    fn wave_lengths_are_left_out_and_twins_refused() {
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
