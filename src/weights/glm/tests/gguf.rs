//! GGUF files of GLM, in the form that llama.cpp's converters write.

use super::*;
use crate::weights::GgufContent;

/// Returns a GGUF file of a model in the form that llama.cpp's converter writes.
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
fn a_written_gguf_holds_the_same() {
    let dir = tempdir().unwrap();
    let write = |input: &Checkpoint| {
        let out = dir.path().join("out.gguf");
        // The ids that end a text belong to the vocabulary, which the caller of `convert` gives.
        let content = GgufContent { values: input.gguf_values("tokenizer.").unwrap(), ..GgufContent::default() };
        let what = Conversion { layout: Layout::Gguf, dtype: Some(DType::F32), gguf: Some(&content), ..Conversion::default() };
        convert(input, &out, &what, &mut |_, _| ()).and_then(|()| Checkpoint::open(&out))
    };
    for is_quantised in [false, true] {
        let opened = open_gguf(&gguf("glm4", true, is_quantised).finish()).unwrap();
        let back = write(&opened).unwrap();
        check_all(&back, "glm4", "written");
        assert_eq!(said(&back), said(&opened));
        assert_eq!(back.metadata()["general.architecture"], "glm4");
    }
    let opened = open_gguf(&gguf("chatglm", true, false).finish()).unwrap();
    let text = write(&opened).unwrap_err().to_string();
    assert!(text.contains("llama.cpp needs heads that together have the width 32, found 4 heads of 16 channels"), "{text}");
}

#[test]
fn a_tied_output_matrix_is_written_once() {
    let dir = tempdir().unwrap();
    let mut g = Gguf::new("chatglm");
    for key in ["attention.head_count", "attention.head_count_kv"] {
        g.u32(&format!("chatglm.{key}"), 1);
    }
    g.u32("chatglm.embedding_length", 4).u32("chatglm.context_length", 9).u32("chatglm.rope.dimension_count", 2);
    g.value("chatglm.attention.layer_norm_rms_epsilon", 6, &1e-5f32.to_le_bytes());
    g.tensor("token_embd.weight", 0, &[2, 4], &singles(&[1., 2., 3., 4., 5., 6., 7., 8.]));
    g.tensor("blk.0.ffn_down.weight", 0, &[4, 2], &singles(&[1.; 8]));
    let opened = Checkpoint::open(&put(&dir, "tied.gguf", &g.finish())).unwrap();
    let out = dir.path().join("out.gguf");
    let what = Conversion { layout: Layout::Gguf, dtype: Some(DType::F32), ..Conversion::default() };
    convert(&opened, &out, &what, &mut |_, _| ()).unwrap();
    assert!(!std::fs::read(&out).unwrap().windows(13).any(|text| text == b"output.weight"));
    assert_eq!(Checkpoint::open(&out).unwrap().tensor("lm_head.weight").unwrap().to_f32().unwrap()[7], 8.0);
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
    // Defaults of llama.cpp: heads of width / H channels, and a base of 10000.
    let found = said(&opened);
    assert_eq!((found.head_size, found.rope_theta, found.attention_bias, found.eos, found.pad), (4, 1e4, false, vec![], None));
    assert_eq!(found.model_type, "chatglm");
}

#[test]
fn a_gguf_that_contradicts_itself_is_refused() {
    /// A case: its name, a change to the file, and a part of the expected error message.
    type Case = (&'static str, fn(&mut Gguf) -> &mut Gguf, &'static str);
    let cases: [Case; 16] = [
        (
            "sections",
            |g| g.value("chatglm.rope.dimension_sections", 9, &[&4u32.to_le_bytes()[..], &0u64.to_le_bytes()].concat()),
            "rope.dimension_sections",
        ),
        (
            "next",
            |g| g.u32("chatglm.nextn_predict_layers", 1),
            "chatglm.nextn_predict_layers: layers that predict further tokens are not supported, found 1",
        ),
        (
            "yarn",
            |g| g.text("chatglm.rope.scaling.type", "yarn"),
            "chatglm.rope.scaling.type: scaling of rotary embeddings is not supported, found yarn",
        ),
        ("no heads", |g| g, "have no chatglm.attention.head_count"),
        (
            "text",
            |g| g.text("chatglm.attention.head_count", "many"),
            "chatglm.attention.head_count: expected a number as metadata value, found many",
        ),
        (
            "negative",
            |g| g.value("chatglm.attention.head_count", 5, &(-4i32).to_le_bytes()),
            "expected a number as metadata value, found -4",
        ),
        ("0 heads", |g| heads(g, 0, 0, 4), "expected a width that is a multiple of the number of heads, found a width of 4 and 0"),
        (
            "no kv heads",
            |g| heads(g, 2, 0, 4),
            "expected a number of query heads that is a multiple of the key heads, found 2 query heads and 0 key heads",
        ),
        ("odd heads", |g| heads(g, 3, 1, 4), "expected a width that is a multiple of the number of heads, found a width of 4 and 3"),
        (
            "values",
            |g| heads(g, 1, 1, 4).u32("chatglm.attention.value_length", 3),
            "expected the same size of keys and values, found keys of 4 and values of 3",
        ),
        ("width", |g| heads(g, 1, 1, 6), "the metadata set chatglm.embedding_length to 6, but the tensors have 4"),
        (
            "layers",
            |g| heads(g, 1, 1, 4).u32("chatglm.block_count", 3),
            "the metadata set chatglm.block_count to 3, but the tensors have 0",
        ),
        (
            "vocabulary",
            |g| heads(g, 1, 1, 4).u32("chatglm.vocab_size", 3),
            "the metadata set chatglm.vocab_size to 3, but the tensors have 2",
        ),
        (
            "huge heads",
            |g| heads(g, 1, 1, 4).u32("chatglm.attention.key_length", u32::MAX),
            "expected query heads of at most 16777216 rows together",
        ),
        (
            "fused",
            |g| heads(g, 1, 1, 4).tensor("blk.0.attn_qkv.weight", 0, &[11, 4], &[0; 176]),
            "tensor blk.0.attn_qkv.weight: expected 12 rows",
        ),
        (
            "rows",
            |g| heads(g, 1, 1, 4).tensor("blk.0.attn_k.weight", 0, &[5, 4], &[0; 80]),
            "k_proj.weight: expected the shape [4, 4] (1 heads of 4), found the shape [5, 4]",
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
fn a_gguf_of_glm4_also_ends_at_a_tool_call() {
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
    assert_eq!(eos(151_552, &[end]), [151329], "a base model");
    assert_eq!(eos(151_551, &[end, user]), [151329, 151336], "another vocabulary");
}

#[test]
fn an_impossible_context_is_replaced() {
    for (architecture, said, used) in [("chatglm", 0, 8192), ("glm4", u32::MAX, 8192), ("chatglm", 512, 512), ("glm4", 2, 2)] {
        let mut g = Gguf::new(architecture);
        for (name, n) in [("embedding_length", 2), ("context_length", said), ("attention.head_count", 1), ("attention.head_count_kv", 1)] {
            g.u32(&format!("{architecture}.{name}"), n);
        }
        g.u32(&format!("{architecture}.rope.dimension_count"), 2);
        g.value(&format!("{architecture}.attention.layer_norm_rms_epsilon"), 6, &1e-5f32.to_le_bytes());
        let opened = open_gguf(&g.tensor("token_embd.weight", 0, &[2, 2], &[0; 16]).finish()).unwrap();
        assert_eq!(crate::weights::Glm::parse(&opened.metadata()[GLM]).unwrap().max_context, used, "{architecture} {said}");
    }
}

#[test]
fn a_gguf_of_the_hf_files_is_recognised_by_its_defaults() {
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
    assert_eq!((lossy.model_type.as_str(), lossy.max_context), ("glm", 8192), "the width is no context");
    let warnings = lossy.warnings();
    assert!(
        warnings.len() == 1 && warnings[0].contains("rms_norm_eps 1e-5 and rope_theta 10000") && warnings[0].contains("`rope_theta`"),
        "{warnings:?}"
    );
    // No warning: GLM-Edge rotates whole heads, and for GLM-4-0414 these values are correct.
    assert!(open("chatglm", 4).warnings().is_empty() && open("glm4", 2).warnings().is_empty());
}
