//! Tests with models in the form that llama.cpp's converter writes, and with hostile headers.

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

fn refusal(build: fn(&mut Gguf) -> &mut Gguf) -> String {
    let file = build(&mut Gguf::new("rwkv7")).finish();
    match parse(&file).and_then(|(ts, _)| ts.iter().try_for_each(|t| t.view(&file).map(|_| ()))) {
        Ok(()) => "accepted".into(),
        Err(e) => e.to_string(),
    }
}

/// A case: its name, a change to the file, and a part of the expected error message.
type Case = (&'static str, fn(&mut Gguf) -> &mut Gguf, &'static str);

#[test]
fn hostile_headers_are_refused() {
    const HUGE: u64 = 1 << 60;
    let cases: &[Case] = &[
        ("good", |g| g.tensor("emb", 0, &[2], &[0; 8]), "accepted"),
        (
            "version 1",
            |g| {
                g.version = 1;
                g
            },
            "expected a GGUF file of version 2 or 3, found version 1",
        ),
        (
            "version 4",
            |g| {
                g.version = 4;
                g
            },
            "found version 4",
        ),
        (
            "big-endian",
            |g| {
                g.version = 3u32.swap_bytes();
                g
            },
            "big-endian GGUF files are not supported",
        ),
        (
            "magic",
            |g| {
                g.magic = *b"GGJT";
                g
            },
            "expected a GGUF file",
        ),
        (
            "tensors",
            |g| {
                g.n_tensors = HUGE;
                g
            },
            "at most 100000 tensors, found 1152921504606846976",
        ),
        (
            "keys",
            |g| {
                g.n_keys = HUGE;
                g
            },
            "at most 100000 keys",
        ),
        (
            "more keys",
            |g| {
                g.n_keys += 1;
                g
            },
            "key 1 of the metadata",
        ),
        (
            "more tensors",
            |g| {
                g.n_tensors += 1;
                g
            },
            "tensor 0",
        ),
        ("empty key", |g| g.u32("", 0), "key 1 of the metadata: the GGUF header has an empty name"),
        ("long key", |g| g.u32(&"k".repeat(257), 0), "at most 256 bytes, found 257"),
        (
            "long text",
            |g| g.value("k", 8, &HUGE.to_le_bytes()),
            "metadata key k: the GGUF file ends early: the header needs 1152921504606846976 bytes",
        ),
        ("key not UTF-8", |g| g.info(b"\xff\xfe", &[1], 0, 0), "name of tensor 0: the GGUF header has a name that is not UTF-8"),
        ("same key", |g| g.u32("k", 1).u32("k", 2), "metadata key k: two metadata values have this key"),
        ("value type", |g| g.value("k", 13, &[0; 8]), "metadata key k: the value has the unknown type 13; GGUF has the types 0 to 12"),
        ("array type", |g| g.value("k", 9, &[&99u32.to_le_bytes()[..], &HUGE.to_le_bytes()].concat()), "unknown type 99"),
        ("array of bytes", |g| g.value("k", 9, &[&0u32.to_le_bytes()[..], &HUGE.to_le_bytes()].concat()), "needs 11529215"),
        ("array of u64", |g| g.value("k", 9, &[&10u32.to_le_bytes()[..], &HUGE.to_le_bytes()].concat()), "needs 9223372"),
        ("array of texts", |g| g.value("k", 9, &[&8u32.to_le_bytes()[..], &HUGE.to_le_bytes()].concat()), "the header needs"),
        ("array of arrays", |g| g.value("k", 9, &[&9u32.to_le_bytes()[..], &HUGE.to_le_bytes()].concat()), "metadata key k: "),
        (
            "deep arrays",
            |g| g.value("k", 9, &[&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat().repeat(100_000)),
            "metadata key k: arrays of metadata are nested more than 4 deep",
        ),
        (
            "alignment 0",
            |g| g.u32("general.alignment", 0),
            "general.alignment: expected an alignment that is a power of two of at least 8, found 0",
        ),
        ("alignment 24", |g| g.u32("general.alignment", 24), "found 24"),
        ("alignment 4", |g| g.u32("general.alignment", 4), "found 4"),
        ("alignment -8", |g| g.value("general.alignment", 5, &(-8i32).to_le_bytes()), "found -8"),
        ("alignment 2^31", |g| g.u32("general.alignment", 1 << 31).tensor("t", 0, &[1], &[0; 4]), "the file of"),
        ("alignment 2^63", |g| g.value("general.alignment", 10, &(1u64 << 63).to_le_bytes()).info(b"t", &[1], 0, 1 << 63), "ends before"),
        ("no dims", |g| g.tensor("t", 0, &[], &[0; 4]), "tensor t: expected a tensor of 1 to 4 dimensions, found 0"),
        ("5 dims", |g| g.tensor("t", 0, &[1; 5], &[0; 4]), "found 5"),
        ("dim 0", |g| g.tensor("t", 0, &[4, 0], &[0; 4]), "tensor t: expected a shape of sizes of at least 1, found the shape [0, 4]"),
        ("overflow", |g| g.info(b"t", &[1 << 33, 1 << 33], 0, 0), "tensor t: the shape [8589934592, 8589934592]"),
        ("overflow by 64", |g| g.info(b"t", &[1 << 32, 1 << 32, 1, 3], 0, 0), "is too large for this machine"),
        ("max dim", |g| g.info(b"t", &[u64::MAX], 0, 0), "is too large for this machine"),
        ("too large", |g| g.info(b"t", &[1 << 40], 0, 0), "expected 4398046511104 bytes at offset 0 of the data"),
        ("offset", |g| g.info(b"t", &[1], 0, 1 << 62), "ends before"),
        ("offset overflows", |g| g.info(b"t", &[1], 0, u64::MAX - 31), "ends before"),
        ("offset unaligned", |g| g.tensor("s", 0, &[9], &[0; 36]).info(b"t", &[1], 0, 4), "multiple of 32 bytes, found 4 bytes"),
        ("cut", |g| g.tensor("t", 0, &[2], &[0; 7]), "tensor t: expected 8 bytes at offset 0 of the data, but the file of"),
        (
            "overlap",
            |g| g.tensor("s", 0, &[9], &[0; 36]).info(b"t", &[1], 0, 32),
            "tensor t: the tensor shares bytes of the file with the tensor s",
        ),
        ("twice", |g| g.tensor("t", 0, &[1], &[0; 4]).tensor("t", 0, &[1], &[0; 4]), "tensor t: two tensors have this name"),
        (
            "half a block",
            |g| g.tensor("t", 8, &[2, 48], &[0; 102]),
            "rows of whole Q8_0 blocks, a multiple of 32 numbers; found rows of 48 numbers",
        ),
        ("half a super-block", |g| g.tensor("t", 14, &[32, 32], &[0; 840]), "Q6_K blocks, a multiple of 256 numbers; found rows of 32"),
        (
            "IQ2_XXS",
            |g| g.tensor("t", 16, &[256], &[0; 66]),
            "tensor t: unsupported number type IQ2_XXS of this tensor, expected one of F32, F16",
        ),
        ("IQ3_S", |g| g.tensor("t", 21, &[256], &[0; 110]), "type IQ3_S"),
        ("type 77", |g| g.tensor("t", 77, &[256], &[0; 84]), "unsupported number type 77"),
        ("parts", |g| g.value("split.count", 2, &[3, 0]), "found one of 3 parts"),
        (
            "head size",
            |g| g.text("rwkv7.wkv.head_size", "big"),
            "rwkv7.wkv.head_size: expected a whole number as metadata value, found big",
        ),
        ("4 lerps", |g| g.tensor("blk.1.time_mix_lerp_fused.weight", 0, &[4, 1, 1, 1], &[0; 16]), "expected 5 or 6 stacked vectors"),
        ("7 lerps", |g| g.tensor("blk.1.time_mix_lerp_fused.weight", 0, &[7, 1], &[0; 28]), "found the shape [7, 1]"),
        ("no matrix", |g| g.tensor("blk.1.time_mix_w1.weight", 0, &[4], &[0; 16]), "expected a matrix, found the shape [4]"),
        ("no vector", |g| g.tensor("blk.1.time_mix_w0.weight", 0, &[2, 2], &[0; 16]), "expected a vector"),
        ("no heads", |g| g.tensor("blk.1.time_mix_r_k.weight", 0, &[4], &[0; 16]), "have no head size, which this tensor of 4"),
        (
            "odd heads",
            |g| g.u32("rwkv7.wkv.head_size", 3).tensor("blk.1.time_mix_r_k.weight", 0, &[4], &[0; 16]),
            "expected a multiple of the head size 3 in the metadata, found 4 numbers",
        ),
    ];
    for (name, build, expected) in cases {
        let found = refusal(*build);
        assert!(found.contains(expected), "{name}: {found}");
        assert!(!found.contains('\n') && found.len() < 400, "{name}: {found}");
    }
}

#[test]
fn other_architectures_are_refused_by_name() {
    for architecture in ["llama", "glm4moe", "rwkv6qwen2", "arwkv7", "RWKV7"] {
        // The architecture is checked before the types of tensors, which may also be unsupported.
        let file = Gguf::new(architecture).tensor("t", 16, &[256], &[0; 66]).finish();
        let e = parse(&file).err().unwrap();
        assert_eq!(
            (
                e.kind,
                e.to_string().contains(&format!(
                    "unsupported architecture {architecture} of this GGUF file, expected rwkv6, rwkv7, chatglm or glm4"
                ))
            ),
            (crate::error::Kind::Model, true),
            "{e}"
        );
    }
    assert!(parse(&Gguf::new("").finish()).err().unwrap().to_string().contains("have no general.architecture"));
    let rescaled =
        Gguf::new("rwkv6").u32("rwkv6.rescale_every_n_layers", 1).tensor("blk.200.channel_mix_value.weight", 0, &[1, 1], &[0; 4]).finish();
    assert!(parse(&rescaled).err().unwrap().to_string().contains("2 to the power of 200"));
}
