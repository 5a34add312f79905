//! Tests RWKV-7: the delta rule and the value residual.

use super::*;
use wingbeat::low_level::arch::{Ranks, Rwkv7};

pub fn model() -> Rwkv7 {
    Rwkv7 { base: base(), ranks: Ranks { w: 8, a: 8, v: 8, g: 8 }, deep_embed: None, attention: None }
}

#[test]
fn layer_0_has_no_value_residual() {
    let plain = logits(&model(), &|_, _, _| (), &TOKENS);
    let noise = |name: &str, _: &[usize], v: &mut Vec<f32>| {
        if ["v0", "v1", "v2"].iter().any(|n| name == format!("blocks.0.att.{n}")) {
            v.iter_mut().for_each(|x| *x = 1e3);
        }
    };
    assert_eq!(plain, logits(&model(), &noise, &TOKENS));
    let later = |name: &str, _: &[usize], v: &mut Vec<f32>| {
        if name == "blocks.1.att.v0" {
            v.iter_mut().for_each(|x| *x += 1.0);
        }
    };
    assert!(nmse(&logits(&model(), &later, &TOKENS), &plain) > 1e-9);
}

#[test]
fn permuting_heads_everywhere_changes_nothing() {
    let plain = logits(&model(), &|_, _, _| (), &TOKENS);
    let rows = ["receptance.weight", "key.weight", "value.weight"];
    let columns = ["output.weight", "w2", "a2", "v2", "g2"];
    let flat = ["w0", "a0", "v0", "k_k", "k_a", "r_k", "ln_x.weight", "ln_x.bias"];
    let permute = |name: &str, shape: &[usize], v: &mut Vec<f32>| permute(name, shape, v, &rows, &columns, &flat);
    let error = nmse(&logits(&model(), &permute, &TOKENS), &plain);
    assert!(error < 1e-10, "{error:.2e}");
}

/// From an empty state, a token writes S = v k'ᵀ. With a = 1, the same token then removes the value that is stored under its key and writes it
/// again: S becomes w S. With a = 0, the token removes nothing: S becomes (1 + w) S. Both results depend on the old S, on -kappa and on the
/// modified key k'.
#[test]
fn the_delta_rule_replaces_what_is_stored_under_a_key() {
    const W0: f32 = 0.3;
    let w = wingbeat::low_level::words::Activation::Decay7.apply(W0);
    for (rate, k_a, factor) in [(40.0, 1.0, w), (-40.0, 0.0, 1.0 + w)] {
        let set = |name: &str, _: &[usize], v: &mut Vec<f32>| {
            let value = match name.rsplit('.').next().unwrap() {
                "a0" => rate,
                "k_a" => k_a,
                "k_k" => 1.0,
                "w0" => W0,
                // without token shift, equal tokens have equal keys and values
                "a2" | "w2" | "x_r" | "x_k" | "x_v" | "x_w" | "x_a" | "x_g" => 0.0,
                _ => return,
            };
            v.iter_mut().for_each(|x| *x = value);
        };
        let (tape, mut executor) = executor(&model(), &set);
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
        let w = wingbeat::low_level::words::Activation::Decay7.apply(z);
        let softplus = f64::from(-z).exp().ln_1p();
        let other = (-(-softplus - 0.5).exp()).exp();
        assert!((f64::from(w) - other).abs() < 1e-6, "{z}: {w} {other}");
        assert!((0.5452..=1.0).contains(&w));
    }
}
