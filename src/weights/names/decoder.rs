//! The names of RWKV-7 in Hugging Face folders of 2026 (`RwkvForCausalLM`), whose decoder layers have the parts `linear_attn` and `mlp`.
//!
//! Values and orientations are the same as in the official `.pth`. Vectors of C elements have the shape `[C]` instead of `[1, 1, C]`.

use super::{block_and_part, renamed};
use crate::weights::TensorSlot;
use crate::weights::located::LocatedTensor;

/// Prefixes of names within a layer, as pairs (prefix in the file, official prefix). The first pair that matches is used.
const PARTS: [(&str, &str); 13] = [
    ("input_layernorm.", "ln1."),
    ("post_attention_layernorm.", "ln2."),
    ("linear_attn.r_proj.", "att.receptance."),
    ("linear_attn.k_proj.", "att.key."),
    ("linear_attn.v_proj.", "att.value."),
    ("linear_attn.o_proj.", "att.output."),
    ("linear_attn.g_norm.", "att.ln_x."),
    ("linear_attn.", "att."),
    ("mlp.key.", "ffn.key."),
    ("mlp.value.", "ffn.value."),
    ("mlp.up_proj.", "ffn.key."),
    ("mlp.down_proj.", "ffn.value."),
    ("mlp.", "ffn."),
];

/// Returns true if a layer has a projection or a mix of RWKV under `linear_attn`. Other models such as Qwen3-Next also have `linear_attn`, but
/// with other names inside. Prefixes that wrappers such as DDP add must already be stripped.
pub(super) fn recognises(tensors: &[LocatedTensor]) -> bool {
    let is_ours = |part: &str| part.starts_with("linear_attn.r_proj.") || part == "linear_attn.x_r";
    tensors.iter().any(|t| block_and_part(&t.name).is_some_and(|(_, part)| is_ours(part)))
}

/// Returns the tensors under their canonical names.
pub(super) fn slots(tensors: Vec<LocatedTensor>) -> Vec<TensorSlot> {
    renamed(tensors, &PARTS)
}

/// Converts an official name to the full name in this style, such as `model.layers.0.mlp.key.weight`. Returns `None` if the style has no such
/// name.
pub(in crate::weights) fn to_decoder(name: &str) -> Option<String> {
    let outside = match name {
        "emb.weight" => "model.embed_tokens.weight",
        "head.weight" => "lm_head.weight",
        "ln_out.weight" => "model.norm.weight",
        "ln_out.bias" => "model.norm.bias",
        "blocks.0.ln0.weight" => "model.embedding_norm.weight",
        "blocks.0.ln0.bias" => "model.embedding_norm.bias",
        _ => {
            let (number, part) = block_and_part(name)?;
            let renamed = PARTS.iter().find_map(|(theirs, ours)| Some(format!("{theirs}{}", part.strip_prefix(ours)?)));
            return Some(format!("model.layers.{number}.{}", renamed?));
        }
    };
    Some(outside.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{names, tensor};
    use super::super::{bare, official};
    use super::*;

    #[test]
    fn parts_get_their_official_names() {
        for (theirs, ours) in [
            ("embed_tokens.weight", "emb.weight"),
            ("embedding_norm.bias", "blocks.0.ln0.bias"),
            ("layers.3.input_layernorm.weight", "blocks.3.ln1.weight"),
            ("layers.3.post_attention_layernorm.bias", "blocks.3.ln2.bias"),
            ("layers.11.linear_attn.r_proj.weight", "blocks.11.att.receptance.weight"),
            ("layers.11.linear_attn.g_norm.weight", "blocks.11.att.ln_x.weight"),
            ("layers.11.linear_attn.w1", "blocks.11.att.w1"),
            ("layers.2.mlp.x_k", "blocks.2.ffn.x_k"),
            ("layers.2.mlp.key.weight", "blocks.2.ffn.key.weight"),
            ("layers.4.mlp.up_proj.weight", "blocks.4.ffn.key.weight"),
            ("layers.4.mlp.down_proj.weight", "blocks.4.ffn.value.weight"),
            ("norm.weight", "ln_out.weight"),
            ("lm_head.weight", "head.weight"),
            ("optimizer.step", "optimizer.step"),
        ] {
            assert_eq!(official(theirs, &PARTS), ours);
            let written = to_decoder(ours).map(|name| bare(&name, &[]).to_string());
            let is_written = !theirs.contains("up_proj") && !theirs.contains("down_proj") && ours != "optimizer.step";
            assert_eq!(written.as_deref() == Some(theirs), is_written, "{ours} is written as {written:?}");
        }
    }

    #[test]
    fn other_models_with_linear_attention_are_not_ours() {
        assert!(!recognises(&[tensor("layers.0.linear_attn.in_proj_qkvz.weight", &[8, 8])]));
        let (found, style) = names(&[("model.layers.0.linear_attn.x_r", &[8]), ("model.embedding_norm.bias", &[8])]);
        assert_eq!((found, style), (vec!["blocks.0.att.x_r".into(), "blocks.0.ln0.bias".into()], "decoder"));
    }
}
