//! The same GLM in every form that people have it in, and files that lie. The tables here are written from the files that exist, away
//! from the code that reads them.

use super::*;
use crate::tensor::DType;
use crate::weights::same::check;
use crate::weights::sets::{Made, as_pth, write_plain, write_sharded};
use crate::weights::testing::{Dice, Gguf, Pickle, put, q8_0, singles, zip};
use crate::weights::{Checkpoint, Conversion, Entry, Layout, convert, layer_of, write_safetensors};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::{TempDir, tempdir};

const C: usize = 32;
const H: usize = 4;
const G: usize = 2;
/// H · D is not the width.
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
    }
}

/// Under the canonical names. Whole numbers, which blocks of Q8_0 hold as they are.
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

/// q, k and v one below the other, as `fused` calls them.
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

/// As ChatGLM's own code has it, with a table that is of no use.
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

/// What the architecture above is given, and what a copy of it is.
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
    assert!(text.contains("expected an RWKV to write in web-rwkv's layout, found a GLM"), "{text}");
}

/// A way to write tensors into a folder.
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

/// No byte of a fused tensor moves.
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

/// Of a `.pth` a fused weight may lie transposed, and strides are the file's own.
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
    let turned = open(&[1, ROWS]).unwrap();
    let k = turned.tensor("model.layers.0.self_attn.k_proj.weight").unwrap();
    let expected: Vec<f32> = (0..G * D * C).map(|i| (H * D + i / C + ROWS * (i % C)) as f32).collect();
    assert_eq!((k.shape(), k.to_f32().unwrap()), (&[G * D, C][..], expected));
    for strides in [[C + 1, 1], [C, 2], [isize::MAX as usize, 1], [usize::MAX / 8, 1], [1, isize::MAX as usize]] {
        let text = open(&strides).unwrap_err().to_string();
        assert!(text.contains("a.pth: tensor model.layers.0.self_attn.") && !text.contains('\n'), "{text}");
    }
}

/// As llama.cpp's converter writes it.
fn gguf(architecture: &str, is_fused: bool, is_quantised: bool) -> Gguf {
    let model_type = if architecture == "glm4" { "glm4" } else { "chatglm" };
    let tensors = canonical(model_type);
    let tensors = if is_fused { fuse(tensors, "attn_qkv") } else { tensors };
    let tensors = renamed(
        tensors,
        &[
            ("post_attention_layernorm", "ffn_norm"),
            ("post_self_attn_layernorm", "post_attention_norm"),
            ("post_mlp_layernorm", "post_ffw_norm"),
            ("input_layernorm", "attn_norm"),
            ("model.layers", "blk"),
            ("self_attn.q_proj", "attn_q"),
            ("self_attn.k_proj", "attn_k"),
            ("self_attn.v_proj", "attn_v"),
            ("self_attn.o_proj", "attn_output"),
            ("mlp.gate_up_proj", "ffn_up"),
            ("mlp.down_proj", "ffn_down"),
            ("model.embed_tokens", "token_embd"),
            ("model.norm", "output_norm"),
            ("lm_head", "output"),
        ],
    );
    let mut g = Gguf::new(architecture);
    let key = |key: &str| format!("{architecture}.{key}");
    for (name, n) in [
        ("block_count", N_LAYER),
        ("context_length", 512),
        ("embedding_length", C),
        ("feed_forward_length", F),
        ("attention.head_count", H),
        ("attention.head_count_kv", G),
        ("attention.key_length", D),
        ("attention.value_length", D),
        ("rope.dimension_count", 8),
    ] {
        g.u32(&key(name), n as u32);
    }
    g.value(&key("attention.layer_norm_rms_epsilon"), 6, &1.5625e-7f32.to_le_bytes());
    g.value(&key("rope.freq_base"), 6, &5e6f32.to_le_bytes());
    g.u32("tokenizer.ggml.eos_token_id", 3).u32("tokenizer.ggml.eot_token_id", 5).u32("tokenizer.ggml.eom_token_id", 3);
    g.u32("tokenizer.ggml.padding_token_id", 3).u32("tokenizer.ggml.unknown_token_id", 9);
    g.tensor("rope_freqs.weight", 0, &[4], &singles(&[f32::NAN; 4]));
    for t in &tensors {
        match is_quantised && t.shape.len() == 2 {
            true => g.tensor(&t.name, 8, &t.shape, &q8_0(&t.numbers)),
            false => g.tensor(&t.name, 0, &t.shape, &singles(&t.numbers)),
        };
    }
    g
}

fn open_gguf(file: &[u8]) -> Result<Checkpoint> {
    Checkpoint::open(&put(&tempdir().unwrap(), "m.gguf", file))
}

#[test]
fn a_gguf_holds_the_same() {
    for (architecture, is_fused, is_quantised) in
        [("chatglm", true, false), ("chatglm", false, true), ("chatglm", true, true), ("glm4", false, false), ("glm4", true, true)]
    {
        let dir = tempdir().unwrap();
        let opened = Checkpoint::open(&put(&dir, "m.gguf", &gguf(architecture, is_fused, is_quantised).finish())).unwrap();
        assert_eq!((opened.kind(), opened.layout()), ("gguf", "gguf"));
        let stored = if is_quantised { DType::Q8_0 } else { DType::F32 };
        assert_eq!(opened.tensor("model.layers.1.self_attn.v_proj.weight").unwrap().dtype(), stored);
        check_all(&opened, architecture, &format!("{architecture} {is_fused} {is_quantised}"));
    }
}

#[test]
fn a_gguf_without_an_output_matrix_is_tied() {
    let mut g = Gguf::new("chatglm");
    for key in ["attention.head_count", "attention.head_count_kv"] {
        g.u32(&format!("chatglm.{key}"), 1);
    }
    g.u32("chatglm.embedding_length", 4).u32("chatglm.context_length", 9).u32("chatglm.rope.dimension_count", 2);
    g.value("chatglm.attention.layer_norm_rms_epsilon", 6, &1e-5f32.to_le_bytes());
    g.tensor("token_embd.weight", 0, &[2, 4], &singles(&[1., 2., 3., 4., 5., 6., 7., 8.]));
    let opened = open_gguf(&g.finish()).unwrap();
    assert_eq!(opened.tensor("lm_head.weight").unwrap().to_f32().unwrap(), [1., 2., 3., 4., 5., 6., 7., 8.]);
    // Without a length of keys, heads are as wide as llama.cpp takes them; without a base, it is 10000.
    let found = said(&opened);
    assert_eq!((found.head_size, found.rope_theta, found.attention_bias, found.eos, found.pad), (4, 1e4, false, vec![], None));
    assert_eq!(found.model_type, "chatglm");
}

#[test]
fn a_gguf_that_lies_is_refused() {
    /// What goes wrong, how, and what the refusal says.
    type Case = (&'static str, fn(&mut Gguf) -> &mut Gguf, &'static str);
    let cases: [Case; 16] = [
        (
            "sections",
            |g| g.value("chatglm.rope.dimension_sections", 9, &[&4u32.to_le_bytes()[..], &0u64.to_le_bytes()].concat()),
            "rope.dimension_sections",
        ),
        ("next", |g| g.u32("chatglm.nextn_predict_layers", 1), "expected no layers that predict more than the next token, found 1"),
        ("yarn", |g| g.text("chatglm.rope.scaling.type", "yarn"), "expected no scaling of RoPE, found yarn"),
        ("no heads", |g| g, "expected the number chatglm.attention.head_count in the metadata, found none"),
        ("text", |g| g.text("chatglm.attention.head_count", "many"), "chatglm.attention.head_count: expected a number, found many"),
        ("negative", |g| g.value("chatglm.attention.head_count", 5, &(-4i32).to_le_bytes()), "expected a number, found -4"),
        ("0 heads", |g| heads(g, 0, 0, 4), "expected heads that divide the width, found 0 and 4"),
        ("no kv heads", |g| heads(g, 2, 0, 4), "expected key heads that divide the query heads, found 0 and 2"),
        ("odd heads", |g| heads(g, 3, 1, 4), "expected heads that divide the width, found 3 and 4"),
        ("values", |g| heads(g, 1, 1, 4).u32("chatglm.attention.value_length", 3), "expected keys and values of one width, found 4 and 3"),
        ("width", |g| heads(g, 1, 1, 6), "chatglm.embedding_length 4 as the tensors have it, found 6"),
        ("layers", |g| heads(g, 1, 1, 4).u32("chatglm.block_count", 3), "chatglm.block_count 0 as the tensors have it, found 3"),
        ("vocabulary", |g| heads(g, 1, 1, 4).u32("chatglm.vocab_size", 3), "chatglm.vocab_size 2 as"),
        ("huge heads", |g| heads(g, 1, 1, 4).u32("chatglm.attention.key_length", u32::MAX), "expected heads of at most 16777216 rows"),
        (
            "fused",
            |g| heads(g, 1, 1, 4).tensor("blk.0.attn_qkv.weight", 0, &[11, 4], &[0; 176]),
            "tensor blk.0.attn_qkv.weight: expected 12 rows",
        ),
        (
            "rows",
            |g| heads(g, 1, 1, 4).tensor("blk.0.attn_k.weight", 0, &[5, 4], &[0; 80]),
            "k_proj.weight: expected the shape [4, 4], 1 heads of 4, found [5, 4]",
        ),
    ];
    fn heads(g: &mut Gguf, h: u32, kv: u32, width: u32) -> &mut Gguf {
        g.u32("chatglm.attention.head_count", h).u32("chatglm.attention.head_count_kv", kv).u32("chatglm.embedding_length", width);
        g.u32("chatglm.context_length", 9).u32("chatglm.rope.dimension_count", 2);
        g.value("chatglm.attention.layer_norm_rms_epsilon", 6, &1e-5f32.to_le_bytes());
        g.tensor("token_embd.weight", 0, &[2, 4], &[0; 32])
    }
    for (name, build, expected) in cases {
        let text = open_gguf(&build(&mut Gguf::new("chatglm")).finish()).err().map_or("accepted".into(), |e| e.to_string());
        assert!(text.contains(expected) && !text.contains('\n') && text.len() < 400, "{name}: {text}");
    }
}

#[test]
fn a_gguf_of_glm4_ends_at_the_call_of_a_tool_too() {
    let eos = |n_vocab: usize, ids: &[(&str, u32)]| {
        let mut g = Gguf::new("glm4");
        for (name, n) in [("embedding_length", 2), ("context_length", 9), ("attention.head_count", 1), ("attention.head_count_kv", 1)] {
            g.u32(&format!("glm4.{name}"), n);
        }
        g.u32("glm4.rope.dimension_count", 2).value("glm4.attention.layer_norm_rms_epsilon", 6, &1e-5f32.to_le_bytes());
        for (name, id) in ids {
            g.u32(&format!("tokenizer.ggml.{name}_token_id"), *id);
        }
        said(&open_gguf(&g.tensor("token_embd.weight", 1, &[n_vocab, 2], &vec![0; n_vocab * 4]).finish()).unwrap()).eos
    };
    let (end, user) = (("eos", 151329), ("eot", 151336));
    assert_eq!(eos(151_552, &[end, user]), [151329, 151336, 151338]);
    assert_eq!(eos(151_552, &[end, user, ("eom", 151338)]), [151329, 151336, 151338]);
    assert_eq!(eos(151_552, &[end]), [151329], "a model that does not talk");
    assert_eq!(eos(151_551, &[end, user]), [151329, 151336], "another vocabulary");
}

#[test]
fn a_gguf_of_the_hf_files_is_told_by_its_defaults() {
    let open = |architecture: &str, rotary: u32| {
        let mut g = Gguf::new(architecture);
        let key = |key: &str| format!("{architecture}.{key}");
        for (name, n) in [("embedding_length", 4), ("context_length", 4), ("attention.head_count", 1), ("attention.head_count_kv", 1)] {
            g.u32(&key(name), n);
        }
        g.u32(&key("rope.dimension_count"), rotary).value(&key("rope.freq_base"), 6, &1e4f32.to_le_bytes());
        g.value(&key("attention.layer_norm_rms_epsilon"), 6, &1e-5f32.to_le_bytes()).tensor("token_embd.weight", 0, &[2, 4], &[0; 32]);
        said(&open_gguf(&g.finish()).unwrap())
    };
    let lossy = open("chatglm", 2);
    assert_eq!(lossy.model_type, "glm");
    let warnings = lossy.warnings();
    assert!(
        warnings.len() == 1 && warnings[0].contains("rms_norm_eps 1e-5 and rope_theta 10000") && warnings[0].contains("--rope-theta"),
        "{warnings:?}"
    );
    // GLM-Edge turns whole heads; GLM-4-0414 has these numbers.
    assert!(open("chatglm", 4).warnings().is_empty() && open("glm4", 2).warnings().is_empty());
}

#[test]
fn a_lost_rope_ratio_is_warned_of() {
    let of = |model_type: &str, rope_theta, max_context| Glm { rope_theta, max_context, ..glm(model_type) }.warnings();
    let warnings = of("glm", 1e4, 131072);
    assert!(warnings.len() == 1 && !warnings[0].contains('\n'), "{warnings:?}");
    for part in ["rope_theta 10000", "131072 tokens", "5e6 for glm-4-9b-chat, 1e8 for its -1m", "--rope-theta"] {
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
        (json!({"hidden_size": 64}), "expected hidden_size 32 as model.embed_tokens.weight has it, found 64"),
        (json!({"vocab_size": 12}), "expected vocab_size 11"),
        (json!({"num_hidden_layers": 3}), "expected num_hidden_layers 2 as the number of layers has it, found 3"),
        (json!({"intermediate_size": 65}), "expected intermediate_size 64 as model.layers.0.mlp.gate_up_proj.weight has it, found 65"),
        (json!({"num_attention_heads": 8}), "q_proj.weight: expected the shape [128, 32], 8 heads of 16, found [64, 32]"),
        (json!({"head_dim": 32}), "q_proj.weight: expected the shape [128, 32], 4 heads of 32, found"),
        (json!({"num_key_value_heads": 4}), "k_proj.weight: expected the shape [64, 32], 4 heads of 16, found"),
        (json!({"attention_bias": false}), "q_proj.bias: expected no bias, as the configuration says, found one"),
        (json!({"model_type": "glm4"}), "post_self_attn_layernorm.weight: expected it, as in every glm4, found none"),
    ];
    for (more, expected) in cases {
        let text = refusal(&canonical("glm"), hf_config("glm"), more);
        assert!(text.contains("config.json") && text.contains(expected), "{text}");
    }
    let text = refusal(&canonical("glm4"), hf_config("glm"), json!({}));
    assert!(text.contains("post_self_attn_layernorm.weight: expected it in a glm4 only, found it in a glm"), "{text}");
    let without_biases: Vec<Made> = canonical("glm").into_iter().filter(|t| !t.name.ends_with(".bias")).collect();
    let text = refusal(&without_biases, hf_config("glm"), json!({}));
    assert!(text.contains("q_proj.bias: expected a bias, as the configuration says, found none"), "{text}");
    assert_eq!(refusal(&without_biases, hf_config("glm"), json!({"attention_bias": false})), "accepted");
    for name in ["self_attn.o_proj.bias", "mlp.down_proj.bias", "input_layernorm.bias"] {
        let mut more = canonical("glm");
        more.push(Made { name: format!("model.layers.1.{name}"), shape: vec![C], numbers: vec![0.0; C] });
        let text = refusal(&more, hf_config("glm"), json!({}));
        assert!(text.contains(&format!("{name}: expected no bias here, found one")), "{text}");
    }
    let text = refusal(&original("transformer."), original_config(), json!({"kv_channels": 8}));
    assert!(text.contains("query_key_value.weight: expected 64 rows, of 4 + 2 x 2 heads of 8, found the shape [128, 32]"), "{text}");
    let text = refusal(&original("transformer."), original_config(), json!({"ffn_hidden_size": 65}));
    assert!(text.contains("expected ffn_hidden_size 64"), "{text}");
    let rwkv = [Made { name: "emb.weight".into(), shape: vec![1, 1], numbers: vec![0.0] }];
    let text = refusal(&rwkv, hf_config("glm"), json!({}));
    assert!(text.contains("expected the tensors of a GLM, as its configuration says, found emb.weight"), "{text}");
    let mut seeing = canonical("glm");
    seeing.push(Made { name: "model.visual.patch_embed.proj.weight".into(), shape: vec![1], numbers: vec![0.0] });
    let text = refusal(&seeing, hf_config("glm"), json!({}));
    assert!(text.contains("tensor model.visual.patch_embed.proj.weight: expected a GLM of text"), "{text}");
}

#[test]
fn without_a_configuration_it_is_said_what_is_missing_and_why() {
    let why = "expected a config.json of a GLM beside it, found none: no shape tells how many heads there are and how they turn";
    for tensors in [original("transformer."), canonical("glm")] {
        for bin in [false, true] {
            let dir = tempdir().unwrap();
            write_sharded(dir.path(), &tensors, bin);
            let text = Checkpoint::open(dir.path()).unwrap_err().to_string();
            assert!(text.contains(why) && text.contains("(download config.json into the same folder)"), "{text}");
            // One of something else is no help.
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
fn a_head_that_classifies_has_its_name() {
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
        let entry = Entry { name: "lm_head.weight".into(), dtype: DType::U8, shape: vec![0], data: Box::new(|_| Ok(())) };
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
