//! Tests RWKV-4: its recurrence is a weighted mean, for exponents of any size.

use super::*;
use wingbeat::low_level::arch::Rwkv4;
use wingbeat::low_level::tape::{Capacity, MatrixPart, Rows, vector};
use wingbeat::low_level::words::testing::numbers;

pub fn model() -> Rwkv4 {
    Rwkv4(Base { head_size: 1, ..base() })
}

/// Runs the recurrence alone, with r = 1 and the identity as output matrix. `k` and `v` are `[T][C]`. Returns wkv, `[T][C]`.
fn wkv_with(k: &[Vec<f32>], v: &[Vec<f32>], w: fn(f32) -> f32, u: fn(f32) -> f32) -> Vec<Vec<f32>> {
    let (width, n) = (k[0].len(), k.len());
    let mut tape = Tape::new();
    let proj = tape.var("proj", Rows::Tokens, &[width; 3]);
    let x = tape.var("x", Rows::Tokens, &[width]);
    let vectors = tape.vectors(width, vec![vector("time_decay").map(w), vector("time_first").map(u)]);
    let state = tape.wkv4_state("wkv".into(), width);
    tape.wkv4_linear_add(proj, vectors, state, MatrixPart::new("identity", width, width), x);
    tape.store_as(wingbeat::low_level::quant::find("f32").unwrap());
    let (spec, out) = (tape.var_spec(proj).clone(), tape.var_spec(x).stride());
    let identity = |name: &str, shape: &[usize], v: &mut Vec<f32>| {
        if name == "identity" {
            v.iter_mut().enumerate().for_each(|(i, v)| *v = f32::from(i / shape[1] == i % shape[1]));
        }
    };
    let mut executor = CpuModel::load(Arc::new(tape), &Changed(&identity), &mut |_, _| ()).unwrap().executor(Capacity::pages(1)).unwrap();
    let mut rows = vec![0.0; n * spec.stride()];
    for (t, row) in rows.chunks_exact_mut(spec.stride()).enumerate() {
        row[spec.column(0)..][..width].fill(1.0);
        row[spec.column(1)..][..width].copy_from_slice(&k[t]);
        row[spec.column(2)..][..width].copy_from_slice(&v[t]);
    }
    executor.write_var(proj, &rows).unwrap();
    executor.run(&Step { outputs: vec![], ..step(&vec![0; n], 0) }, &mut Vec::new()).unwrap();
    executor.read_var(x, n).unwrap().chunks_exact(out).map(|row| row[..width].to_vec()).collect()
}

fn wkv(k: &[Vec<f32>], v: &[Vec<f32>]) -> Vec<f32> {
    wkv_with(k, v, |d| -d.exp(), |u| u).concat()
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
    // without decay and bonus, every token so far has the same weight
    let v = rows(7, 30, 1.0);
    let found = wkv_with(&vec![vec![0.0; 11]; 30], &v, |_| 0.0, |_| 0.0);
    for t in 0..30 {
        for c in 0..11 {
            let mean = v[..=t].iter().map(|row| row[c]).sum::<f32>() / (t + 1) as f32;
            assert!((found[t][c] - mean).abs() < 1e-5);
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
