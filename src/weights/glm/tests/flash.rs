//! Files of GLM-4.7-Flash in the form of `transformers`, and files that `convert` writes.

use super::*;
use crate::quant;
use crate::weights::gguf::Header;
use crate::weights::{GgufContent, GgufValue};
use std::sync::Arc;

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

/// Writes a model as GGUF with F32 floats. `formats` are pairs (part of a name, format). Returns the bytes of the file and the opened file.
fn as_gguf(input: &Checkpoint, formats: &[(&str, &str)], content: GgufContent) -> Result<(Vec<u8>, Checkpoint)> {
    let dir = tempdir().unwrap();
    let out = dir.path().join("out.gguf");
    let format = |name: &str| formats.iter().find(|(part, _)| name.contains(part)).map(|(_, format)| quant::find(format).unwrap());
    let formats = input.names().filter_map(|name| Some((name.to_string(), format(name)?))).collect();
    // The ids that end a text belong to the vocabulary, which the caller of `convert` gives.
    let values = [("eos", 3), ("eot", 5)].map(|(name, id)| (format!("tokenizer.ggml.{name}_token_id"), GgufValue::U32(id)));
    let content = GgufContent { values: values.into(), formats, ..content };
    let what = Conversion { layout: Layout::Gguf, dtype: Some(DType::F32), gguf: Some(&content), ..Conversion::default() };
    convert(input, &out, &what, &mut |_, _| ())?;
    Ok((std::fs::read(&out).unwrap(), Checkpoint::open(&out)?))
}

/// Returns the tensors of a GGUF file: the name, and the type, the shape and the bytes.
fn listed(file: &[u8]) -> BTreeMap<String, (DType, Vec<usize>, Vec<u8>)> {
    let header = Header::read(file, file.len() as u64).unwrap();
    header.tensors().unwrap().into_iter().map(|t| (t.name.to_string(), (t.dtype, t.shape, file[t.bytes].to_vec()))).collect()
}

#[test]
fn a_written_gguf_holds_the_same() {
    for is_stacked in [false, true] {
        let opened = open_flash(&tensors(is_stacked), json!({})).unwrap();
        let (file, back) = as_gguf(&opened, &[], GgufContent::default()).unwrap();
        assert_eq!((said(&back), back.names().collect::<Vec<_>>()), (said(&opened), opened.names().collect()));
        let numbers = |from: &Checkpoint, name: &str| {
            let view = from.tensor(name).unwrap();
            (view.shape().to_vec(), view.to_f32().unwrap())
        };
        opened.names().for_each(|name| assert_eq!(numbers(&back, name), numbers(&opened, name), "{name}"));

        let found = listed(&file);
        let shapes: [(&str, &[usize]); 12] = [
            ("blk.0.attn_k_b.weight", &[2, 24, 16]),
            ("blk.0.attn_v_b.weight", &[2, 8, 24]),
            ("blk.0.attn_kv_a_mqa.weight", &[32, C]),
            ("blk.1.attn_q_b.weight", &[48, 16]),
            ("blk.1.attn_q_a_norm.weight", &[16]),
            ("blk.0.ffn_down.weight", &[C, 40]),
            ("blk.1.ffn_gate_exps.weight", &[4, 24, C]),
            ("blk.1.ffn_up_exps.weight", &[4, 24, C]),
            ("blk.1.ffn_down_exps.weight", &[4, C, 24]),
            ("blk.1.ffn_up_shexp.weight", &[48, C]),
            ("blk.1.ffn_gate_inp.weight", &[4, C]),
            ("blk.1.exp_probs_b.bias", &[4]),
        ];
        shapes.iter().for_each(|(name, shape)| assert_eq!(found[*name].1, *shape, "{name}"));
        assert_eq!(found.len(), 3 + 2 * 10 + 3 + 8);
        let keys = [
            ("general.architecture", "deepseek2"),
            ("general.basename", "Glm-4.7-Flash"),
            ("deepseek2.block_count", "2"),
            ("deepseek2.leading_dense_block_count", "1"),
            ("deepseek2.feed_forward_length", "40"),
            ("deepseek2.attention.head_count", "2"),
            ("deepseek2.attention.head_count_kv", "1"),
            ("deepseek2.attention.q_lora_rank", "16"),
            ("deepseek2.attention.kv_lora_rank", "24"),
            ("deepseek2.attention.key_length", "32"),
            ("deepseek2.attention.value_length", "24"),
            ("deepseek2.attention.key_length_mla", "24"),
            ("deepseek2.attention.value_length_mla", "8"),
            ("deepseek2.rope.dimension_count", "8"),
            ("deepseek2.expert_count", "4"),
            ("deepseek2.expert_used_count", "2"),
            ("deepseek2.expert_shared_count", "2"),
            ("deepseek2.expert_feed_forward_length", "24"),
            ("deepseek2.expert_gating_func", "2"),
            ("deepseek2.expert_weights_norm", "true"),
            ("deepseek2.vocab_size", "11"),
        ];
        keys.iter().for_each(|(key, value)| assert_eq!(back.metadata()[*key], *value, "{key}"));
    }
    let without = open_flash(&tensors(false), json!({"n_group": 2, "topk_group": 1})).unwrap();
    assert_eq!(said(&as_gguf(&without, &[], GgufContent::default()).unwrap().1), said(&without));
}

#[test]
fn stacks_are_quantised_matrix_by_matrix() {
    let opened = open_flash(&tensors(true), json!({})).unwrap();
    let (file, back) = as_gguf(&opened, &[("_proj", "q8_0"), ("gate.weight", "q8_0")], GgufContent::default()).unwrap();
    let found = listed(&file);
    // Rows of 24 weights are no whole blocks, and llama.cpp needs the router as F32.
    let expected =
        [("ffn_gate_exps", DType::Q8_0), ("ffn_up_exps", DType::Q8_0), ("ffn_down_exps", DType::F32), ("ffn_gate_inp", DType::F32)];
    expected.iter().for_each(|(name, dtype)| assert_eq!(found[&format!("blk.1.{name}.weight")].0, *dtype, "{name}"));
    for name in (0..4).map(|e| format!("model.layers.1.mlp.experts.{e}.up_proj.weight")) {
        let [ours, theirs] = [&back, &opened].map(|from| from.tensor(&name).unwrap().to_f32().unwrap());
        // The largest number of a stack is 6143, so Q8_0 errs by less than 6144 / 127. Neighbouring experts differ by 1536, so a wrong expert would
        // show.
        assert!(ours.iter().zip(&theirs).all(|(a, b)| (a - b).abs() < 6144.0 / 127.0), "{name}");
    }
    // Blocks that already have the type are copied unchanged.
    let again = as_gguf(&back, &[("_proj", "q8_0")], GgufContent::default()).unwrap().0;
    assert!(listed(&again) == found);

    // The importance of an expert's columns changes this expert alone.
    let opened = open_flash(&tensors(false), json!({})).unwrap();
    let name = "model.layers.1.mlp.experts.2.gate_proj.weight";
    let columns: Arc<[f32]> = (0..C).map(|i| if i % 5 == 0 { 5.0 } else { 0.01 }).collect();
    let with =
        |importance| listed(&as_gguf(&opened, &[("_proj", "q4_0")], GgufContent { importance, ..GgufContent::default() }).unwrap().0);
    let [plain, other] = [BTreeMap::new(), BTreeMap::from([(name.to_string(), columns)])].map(with);
    let different: Vec<&String> = plain.keys().filter(|name| plain[*name] != other[*name]).collect();
    assert_eq!(different, ["blk.1.ffn_gate_exps.weight"]);
    let [plain, other] = [&plain, &other].map(|file| file[different[0]].2.chunks(24 * 18).map(<[u8]>::to_vec).collect::<Vec<_>>());
    assert_eq!((0..4).filter(|&e| plain[e] != other[e]).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_model_that_is_no_whole_gguf_is_refused() {
    let refusal = |tensors: &[Made], formats: &[(&str, &str)]| {
        let opened = open_flash(tensors, json!({})).unwrap();
        let text = as_gguf(&opened, formats, GgufContent::default()).err().map_or("accepted".to_string(), |e| e.to_string());
        assert!(!text.contains('\n'), "{text}");
        text
    };
    let all = tensors(false);
    let text = refusal(&all, &[("experts.3.up", "q8_0")]);
    assert!(
        text.contains("blk.1.ffn_up_exps.weight") && text.contains("one type for all parts of a tensor, found floats and q8_0"),
        "{text}"
    );
    let without: Vec<Made> = all.iter().filter(|t| !t.name.contains("experts.2.up_proj")).cloned().collect();
    let text = refusal(&without, &[]);
    assert!(
        text.contains("tensor model.layers.1.mlp.experts.2.up_proj.weight: the tensor is missing, and the layout gguf needs it"),
        "{text}"
    );
    let mut more = tensors(false);
    for name in ["mlp.extra.weight", "mlp.experts.4.up_proj.weight"] {
        more.push(Made { name: format!("model.layers.1.{name}"), shape: vec![24, C], numbers: vec![0.0; 24 * C] });
        let text = refusal(&more, &[]);
        assert!(text.contains(&format!("{name}: the layout gguf has no name for this tensor")), "{text}");
        more.pop();
    }
}
