//! The names of ARWKV-7 and QRWKV-6 in their Hugging Face folders. Both have Qwen2's names outside of the time mix. ARWKV-7
//! (`RwkvHybridForCausalLM`) has the names of RWKV-7 under `self_attn.time_mixer`. QRWKV-6 (`RWKV6Qwen2ForCausalLM`) has the names of Qwen2 and of
//! RWKV-6 under `self_attn`.
//!
//! Values and orientations equal the official ones of RWKV-7 and RWKV-6, but QRWKV-6 has its lerps in another order.

use super::{bare, block_and_part, renamed};
use crate::weights::located::LocatedTensor;
use crate::weights::{LERP_ORDER, TensorSlot};

/// The order of the lerps in QRWKV-6's `time_maa_w1` and `time_maa_w2`.
const QRWKV6_LERPS: &str = "rkvwg";

/// Prefixes of names within a layer, as pairs (prefix in the file, official prefix).
const PARTS: [(&str, &str); 12] = [
    ("input_layernorm.", "ln1."),
    ("post_attention_layernorm.", "ln2."),
    ("self_attn.time_mixer.", "att."),
    ("self_attn.q_proj.", "att.receptance."),
    ("self_attn.k_proj.", "att.key."),
    ("self_attn.v_proj.", "att.value."),
    ("self_attn.o_proj.", "att.output."),
    ("self_attn.gate.", "att.gate."),
    ("self_attn.time_", "att.time_"),
    ("mlp.gate_proj.", "ffn.gate."),
    ("mlp.up_proj.", "ffn.up."),
    ("mlp.down_proj.", "ffn.down."),
];

/// Returns true if a layer has the time mix of RWKV-7 under `self_attn.time_mixer`, or the lerps of RWKV-6 under `self_attn`.
pub(super) fn recognises(tensors: &[LocatedTensor]) -> bool {
    let is_known = |part: &str| ["self_attn.time_mixer.x_r", "self_attn.time_maa_w1"].contains(&part);
    tensors.iter().any(|t| block_and_part(bare(&t.name, &[])).is_some_and(|(_, part)| is_known(part)))
}

/// Returns the order of the lerps, as an entry of the metadata, if the model is a QRWKV-6.
pub(super) fn metadata(slots: &[(String, TensorSlot)]) -> Option<(String, String)> {
    let is_qrwkv6 = slots.iter().any(|(name, _)| name.ends_with(".att.time_maa_w1"));
    is_qrwkv6.then(|| (LERP_ORDER.to_string(), QRWKV6_LERPS.to_string()))
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

    #[test]
    fn names_of_qrwkv6_become_official() {
        let (found, style) = names(&[
            ("model.layers.0.self_attn.time_maa_x", &[1, 1, 4]),
            ("model.layers.0.self_attn.time_maa_w1", &[4, 10]),
            ("model.layers.0.self_attn.time_decay_w2", &[2, 4]),
            ("model.layers.0.self_attn.q_proj.bias", &[4]),
            ("model.layers.0.self_attn.gate.weight", &[4, 4]),
            ("model.layers.0.self_attn.o_proj.weight", &[4, 4]),
        ]);
        let expected = [
            "blocks.0.att.gate.weight",
            "blocks.0.att.output.weight",
            "blocks.0.att.receptance.bias",
            "blocks.0.att.time_decay_w2",
            "blocks.0.att.time_maa_w1",
            "blocks.0.att.time_maa_x",
        ];
        assert_eq!((found, style), (expected.map(String::from).into(), "hybrid"));
    }
}
