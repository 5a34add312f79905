//! Tests with one GLM in every file format, and with files that contradict themselves. The tables of names were copied from published files, so
//! they do not depend on the code under test.

mod flash;
mod gguf;

use super::*;
use crate::tensor::DType;
use crate::weights::same::check;
use crate::weights::sets::{Made, as_pth, write_plain, write_sharded};
use crate::weights::testing::{Dice, Gguf, Pickle, put, q8_0, singles, zip};
use crate::weights::{Checkpoint, Conversion, Layout, NewTensor, convert, layer_of, write_safetensors};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::{TempDir, tempdir};

const C: usize = 32;
const H: usize = 4;
const G: usize = 2;
/// The number of channels of a head. H · D differs from the width C of the model.
const D: usize = 16;
const F: usize = 64;
const V: usize = 11;
const N_LAYER: usize = 2;

fn glm(model_type: &str) -> Glm {
    Glm {
        model_type: model_type.into(),
        n_head: H,
        n_kv_head: G,
        head_size: D,
        rotary_size: 8,
        rope_theta: 5e6,
        rms_norm_eps: 1.5625e-7,
        attention_bias: true,
        max_context: 512,
        eos: vec![3, 5],
        pad: Some(3),
        labels: vec![],
        flash: None,
    }
}

/// Returns the tensors of the test model under their canonical names. Their elements are whole numbers, so that blocks of Q8_0 store them
/// exactly.
fn canonical(model_type: &str) -> Vec<Made> {
    let mut dice = Dice(0x61f4);
    let mut out = Vec::new();
    let mut add = |name: String, shape: &[usize]| {
        let numbers = (0..shape.iter().product()).map(|_| dice.roll(255) as f32 - 127.0).collect();
        out.push(Made { name, shape: shape.to_vec(), numbers });
    };
    for (name, shape) in [("model.embed_tokens", &[V, C][..]), ("model.norm", &[C]), ("lm_head", &[V, C])] {
        add(format!("{name}.weight"), shape);
    }
    for layer in 0..N_LAYER {
        let mut part = |name: &str, shape: &[usize]| add(format!("model.layers.{layer}.{name}"), shape);
        part("input_layernorm.weight", &[C]);
        part("post_attention_layernorm.weight", &[C]);
        if model_type == "glm4" {
            part("post_self_attn_layernorm.weight", &[C]);
            part("post_mlp_layernorm.weight", &[C]);
        }
        for (letter, rows) in [("q", H * D), ("k", G * D), ("v", G * D)] {
            part(&format!("self_attn.{letter}_proj.weight"), &[rows, C]);
            part(&format!("self_attn.{letter}_proj.bias"), &[rows]);
        }
        part("self_attn.o_proj.weight", &[C, H * D]);
        part("mlp.gate_up_proj.weight", &[2 * F, C]);
        part("mlp.down_proj.weight", &[C, F]);
    }
    out
}

/// Replaces the tensors q, k and v of each layer by one tensor with all their rows. `fused` is the name of this tensor within the layer.
fn fuse(tensors: Vec<Made>, fused: &str) -> Vec<Made> {
    let mut out: Vec<Made> = Vec::new();
    for t in tensors {
        let letter = ["q", "k", "v"].into_iter().find(|l| t.name.contains(&format!(".{l}_proj.")));
        let Some(letter) = letter else {
            out.push(t);
            continue;
        };
        let name = t.name.replace(&format!("self_attn.{letter}_proj"), fused);
        match out.iter_mut().find(|o| o.name == name) {
            Some(whole) => {
                whole.shape[0] += t.shape[0];
                whole.numbers.extend(t.numbers);
            }
            None => out.push(Made { name, ..t }),
        }
    }
    out
}

fn renamed(tensors: Vec<Made>, table: &[(&str, &str)]) -> Vec<Made> {
    let rename = |name: &str| table.iter().fold(name.to_string(), |name, (from, to)| name.replace(from, to));
    tensors.into_iter().map(|t| Made { name: rename(&t.name), ..t }).collect()
}

/// Returns the tensors under the names of ChatGLM's own code, and a table of rotary frequencies that the reader leaves out.
fn original(prefix: &str) -> Vec<Made> {
    let mut out = renamed(
        fuse(canonical("chatglm"), "self_attention.query_key_value"),
        &[
            ("model.embed_tokens", "embedding.word_embeddings"),
            ("model.norm", "encoder.final_layernorm"),
            ("lm_head", "output_layer"),
            ("model.layers", "encoder.layers"),
            ("self_attn.o_proj", "self_attention.dense"),
            ("mlp.gate_up_proj", "mlp.dense_h_to_4h"),
            ("mlp.down_proj", "mlp.dense_4h_to_h"),
        ],
    );
    out.push(Made { name: "rotary_pos_emb.inv_freq".into(), shape: vec![4], numbers: vec![f32::NAN, -1.0, 1e30, 0.0] });
    out.iter_mut().for_each(|t| t.name.insert_str(0, prefix));
    out
}

fn original_config() -> Value {
    json!({"model_type": "chatglm", "add_bias_linear": false, "add_qkv_bias": true, "ffn_hidden_size": F, "hidden_size": C,
        "kv_channels": D, "layernorm_epsilon": 1.5625e-7, "multi_query_attention": true, "multi_query_group_num": G,
        "num_attention_heads": H, "num_layers": N_LAYER, "padded_vocab_size": V, "rope_ratio": 500, "seq_length": 512,
        "torch_dtype": "float16", "eos_token_id": [3, 5], "pad_token_id": 3, "tie_word_embeddings": false})
}

fn hf_config(model_type: &str) -> Value {
    json!({"model_type": model_type, "attention_bias": true, "eos_token_id": [3, 5], "head_dim": D, "hidden_act": "silu",
        "hidden_size": C, "intermediate_size": F, "max_position_embeddings": 512, "num_attention_heads": H,
        "num_hidden_layers": N_LAYER, "num_key_value_heads": G, "pad_token_id": 3, "rms_norm_eps": 1.5625e-7, "vocab_size": V,
        "tie_word_embeddings": false, "rope_parameters": {"rope_type": "default", "rope_theta": 5e6}})
}

fn config(dir: &TempDir, base: Value, more: Value) {
    let mut config = base;
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    put(dir, "config.json", config.to_string().as_bytes());
}

fn said(opened: &Checkpoint) -> Glm {
    Glm::parse(&opened.metadata()[GLM]).unwrap()
}

/// Checks the tensors and the metadata of a checkpoint, and of a converted copy.
fn check_all(opened: &Checkpoint, model_type: &str, what: &str) {
    check(opened, &canonical(model_type), what);
    assert_eq!(said(opened), glm(model_type), "{what}");
    assert!(opened.names().filter_map(layer_of).all(|layer| layer < N_LAYER));
    let dir = tempdir().unwrap();
    let one = dir.path().join("any name.safetensors");
    convert(opened, &one, &Conversion { dtype: Some(DType::F32), ..Conversion::default() }, &mut |_, _| ()).unwrap();
    let copy = Checkpoint::open(&one).unwrap();
    assert_eq!((copy.kind(), copy.layout()), ("safetensors", "hf"));
    check(&copy, &canonical(model_type), what);
    assert_eq!(said(&copy), glm(model_type), "{what}: the copy has no config.json");
    let web = Conversion { layout: Layout::WebRwkv, ..Conversion::default() };
    let text = convert(opened, &dir.path().join("x.st"), &web, &mut |_, _| ()).unwrap_err().to_string();
    assert!(text.contains("the layout web-rwkv is for RWKV models only, and this model is a GLM"), "{text}");
}

/// A function that writes tensors into a folder.
type Writer = fn(&Path, &[Made]);

#[test]
fn every_form_holds_the_same() {
    let writers: [(&str, Writer); 6] = [
        ("one file", |folder, t| write_plain(&folder.join("model.safetensors"), t)),
        ("shards", |folder, t| write_sharded(folder, t, false)),
        ("shards of torch", |folder, t| write_sharded(folder, t, true)),
        ("bin", |folder, t| std::fs::write(folder.join("pytorch_model.bin"), as_pth(t)).unwrap()),
        ("pth", |folder, t| std::fs::write(folder.join("my glm.pth"), as_pth(t)).unwrap()),
        ("a name of one's own", |folder, t| write_plain(&folder.join("glm-f16.st"), t)),
    ];
    for (what, write) in writers {
        for prefix in ["transformer.", "", "module.transformer."] {
            let dir = tempdir().unwrap();
            write(dir.path(), &original(prefix));
            config(&dir, original_config(), json!({}));
            let opened = Checkpoint::open(dir.path()).unwrap();
            assert_eq!(opened.layout(), "chatglm");
            check_all(&opened, "chatglm", &format!("{what} {prefix}"));
        }
        for (model_type, prefix) in [("glm", "model."), ("glm4", "model."), ("glm4", "")] {
            let dir = tempdir().unwrap();
            write(dir.path(), &renamed(canonical(model_type), &[("model.", prefix)]));
            config(&dir, hf_config(model_type), json!({}));
            let opened = Checkpoint::open(dir.path()).unwrap();
            assert_eq!(opened.layout(), "hf");
            check_all(&opened, model_type, &format!("{what} {model_type} {prefix}"));
            assert!(opened.files().any(|path| path.ends_with("config.json")), "it is read, so it is not to be overwritten");
        }
    }
}

/// Splitting a fused tensor must not copy its bytes.
#[test]
fn parts_of_a_fused_tensor_are_bytes_of_the_file() {
    let dir = tempdir().unwrap();
    write_plain(&dir.path().join("model.safetensors"), &original("transformer."));
    config(&dir, original_config(), json!({}));
    let opened = Checkpoint::open(dir.path()).unwrap();
    let start = |letter: &str| {
        let name = format!("model.layers.1.self_attn.{letter}_proj.weight");
        let bytes = opened.tensor(&name).unwrap().dense_bytes().unwrap();
        let (owner, range) = (opened.file_of(&name).unwrap(), bytes.as_ptr_range());
        let file = (*owner).as_ref().as_ptr_range();
        assert!(file.start <= range.start && range.end <= file.end, "{name}");
        range.start as usize
    };
    let row = 4 * C;
    assert_eq!((start("k") - start("q"), start("v") - start("k")), (H * D * row, G * D * row));
}

/// In a `.pth`, a fused weight may be stored transposed, and strides are arbitrary.
#[test]
fn strided_rows_are_split_and_stay_inside_their_storage() {
    const ROWS: usize = (H + 2 * G) * D;
    let open = |strides: &[usize]| {
        let mut p = Pickle::dict();
        p.tensor("transformer.encoder.layers.0.self_attention.query_key_value.weight", "0", DType::F32, ROWS * C, (0, &[ROWS, C], strides));
        let numbers: Vec<f32> = (0..ROWS * C).map(|i| i as f32).collect();
        let file = zip(&[("r/data.pkl", &p.stop()), ("r/data/0", &singles(&numbers))]);
        let dir = tempdir().unwrap();
        config(&dir, original_config(), json!({"num_layers": 1, "add_qkv_bias": false}));
        Checkpoint::open(&put(&dir, "a.pth", &file))
    };
    let transposed = open(&[1, ROWS]).unwrap();
    let k = transposed.tensor("model.layers.0.self_attn.k_proj.weight").unwrap();
    let expected: Vec<f32> = (0..G * D * C).map(|i| (H * D + i / C + ROWS * (i % C)) as f32).collect();
    assert_eq!((k.shape(), k.to_f32().unwrap()), (&[G * D, C][..], expected));
    for strides in [[C + 1, 1], [C, 2], [isize::MAX as usize, 1], [usize::MAX / 8, 1], [1, isize::MAX as usize]] {
        let text = open(&strides).unwrap_err().to_string();
        assert!(text.contains("a.pth: tensor model.layers.0.self_attn.") && !text.contains('\n'), "{text}");
    }
}

#[test]
fn a_lost_rope_ratio_gives_a_warning() {
    let of = |model_type: &str, rope_theta, max_context| Glm { rope_theta, max_context, ..glm(model_type) }.warnings();
    let warnings = of("glm", 1e4, 131072);
    assert!(warnings.len() == 1 && !warnings[0].contains('\n'), "{warnings:?}");
    for part in ["rope_theta 10000", "131072 tokens", "5e6 for glm-4-9b-chat, 1e8 for its -1m", "`rope_theta`"] {
        assert!(warnings[0].contains(part), "{warnings:?}");
    }
    for (model_type, theta, context) in [("glm", 5e6, 131072), ("glm", 1e4, 8192), ("chatglm", 1e4, 131072), ("glm4", 1e4, 32768)] {
        assert!(of(model_type, theta, context).is_empty(), "{model_type} {theta} {context}");
    }
}

#[test]
fn a_configuration_that_contradicts_the_tensors_is_refused() {
    let refusal = |tensors: &[Made], base: Value, more: Value| {
        let dir = tempdir().unwrap();
        write_plain(&dir.path().join("model.safetensors"), tensors);
        config(&dir, base, more.clone());
        let text = Checkpoint::open(dir.path()).err().map_or("accepted".into(), |e| e.to_string());
        assert!(!text.contains('\n') && text.len() < 600, "{text}");
        text
    };
    let cases = [
        (json!({"hidden_size": 64}), "the configuration sets hidden_size to 64, but model.embed_tokens.weight has 32"),
        (json!({"vocab_size": 12}), "the configuration sets vocab_size to 12, but model.embed_tokens.weight has 11"),
        (json!({"num_hidden_layers": 3}), "the configuration sets num_hidden_layers to 3, but the file has 2"),
        (
            json!({"intermediate_size": 65}),
            "the configuration sets intermediate_size to 65, but model.layers.0.mlp.gate_up_proj.weight has 64",
        ),
        (json!({"num_attention_heads": 8}), "q_proj.weight: expected the shape [128, 32] (8 heads of 16), found the shape [64, 32]"),
        (json!({"head_dim": 32}), "q_proj.weight: expected the shape [128, 32] (4 heads of 32), found"),
        (json!({"num_key_value_heads": 4}), "k_proj.weight: expected the shape [64, 32] (4 heads of 16), found"),
        (json!({"attention_bias": false}), "q_proj.bias: the configuration sets attention_bias to false, but the file has this bias"),
        (
            json!({"model_type": "glm4"}),
            "post_self_attn_layernorm.weight: the configuration sets model_type to glm4, but the file lacks this norm",
        ),
    ];
    for (more, expected) in cases {
        let text = refusal(&canonical("glm"), hf_config("glm"), more);
        assert!(text.contains("config.json") && text.contains(expected), "{text}");
    }
    let text = refusal(&canonical("glm4"), hf_config("glm"), json!({}));
    assert!(
        text.contains("post_self_attn_layernorm.weight: the configuration sets model_type to glm, but only glm4 and glm4v have this norm"),
        "{text}"
    );
    let without_biases: Vec<Made> = canonical("glm").into_iter().filter(|t| !t.name.ends_with(".bias")).collect();
    let text = refusal(&without_biases, hf_config("glm"), json!({}));
    assert!(text.contains("q_proj.bias: the configuration sets attention_bias to true, but the file lacks this bias"), "{text}");
    assert_eq!(refusal(&without_biases, hf_config("glm"), json!({"attention_bias": false})), "accepted");
    for name in ["self_attn.o_proj.bias", "mlp.down_proj.bias", "input_layernorm.bias"] {
        let mut more = canonical("glm");
        more.push(Made { name: format!("model.layers.1.{name}"), shape: vec![C], numbers: vec![0.0; C] });
        let text = refusal(&more, hf_config("glm"), json!({}));
        assert!(text.contains(&format!("{name}: no supported GLM has this bias")), "{text}");
    }
    let text = refusal(&original("transformer."), original_config(), json!({"kv_channels": 8}));
    assert!(text.contains("query_key_value.weight: expected 64 rows, 4 + 2 x 2 heads of 8, found shape [128, 32]"), "{text}");
    let text = refusal(&original("transformer."), original_config(), json!({"ffn_hidden_size": 65}));
    assert!(text.contains("the configuration sets ffn_hidden_size to 65, but model.layers.0.mlp.gate_up_proj.weight has 64"), "{text}");
    let rwkv = [Made { name: "emb.weight".into(), shape: vec![1, 1], numbers: vec![0.0] }];
    let text = refusal(&rwkv, hf_config("glm"), json!({}));
    assert!(
        text.contains("the configuration describes a GLM, but the file has no tensors of a GLM; the first tensor is emb.weight"),
        "{text}"
    );
    let mut seeing = canonical("glm");
    seeing.push(Made { name: "model.visual.patch_embed.proj.weight".into(), shape: vec![1], numbers: vec![0.0] });
    let text = refusal(&seeing, hf_config("glm"), json!({}));
    assert!(
        text.contains("patch_embed.proj.weight: the file has a vision encoder, which is not supported with model_type glm ("),
        "{text}"
    );
}

#[test]
fn a_glm_without_a_configuration_is_refused() {
    let why =
        "the config.json of this GLM is missing: the shapes of the tensors determine neither the number of heads nor the rotary positions";
    for tensors in [original("transformer."), canonical("glm")] {
        for bin in [false, true] {
            let dir = tempdir().unwrap();
            write_sharded(dir.path(), &tensors, bin);
            let text = Checkpoint::open(dir.path()).unwrap_err().to_string();
            assert!(text.contains(why) && text.contains("(download config.json into the same folder)"), "{text}");
            // A configuration of another family does not help.
            put(&dir, "config.json", b"{\"model_type\": \"rwkv7\"}");
            assert!(Checkpoint::open(dir.path()).unwrap_err().to_string().contains(why));
        }
    }
}

#[test]
fn a_head_is_tied_only_if_the_configuration_says_so() {
    let tensors: Vec<Made> = original("transformer.").into_iter().filter(|t| !t.name.contains("output_layer")).collect();
    let dir = tempdir().unwrap();
    write_plain(&dir.path().join("model.safetensors"), &tensors);
    config(&dir, original_config(), json!({"tie_word_embeddings": true}));
    let tied = Checkpoint::open(dir.path()).unwrap();
    let numbers = |name: &str| tied.tensor(name).unwrap().to_f32().unwrap();
    assert_eq!(numbers("lm_head.weight"), numbers("model.embed_tokens.weight"));
    config(&dir, original_config(), json!({}));
    assert!(Checkpoint::open(dir.path()).unwrap().tensor("lm_head.weight").is_none());
}

#[test]
fn a_head_of_a_classifier_is_renamed() {
    let mut tensors = original("transformer.");
    for (name, shape) in [("classifier_head.weight", vec![2, C]), ("classifier_head.bias", vec![2])] {
        tensors.push(Made { name: name.into(), numbers: vec![1.0; shape.iter().product()], shape });
    }
    let dir = tempdir().unwrap();
    write_plain(&dir.path().join("model.safetensors"), &tensors);
    config(&dir, original_config(), json!({}));
    let opened = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(opened.require("score.weight", &[2, C]).unwrap().shape(), [2, C]);
    assert_eq!(opened.require("score.bias", &[2]).unwrap().shape(), [2]);
}

#[test]
fn hostile_metadata_are_refused() {
    let open = |json: &str| {
        let dir = tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        let entry = NewTensor { name: "lm_head.weight".into(), dtype: DType::U8, shape: vec![0], data: Box::new(|_| Ok(())) };
        write_safetensors(&path, &BTreeMap::from([(GLM.to_string(), json.to_string())]), vec![entry], &mut |_, _| ()).unwrap();
        Checkpoint::open(&path).map(|opened| said(&opened)).map_err(|e| e.to_string())
    };
    let good = glm("chatglm").to_json();
    assert_eq!(open(&good), Ok(glm("chatglm")));
    let changed = |key: &str, value: Value| {
        let mut json: Value = serde_json::from_str(&good).unwrap();
        json[key] = value;
        json.to_string()
    };
    let mut bad = vec!["".to_string(), "{}".into(), "[".repeat(100_000), good.replace("chatglm", &"x".repeat(100_000))];
    for key in ["n_head", "n_kv_head", "head_size", "rotary_size", "max_context", "rope_theta", "rms_norm_eps"] {
        bad.extend([json!(0), json!(-1), json!(u64::MAX), json!(null), json!("1")].map(|value| changed(key, value)));
    }
    bad.extend([changed("n_head", json!(usize::MAX - 1)), changed("rotary_size", json!(7)), changed("eos", json!(vec![1; 100]))]);
    bad.extend([changed("labels", json!(vec![""; 70_000])), changed("labels", json!(["x".repeat(2000)]))]);
    for json in bad {
        let text = open(&json).unwrap_err();
        assert!(text.contains("a.safetensors: wingbeat.glm: ") && !text.contains('\n') && text.len() < 600, "{text}");
    }
}
