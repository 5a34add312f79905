//! Tests that truncated files, files with flipped bits and random files cause an error and never a panic.

use super::testing::{Dice, Gguf, pth, put, q8_0, singles};
use super::*;
use crate::tensor::DType;

/// Returns a `.pth` of three tensors.
pub(crate) fn small_pth() -> Vec<u8> {
    let w = singles(&[1., 2., 3., 4., 5., 6., 7., 8.]);
    pth(&[
        ("emb.weight", DType::F32, &[2, 4], &w),
        ("blocks.0.att.w1", DType::BF16, &[4, 2], &w[..16]),
        ("blocks.0.att.w2", DType::F16, &[2, 4], &w[..16]),
    ])
}

/// Returns a safetensors file with the tensors of [`small_pth`].
pub(crate) fn small_safetensors() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let input = Checkpoint::open(&put(&dir, "a.pth", &small_pth())).unwrap();
    let out = dir.path().join("b");
    convert(&input, &out, &Conversion::default(), &mut |_, _| ()).unwrap();
    std::fs::read(out).unwrap()
}

/// Returns a GGUF file with tensors of two types and the lists of a vocabulary.
pub(crate) fn small_gguf() -> Vec<u8> {
    let x: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let (blocks, numbers) = (q8_0(&x), singles(&x[..32]));
    let mut g = Gguf::new("rwkv6");
    g.u32("rwkv6.wkv.head_size", 8).u32("rwkv6.rescale_every_n_layers", 1).text("general.name", "x");
    g.tokens("gpt2", &[("<s>", 3), ("a", 1)]).text("tokenizer.ggml.pre", "mpt").texts("tokenizer.ggml.merges", &["a a"]);
    g.tensor("token_embd.weight", 8, &[2, 32], &blocks).tensor("blk.1.time_mix_output.weight", 8, &[2, 32], &blocks);
    g.tensor("blk.0.time_mix_w2.weight", 0, &[2, 4, 4], &numbers).tensor("blk.0.time_mix_first.weight", 0, &[32], &numbers);
    g.tensor("blk.0.time_mix_lerp_fused.weight", 0, &[5, 1, 1, 6], &numbers.repeat(2)[..120]);
    g.finish()
}

/// Returns a safetensors file of a GLM, with the configuration in the metadata, as `convert` writes files. Its fused tensors are split when the
/// file is opened.
pub(crate) fn small_glm() -> Vec<u8> {
    let json = r#"{"model_type":"chatglm","n_head":1,"n_kv_head":1,"head_size":2,"rotary_size":2,"rope_theta":5e6,"rms_norm_eps":1e-5,
        "attention_bias":true,"max_context":9,"eos":[1],"pad":null}"#;
    let x = singles(&[1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12.]);
    let entry = |name: &str, shape: &[usize]| NewTensor {
        name: name.into(),
        dtype: DType::F32,
        shape: shape.to_vec(),
        data: {
            let bytes = x[..4 * shape.iter().product::<usize>()].to_vec();
            Box::new(move |out| out.write_all(&bytes).map_err(|e| Error::file(e.to_string())))
        },
    };
    let tensors = vec![
        entry("transformer.embedding.word_embeddings.weight", &[3, 2]),
        entry("transformer.encoder.layers.0.self_attention.query_key_value.weight", &[6, 2]),
        entry("transformer.encoder.layers.0.self_attention.query_key_value.bias", &[6]),
    ];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    write_safetensors(&path, &BTreeMap::from([(GLM.to_string(), json.to_string())]), tensors, &mut |_, _| ()).unwrap();
    std::fs::read(path).unwrap()
}

/// Returns a GGUF file of a GLM.
pub(crate) fn small_glm_gguf() -> Vec<u8> {
    let x: Vec<f32> = (0..96).map(|i| i as f32).collect();
    let mut g = Gguf::new("glm4");
    g.u32("glm4.attention.head_count", 1).u32("glm4.attention.head_count_kv", 1).u32("glm4.attention.key_length", 2);
    g.u32("glm4.embedding_length", 32).u32("glm4.context_length", 9).u32("glm4.rope.dimension_count", 2).u32("glm4.block_count", 1);
    g.value("glm4.attention.layer_norm_rms_epsilon", 6, &1e-5f32.to_le_bytes());
    g.tensor("token_embd.weight", 8, &[3, 32], &q8_0(&x)).tensor("blk.0.attn_qkv.weight", 8, &[6, 32], &q8_0(&x.repeat(2)));
    g.tensor("blk.0.attn_qkv.bias", 0, &[6], &singles(&x[..6]));
    g.finish()
}

/// Opens a checkpoint from bytes and reads every element.
fn judge(bytes: &[u8]) -> Result<()> {
    let kind = locate::sniff(bytes)?;
    let bytes: &'static [u8] = Box::leak(bytes.to_vec().into_boxed_slice()); // leaks a few megabytes, harmless in a test
    let c = Checkpoint::build(CheckpointFiles::one(Map::fixed(bytes), kind)?, "test".into(), None)?;
    for name in c.names() {
        let view = c.tensor(name).expect("listed");
        if view.len() < 1 << 16 {
            view.to_f32().or_else(|e| if view.dtype().is_weight() { Err(e) } else { Ok(vec![]) })?;
        }
    }
    c.token_lists()?;
    Ok(())
}

#[test]
fn every_truncation_is_an_error() {
    for file in [small_pth(), small_safetensors(), small_gguf(), small_glm(), small_glm_gguf()] {
        judge(&file).unwrap();
        for n in 0..file.len() {
            assert!(judge(&file[..n]).is_err(), "{n} of {} bytes", file.len());
        }
    }
}

#[test]
fn flipped_bytes_never_panic() {
    let mut dice = Dice(0x5eed);
    for original in [small_pth(), small_safetensors(), small_gguf(), small_glm(), small_glm_gguf()] {
        for _ in 0..3000 {
            let mut file = original.clone();
            for _ in 0..1 + dice.roll(4) {
                let at = dice.roll(file.len());
                file[at] = if dice.roll(2) == 0 { dice.roll(256) as u8 } else { file[at] ^ (1 << dice.roll(8)) };
            }
            if let Err(e) = judge(&file) {
                assert!(!e.to_string().contains('\n') && e.to_string().len() < 2000, "{e}");
            }
        }
    }
}

#[test]
fn random_bytes_are_an_error() {
    let mut dice = Dice(99);
    for start in [&b""[..], b"PK\x03\x04", b"\x20\0\0\0\0\0\0\0{", b"PK\x05\x06", b"GGUF\x03\0\0\0"] {
        for _ in 0..200 {
            let mut file = start.to_vec();
            let n = dice.roll(300);
            file.extend((0..n).map(|_| dice.roll(256) as u8));
            assert!(judge(&file).is_err());
        }
    }
}

#[test]
fn messages_name_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let message = |name: &str, bytes: &[u8]| Checkpoint::open(&put(&dir, name, bytes)).unwrap_err().to_string();
    assert!(message("empty.pth", b"").contains("empty.pth: expected a .pth, .safetensors or .gguf checkpoint, found an empty file"));
    assert!(message("lfs.pth", b"version https://git-lfs.github.com/spec/v1\n").contains("lfs.pth: expected"));
    assert!(message("x.gguf", b"GGUF\x03\0\0\0").contains("x.gguf: the GGUF file ends early: the header needs 8 bytes at byte 8"));
    let evil = testing::zip(&[("r/data.pkl", b"\x80\x02cos\nsystem\nX\x02\0\0\0id\x85R.")]);
    let text = message("evil.pth", &evil);
    assert!(
        text.contains("evil.pth: r/data.pkl: byte 2: refused: the pickle asks to run the Python function os.system; nothing was executed"),
        "{text}"
    );
    let none = testing::zip(&[("r/data.pkl", b"\x80\x02}.")]);
    assert!(message("none.pth", &none).contains("the file has no tensors"));
    assert!(Checkpoint::from_static("built-in", b"short").unwrap_err().to_string().starts_with("built-in: "));
}
