//! Tests round trips between layouts, and output paths that must not be written.

use super::super::testing::{Dice, pth, put, singles};
use super::*;

const C: usize = 8;

/// Returns a checkpoint of the given shapes, with elements that F16 stores exactly.
fn checkpoint(dir: &tempfile::TempDir, file: &str, shapes: &[(&str, &[usize])]) -> Checkpoint {
    let mut dice = Dice(7);
    let numbers: Vec<Vec<u8>> =
        shapes.iter().map(|(_, s)| singles(&(0..s.iter().product()).map(|_| dice.roll(999) as f32 - 500.0).collect::<Vec<_>>())).collect();
    let tensors: Vec<_> = shapes.iter().zip(&numbers).map(|((n, s), b)| (*n, DType::F32, *s, b.as_slice())).collect();
    Checkpoint::open(&put(dir, file, &pth(&tensors))).unwrap()
}

fn same(a: &Checkpoint, b: &Checkpoint) {
    assert_eq!(a.names().collect::<Vec<_>>(), b.names().collect::<Vec<_>>());
    for name in a.names() {
        let (x, y) = (a.tensor(name).unwrap(), b.tensor(name).unwrap());
        assert_eq!((x.shape(), x.to_f32().unwrap()), (y.shape(), y.to_f32().unwrap()), "{name}");
    }
}

fn there_and_back(shapes: &[(&str, &[usize])]) -> BTreeMap<String, Vec<usize>> {
    let dir = tempfile::tempdir().unwrap();
    let original = checkpoint(&dir, "a.pth", shapes);
    let (web, official) = (dir.path().join("b.st"), dir.path().join("c.safetensors"));
    convert(&original, &web, &Conversion { layout: Layout::WebRwkv, ..Conversion::default() }, &mut |_, _| ()).unwrap();
    let bytes = std::fs::read(&web).unwrap();
    let (tensors, metadata) = super::super::read_safetensors(&bytes).unwrap();
    assert_eq!(metadata, BTreeMap::from([("format".to_string(), "pt".to_string())]));
    assert!(tensors.values().all(|t| t.0 == DType::F16));
    let web = Checkpoint::open(&web).unwrap();
    assert_eq!((web.kind(), web.layout()), ("safetensors", "web-rwkv"));
    same(&original, &web);
    convert(&web, &official, &Conversion { dtype: Some(DType::F32), ..Conversion::default() }, &mut |_, _| ()).unwrap();
    let official = Checkpoint::open(&official).unwrap();
    assert_eq!(official.layout(), "official");
    same(&original, &official);
    tensors.into_iter().map(|(n, t)| (n, t.1)).collect()
}

#[test]
fn v7_there_and_back() {
    let shapes: [(&str, &[usize]); 9] = [
        ("emb.weight", &[11, C]),
        ("blocks.0.att.x_r", &[1, 1, C]),
        ("blocks.0.att.w1", &[C, 3]),
        ("blocks.0.att.w2", &[3, C]),
        ("blocks.0.att.g1", &[C, C]), // rank = width: only the other pairs show the orientation
        ("blocks.0.att.g2", &[C, C]),
        ("blocks.0.att.r_k", &[2, 4]),
        ("blocks.0.att.time_state", &[2, 4, 4]),
        ("blocks.0.att.key.weight", &[C, C]),
    ];
    let web = there_and_back(&shapes);
    assert_eq!(web["blocks.0.att.w1"], [3, C]);
    assert_eq!(web["blocks.0.att.w2"], [C, 3]);
    assert_eq!(web["blocks.0.att.x_r"], [1, 1, C]);
}

#[test]
fn v6_there_and_back() {
    let shapes: [(&str, &[usize]); 9] = [
        ("emb.weight", &[11, C]),
        ("blocks.0.att.time_maa_x", &[1, 1, C]),
        ("blocks.0.att.time_maa_w1", &[C, 10]),
        ("blocks.0.att.time_maa_w2", &[5, 2, C]),
        ("blocks.0.att.time_decay", &[1, 1, C]),
        ("blocks.0.att.time_decay_w1", &[C, 2]),
        ("blocks.0.att.time_faaaa", &[2, 4]),
        ("blocks.0.ffn.time_maa_k", &[1, 1, C]),
        ("blocks.0.att.key.lora_A", &[2, C]),
    ];
    let web = there_and_back(&shapes);
    assert_eq!(web["blocks.0.att.time_mix_w2"], [5, C, 2]);
    assert_eq!(web["blocks.0.att.time_first"], [2, 4]);
    assert_eq!(web["blocks.0.att.key.lora.0"], [C, 2]);
    assert!(web.contains_key("blocks.0.ffn.time_mix_k"));
}

#[test]
fn v5_heads_become_channels_for_web_rwkv() {
    let dir = tempfile::tempdir().unwrap();
    let shapes: [(&str, &[usize]); 4] = [
        ("emb.weight", &[11, C]),
        ("blocks.0.att.ln_x.weight", &[C]),
        ("blocks.0.att.time_decay", &[2]),
        ("blocks.0.att.time_faaaa", &[2]),
    ];
    let original = checkpoint(&dir, "a.pth", &shapes);
    let out = dir.path().join("b.st");
    convert(&original, &out, &Conversion { layout: Layout::WebRwkv, ..Conversion::default() }, &mut |_, _| ()).unwrap();
    let web = Checkpoint::open(&out).unwrap();
    let (one, four) = (original.tensor("blocks.0.att.time_faaaa").unwrap(), web.tensor("blocks.0.att.time_faaaa").unwrap());
    let (one, all) = (one.to_f32().unwrap(), four.to_f32().unwrap());
    assert_eq!(four.shape(), [2, 4]);
    assert_eq!(all, [one[0], one[0], one[0], one[0], one[1], one[1], one[1], one[1]]);
    let early = checkpoint(&dir, "e.pth", &[("blocks.0.att.ln_x.weight", &[C]), ("blocks.0.att.time_first", &[2])]);
    assert!(
        convert(&early, &out, &Conversion { layout: Layout::WebRwkv, ..Conversion::default() }, &mut |_, _| ())
            .unwrap_err()
            .to_string()
            .contains("exponentiated")
    );
}

#[test]
fn types_are_kept_or_changed_and_integers_stay() {
    let dir = tempfile::tempdir().unwrap();
    let file = pth(&[
        ("emb.weight", DType::BF16, &[2], &[1, 2, 3, 4]),
        ("n", DType::I64, &[1], &[5; 8]),
        ("x", DType::F32, &[1], &singles(&[70_000.0])),
    ]);
    let input = Checkpoint::open(&put(&dir, "a.pth", &file)).unwrap();
    let out = dir.path().join("b.safetensors");
    convert(&input, &out, &Conversion::default(), &mut |_, _| ()).unwrap();
    let kept = Checkpoint::open(&out).unwrap();
    assert_eq!(kept.tensor("emb.weight").unwrap().dense_bytes().unwrap(), [1, 2, 3, 4]);
    assert_eq!(kept.tensor("n").unwrap().dtype(), DType::I64);
    assert_eq!(kept.metadata()["format"], "pt");
    let message =
        convert(&input, &out, &Conversion { dtype: Some(DType::F16), ..Conversion::default() }, &mut |_, _| ()).unwrap_err().to_string();
    assert!(message.contains("tensor x: the number 70000 (element 0) is too large for F16"), "{message}");
    assert!(convert(&input, &out, &Conversion { dtype: Some(DType::I8), ..Conversion::default() }, &mut |_, _| ()).is_err());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "no temporary file is left");
}

#[test]
fn the_input_is_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let input = checkpoint(&dir, "a.pth", &[("emb.weight", &[2, C])]);
    let before = std::fs::read(dir.path().join("a.pth")).unwrap();
    let mut targets = vec![dir.path().join("a.pth"), dir.path().join(".").join("a.pth")];
    #[cfg(unix)]
    {
        std::fs::hard_link(dir.path().join("a.pth"), dir.path().join("hard")).unwrap();
        std::os::unix::fs::symlink("a.pth", dir.path().join("soft")).unwrap();
        targets.extend([dir.path().join("hard"), dir.path().join("soft")]);
    }
    for target in targets {
        let e = convert(&input, &target, &Conversion::default(), &mut |_, _| ()).unwrap_err();
        assert!(e.to_string().contains("the output file is also an input file"), "{e}");
    }
    assert_eq!(std::fs::read(dir.path().join("a.pth")).unwrap(), before);
}
