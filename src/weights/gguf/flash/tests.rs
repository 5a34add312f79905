//! Tests with a small file in the form that llama.cpp's converter writes.

use super::super::super::Checkpoint;
use super::super::super::testing::{Gguf, put, q8_0, singles};
use super::*;
use crate::tensor::DType;
use tempfile::tempdir;

const C: usize = 32;
const V: usize = 11;
const BOOL: u32 = 7;
const F32: u32 = 6;

/// Returns the metadata of a model of 2 layers and one that predicts further tokens, with 2 heads and 4 experts.
fn metadata(name: &str) -> Gguf {
    let mut g = Gguf::new("deepseek2");
    g.text("general.basename", name);
    for (key, n) in [
        ("block_count", 3),
        ("nextn_predict_layers", 1),
        ("context_length", 512),
        ("embedding_length", C),
        ("feed_forward_length", 64),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
        ("attention.q_lora_rank", 16),
        ("attention.kv_lora_rank", 32),
        ("attention.key_length", 40),
        ("attention.value_length", 32),
        ("attention.key_length_mla", 40),
        ("attention.value_length_mla", 24),
        ("rope.dimension_count", 8),
        ("expert_count", 4),
        ("expert_used_count", 2),
        ("expert_shared_count", 1),
        ("expert_feed_forward_length", 32),
        ("leading_dense_block_count", 1),
    ] {
        g.u32(&format!("deepseek2.{key}"), n as u32);
    }
    g.value("deepseek2.expert_weights_norm", BOOL, &[1]);
    for (key, x) in [("expert_weights_scale", 1.8f32), ("attention.layer_norm_rms_epsilon", 1e-5), ("rope.freq_base", 1e6)] {
        g.value(&format!("deepseek2.{key}"), F32, &x.to_le_bytes());
    }
    g.u32("tokenizer.ggml.eos_token_id", 3).u32("tokenizer.ggml.eot_token_id", 5);
    g
}

/// Adds the tensors. Numbers of a tensor count up from 0, modulo 100. Stacks of matrices are in Q8_0.
fn with_tensors(mut g: Gguf) -> Gguf {
    let mut add = |name: &str, shape: &[usize]| {
        let numbers: Vec<f32> = (0..shape.iter().product()).map(|i: usize| (i % 100) as f32).collect();
        match shape.len() {
            3 => g.tensor(name, 8, shape, &q8_0(&numbers)),
            _ => g.tensor(name, 0, shape, &singles(&numbers)),
        };
    };
    for (name, shape) in [("token_embd", &[V, C][..]), ("output_norm", &[C]), ("output", &[V, C])] {
        add(&format!("{name}.weight"), shape);
    }
    for block in 0..3 {
        let mut part = |name: &str, shape: &[usize]| add(&format!("blk.{block}.{name}"), shape);
        part("attn_norm.weight", &[C]);
        part("ffn_norm.weight", &[C]);
        part("attn_q_a.weight", &[16, C]);
        part("attn_q_a_norm.weight", &[16]);
        part("attn_q_b.weight", &[80, 16]);
        part("attn_kv_a_mqa.weight", &[40, C]);
        part("attn_kv_a_norm.weight", &[32]);
        part("attn_k_b.weight", &[2, 32, 32]);
        part("attn_v_b.weight", &[2, 24, 32]);
        part("attn_output.weight", &[C, 48]);
        if block == 0 {
            part("ffn_gate.weight", &[64, C]);
            part("ffn_up.weight", &[64, C]);
            part("ffn_down.weight", &[C, 64]);
            continue;
        }
        part("ffn_gate_inp.weight", &[4, C]);
        part("exp_probs_b.bias", &[4]);
        part("ffn_gate_exps.weight", &[4, 32, C]);
        part("ffn_up_exps.weight", &[4, 32, C]);
        part("ffn_down_exps.weight", &[4, C, 32]);
        part("ffn_gate_shexp.weight", &[32, C]);
        part("ffn_up_shexp.weight", &[32, C]);
        part("ffn_down_shexp.weight", &[C, 32]);
        if block == 2 {
            part("nextn.eh_proj.weight", &[C, 2 * C]);
        }
    }
    g
}

fn open(g: Gguf) -> Result<Checkpoint> {
    Checkpoint::open(&put(&tempdir().unwrap(), "m.gguf", &g.finish()))
}

#[test]
fn heads_and_experts_are_split() {
    let opened = open(with_tensors(metadata("Glm-4.7-Flash"))).unwrap();
    let glm = Glm::parse(&opened.metadata()[crate::weights::GLM]).unwrap();
    assert_eq!((glm.model_type.as_str(), glm.n_head, glm.n_kv_head, glm.head_size, glm.rotary_size), (FLASH, 2, 2, 40, 8));
    assert_eq!((glm.rope_theta, glm.max_context, glm.eos.as_slice()), (1e6, 512, &[3, 5][..]));
    let flash = glm.flash.unwrap();
    assert_eq!((flash.q_rank, flash.kv_rank, flash.nope_size, flash.rope_size, flash.value_size), (Some(16), 32, 32, 8, 24));
    assert_eq!((flash.n_experts, flash.n_used, flash.n_groups, flash.n_used_groups, flash.n_shared), (4, 2, 1, 1, 1));
    assert_eq!((flash.expert_ffn, flash.scale, flash.normalises, flash.dense), (32, 1.8, true, vec![true, false]));

    let mut expected: Vec<(String, Vec<usize>)> = ["model.embed_tokens.weight", "lm_head.weight"].map(|n| (n.into(), vec![V, C])).into();
    expected.push(("model.norm.weight".into(), vec![C]));
    for layer in 0..2 {
        let mut part = |name: &str, shape: &[usize]| expected.push((format!("model.layers.{layer}.{name}"), shape.to_vec()));
        part("input_layernorm.weight", &[C]);
        part("post_attention_layernorm.weight", &[C]);
        part("self_attn.q_a_proj.weight", &[16, C]);
        part("self_attn.q_a_layernorm.weight", &[16]);
        part("self_attn.q_b_proj.weight", &[80, 16]);
        part("self_attn.kv_a_proj_with_mqa.weight", &[40, C]);
        part("self_attn.kv_a_layernorm.weight", &[32]);
        for head in 0..2 {
            part(&format!("self_attn.k_b.{head}.weight"), &[32, 32]);
            part(&format!("self_attn.v_b.{head}.weight"), &[24, 32]);
        }
        part("self_attn.o_proj.weight", &[C, 48]);
        let mut mlps = vec![("mlp".to_string(), 64)];
        if layer == 1 {
            part("mlp.gate.weight", &[4, C]);
            part("mlp.gate.e_score_correction_bias", &[4]);
            mlps = (0..4).map(|e| (format!("mlp.experts.{e}"), 32)).chain([("mlp.shared_experts".into(), 32)]).collect();
        }
        for (mlp, f) in mlps {
            part(&format!("{mlp}.gate_proj.weight"), &[f, C]);
            part(&format!("{mlp}.up_proj.weight"), &[f, C]);
            part(&format!("{mlp}.down_proj.weight"), &[C, f]);
        }
    }
    expected.sort();
    let mut found: Vec<_> = opened.names().map(|name| (name.to_string(), opened.shape(name).unwrap())).collect();
    found.sort();
    assert_eq!(found, expected);

    for (name, first) in [("self_attn.k_b.1", 32 * 32), ("self_attn.v_b.1", 24 * 32), ("mlp.experts.3.down_proj", 3 * 32 * C)] {
        let view = opened.tensor(&format!("model.layers.1.{name}.weight")).unwrap();
        let expected: Vec<f32> = (first..first + view.len()).map(|i| (i % 100) as f32).collect();
        assert_eq!((view.dtype(), view.block_bytes().is_some(), view.to_f32().unwrap()), (DType::Q8_0, true, expected), "{name}");
    }
}

#[test]
fn a_fused_tensor_is_split_as_in_other_files() {
    let mut g = metadata("glm-4.7-flash");
    g.tensor("blk.0.attn_kv_b.weight", 0, &[112, 32], &singles(&(0..112 * 32).map(|i| i as f32).collect::<Vec<_>>()));
    g.tensor("blk.1.attn_norm.weight", 0, &[C], &singles(&[1.0; C]));
    let opened = open(g).unwrap();
    let k = opened.tensor("model.layers.0.self_attn.k_b.1.weight").unwrap().to_f32().unwrap();
    assert_eq!(k[..3], [56.0 * 32.0, 57.0 * 32.0, 58.0 * 32.0]);
    assert_eq!(opened.shape("model.layers.0.self_attn.v_b.1.weight").unwrap(), [24, 32]);
}

#[test]
fn other_models_of_the_architecture_are_refused() {
    let refusal = |g: Gguf| open(with_tensors(g)).err().map_or("accepted".to_string(), |e| e.to_string());
    let text = refusal(metadata("DeepSeek-V3"));
    assert!(text.contains("of the architecture deepseek2, only GLM-4.7-Flash is supported, found DeepSeek-V3"), "{text}");
    let mut of_vocabulary = metadata("My-Model");
    of_vocabulary.text("tokenizer.ggml.pre", "glm4");
    assert_eq!(refusal(of_vocabulary), "accepted");
    for (gating, expected) in
        [(2, "accepted"), (1, "expert_gating_func: expected 2, the sigmoid, for the experts of GLM-4.7-Flash, found 1")]
    {
        let mut g = metadata("Glm-4.7-Flash");
        g.u32("deepseek2.expert_gating_func", gating);
        let text = refusal(g);
        assert!(text.contains(expected) && !text.contains('\n'), "{text}");
    }
    let mut scaled = metadata("Glm-4.7-Flash");
    scaled.text("deepseek2.rope.scaling.type", "yarn");
    assert!(refusal(scaled).contains("scaling of rotary embeddings is not supported, found yarn"));
}
