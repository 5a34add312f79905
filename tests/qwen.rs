//! Tests the models with a time mix of RWKV in the body of Qwen2: ARWKV-7, with and without gate and group norm, and QRWKV-6. Their weights are
//! seeded. `tools/golden-qwen.py` makes the same weights, and compares llama.cpp's logits with the formulas in float64.

use crate::support::{Golden, check_official, check_states, devices, kernel_cases, logits_of, made, nmse, options};
use std::path::Path;
use wingbeat::low_level::arch::{Arwkv7, Base, Blueprint, LerpOrder, LerpRanks, Qrwkv6, QwenBody, Ranks};
use wingbeat::low_level::session::{GgufVocab, Model, ModelSource, Options, convert_gguf};
use wingbeat::low_level::tensor::DType;
use wingbeat::low_level::weights::{Checkpoint, Conversion, Layout, NewTensor, convert, read_safetensors, write_safetensors};

/// A model of seeded weights, with its official logits.
struct Made {
    name: &'static str,
    blueprint: Box<dyn Blueprint>,
    golden: Golden,
}

/// Returns the models. Returns no models in the published package, which lacks the files of their logits.
fn all() -> Vec<Made> {
    let body = |head_size| {
        let published = QwenBody::published(3, 128, 200, head_size);
        QwenBody { base: Base { n_vocab: 40, ..published.base }, stop_ids: vec![1] }
    };
    let arwkv7 = |g, is_normed| Arwkv7 { body: body(64), ranks: Ranks { w: 8, a: 9, v: 7, g }, is_normed };
    let lerps = LerpRanks { mix: 6, decay: 8, order: LerpOrder::OFFICIAL };
    let models: [(&str, Box<dyn Blueprint>); 3] = [
        ("arwkv7", Box::new(arwkv7(10, true))),
        ("arwkv7-bare", Box::new(arwkv7(0, false))),
        ("qrwkv6", Box::new(Qrwkv6 { body: body(32), n_kv_head: 2, lerps, has_bias: true })),
    ];
    let made = |(name, blueprint)| Some(Made { name, blueprint, golden: Golden::of_made(&format!("made-{name}"))? });
    models.into_iter().filter_map(made).collect()
}

fn open(path: &Path, options: &Options) -> Model {
    Model::load(&ModelSource::Path(path.into()), options, &mut |_, _| ()).unwrap()
}

#[test]
fn logits_and_greedy_texts_are_the_official_ones() {
    for Made { name, blueprint, golden } in all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made.safetensors");
        made::write(&*blueprint, &path);
        for (how, options) in kernel_cases() {
            let model = open(&path, &options);
            assert_eq!((model.facts().architecture, &model.facts().stop_ids), (blueprint.facts().architecture, &vec![1]));
            check_official(&format!("{name}, {how}"), &model, &golden, options.deterministic);
        }
    }
}

/// Files of llama.cpp have other names and orientations. `tools/golden-qwen.py` compares the reader with files that llama.cpp reads.
#[test]
fn a_gguf_file_has_the_same_logits() {
    for Made { name, blueprint, golden } in all() {
        let folder = tempfile::tempdir().unwrap();
        let [path, gguf, quantised] = ["made.safetensors", "made.gguf", "quantised.gguf"].map(|file| folder.path().join(file));
        made::write(&*blueprint, &path);
        let input = Checkpoint::open(&path).unwrap();
        let what = Conversion { layout: Layout::Gguf, ..Conversion::default() };
        convert_gguf(&input, &gguf, &GgufVocab::Without, None, &what, &mut |_, _| ()).unwrap();
        let expected = logits_of(&open(&path, &options("cpu")), &golden.tokens);
        let model = open(&gguf, &options("cpu"));
        assert_eq!((model.facts().architecture, &model.facts().stop_ids), (blueprint.facts().architecture, &vec![1]));
        assert!(logits_of(&model, &golden.tokens) == expected, "{name}");
        // A file in block types has nearly the official logits.
        let plan = "q8_0".parse().unwrap();
        convert_gguf(&Checkpoint::open(&gguf).unwrap(), &quantised, &GgufVocab::Without, Some(&plan), &what, &mut |_, _| ()).unwrap();
        let error = nmse(&logits_of(&open(&quantised, &options("cpu")), &golden.tokens), &golden.logits);
        assert!((1e-7..1e-2).contains(&error), "{name}: {error:.1e}");
    }
}

/// Returns a tensor's name and bytes as a folder of Hugging Face has them. Outside of the time mix, the names are Qwen2's.
fn of_hugging_face(name: &str, bytes: &[u8], is_qrwkv6: bool) -> (String, Vec<u8>) {
    let end = [("blocks.", "model.layers."), ("emb.", "model.embed_tokens."), ("head.", "lm_head."), ("ln_out.", "model.norm.")];
    let mut pairs = vec![(".ln1.", ".input_layernorm."), (".ln2.", ".post_attention_layernorm.")];
    pairs.extend([(".ffn.gate.", ".mlp.gate_proj."), (".ffn.up.", ".mlp.up_proj."), (".ffn.down.", ".mlp.down_proj.")]);
    if is_qrwkv6 {
        pairs.extend([(".receptance.", ".q_proj."), (".key.", ".k_proj."), (".value.", ".v_proj."), (".output.", ".o_proj.")]);
    }
    pairs.push((".att.", if is_qrwkv6 { ".self_attn." } else { ".self_attn.time_mixer." }));
    let begun = end.iter().find_map(|(ours, theirs)| Some(format!("{theirs}{}", name.strip_prefix(ours)?))).unwrap_or(name.into());
    let renamed = pairs.iter().fold(begun, |name, (ours, theirs)| name.replace(ours, theirs));
    // wingbeat's files have the lerps in the order w, k, v, r, g, and Hugging Face's files in the order r, k, v, w, g. A row of w1 has 6 numbers per
    // lerp, and w2 has one matrix per lerp.
    let row = match name.rsplit('.').next() {
        Some("time_maa_w1") => 2 * 5 * 6,
        Some("time_maa_w2") => bytes.len(),
        _ => return (renamed, bytes.to_vec()),
    };
    let in_order = |row: &[u8]| [3, 1, 2, 0, 4].map(|i| row[i * row.len() / 5..][..row.len() / 5].to_vec()).concat();
    (renamed, bytes.chunks(row).flat_map(in_order).collect())
}

/// Folders of Hugging Face have Qwen2's names, a configuration with Qwen2's number of heads, and, for ARWKV-7, tensors that the model does not use.
#[test]
fn a_folder_of_hugging_face_has_the_same_logits() {
    for Made { name, blueprint, golden } in all() {
        let is_qrwkv6 = name == "qrwkv6";
        let folder = tempfile::tempdir().unwrap();
        let (path, theirs) = (folder.path().join("made.safetensors"), folder.path().join("theirs"));
        made::write(&*blueprint, &path);
        std::fs::create_dir(&theirs).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let (tensors, _) = read_safetensors(&bytes).unwrap();
        let entry = |name: String, shape: &[usize], bytes: Vec<u8>| {
            let data =
                move |out: &mut dyn std::io::Write| out.write_all(&bytes).map_err(|e| wingbeat::error::Error::io(e, Path::new("made")));
            NewTensor { name, dtype: DType::F16, shape: shape.to_vec(), data: Box::new(data) }
        };
        let mut written: Vec<NewTensor<'_>> = tensors
            .iter()
            .map(|(name, t)| {
                let (name, bytes) = of_hugging_face(name, t.2, is_qrwkv6);
                entry(name, &t.1, bytes)
            })
            .collect();
        // Layer 0 has a value residual that it does not use, and all layers have x_g.
        let unused = if is_qrwkv6 { vec![] } else { vec![("v0", vec![1, 1, 128]), ("v1", vec![128, 7]), ("v2", vec![7, 128])] };
        written.extend(unused.into_iter().map(|(part, shape)| {
            let n: usize = shape.iter().product();
            entry(format!("model.layers.0.self_attn.time_mixer.{part}"), &shape, vec![60; 2 * n])
        }));
        if name == "arwkv7-bare" {
            written.extend((0..3).map(|i| entry(format!("model.layers.{i}.self_attn.time_mixer.x_g"), &[1, 1, 128], vec![60; 256])));
        }
        write_safetensors(&theirs.join("model.safetensors"), &Default::default(), written, &mut |_, _| ()).unwrap();
        let config = r#"{"model_type": "rwkv_hybrid", "architectures": ["RwkvHybridForCausalLM"], "hidden_size": 128, "intermediate_size": 200,
            "num_hidden_layers": 3, "vocab_size": 40, "num_attention_heads": 4, "num_key_value_heads": 2, "num_wkv_heads": 2, "head_size": 64,
            "head_size_divisor": 8, "rms_norm_eps": 1e-6, "eos_token_id": 1, "wkv_version": 7, "tie_word_embeddings": false}"#;
        let config_of_qrwkv6 = r#"{"model_type": "rwkv6qwen2", "architectures": ["RWKV6Qwen2ForCausalLM"], "hidden_size": 128, "intermediate_size": 200,
            "num_hidden_layers": 3, "vocab_size": 40, "num_attention_heads": 4, "num_key_value_heads": 2, "attention_hidden_size": 128,
            "lora_rank_tokenshift": 6, "lora_rank_decay": 8, "rms_norm_eps": 1e-6, "eos_token_id": 1, "tie_word_embeddings": false}"#;
        std::fs::write(theirs.join("config.json"), if is_qrwkv6 { config_of_qrwkv6 } else { config }).unwrap();
        let model = open(&theirs, &options("cpu"));
        assert_eq!((model.facts().architecture, &model.facts().stop_ids), (blueprint.facts().architecture, &vec![1]));
        let expected = logits_of(&open(&path, &options("cpu")), &golden.tokens);
        assert!(logits_of(&model, &golden.tokens) == expected, "{name}");
        let [gguf, converted] = ["made.gguf", "converted.safetensors"].map(|file| folder.path().join(file));
        convert(&Checkpoint::open(&theirs).unwrap(), &converted, &Conversion::default(), &mut |_, _| ()).unwrap();
        assert!(logits_of(&open(&converted, &options("cpu")), &golden.tokens) == expected, "{name}, converted");
        let of_web_rwkv = Conversion { layout: Layout::WebRwkv, ..Conversion::default() };
        let refused = convert(&Checkpoint::open(&theirs).unwrap(), &folder.path().join("made.st"), &of_web_rwkv, &mut |_, _| ());
        assert!(refused.unwrap_err().to_string().contains("this model has the body of Qwen2"), "{name}");
        // llama.cpp's file has no x_g without a gate.
        let what = Conversion { layout: Layout::Gguf, ..Conversion::default() };
        convert_gguf(&Checkpoint::open(&theirs).unwrap(), &gguf, &GgufVocab::Without, None, &what, &mut |_, _| ()).unwrap();
        let x_g = Checkpoint::open(&gguf).unwrap().names().any(|name| name.ends_with(".x_g"));
        assert_eq!((x_g, logits_of(&open(&gguf, &options("cpu")), &golden.tokens) == expected), (name == "arwkv7", true), "{name}");
    }
}

#[test]
fn an_order_of_lerps_that_lacks_one_is_refused() {
    let Some(Made { blueprint, .. }) = all().into_iter().find(|made| made.name == "qrwkv6") else { return };
    let folder = tempfile::tempdir().unwrap();
    let [path, damaged, gguf] = ["made.safetensors", "damaged.safetensors", "made.gguf"].map(|file| folder.path().join(file));
    made::write(&*blueprint, &path);
    for order in ["wkvrr", "wkvr", "wkvrgx"] {
        let bytes = std::fs::read(&path).unwrap();
        let (tensors, mut metadata) = read_safetensors(&bytes).unwrap();
        metadata.insert("wingbeat.lerp_order".into(), order.into());
        let written = tensors.iter().map(|(name, (dtype, shape, bytes))| {
            let data = |out: &mut dyn std::io::Write| out.write_all(bytes).map_err(|e| wingbeat::error::Error::io(e, Path::new("made")));
            NewTensor { name: name.clone(), dtype: *dtype, shape: shape.clone(), data: Box::new(data) }
        });
        write_safetensors(&damaged, &metadata, written.collect(), &mut |_, _| ()).unwrap();
        let expected = format!("expected the letters wkvrg in some order as metadata value wingbeat.lerp_order, found {order:?}");
        let loaded = Model::load(&ModelSource::Path(damaged.clone()), &options("cpu"), &mut |_, _| ()).err().unwrap().to_string();
        assert!(loaded.contains(&expected), "{loaded}");
        let what = Conversion { layout: Layout::Gguf, ..Conversion::default() };
        let input = Checkpoint::open(&damaged).unwrap();
        let converted = convert_gguf(&input, &gguf, &GgufVocab::Without, None, &what, &mut |_, _| ()).unwrap_err().to_string();
        assert!(converted.contains(&expected), "{converted}");
    }
}

/// Other slots, forks and saved states change nothing.
#[test]
fn states_are_whole() {
    for Made { name, blueprint, golden } in all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made.safetensors");
        made::write(&*blueprint, &path);
        for device in devices() {
            let model = open(&path, &options(device));
            check_states(&format!("{name}, {device}"), &model, &golden, 17);
        }
    }
}
