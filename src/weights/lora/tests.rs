//! Compares merges with a plain computation, and tests adapters that do not fit the model.

mod peft;

use super::super::sets::{C, Made, as_pth, official, write_plain};
use super::super::testing::{Dice, put};
use super::super::{Conversion, Layout, convert};
use super::*;
use std::path::PathBuf;
use tempfile::{TempDir, tempdir};

const R: usize = 3;
const ALPHA: f32 = 12.5;

fn made(name: &str, shape: &[usize], seed: u64) -> Made {
    Made::new(name, shape, &mut Dice(seed))
}

/// Writes an RWKV-6 model. Returns the model, and an adapter of two pairs, a norm, a mix and a whole matrix under the trainer's names.
fn model_and_adapter(dir: &TempDir) -> (Checkpoint, Vec<Made>) {
    let model = Checkpoint::open(&put(dir, "model.pth", &as_pth(&official("v6")))).unwrap();
    let adapter = vec![
        made("blocks.0.att.key.lora_A", &[R, C], 1),
        made("blocks.0.att.key.lora_B", &[C, R], 2),
        made("blocks.1.ffn.key.lora_A", &[R, C], 3),
        made("blocks.1.ffn.key.lora_B", &[12, R], 4),
        made("blocks.1.ln1.weight", &[C], 5),
        made("blocks.0.att.time_maa_k", &[C], 6),
        made("blocks.1.att.time_maa_w1", &[C, 10], 7),
    ];
    (model, adapter)
}

fn find<'a>(tensors: &'a [Made], name: &str) -> &'a Made {
    tensors.iter().find(|t| t.name == name).unwrap()
}

/// Returns the elements of the merged matrix, computed one by one.
fn expected(w: &Made, a: &Made, b: &Made, alpha: f32) -> Vec<f32> {
    let (n_in, rank) = (a.shape[1], a.shape[0]);
    let number = |i: usize| {
        let (row, col) = (i / n_in, i % n_in);
        let sum: f32 = (0..rank).map(|k| b.numbers[row * rank + k] * a.numbers[k * n_in + col]).sum();
        w.numbers[i] + alpha / rank as f32 * sum
    };
    (0..w.numbers.len()).map(number).collect()
}

fn merge(model: &Checkpoint, lora: &Lora, dir: &TempDir, dtype: Option<DType>, layout: Layout) -> Result<Checkpoint> {
    let out = dir.path().join(if layout == Layout::WebRwkv { "out.st" } else { "out.safetensors" });
    convert(model, &out, &Conversion { dtype, layout, lora: Some(lora), ..Conversion::default() }, &mut |_, _| ())?;
    Checkpoint::open(&out)
}

fn numbers(c: &Checkpoint, name: &str) -> Vec<f32> {
    c.tensor(name).unwrap().to_f32().unwrap()
}

fn write(dir: &TempDir, tensors: &[Made]) -> PathBuf {
    let path = dir.path().join("adapter.safetensors");
    write_plain(&path, tensors);
    path
}

#[test]
fn a_merge_is_the_formula() {
    let dir = tempdir().unwrap();
    let (model, adapter) = model_and_adapter(&dir);
    let lora = Lora::open(&write(&dir, &adapter), Some(ALPHA), &model).unwrap();
    assert_eq!((lora.n_pairs(), lora.n_replaced()), (2, 3));
    for layout in [Layout::Official, Layout::WebRwkv] {
        let merged = merge(&model, &lora, &dir, Some(DType::F32), layout).unwrap();
        for t in official("v6") {
            let view = merged.tensor(&t.name).unwrap();
            assert_eq!(view.shape(), t.shape, "{}", t.name);
            let stem = t.name.strip_suffix(".weight").unwrap_or("none");
            let pair = adapter.iter().find(|a| a.name == format!("{stem}.lora_A"));
            let trained = adapter.iter().find(|a| a.name == t.name);
            let wanted = match (pair, trained) {
                (Some(a), _) => expected(&t, a, find(&adapter, &format!("{stem}.lora_B")), ALPHA),
                (None, Some(trained)) => trained.numbers.clone(),
                (None, None) => t.numbers.clone(),
            };
            for (found, wanted) in view.to_f32().unwrap().iter().zip(&wanted) {
                assert!((found - wanted).abs() <= 1e-6 * wanted.abs().max(1.0), "{}: {found} {wanted}", t.name);
            }
        }
    }
    assert!(Lora::open(&write(&dir, &adapter), Some(0.0), &model).unwrap_err().to_string().contains("alpha"));
}

#[test]
fn numbers_are_rounded_once_and_blocks_join() {
    let (n_out, n_in) = (500, 300); // several blocks of rows, the last one shorter
    let dir = tempdir().unwrap();
    let w = made("emb.weight", &[n_out, n_in], 1);
    let (a, b) = (made("emb.lora_A", &[R, n_in], 2), made("emb.lora_B", &[n_out, R], 3));
    let model = Checkpoint::open(&put(&dir, "m.pth", &as_pth(std::slice::from_ref(&w)))).unwrap();
    let lora = Lora::open(&write(&dir, &[a.clone(), b.clone()]), Some(0.37), &model).unwrap();
    let merged = merge(&model, &lora, &dir, Some(DType::BF16), Layout::Official).unwrap();
    assert_eq!(merged.tensor("emb.weight").unwrap().dtype(), DType::BF16);
    let exact = merge(&model, &lora, &dir, None, Layout::Official).unwrap();
    let (narrow, wide) = (numbers(&merged, "emb.weight"), numbers(&exact, "emb.weight"));
    for ((narrow, wide), wanted) in narrow.iter().zip(&wide).zip(expected(&w, &a, &b, 0.37)) {
        assert!((wide - wanted).abs() <= 1e-6 * wanted.abs().max(1.0));
        assert_eq!(*narrow, half::bf16::from_f32(*wide).to_f32());
    }
    let big = Made { numbers: vec![60_000.0; n_out * R], ..b };
    let lora = Lora::open(&write(&dir, &[a, big]), Some(9.0), &model).unwrap();
    let text = merge(&model, &lora, &dir, Some(DType::F16), Layout::Official).unwrap_err().to_string();
    assert!(text.contains("tensor emb.weight: ") && text.contains("is too large for F16"), "{text}");
}

#[test]
fn every_spelling_of_a_pair() {
    let dir = tempdir().unwrap();
    let (model, adapter) = model_and_adapter(&dir);
    let pair = &adapter[..2];
    let merged = |tensors: &[Made]| {
        let lora = Lora::open(&write(&dir, tensors), Some(ALPHA), &model).unwrap();
        let merged = merge(&model, &lora, &dir, None, Layout::Official).unwrap();
        (numbers(&merged, "blocks.0.att.key.weight"), numbers(&merged, "blocks.1.ln1.weight"))
    };
    let plain = merged(pair);
    assert_ne!(plain.0, numbers(&model, "blocks.0.att.key.weight"));
    for (stem, end) in [
        ("base_model.model.blocks.0.att.key", ".weight"),
        ("base_model.model.blocks.0.att.key", ".default.weight"),
        ("base_model.model.rwkv.blocks.0.attention.key", ".default.weight"),
        ("base_model.model.model.layers.0.attn.k_proj", ".weight"),
        ("blocks.0.att.key.weight", ""),
    ] {
        let renamed: Vec<Made> =
            pair.iter().zip(["A", "B"]).map(|(t, x)| Made { name: format!("{stem}.lora_{x}{end}"), ..t.clone() }).collect();
        assert_eq!(merged(&renamed), plain, "{stem}{end}");
    }
    let norm = Made { name: "base_model.model.blocks.1.ln1.modules_to_save.default.weight".into(), ..adapter[4].clone() };
    let peft = pair.iter().map(|t| Made { name: format!("base_model.model.{}.weight", t.name), ..t.clone() });
    assert_eq!(merged(&peft.chain([norm]).collect::<Vec<_>>()), (plain.0.clone(), adapter[4].numbers.clone()));
    // web-rwkv stores A transposed.
    let (a, b) = (&pair[0], &pair[1]);
    let transposed = (0..C * R).map(|i| a.numbers[(i % R) * C + i / R]).collect();
    let a = Made { name: "blocks.0.att.key.lora.0".into(), shape: vec![C, R], numbers: transposed };
    let web = [a, Made { name: "blocks.0.att.key.lora.1".into(), ..b.clone() }];
    assert_eq!(merged(&web), plain);
    // Only the model shows that this mix has web-rwkv's name.
    let mix = Made { name: "blocks.0.ffn.time_mix_k".into(), ..made("", &[1, 1, C], 9) };
    let lora = Lora::open(&write(&dir, &[&web[..], std::slice::from_ref(&mix)].concat()), Some(ALPHA), &model).unwrap();
    assert_eq!(numbers(&merge(&model, &lora, &dir, None, Layout::Official).unwrap(), "blocks.0.ffn.time_maa_k"), mix.numbers);
}

#[test]
fn tensors_that_do_not_fit_are_named() {
    let dir = tempdir().unwrap();
    let (model, adapter) = model_and_adapter(&dir);
    let (a, b) = (&adapter[0], &adapter[1]);
    let open = |tensors: &[Made]| Lora::open(&write(&dir, tensors), Some(8.0), &model).unwrap_err().to_string();
    assert!(open(&adapter[..1]).contains("tensor blocks.0.att.key.lora_A: the LoRA adapter has this lora_A, but not the matching lora_B"));
    assert!(open(&adapter[1..2]).contains("tensor blocks.0.att.key.lora_B: the LoRA adapter has this lora_B, but not the matching lora_A"));
    assert!(open(&adapter[4..]).contains("not a LoRA adapter: the file has no pair of lora_A and lora_B"));
    let text = open(&[a.clone(), made(&b.name, &[C, R + 1], 1)]);
    assert!(text.contains("lora_A: expected the shapes [r, in] of lora_A and [out, r] of lora_B, found [3, 8] and [8, 4]"), "{text}");
    assert!(open(&[made(&a.name, &[0, C], 1), made(&b.name, &[C, 0], 1)]).contains("expected the shapes [r, in] of lora_A"));
    assert!(open(&[made(&a.name, &[C], 1), b.clone()]).contains("expected the shapes [r, in] of lora_A and [out, r] of lora_B"));
    let twice = Made { name: format!("{}.weight", a.name), ..a.clone() };
    assert!(open(&[a.clone(), b.clone(), twice]).contains("the same weight as the tensor"));
    assert!(
        open(&[a.clone(), b.clone(), made("blocks.0.att.key.weight", &[C, C], 1)])
            .contains("both a low-rank pair and a fully trained matrix")
    );
    assert!(Lora::open(&write(&dir, &adapter), Some(f32::NAN), &model).unwrap_err().to_string().contains("alpha"));
    assert!(Lora::open(&dir.path().join("absent"), Some(1.0), &model).is_err());

    let merge = |tensors: &[Made]| {
        let lora = Lora::open(&write(&dir, tensors), Some(8.0), &model).unwrap();
        let text = merge(&model, &lora, &dir, None, Layout::Official).unwrap_err().to_string();
        assert!(text.contains("adapter.safetensors: tensor ") && !text.contains('\n'), "{text}");
        text
    };
    let text = merge(&[made(&a.name, &[R, C + 1], 1), b.clone()]);
    assert!(text.contains("the model's tensor is F32 [8, 8], but the low-rank pair is for the shape [8, 9]"), "{text}");
    let other = [made("blocks.7.att.key.lora_A", &[R, C], 1), made("blocks.7.att.key.lora_B", &[C, R], 1)];
    assert!(merge(&other).contains("the model has no tensor blocks.7.att.key.weight"));
    assert!(merge(&[a.clone(), b.clone(), made("blocks.0.att.nothing", &[C], 1)]).contains("the model has no tensor blocks.0.att.nothing"));
    let text = merge(&[a.clone(), b.clone(), made("blocks.0.ln1.weight", &[C + 1], 1)]);
    assert!(text.contains("tensor blocks.0.ln1.weight: the model's tensor is F32 [8], but the adapter's is [9]"), "{text}");
    let lora = Lora::open(&write(&dir, &adapter), Some(8.0), &model).unwrap();
    let what = Conversion { lora: Some(&lora), ..Conversion::default() };
    let e = convert(&model, &dir.path().join("adapter.safetensors"), &what, &mut |_, _| ()).unwrap_err();
    assert!(e.to_string().contains("is also an input file"), "{e}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 2, "neither an output nor a part of one: {left:?}");
}
