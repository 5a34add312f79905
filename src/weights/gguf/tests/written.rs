//! Tests that written files hold what the reader reads, and what the independent writer of the tests writes.

use super::super::header::ListedTensor;
use super::*;
use crate::quant;
use crate::weights::sets::{as_pth, official};
use crate::weights::testing::pth;
use crate::weights::{GROUP_NORM_EPS, GgufContent, Lora, NewTensor, write_safetensors};
use std::path::PathBuf;

/// Returns the model as an official checkpoint with F32 tensors.
fn checkpoint(dir: &tempfile::TempDir, model: &Numbers) -> Checkpoint {
    let bytes: Vec<Vec<u8>> = model.iter().map(|(.., x)| singles(x)).collect();
    let tensors: Vec<_> = model.iter().zip(&bytes).map(|((n, s, _), b)| (n.as_str(), DType::F32, s.as_slice(), b.as_slice())).collect();
    Checkpoint::open(&put(dir, "m.pth", &pth(&tensors))).unwrap()
}

/// Converts a checkpoint to GGUF. `formats` names a format for tensors whose names contain a text.
fn converted(dir: &tempfile::TempDir, input: &Checkpoint, dtype: Option<DType>, formats: &[(&str, &str)]) -> Result<PathBuf> {
    let out = dir.path().join("out.gguf");
    let format = |name: &str| formats.iter().find(|(part, _)| name.contains(part)).map(|(_, format)| quant::find(format).unwrap());
    let formats = input.names().filter_map(|name| Some((name.to_string(), format(name)?))).collect();
    let content = GgufContent { formats, ..GgufContent::default() };
    let what = Conversion { dtype, layout: Layout::Gguf, gguf: Some(&content), ..Conversion::default() };
    convert(input, &out, &what, &mut |_, _| ()).map(|()| out)
}

fn listed(file: &[u8]) -> BTreeMap<String, (DType, Vec<usize>, &[u8])> {
    let header = Header::read(file, file.len() as u64).unwrap();
    let of = |t: ListedTensor| (t.name.to_string(), (t.dtype, t.shape, &file[t.bytes]));
    header.tensors().unwrap().into_iter().map(of).collect()
}

#[test]
fn the_tensors_equal_those_of_an_independent_writer() {
    let dir = tempfile::tempdir().unwrap();
    for (architecture, model) in [("rwkv6", filled(v6())), ("rwkv7", filled(v7(true))), ("rwkv7", filled(v7(false)))] {
        let out = converted(&dir, &checkpoint(&dir, &model), Some(DType::F32), &[]).unwrap();
        let (ours, theirs) = (std::fs::read(&out).unwrap(), written(architecture, &[], &model, false));
        let (ours, theirs) = (listed(&ours), listed(&theirs));
        assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
        // llama.cpp adds missing dimensions, so leading dimensions of size 1 do not count.
        let bare = |shape: &[usize]| shape.iter().copied().skip_while(|n| *n == 1).collect::<Vec<_>>();
        for (name, (dtype, shape, bytes)) in &ours {
            let theirs = &theirs[name];
            assert_eq!((*dtype, bare(shape)), (theirs.0, bare(&theirs.1)), "{name}");
            assert!(*bytes == theirs.2, "{name}");
        }
        same(&Checkpoint::open(&out).unwrap(), &model);
    }
}

#[test]
fn the_metadata_have_the_sizes() {
    let dir = tempfile::tempdir().unwrap();
    let keys = |model: Shapes, dtype| {
        let out = converted(&dir, &checkpoint(&dir, &filled(model)), dtype, &[]).unwrap();
        Checkpoint::open(&out).unwrap().metadata().clone()
    };
    let v6 = keys(v6(), None);
    let found = |keys: &BTreeMap<String, String>, names: &[&str]| names.iter().map(|name| keys[*name].clone()).collect::<Vec<_>>();
    let names = ["rwkv6.embedding_length", "rwkv6.block_count", "rwkv6.feed_forward_length", "rwkv6.wkv.head_size", "rwkv6.vocab_size"];
    assert_eq!(found(&v6, &names), ["64", "5", "96", "16", "11"]);
    let names = ["rwkv6.time_mix_extra_dim", "rwkv6.time_decay_extra_dim", "rwkv6.token_shift_count", "rwkv6.context_length"];
    assert_eq!(found(&v6, &names), ["6", "64", "2", "1048576"]);
    let names = ["rwkv6.attention.layer_norm_epsilon", "general.name", "general.file_type", "tokenizer.ggml.model"];
    assert_eq!(found(&v6, &names), ["0.00001", "m", "1", "no_vocab"]);
    let v7 = keys(v7(true), Some(DType::BF16));
    let ranks = ["decay", "iclr", "value_residual_mix", "gate"].map(|name| v7[&format!("rwkv7.attention.{name}_lora_rank")].clone());
    assert_eq!(ranks, ["8", "5", "3", "64"]);
    assert_eq!(found(&v7, &["general.file_type", "rwkv7.attention.head_count"]), ["32", "0"]);
}

#[test]
fn vectors_are_f32_and_matrices_have_the_chosen_type() {
    let dir = tempfile::tempdir().unwrap();
    let input = checkpoint(&dir, &filled(v7(true)));
    let out = converted(&dir, &input, None, &[("emb", "q4_0"), ("ffn", "q8_0"), ("w1", "q8_0"), ("ln1", "q8_0")]).unwrap();
    let file = std::fs::read(&out).unwrap();
    let tensors = listed(&file);
    let types = [
        ("token_embd.weight", DType::Q4_0),
        ("output.weight", DType::F16),
        ("blk.1.channel_mix_key.weight", DType::Q8_0),
        ("blk.1.channel_mix_lerp_k.weight", DType::F32),
        ("blk.1.time_mix_w1.weight", DType::F32),
        ("blk.1.time_mix_a1.weight", DType::F16),
        ("blk.1.attn_norm.weight", DType::F32),
        ("blk.1.time_mix_r_k.weight", DType::F32),
        ("blk.1.time_mix_lerp_fused.weight", DType::F32),
    ];
    for (name, dtype) in types {
        assert_eq!(tensors[name].0, dtype, "{name}");
    }
    let (back, original) = (Checkpoint::open(&out).unwrap(), input.tensor("emb.weight").unwrap().to_f32().unwrap());
    let found = back.tensor("emb.weight").unwrap().to_f32().unwrap();
    assert!(found.iter().zip(&original).all(|(a, b)| (a - b).abs() < 20.0), "half a step of 254 / 15");
}

#[test]
fn blocks_of_the_input_are_copied() {
    let dir = tempfile::tempdir().unwrap();
    let model = filled(v7(true));
    let file = written("rwkv7", &[("wkv.head_size", 16)], &model, true);
    let input = open(&dir, &file);
    let out = converted(&dir, &input, None, &[(".weight", "q8_0")]).unwrap();
    let (first, file_again) = (listed(&file), std::fs::read(&out).unwrap());
    for (name, (dtype, _, bytes)) in listed(&file_again) {
        if dtype == DType::Q8_0 {
            assert!(first[&name].2 == bytes, "{name}");
        }
    }
    same(&Checkpoint::open(&out).unwrap(), &model);
    // Blocks of another type are encoded from the values. Without a format, blocks become floats.
    let out = converted(&dir, &input, None, &[("emb", "q4_0")]).unwrap();
    let again = Checkpoint::open(&out).unwrap();
    let types = ["emb.weight", "head.weight"].map(|name| again.stored_dtype(name).unwrap());
    assert_eq!(types, [DType::Q4_0, DType::F16]);
}

#[test]
fn an_adapter_is_merged_before_the_encoding() {
    let dir = tempfile::tempdir().unwrap();
    let input = checkpoint(&dir, &filled(v7(true)));
    let entry = |name: &str, shape: [usize; 2]| {
        let bytes = singles(&(0..shape[0] * shape[1]).map(|i| (i % 7) as f32 - 3.0).collect::<Vec<_>>());
        let data = move |out: &mut dyn std::io::Write| out.write_all(&bytes).map_err(|e| Error::file(e.to_string()));
        NewTensor { name: name.into(), dtype: DType::F32, shape: shape.into(), data: Box::new(data) }
    };
    let adapter = dir.path().join("adapter.safetensors");
    let pair = vec![entry("blocks.0.att.key.lora_A", [2, C]), entry("blocks.0.att.key.lora_B", [C, 2])];
    write_safetensors(&adapter, &BTreeMap::new(), pair, &mut |_, _| ()).unwrap();
    let lora = Lora::open(&adapter, Some(1.0), &input).unwrap();
    let key = "blocks.0.att.key.weight";
    let merged = |layout, content: Option<&GgufContent>| {
        let out = dir.path().join("merged");
        let what = Conversion { dtype: Some(DType::F32), layout, lora: Some(&lora), gguf: content, ..Conversion::default() };
        convert(&input, &out, &what, &mut |_, _| ()).unwrap();
        Checkpoint::open(&out).unwrap().tensor(key).unwrap().to_f32().unwrap()
    };
    let exact = merged(Layout::Official, None);
    assert!(merged(Layout::Gguf, None) == exact && exact != input.tensor(key).unwrap().to_f32().unwrap());
    let formats = BTreeMap::from([(key.to_string(), quant::find("q8_0").unwrap())]);
    let blocks = merged(Layout::Gguf, Some(&GgufContent { formats, ..GgufContent::default() }));
    assert!(blocks.iter().zip(&exact).all(|(a, b)| (a - b).abs() < 1.0) && blocks != exact);
}

#[test]
fn a_model_without_a_place_in_llama_cpp_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refusal = |input: &Checkpoint| {
        let e = converted(&dir, input, None, &[]).unwrap_err();
        assert!(e.hint.is_some(), "{e}");
        e.to_string()
    };
    for version in ["v4", "v5.2"] {
        let input = Checkpoint::open(&put(&dir, "old.pth", &as_pth(&official(version)))).unwrap();
        assert!(refusal(&input).contains("old.pth: the layout gguf exists for RWKV-6, RWKV-7, ARWKV-7, QRWKV-6 and GLM-4 only"));
    }
    let with = |name: &str| {
        let mut model = filled(v7(true));
        model.push((name.to_string(), vec![2, 2], vec![0.0; 4]));
        refusal(&checkpoint(&dir, &model))
    };
    for name in ["blocks.1.ffn.s_emb.weight", "blocks.1.att.time_state", "score.weight"] {
        assert!(with(name).contains(&format!("tensor {name}: the layout gguf has no name for this tensor")));
    }
    let without = |name: &str| {
        let model: Numbers = filled(v7(true)).into_iter().filter(|(n, ..)| n != name).collect();
        refusal(&checkpoint(&dir, &model))
    };
    for name in ["blocks.0.ln0.weight", "blocks.1.att.x_w"] {
        assert!(without(name).contains(&format!("tensor {name}: the tensor is missing")));
    }
    let input = checkpoint(&dir, &filled(v7(true)));
    let what = Conversion { layout: Layout::Gguf, shard_bytes: Some(1), ..Conversion::default() };
    let said = convert(&input, &dir.path().join("x"), &what, &mut |_, _| ()).unwrap_err().to_string();
    assert!(said.contains("the layout gguf writes one file"), "{said}");
    let path = dir.path().join("eps.safetensors");
    convert(&input, &path, &Conversion::default(), &mut |_, _| ()).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let (tensors, mut metadata) = crate::weights::read_safetensors(&bytes).unwrap();
    metadata.insert(GROUP_NORM_EPS.into(), "0.00001".into());
    let entries = tensors.into_iter().map(|(name, (dtype, shape, bytes))| {
        let data = move |out: &mut dyn std::io::Write| out.write_all(bytes).map_err(|e| Error::file(e.to_string()));
        NewTensor { name, dtype, shape, data: Box::new(data) }
    });
    let other = dir.path().join("other.safetensors");
    write_safetensors(&other, &metadata, entries.collect(), &mut |_, _| ()).unwrap();
    assert!(refusal(&Checkpoint::open(&other).unwrap()).contains("no key for the group norm's epsilon 0.00001"));
    assert!(!dir.path().join("out.gguf").exists());
}
