//! Tests that hostile and foreign headers are refused.

use super::*;

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
        ("empty key", |g| g.u32("", 0), "key 1 of the metadata: expected a name of at least 1 byte, found an empty name"),
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
            "tensor t: expected a supported number type, found IQ2_XXS (download the model in Q2_K, or in another supported type: F32, F16, Q4_0, ",
        ),
        (
            "type 77",
            |g| g.tensor("t", 77, &[256], &[0; 84]),
            "found the unknown type 77 (use a newer version of wingbeat, or download the model in a supported type: F32, ",
        ),
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

/// Ids, names, and the types that the hints name. Ids and names come from the package `gguf` 0.19 (`GGMLQuantizationType`). Ids and names of types
/// that ggml has removed come from ggml's header.
#[rustfmt::skip]
const UNSUPPORTED: [(u32, &str, &str); 24] = [
    (4, "Q4_2", "Q4_0"), (5, "Q4_3", "Q4_0"), (9, "Q8_1", "Q8_0"), (15, "Q8_K", "Q8_0"), (16, "IQ2_XXS", "Q2_K"), (17, "IQ2_XS", "Q2_K"),
    (18, "IQ3_XXS", "Q3_K"), (19, "IQ1_S", "Q2_K"), (21, "IQ3_S", "Q3_K"), (22, "IQ2_S", "Q2_K"), (24, "I8", "F16"), (25, "I16", "F16"),
    (26, "I32", "F16"), (27, "I64", "F16"), (28, "F64", "F16"), (29, "IQ1_M", "Q2_K"), (31, "Q4_0_4_4", "Q4_0"), (32, "Q4_0_4_8", "Q4_0"),
    (33, "Q4_0_8_8", "Q4_0"), (36, "IQ4_NL_4_4", "IQ4_NL"), (37, "IQ4_NL_4_8", "IQ4_NL"), (38, "IQ4_NL_8_8", "IQ4_NL"),
    (40, "NVFP4", "Q4_K"), (41, "Q1_0", "Q2_K"),
];

#[test]
fn unsupported_types_are_refused_by_name() {
    for (id, name, instead) in UNSUPPORTED {
        let file = Gguf::new("rwkv7").info(b"t", &[256], id, 0).finish();
        let found = parse(&file).err().unwrap().to_string();
        let expected = format!("tensor t: expected a supported number type, found {name} (download the model in {instead}, or in another ");
        assert!(found.starts_with(&expected) && found.ends_with(", TQ1_0, TQ2_0, MXFP4)"), "{found}");
        assert!(!found.contains('\n') && found.len() < 300, "{found}");
    }
}

#[test]
fn other_architectures_are_refused_by_name() {
    for architecture in ["llama", "glm4moe", "qwen2", "RWKV7"] {
        // The architecture is checked before the types of tensors, which may also be unsupported.
        let file = Gguf::new(architecture).tensor("t", 16, &[256], &[0; 66]).finish();
        let e = parse(&file).err().unwrap();
        assert_eq!(
            (
                e.kind,
                e.to_string().contains(&format!(
                    "unsupported architecture {architecture} of this GGUF file, expected rwkv6, rwkv7, arwkv7, rwkv6qwen2, chatglm, glm4 or deepseek2"
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
