//! Tests RWKV-5 and 6: the recurrence is linear attention, and some versions are special cases of other versions.

use super::*;
use wingbeat::low_level::arch::{Bonus, Rwkv5, Rwkv6};

pub fn v50() -> Rwkv5 {
    Rwkv5 { base: base(), per_channel: false, bonus: Bonus::Log, is_gated: false }
}

fn v51() -> Rwkv5 {
    Rwkv5 { bonus: Bonus::Raw, is_gated: true, ..v50() }
}

pub fn v52() -> Rwkv5 {
    Rwkv5 { per_channel: true, ..v51() }
}

pub fn v6() -> Rwkv6 {
    Rwkv6 { base: base(), mix_rank: 8, decay_rank: 12 }
}

const NOTHING: Change<'static> = &|_, _, _| ();
const WKV: &str = "blocks.0.att.wkv";

/// Repeats each number of a tensor `[heads]` for every channel of the head.
fn spread(v: &mut [f32], name: &str) {
    let heads = plain(name, &[HEADS]);
    v.iter_mut().enumerate().for_each(|(c, v)| *v = heads[c / SIZE]);
}

#[test]
fn one_decay_a_head_is_the_same_decay_for_all_its_channels() {
    let expanded = |name: &str, _: &[usize], v: &mut Vec<f32>| {
        if is_one_of(name, &["time_decay", "time_faaaa"]) {
            spread(v, name);
        }
    };
    assert!(logits(&v51(), NOTHING, &TOKENS) == logits(&v52(), &expanded, &TOKENS));
}

#[test]
fn the_first_models_store_the_bonus_as_a_logarithm() {
    let raw = Rwkv5 { bonus: Bonus::Raw, ..v50() };
    let exponentiated = |name: &str, _: &[usize], v: &mut Vec<f32>| {
        if is_one_of(name, &["time_faaaa"]) {
            *v = plain(&name.replace("faaaa", "first"), &[HEADS]).into_iter().map(f32::exp).collect();
        }
    };
    assert!(logits(&v50(), NOTHING, &TOKENS) == logits(&raw, &exponentiated, &TOKENS));
    assert!(nmse(&logits(&raw, NOTHING, &TOKENS), &logits(&v50(), NOTHING, &TOKENS)) > 1e-6);
}

#[test]
fn a_gate_of_one_is_none() {
    // silu(z) is z for large z. With a constant W_g x, the gate multiplies by this constant, and the output matrix divides by it.
    let gated = |name: &str, shape: &[usize], v: &mut Vec<f32>| {
        if is_one_of(name, &["gate.weight"]) {
            // LN1 returns ones, so a row that sums to 32 gives 32 for every token; only the zeros before the first token give 0
            v.iter_mut().for_each(|x| *x = 32.0 / shape[1] as f32);
        } else if is_one_of(name, &["output.weight"]) {
            v.iter_mut().for_each(|x| *x /= 32.0);
        } else if is_one_of(name, &["time_mix_g"]) {
            v.fill(1.0);
        } else {
            flat_ln1(name, v);
        }
    };
    let ungated = Rwkv5 { is_gated: false, ..v52() };
    let error = nmse(&logits(&v52(), &gated, &TOKENS), &logits(&ungated, &|n, _, v| flat_ln1(n, v), &TOKENS));
    assert!(error < 1e-9, "{error:.2e}");
}

/// Changes the weights so that LN1 returns ones for every token.
fn flat_ln1(name: &str, v: &mut [f32]) {
    if name.ends_with("ln1.weight") {
        v.fill(0.0);
    } else if name.ends_with("ln1.bias") {
        v.fill(1.0);
    }
}

/// Returns the states of layer 0 after each of three equal tokens. `decay` is the value of all decay weights.
fn first_states(decay: f32) -> Vec<Vec<f32>> {
    let set = move |name: &str, _: &[usize], v: &mut Vec<f32>| {
        if is_one_of(name, &["time_decay"]) {
            v.fill(decay);
        } else if ["time_mix_k", "time_mix_v"].iter().any(|n| name.ends_with(n)) {
            // a mix of 1 turns token shift off, so that equal tokens have equal k and v
            v.fill(1.0);
        }
    };
    states(&v52(), &set, &[7, 7, 7], WKV)
}

#[test]
fn without_decay_tokens_add_up_and_with_all_of_it_only_the_last_one_stays() {
    let kept = first_states(-60.0);
    let lost = first_states(10.0);
    for (t, state) in kept.iter().enumerate() {
        let expected: Vec<f32> = kept[0].iter().map(|v| v * (t + 1) as f32).collect();
        assert!(nmse(state, &expected) < 1e-10, "{t}");
    }
    assert!(kept[0].iter().any(|v| v.abs() > 1e-3));
    assert!(lost.iter().all(|state| nmse(state, &kept[0]) < 1e-10));
}

/// Checks the word's output y. The output depends on the state before the current token, and on the current token with the bonus as its weight.
#[test]
fn without_decay_and_with_a_bonus_of_one_it_is_causal_linear_attention() {
    use wingbeat::low_level::tape::{Rows, vector};
    use wingbeat::low_level::words::testing::numbers;
    use wingbeat::low_level::words::{Decay, Wkv6};
    const N: usize = 12;
    let attention = |w: fn(f32) -> f32, u: fn(f32) -> f32, weight: &dyn Fn(usize, usize) -> f32| {
        let mut tape = Tape::new();
        let proj = tape.var("proj", Rows::Tokens, &[SIZE; 3]);
        let vectors = tape.vectors(SIZE, vec![vector("u").map(u), vector("g").map(|_| 1.0), vector("b").map(|_| 0.0), vector("w").map(w)]);
        let state = tape.state("wkv".into(), &[1, SIZE, SIZE], false);
        let y = tape.wkv6(proj, Wkv6 { head_size: SIZE, eps: 0.0, vectors, decay: Decay::Constant, gate: None, state });
        let (spec, out) = (tape.var_spec(proj).clone(), tape.var_spec(y).stride());
        let mut executor = CpuModel::load(Arc::new(tape), &Changed(NOTHING), &mut |_, _| ()).unwrap().executor(Capacity::pages(1)).unwrap();
        let mut made = numbers(9);
        let mut rows = vec![0.0; N * spec.stride()];
        for row in rows.chunks_exact_mut(spec.stride()) {
            (0..3).for_each(|c| row[spec.column(c)..][..SIZE].iter_mut().zip(&mut made).for_each(|(x, n)| *x = n));
        }
        executor.write_var(proj, &rows).unwrap();
        executor.run(&Step { outputs: vec![], ..step(&[0; N], 0) }, &mut Vec::new()).unwrap();
        let found = executor.read_var(y, N).unwrap();
        let x = |c: usize, t: usize| &rows[t * spec.stride() + spec.column(c)..][..SIZE];
        for t in 0..N {
            let mut expected = [0f32; SIZE];
            for i in 0..=t {
                let score: f32 = x(0, t).iter().zip(x(1, i)).map(|(r, k)| r * k).sum::<f32>() * weight(t, i);
                expected.iter_mut().zip(x(2, i)).for_each(|(e, v)| *e += score * v);
            }
            let mean = expected.iter().sum::<f32>() / SIZE as f32;
            let scale = (expected.iter().map(|e| (e - mean).powi(2)).sum::<f32>() / SIZE as f32).sqrt();
            let expected: Vec<f32> = expected.iter().map(|e| (e - mean) / scale).collect();
            let error = nmse(&found[t * out..][..SIZE], &expected);
            assert!(error < 1e-9, "{t}: {error:.2e}");
        }
    };
    attention(|_| 1.0, |_| 1.0, &|_, _| 1.0);
    attention(|_| 1.0, |_| 3.0, &|t, i| if t == i { 3.0 } else { 1.0 });
    attention(|_| 0.0, |_| 0.5, &|t, i| if t == i { 0.5 } else { f32::from(i + 1 == t) });
    attention(|_| 0.5, |_| 2.0, &|t, i| if t == i { 2.0 } else { 0.5f32.powi((t - i - 1) as i32) });
}

#[test]
fn version_6_without_its_low_rank_pairs_is_version_5_2() {
    let as_6 = |name: &str, shape: &[usize], v: &mut Vec<f32>| {
        if ["time_maa_w1", "time_decay_w1"].iter().any(|n| name.ends_with(n)) {
            v.fill(0.0);
        } else if name.ends_with("att.time_decay") {
            *v = plain(name, &[HEADS, SIZE]);
        } else if name.contains("time_maa_") && shape.len() == 1 {
            *v = plain(&name.replace("time_maa_", "time_mix_"), shape).into_iter().map(|mu| 1.0 - mu).collect();
        }
    };
    let error = nmse(&logits(&v6(), &as_6, &TOKENS), &logits(&v52(), NOTHING, &TOKENS));
    assert!(error < 1e-10, "{error:.2e}");
    assert!(nmse(&logits(&v6(), NOTHING, &TOKENS), &logits(&v52(), NOTHING, &TOKENS)) > 1e-6);
}

#[test]
fn a_group_norm_of_an_eighth_has_a_64th_of_the_epsilon() {
    // value weights divided by 8 give y / 8
    let eighth = |name: &str, _: &[usize], v: &mut Vec<f32>| {
        if is_one_of(name, &["value.weight"]) {
            v.iter_mut().for_each(|x| *x /= 8.0);
        }
    };
    let small = Rwkv5 { base: Base { group_norm_eps: 1e-5, ..base() }, ..v52() };
    let error = nmse(&logits(&small, &eighth, &TOKENS), &logits(&v52(), NOTHING, &TOKENS));
    assert!(error < 1e-10, "{error:.2e}");
}

#[test]
fn permuting_heads_everywhere_changes_nothing() {
    let rows = ["receptance.weight", "key.weight", "value.weight", "gate.weight"];
    let flat = ["time_decay", "time_faaaa", "ln_x.weight", "ln_x.bias"];
    let columns = ["output.weight", "time_decay_w2"];
    let change = |name: &str, shape: &[usize], v: &mut Vec<f32>| permute(name, shape, v, &rows, &columns, &flat);
    for model in [&v52() as &dyn Blueprint, &v6()] {
        let error = nmse(&logits(model, &change, &TOKENS), &logits(model, NOTHING, &TOKENS));
        assert!(error < 1e-10, "{error:.2e}");
    }
}
