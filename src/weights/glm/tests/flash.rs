//! Files of GLM-4.7-Flash in the form of `transformers`, and files that `convert` writes.

use super::*;

/// Returns the `config.json` of a model of 2 layers with 2 heads, whose layer 1 has 4 experts.
fn flash_config() -> Value {
    json!({"model_type": "glm4_moe_lite", "hidden_size": C, "vocab_size": V, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 2, "intermediate_size": 40, "moe_intermediate_size": 24, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "n_shared_experts": 2, "q_lora_rank": 16, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 8,
        "num_nextn_predict_layers": 1, "eos_token_id": [3, 5]})
}

/// Returns the tensors of the model as a file has them, with experts apart or stacked. The elements count up from 0 in each tensor.
fn tensors(is_stacked: bool) -> Vec<Made> {
    let mut out = Vec::new();
    let mut add = |name: String, shape: &[usize]| {
        let numbers = (0..shape.iter().product()).map(|i: usize| i as f32).collect();
        out.push(Made { name, shape: shape.to_vec(), numbers });
    };
    for (name, shape) in [("model.embed_tokens", &[V, C][..]), ("model.norm", &[C]), ("lm_head", &[V, C])] {
        add(format!("{name}.weight"), shape);
    }
    for layer in 0..3 {
        let mut part = |name: &str, shape: &[usize]| add(format!("model.layers.{layer}.{name}"), shape);
        part("input_layernorm.weight", &[C]);
        part("post_attention_layernorm.weight", &[C]);
        part("self_attn.q_a_proj.weight", &[16, C]);
        part("self_attn.q_a_layernorm.weight", &[16]);
        part("self_attn.q_b_proj.weight", &[48, 16]);
        part("self_attn.kv_a_proj_with_mqa.weight", &[32, C]);
        part("self_attn.kv_a_layernorm.weight", &[24]);
        part("self_attn.kv_b_proj.weight", &[48, 24]);
        part("self_attn.o_proj.weight", &[C, 16]);
        let mut mlps = vec![("mlp".to_string(), 40)];
        if layer > 0 {
            part("mlp.gate.weight", &[4, C]);
            part("mlp.gate.e_score_correction_bias", &[4]);
            mlps = vec![("mlp.shared_experts".to_string(), 48)];
            if is_stacked {
                part("mlp.experts.gate_up_proj", &[4, 48, C]);
                part("mlp.experts.down_proj", &[4, C, 24]);
            } else {
                mlps.extend((0..4).map(|e| (format!("mlp.experts.{e}"), 24)));
            }
        }
        for (mlp, f) in mlps {
            part(&format!("{mlp}.gate_proj.weight"), &[f, C]);
            part(&format!("{mlp}.up_proj.weight"), &[f, C]);
            part(&format!("{mlp}.down_proj.weight"), &[C, f]);
        }
        if layer == 2 {
            part("eh_proj.weight", &[C, 2 * C]);
        }
    }
    out
}

fn open_flash(tensors: &[Made], more: Value) -> Result<Checkpoint> {
    let dir = tempdir().unwrap();
    write_plain(&dir.path().join("model.safetensors"), tensors);
    config(&dir, flash_config(), more);
    Checkpoint::open(dir.path())
}

#[test]
fn a_converted_copy_holds_the_same() {
    for is_stacked in [false, true] {
        let opened = open_flash(&tensors(is_stacked), json!({})).unwrap();
        let dir = tempdir().unwrap();
        let out = dir.path().join("copy.safetensors");
        convert(&opened, &out, &Conversion { dtype: Some(DType::F32), ..Conversion::default() }, &mut |_, _| ()).unwrap();
        let copy = Checkpoint::open(&out).unwrap();
        assert_eq!(said(&copy), said(&opened));
        assert!(copy.names().eq(opened.names()) && copy.names().filter_map(layer_of).all(|layer| layer < 2));
        for name in opened.names() {
            let read = |from: &Checkpoint| {
                let view = from.tensor(name).unwrap();
                (view.shape().to_vec(), view.to_f32().unwrap())
            };
            assert_eq!(read(&copy), read(&opened), "{name}");
        }
        let numbers = |name: &str| copy.tensor(&format!("model.layers.1.{name}.weight")).unwrap().to_f32().unwrap();
        // Head 1 begins at row 24 of kv_b_proj. The rows of its keys are columns here.
        assert_eq!((numbers("self_attn.k_b.1")[..2].to_vec(), numbers("self_attn.k_b.1").len()), (vec![576.0, 600.0], 24 * 16));
        assert_eq!(numbers("self_attn.v_b.0")[0], 16.0 * 24.0);
        let first = if is_stacked { ((3 * 48 + 24) * C) as f32 } else { 0.0 };
        assert_eq!(numbers("mlp.experts.3.up_proj")[..2], [first, first + 1.0]);
    }
}

#[test]
fn a_configuration_of_another_flash_is_refused() {
    let refusal = |more: Value| open_flash(&tensors(false), more).err().map_or("accepted".to_string(), |e| e.to_string());
    for (more, expected) in [
        (json!({}), "accepted"),
        (json!({"intermediate_size": 48}), "sets intermediate_size to 48, but model.layers.0.mlp.gate_proj.weight has 40"),
        (json!({"num_hidden_layers": 4}), "sets num_hidden_layers to 4, but the file has 3"),
        (json!({"q_lora_rank": 8}), "q_a_proj.weight: expected the shape [8, 32], found the shape [16, 32]"),
        (json!({"num_attention_heads": 4, "num_key_value_heads": 4}), "kv_b_proj.weight: expected the shape [96, 24], found"),
        (json!({"qk_rope_head_dim": 16}), "q_b_proj.weight: expected the shape [64, 16], found the shape [48, 16]"),
        (json!({"n_shared_experts": 1}), "shared_experts.gate_proj.weight: expected the shape [24, 32], found the shape [48, 32]"),
        (json!({"moe_intermediate_size": 32}), "experts.3.gate_proj.weight: expected the shape [32, 32], found the shape [24, 32]"),
        (json!({"n_routed_experts": 3}), "mlp.gate.weight: expected the shape [3, 32], found the shape [4, 32]"),
    ] {
        let text = refusal(more);
        assert!(text.contains(expected) && !text.contains('\n'), "{expected}: {text}");
    }
    let mut odd = tensors(false);
    odd.push(Made { name: "model.layers.1.self_attn.o_proj.bias".into(), shape: vec![C], numbers: vec![0.0; C] });
    let text = open_flash(&odd, json!({})).unwrap_err().to_string();
    assert!(text.contains("o_proj.bias: no supported GLM has this bias"), "{text}");
}
