//! The names of ARWKV-7 in its Hugging Face folders (`RwkvHybridForCausalLM`): Qwen2's names, and the time mix of RWKV-7 under `self_attn.time_mixer`.
//!
//! Values and orientations equal the official ones of RWKV-7.

use super::{bare, block_and_part, renamed};
use crate::weights::TensorSlot;
use crate::weights::located::LocatedTensor;

/// Prefixes of names within a layer, as pairs (prefix in the file, official prefix).
const PARTS: [(&str, &str); 6] = [
    ("input_layernorm.", "ln1."),
    ("post_attention_layernorm.", "ln2."),
    ("self_attn.time_mixer.", "att."),
    ("mlp.gate_proj.", "ffn.gate."),
    ("mlp.up_proj.", "ffn.up."),
    ("mlp.down_proj.", "ffn.down."),
];

/// Returns true if a layer has the time mix of RWKV-7 under `self_attn.time_mixer`.
pub(super) fn recognises(tensors: &[LocatedTensor]) -> bool {
    tensors.iter().any(|t| block_and_part(bare(&t.name, &[])).is_some_and(|(_, part)| part == "self_attn.time_mixer.x_r"))
}

/// Returns the tensors under their canonical names. Prefixes that wrappers add are stripped.
pub(super) fn slots(mut tensors: Vec<LocatedTensor>) -> Vec<TensorSlot> {
    tensors.iter_mut().for_each(|t| t.name = bare(&t.name, &[]).to_string());
    renamed(tensors, &PARTS)
}

#[cfg(test)]
mod tests {
    use super::super::tests::names;

    #[test]
    fn names_become_official() {
        let (found, style) = names(&[
            ("model.embed_tokens.weight", &[9, 4]),
            ("model.layers.0.input_layernorm.weight", &[4]),
            ("model.layers.0.self_attn.time_mixer.x_r", &[1, 1, 4]),
            ("model.layers.0.self_attn.time_mixer.receptance.weight", &[4, 4]),
            ("model.layers.0.self_attn.time_mixer.w1", &[4, 2]),
            ("model.layers.0.post_attention_layernorm.weight", &[4]),
            ("model.layers.0.mlp.gate_proj.weight", &[6, 4]),
            ("model.norm.weight", &[4]),
            ("lm_head.weight", &[9, 4]),
        ]);
        let expected = [
            "blocks.0.att.receptance.weight",
            "blocks.0.att.w1",
            "blocks.0.att.x_r",
            "blocks.0.ffn.gate.weight",
            "blocks.0.ln1.weight",
            "blocks.0.ln2.weight",
            "emb.weight",
            "head.weight",
            "ln_out.weight",
        ];
        assert_eq!((found, style), (expected.map(String::from).into(), "hybrid"));
    }
}
