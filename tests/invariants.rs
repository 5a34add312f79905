//! What must hold for RWKV-7 whatever its weights: the delta rule, the value residual, heads as independent units.

use crate::support::nmse;
use std::sync::Arc;
use wingbeat::arch::{Base, Blueprint, Rwkv7, Shapes};
use wingbeat::error::Result;
use wingbeat::exec::{Executor, Loaded, cpu::CpuModel};
use wingbeat::tape::{Run, Source, Step, Tape};
use wingbeat::tensor::{DType, View};
use wingbeat::words::synthetic::Synthetic;

/// Changes a tensor on its way: name, shape, numbers.
type Change<'a> = &'a (dyn Fn(&str, &[usize], &mut Vec<f32>) + Sync);

/// Synthetic weights with some of them replaced.
struct Changed<'a>(Change<'a>);

impl Source for Changed<'_> {
    fn has(&self, _: &str) -> bool {
        true
    }
    fn dtype(&self, _: &str) -> Option<DType> {
        Some(DType::F32)
    }
    fn with(&self, name: &str, shape: &[usize], read: &mut dyn FnMut(&View<'_>) -> Result<()>) -> Result<()> {
        let base = Synthetic { seed: 3 };
        let mut values = View::dense(DType::F16, shape, &base.bytes(name, shape))?.to_f32()?;
        (self.0)(name, shape, &mut values);
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        read(&View::dense(DType::F32, shape, &bytes)?)
    }
}

const HEADS: usize = 3;
const SIZE: usize = 16;
const C: usize = HEADS * SIZE;

fn model() -> Rwkv7 {
    let ranks = wingbeat::arch::Ranks { w: 8, a: 8, v: 8, g: 8 };
    let base = Base {
        n_layer: 3,
        n_embd: C,
        n_att: C,
        n_ffn: 4 * C,
        n_vocab: 40,
        head_size: SIZE,
        group_norm_eps: 64e-5,
        has_ln0: true,
        has_time_state: false,
        has_ts_state: false,
    };
    Rwkv7 { base, ranks }
}

fn executor(change: Change<'_>) -> (Arc<Tape>, Box<dyn Executor>) {
    let mut tape = Tape::new();
    model().record(&mut tape);
    tape.matrices.iter_mut().for_each(|m| m.format = wingbeat::quant::find("f32").unwrap());
    let tape = Arc::new(tape);
    let executor = CpuModel::load(tape.clone(), &Changed(change), true, &mut |_, _| ()).unwrap().executor(1).unwrap();
    (tape, executor)
}

fn step(tokens: &[u32], shift: u32) -> Step {
    let run = Run { first_row: 0, len: tokens.len() as u32, page_in: 0, page_out: 0, shift_in: shift, shift_out: 1 - shift };
    Step { tokens: tokens.to_vec(), runs: vec![run], outputs: (0..tokens.len() as u32).collect() }
}

fn logits(change: Change<'_>, tokens: &[u32]) -> Vec<f32> {
    let mut out = Vec::new();
    executor(change).1.run(&step(tokens, 0), &mut out).unwrap();
    out
}

const TOKENS: [u32; 9] = [3, 1, 4, 1, 5, 9, 2, 6, 35];

#[test]
fn layer_0_has_no_value_residual() {
    let plain = logits(&|_, _, _| (), &TOKENS);
    let noise = |name: &str, _: &[usize], v: &mut Vec<f32>| {
        if ["v0", "v1", "v2"].iter().any(|n| name == format!("blocks.0.att.{n}")) {
            v.iter_mut().for_each(|x| *x = 1e3);
        }
    };
    assert_eq!(plain, logits(&noise, &TOKENS));
    let later = |name: &str, _: &[usize], v: &mut Vec<f32>| {
        if name == "blocks.1.att.v0" {
            v.iter_mut().for_each(|x| *x += 1.0);
        }
    };
    assert!(nmse(&logits(&later, &TOKENS), &plain) > 1e-9);
}

#[test]
fn permuting_heads_everywhere_changes_nothing_and_permuting_layers_does() {
    let plain = logits(&|_, _, _| (), &TOKENS);
    // Channel c of the permuted model is channel turn(c) of the plain one.
    let turn = |c: usize| (c / SIZE + 1) % HEADS * SIZE + c % SIZE;
    let permute = |name: &str, shape: &[usize], v: &mut Vec<f32>| {
        let Some(n) = name.split(".att.").nth(1) else { return };
        let old = v.clone();
        let rows = ["receptance.weight", "key.weight", "value.weight"].contains(&n);
        let columns = ["output.weight", "w2", "a2", "v2", "g2"].contains(&n);
        let flat = ["w0", "a0", "v0", "k_k", "k_a", "r_k", "ln_x.weight", "ln_x.bias"].contains(&n);
        let width = if flat || shape.len() == 1 { 1 } else { shape[1] };
        for (i, v) in v.iter_mut().enumerate() {
            let (r, c) = (i / width, i % width);
            *v = match (rows || flat, columns) {
                (true, _) => old[turn(r) * width + c],
                (_, true) => old[r * width + turn(c)],
                _ => *v,
            };
        }
    };
    let error = nmse(&logits(&permute, &TOKENS), &plain);
    assert!(error < 1e-10, "{error:.2e}");

    let swap = |name: &str, shape: &[usize], v: &mut Vec<f32>| {
        let other = if name.starts_with("blocks.1.") { name.replacen("1", "2", 1) } else { name.replacen("blocks.2.", "blocks.1.", 1) };
        if other != name {
            *v = View::dense(DType::F16, shape, &Synthetic { seed: 3 }.bytes(&other, shape)).unwrap().to_f32().unwrap();
        }
    };
    assert!(nmse(&logits(&swap, &TOKENS), &plain) > 1e-6);
}

/// From an empty state a token writes S = v k'ᵀ. With a = 1 the same token again takes out what is stored under its key before it
/// writes: S becomes w S. With a = 0 nothing is taken out: S becomes (1 + w) S. Both need the old S, -kappa and the modified k.
#[test]
fn the_delta_rule_replaces_what_is_stored_under_a_key() {
    const W0: f32 = 0.3;
    let w = wingbeat::words::Activation::Decay7.apply(W0);
    for (rate, k_a, factor) in [(40.0, 1.0, w), (-40.0, 0.0, 1.0 + w)] {
        let set = |name: &str, _: &[usize], v: &mut Vec<f32>| {
            let value = match name.rsplit('.').next().unwrap() {
                "a0" => rate,
                "k_a" => k_a,
                "k_k" => 1.0,
                "w0" => W0,
                // Without a look at the token before, equal tokens have equal keys and values.
                "a2" | "w2" | "x_r" | "x_k" | "x_v" | "x_w" | "x_a" | "x_g" => 0.0,
                _ => return,
            };
            v.iter_mut().for_each(|x| *x = value);
        };
        let (tape, mut executor) = executor(&set);
        let wkv = tape.find_state("blocks.0.att.wkv").unwrap();
        let mut out = Vec::new();
        executor.run(&step(&[7], 0), &mut out).unwrap();
        let first = executor.read_state(wkv, 0).unwrap();
        executor.run(&step(&[7], 1), &mut out).unwrap();
        let second = executor.read_state(wkv, 0).unwrap();
        let expected: Vec<f32> = first.iter().map(|v| v * factor).collect();
        assert!(nmse(&second, &expected) < 1e-10, "a0 = {rate}: {:.2e}", nmse(&second, &expected));
        assert!(first.iter().any(|v| v.abs() > 1e-3));
    }
}

#[test]
fn both_forms_of_the_decay_agree_and_stay_in_range() {
    for i in -400..=400 {
        let z = i as f32 / 10.0;
        let w = wingbeat::words::Activation::Decay7.apply(z);
        let softplus = f64::from(-z).exp().ln_1p();
        let other = (-(-softplus - 0.5).exp()).exp();
        assert!((f64::from(w) - other).abs() < 1e-6, "{z}: {w} {other}");
        assert!((0.5452..=1.0).contains(&w));
    }
}

#[test]
fn shapes_decide_hyper_parameters_and_nonsense_is_refused() {
    struct Names(Vec<(&'static str, Vec<usize>)>);
    impl Shapes for Names {
        fn shape(&self, tensor: &str) -> Option<Vec<usize>> {
            self.0.iter().find(|(n, _)| *n == tensor).map(|(_, s)| s.clone())
        }
        fn n_layer(&self) -> usize {
            1
        }
        fn has_prefix(&self, prefix: &str) -> bool {
            self.0.iter().any(|(n, _)| n.starts_with(prefix))
        }
    }
    let minimal = |heads: usize, size: usize| {
        Names(vec![
            ("emb.weight", vec![40, 48]),
            ("blocks.0.att.key.weight", vec![48, 48]),
            ("blocks.0.att.r_k", vec![heads, size]),
            ("blocks.0.ffn.key.weight", vec![100, 48]),
            ("blocks.0.att.w1", vec![48, 8]),
            ("blocks.0.att.a1", vec![48, 9]),
            ("blocks.0.att.g1", vec![48, 10]),
        ])
    };
    let facts = wingbeat::arch::detect(&minimal(1, 48)).unwrap().facts();
    assert_eq!((facts.architecture, facts.n_layer, facts.n_head, facts.head_size, facts.n_ffn), ("rwkv7", 1, 1, 48, 100));
    assert!(wingbeat::arch::detect(&minimal(5, 10)).is_err());
    let mut empty = minimal(1, 48);
    empty.0[4].1 = vec![48, 0];
    assert!(wingbeat::arch::detect(&empty).err().unwrap().to_string().contains("rank"));
    for (tensor, word) in [
        ("blocks.0.ffn.s_emb.weight", "DeepEmbed"),
        ("blocks.0.qkv.k_emb.weight", "RWKV-7b"),
        ("blocks.0.ffn.enn.weight", "RWKV-8"),
        ("blocks.0.rosa.rosa_qkv.emb", "ROSA"),
    ] {
        let mut names = minimal(1, 48);
        names.0.push((tensor, vec![1]));
        let error = wingbeat::arch::detect(&names).err().unwrap().to_string();
        assert!(error.contains(word), "{error}");
    }
}
