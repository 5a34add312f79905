//! RWKV-4: a weighted mean whose exponents may be anything.

use super::*;
use wingbeat::arch::Rwkv4;
use wingbeat::tape::{Rows, Var, vector};
use wingbeat::words::testing::numbers;

pub fn model() -> Rwkv4 {
    Rwkv4(Base { head_size: 1, ..base() })
}

/// The word alone: channels with r = 1, and these k and v token after token.
fn wkv(k: &[Vec<f32>], v: &[Vec<f32>]) -> Vec<f32> {
    let (width, n) = (k[0].len(), k.len());
    let mut tape = Tape::new();
    let proj = tape.var("proj", Rows::Tokens, &[width; 3]);
    let vectors = tape.vectors(width, vec![vector("time_decay").map(|d| -d.exp()), vector("time_first")]);
    let state = tape.wkv4_state("wkv".into(), width);
    let y: Var = tape.wkv4(proj, vectors, state);
    let (spec, out) = (tape.var_spec(proj).clone(), tape.var_spec(y).stride());
    let mut executor = CpuModel::load(Arc::new(tape), &Changed(&|_, _, _| ()), true, &mut |_, _| ()).unwrap().executor(1).unwrap();
    let mut rows = vec![0.0; n * spec.stride()];
    for (t, row) in rows.chunks_exact_mut(spec.stride()).enumerate() {
        row[spec.column(0)..][..width].fill(1.0);
        row[spec.column(1)..][..width].copy_from_slice(&k[t]);
        row[spec.column(2)..][..width].copy_from_slice(&v[t]);
    }
    executor.write_var(proj, &rows).unwrap();
    executor.run(&Step { outputs: vec![], ..step(&vec![0; n], 0) }, &mut Vec::new()).unwrap();
    executor.read_var(y, n).unwrap().chunks_exact(out).flat_map(|row| row[..width].to_vec()).collect()
}

fn rows(seed: u64, n: usize, scale: f32) -> Vec<Vec<f32>> {
    let mut made = numbers(seed);
    (0..n).map(|_| made.by_ref().take(11).map(|x| x * scale).collect()).collect()
}

#[test]
fn the_first_token_gives_its_value_whatever_its_key() {
    for scale in [1.0, 60.0, 1e4] {
        let v = rows(1, 1, 1.0);
        let y = wkv(&rows(2, 1, scale), &v);
        assert!(nmse(&y, &v[0]) < 1e-12, "{scale}: {:.2e}", nmse(&y, &v[0]));
    }
}

#[test]
fn a_constant_added_to_all_keys_changes_nothing() {
    let (k, v) = (rows(3, 20, 3.0), rows(4, 20, 1.0));
    let plain = wkv(&k, &v);
    for constant in [-50.0, 8.0, 200.0] {
        let moved: Vec<Vec<f32>> = k.iter().map(|row| row.iter().map(|x| x + constant).collect()).collect();
        let error = nmse(&wkv(&moved, &v), &plain);
        assert!(error < 1e-9, "{constant}: {error:.2e}");
    }
}

#[test]
fn extreme_keys_stay_finite_and_within_the_values() {
    for scale in [60.0, 1e4, 1e30] {
        let v = rows(6, 200, 1.0);
        let y = wkv(&rows(5, 200, scale), &v);
        assert!(y.iter().all(|y| y.is_finite() && y.abs() <= 1.0 + 1e-5), "{scale}");
    }
}

#[test]
fn equal_decays_and_keys_give_a_plain_mean() {
    // Without decay and bonus every token so far weighs the same.
    let v = rows(7, 30, 1.0);
    let mut tape = Tape::new();
    let proj = tape.var("proj", Rows::Tokens, &[11; 3]);
    let vectors = tape.vectors(11, vec![vector("time_decay").map(|_| 0.0), vector("time_first").map(|_| 0.0)]);
    let state = tape.wkv4_state("wkv".into(), 11);
    let y = tape.wkv4(proj, vectors, state);
    let (spec, out) = (tape.var_spec(proj).clone(), tape.var_spec(y).stride());
    let mut executor = CpuModel::load(Arc::new(tape), &Changed(&|_, _, _| ()), true, &mut |_, _| ()).unwrap().executor(1).unwrap();
    let mut rows = vec![0.0; 30 * spec.stride()];
    for (row, v) in rows.chunks_exact_mut(spec.stride()).zip(&v) {
        row[..11].fill(1.0);
        row[spec.column(2)..][..11].copy_from_slice(v);
    }
    executor.write_var(proj, &rows).unwrap();
    executor.run(&Step { outputs: vec![], ..step(&[0; 30], 0) }, &mut Vec::new()).unwrap();
    let found = executor.read_var(y, 30).unwrap();
    for t in 0..30 {
        for c in 0..11 {
            let mean = v[..=t].iter().map(|row| row[c]).sum::<f32>() / (t + 1) as f32;
            assert!((found[t * out + c] - mean).abs() < 1e-5);
        }
    }
}

#[test]
fn permuting_channels_everywhere_changes_nothing() {
    let rows = ["receptance.weight", "key.weight", "value.weight"];
    let flat = ["time_decay", "time_first"];
    let change = |name: &str, shape: &[usize], v: &mut Vec<f32>| permute(name, shape, v, &rows, &["output.weight"], &flat);
    let error = nmse(&logits(&model(), &change, &TOKENS), &logits(&model(), &|_, _, _| (), &TOKENS));
    assert!(error < 1e-10, "{error:.2e}");
}
