//! Tests with models in the form that llama.cpp's converter writes, and with hostile headers.

mod hostile;
mod written;

use super::super::testing::{Dice, Gguf, gguf, put, q8_0, singles};
use super::super::{Checkpoint, Conversion, Layout, convert};
use super::*;
use crate::tensor::DType;

fn parse(file: &[u8]) -> Result<(Vec<LocatedTensor>, BTreeMap<String, String>)> {
    super::parse(file, file.len() as u64)
}

const C: usize = 64;
const F: usize = 96;
const V: usize = 11;

type Shapes = Vec<(String, Vec<usize>)>;

fn common(block: usize, att: &[&str]) -> Shapes {
    let mut list: Shapes = ["ln1", "ln2", "att.ln_x"]
        .iter()
        .flat_map(|n| [(format!("blocks.{block}.{n}.weight"), vec![C]), (format!("blocks.{block}.{n}.bias"), vec![C])])
        .collect();
    list.extend(att.iter().map(|n| (format!("blocks.{block}.att.{n}.weight"), vec![C, C])));
    list.push((format!("blocks.{block}.ffn.key.weight"), vec![F, C]));
    list.push((format!("blocks.{block}.ffn.value.weight"), vec![C, F]));
    list
}

fn shapes(n_layers: usize, block: impl Fn(usize) -> Shapes) -> Shapes {
    let mut list: Shapes = vec![("emb.weight".into(), vec![V, C]), ("head.weight".into(), vec![V, C])];
    list.extend(["blocks.0.ln0.weight", "blocks.0.ln0.bias", "ln_out.weight", "ln_out.bias"].map(|n| (n.to_string(), vec![C])));
    list.extend((0..n_layers).flat_map(block));
    list
}

/// Returns the tensors of an RWKV-7 model with or without a gate. The rank of the gate's low-rank pair is C, so its matrices are square.
fn v7(gate: bool) -> Shapes {
    shapes(3, |b| {
        let mut list = common(b, &["receptance", "key", "value", "output"]);
        let names = ["x_r", "x_w", "x_k", "x_v", "x_a", "w0", "a0", "k_k", "k_a"];
        list.extend(names.iter().map(|n| (format!("blocks.{b}.att.{n}"), vec![1, 1, C])));
        list.push((format!("blocks.{b}.att.r_k"), vec![4, 16]));
        list.push((format!("blocks.{b}.ffn.x_k"), vec![1, 1, C]));
        let mut pairs = vec![("w", 8), ("a", 5)];
        if gate {
            list.push((format!("blocks.{b}.att.x_g"), vec![1, 1, C]));
            pairs.push(("g", C));
        }
        if b > 0 {
            list.push((format!("blocks.{b}.att.v0"), vec![1, 1, C]));
            pairs.push(("v", 3));
        }
        for (letter, rank) in pairs {
            list.push((format!("blocks.{b}.att.{letter}1"), vec![C, rank]));
            list.push((format!("blocks.{b}.att.{letter}2"), vec![rank, C]));
        }
        list
    })
}

fn v6() -> Shapes {
    shapes(5, |b| {
        let mut list = common(b, &["receptance", "key", "value", "gate", "output"]);
        let att = ["time_maa_x", "time_maa_w", "time_maa_k", "time_maa_v", "time_maa_r", "time_maa_g", "time_decay"];
        list.extend(att.iter().map(|n| (format!("blocks.{b}.att.{n}"), vec![1, 1, C])));
        list.extend(["time_maa_k", "time_maa_r"].iter().map(|n| (format!("blocks.{b}.ffn.{n}"), vec![1, 1, C])));
        list.push((format!("blocks.{b}.ffn.receptance.weight"), vec![C, C]));
        list.push((format!("blocks.{b}.att.time_faaaa"), vec![4, 16]));
        list.push((format!("blocks.{b}.att.time_maa_w1"), vec![C, 5 * 6]));
        list.push((format!("blocks.{b}.att.time_maa_w2"), vec![5, 6, C]));
        list.push((format!("blocks.{b}.att.time_decay_w1"), vec![C, C])); // square
        list.push((format!("blocks.{b}.att.time_decay_w2"), vec![C, C]));
        list
    })
}

type Numbers = Vec<(String, Vec<usize>, Vec<f32>)>;

fn filled(shapes: Shapes) -> Numbers {
    let mut dice = Dice(11);
    let numbers = |n: usize, dice: &mut Dice| (0..n).map(|_| dice.roll(255) as f32 - 127.0).collect::<Vec<_>>();
    shapes.into_iter().map(|(name, shape)| (name, shape.clone(), numbers(shape.iter().product(), &mut dice))).collect()
}

/// Returns the model as a GGUF file. If `quantised`, each matrix that consists of whole blocks is stored as Q8_0.
fn written(architecture: &str, metadata: &[(&str, u32)], model: &Numbers, quantised: bool) -> Vec<u8> {
    let stored: Vec<(DType, Vec<u8>)> = model
        .iter()
        .map(|(name, shape, x)| match quantised && name.ends_with(".weight") && shape.len() == 2 {
            true => (DType::Q8_0, q8_0(x)),
            false => (DType::F32, singles(x)),
        })
        .collect();
    let tensors: Vec<_> = model.iter().zip(&stored).map(|((n, s, _), (d, b))| (n.as_str(), *d, s.as_slice(), b.as_slice())).collect();
    gguf(architecture, metadata, &tensors)
}

fn open(dir: &tempfile::TempDir, file: &[u8]) -> Checkpoint {
    Checkpoint::open(&put(dir, "m.gguf", file)).unwrap()
}

/// Checks that the checkpoint has the names, the official shapes and the elements of `model`.
fn same(c: &Checkpoint, model: &Numbers) {
    for (name, shape, x) in model {
        let view = c.tensor(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(view.shape(), shape, "{name}");
        assert!(view.to_f32().unwrap() == *x, "{name}");
    }
    let mut expected: Vec<&str> = model.iter().map(|(n, _, _)| n.as_str()).collect();
    let mut found: Vec<&str> = c.names().collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn v7_returns_with_and_without_gate_and_in_blocks() {
    let dir = tempfile::tempdir().unwrap();
    for (gate, quantised) in [(true, false), (false, false), (true, true)] {
        let model = filled(v7(gate));
        let c = open(&dir, &written("rwkv7", &[("wkv.head_size", 16), ("block_count", 3)], &model, quantised));
        assert_eq!((c.kind(), c.layout(), c.name()), ("gguf", "gguf", "m"));
        assert_eq!((c.metadata()["general.architecture"].as_str(), c.metadata()["rwkv7.block_count"].as_str()), ("rwkv7", "3"));
        assert_eq!(c.tensor("emb.weight").unwrap().dtype(), if quantised { DType::Q8_0 } else { DType::F32 });
        same(&c, &model);
    }
}

#[test]
fn v6_returns_and_its_rescale_is_undone_once() {
    let dir = tempfile::tempdir().unwrap();
    let model = filled(v6());
    for period in [0, 2] {
        let c = open(&dir, &written("rwkv6", &[("wkv.head_size", 16), ("rescale_every_n_layers", period)], &model, false));
        same(&c, &model);
        let scaled = c.tensor("blocks.4.ffn.value.weight").unwrap();
        assert_eq!((scaled.is_scaled(), scaled.dense_bytes().is_none()), (period == 2, period == 2));
        assert!(!c.tensor("blocks.1.ffn.value.weight").unwrap().is_scaled());
    }
    same(&open(&dir, &written("rwkv6", &[], &model, true)), &model);
}

/// The model of this test has square matrices w1 and w2, and no other tensors that show their orientation.
#[test]
fn square_pairs_are_transposed_once() {
    let names = ["emb.weight", "blocks.0.att.w1", "blocks.0.att.w2"];
    let model = filled(names.map(|n| (n.to_string(), vec![C, C])).into());
    same(&open(&tempfile::tempdir().unwrap(), &written("rwkv7", &[], &model, false)), &model);
}

#[test]
fn older_v6_files_have_separate_lerps() {
    let mut g = Gguf::new("rwkv6");
    g.tensor("token_embd.weight", 0, &[1, 2], &singles(&[0.0; 2]));
    for (i, letter) in ["x", "w", "k", "v", "r", "g"].iter().enumerate() {
        g.tensor(&format!("blk.0.time_mix_lerp_{letter}.weight"), 0, &[2], &singles(&[i as f32; 2]));
    }
    let dir = tempfile::tempdir().unwrap();
    let c = open(&dir, &g.finish());
    for (i, letter) in ["x", "w", "k", "v", "r", "g"].iter().enumerate() {
        let view = c.require(&format!("blocks.0.att.time_maa_{letter}"), &[2]).unwrap();
        assert_eq!(view.to_f32().unwrap(), [i as f32; 2], "{letter}");
    }
}

#[test]
fn a_converted_model_is_the_official_one() {
    let dir = tempfile::tempdir().unwrap();
    for (architecture, model) in [("rwkv6", filled(v6())), ("rwkv7", filled(v7(true)))] {
        let metadata = [("wkv.head_size", 16), ("rescale_every_n_layers", if architecture == "rwkv6" { 2 } else { 0 })];
        for quantised in [false, true] {
            // Even if `quantised`, the GGUF file has its rescaled tensors in F32 and not in blocks.
            let c = open(&dir, &written(architecture, &metadata, &model, quantised));
            for (layout, file) in [(Layout::Official, "o.safetensors"), (Layout::WebRwkv, "w.st")] {
                let out = dir.path().join(file);
                convert(&c, &out, &Conversion { layout, ..Conversion::default() }, &mut |_, _| ()).unwrap();
                let back = Checkpoint::open(&out).unwrap();
                assert_eq!(back.layout(), layout.name());
                same(&back, &model);
                let kept = if quantised || layout == Layout::WebRwkv { DType::F16 } else { DType::F32 };
                assert_eq!(back.tensor("emb.weight").unwrap().dtype(), kept, "blocks become F16");
            }
        }
    }
}

#[test]
fn every_block_type_is_read_and_converted_to_f16() {
    let dir = tempfile::tempdir().unwrap();
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.size_bytes().is_none()) {
        // With this byte, the scales of the type are small, but not so small that elements in F16 would be zero.
        let byte = if dtype == DType::MXFP4 { 120 } else { 0x30 };
        let bytes = vec![byte; dtype.bytes_of(2 * 256).unwrap()];
        let c = open(&dir, &gguf("rwkv7", &[], &[("emb.weight", dtype, &[2, 256], &bytes)]));
        let view = c.tensor("emb.weight").unwrap();
        assert_eq!(view.dtype(), dtype);
        let expected: Vec<f32> = view.to_f32().unwrap().into_iter().map(|x| half::f16::from_f32(x).to_f32()).collect();
        assert!(expected.iter().any(|x| *x != 0.0), "{dtype}");
        let out = dir.path().join(format!("{dtype}.safetensors"));
        convert(&c, &out, &Conversion::default(), &mut |_, _| ()).unwrap();
        let back = Checkpoint::open(&out).unwrap();
        let back = back.tensor("emb.weight").unwrap();
        assert_eq!((back.dtype(), back.to_f32().unwrap()), (DType::F16, expected), "{dtype}");
    }
}

#[test]
fn metadata_are_numbers_and_short_texts() {
    let mut g = Gguf::new("rwkv7");
    g.text("general.name", "Mole ü").u32("n", 7).value("small", 1, &[0xff]).value("yes", 7, &[1]);
    g.value("eps", 6, &1e-5f32.to_le_bytes()).value("big", 10, &u64::MAX.to_le_bytes()).value("wide", 12, &0.1f64.to_le_bytes());
    g.text("long", &"x".repeat(4097)).text("limit", &"x".repeat(4096));
    let nested = [&9u32.to_le_bytes()[..], &1u64.to_le_bytes(), &2u32.to_le_bytes(), &2u64.to_le_bytes(), &[1, 0, 2, 0]].concat();
    g.value("array", 9, &nested);
    g.value("words", 9, &[&8u32.to_le_bytes()[..], &2u64.to_le_bytes(), &1u64.to_le_bytes(), b"a", &0u64.to_le_bytes()].concat());
    g.tensor("token_embd.weight", 0, &[1, 1], &[0; 4]);
    g.tensor("blk.07.attn_norm.weight", 0, &[1], &[0; 4]).tensor("blk.99999999999999999999.attn_norm.weight", 0, &[1], &[0; 4]);
    g.tensor("blk.1.attn_norm.scale", 0, &[1], &[0; 4]).tensor("rope_freqs.weight", 30, &[2], &[0; 4]);
    for version in [2, 3] {
        g.version = version;
        let (tensors, metadata) = parse(&g.finish()).unwrap();
        let keys = ["big", "eps", "general.architecture", "general.name", "limit", "n", "small", "wide", "yes"];
        assert_eq!(metadata.keys().collect::<Vec<_>>(), keys);
        let texts = ["general.name", "n", "small", "yes", "eps", "big", "wide"].map(|k| metadata[k].as_str());
        assert_eq!(texts, ["Mole ü", "7", "-1", "true", "0.00001", "18446744073709551615", "0.1"]);
        let names: Vec<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
        let unknown =
            ["blk.07.attn_norm.weight", "blk.99999999999999999999.attn_norm.weight", "blk.1.attn_norm.scale", "rope_freqs.weight"];
        assert_eq!(names[1..], unknown, "an unknown tensor keeps its name");
    }
}

type Change = fn(&mut Gguf) -> &mut Gguf;

#[test]
fn the_lists_of_a_vocabulary_are_read() {
    let file = |build: Change| {
        let mut g = Gguf::new("rwkv7");
        build(&mut g);
        g.tensor("token_embd.weight", 0, &[1, 1], &[0; 4]).finish()
    };
    let whole: Change =
        |g| g.tokens("gpt2", &[("<s>", 3), ("a", 1)]).text("tokenizer.ggml.pre", "glm4").texts("tokenizer.ggml.merges", &["a b", "é ü"]);
    let bytes = file(whole);
    let lists = TokenLists::read(&bytes).unwrap().unwrap();
    assert_eq!((lists.model.as_str(), lists.pre.as_deref()), ("gpt2", Some("glm4")));
    assert_eq!((lists.tokens, lists.types, lists.merges), (vec!["<s>", "a"], vec![3, 1], vec!["a b", "é ü"]));
    let bytes = file(|g| g.text("tokenizer.ggml.model", "rwkv").texts("tokenizer.ggml.tokens", &["a", "b"]));
    let lists = TokenLists::read(&bytes).unwrap().unwrap();
    assert_eq!((lists.types, lists.merges.len(), lists.pre), (vec![1, 1], 0, None));
    for incomplete in [file(|g| g), file(|g| g.text("tokenizer.ggml.model", "rwkv")), file(|g| g.texts("tokenizer.ggml.tokens", &["a"]))] {
        assert_eq!(TokenLists::read(&incomplete).unwrap(), None);
    }
    let cases: [(Change, &str); 6] = [
        (|g| g.u32("tokenizer.ggml.tokens", 1), "tokenizer.ggml.tokens: expected an array of texts, found a value of GGUF type 4"),
        (
            |g| g.value("tokenizer.ggml.tokens", 9, &[&0u32.to_le_bytes()[..], &[0; 8]].concat()),
            "expected an array of texts, found an array of GGUF type 0",
        ),
        (
            |g| {
                let n = 2u64.to_le_bytes();
                let bytes = [&8u32.to_le_bytes()[..], &n, &1u64.to_le_bytes(), b"a", &1u64.to_le_bytes(), b"\xff"].concat();
                g.value("tokenizer.ggml.tokens", 9, &bytes)
            },
            "text 1 of the array is not UTF-8",
        ),
        (|g| g.texts("tokenizer.ggml.tokens", &vec![""; (1 << 20) + 1]), "expected an array of at most 1048576 items, found 1048577"),
        (
            |g| g.texts("tokenizer.ggml.tokens", &["a"]).texts("tokenizer.ggml.token_type", &["a"]),
            "tokenizer.ggml.token_type: expected an array of 32-bit whole numbers, found an array of GGUF type 8",
        ),
        (
            |g| {
                let none = [&5u32.to_le_bytes()[..], &0u64.to_le_bytes()].concat();
                g.texts("tokenizer.ggml.tokens", &["a"]).value("tokenizer.ggml.token_type", 9, &none)
            },
            "expected a type for each of 1 tokens, found 0",
        ),
    ];
    for (build, expected) in cases {
        let mut g = Gguf::new("rwkv7");
        build(g.text("tokenizer.ggml.model", "rwkv"));
        let found = TokenLists::read(&g.finish()).unwrap_err().to_string();
        assert!(found.contains(expected), "{found}");
    }
}
