//! Tests properties that hold for any weights: the formulas of the recurrences, the independence of heads, and equivalences between versions.

mod detect;
mod rwkv4;
mod rwkv56;
mod rwkv7;

use crate::support::nmse;
use std::sync::Arc;
use wingbeat::error::Result;
use wingbeat::low_level::arch::{Base, Blueprint};
use wingbeat::low_level::exec::{Executor, Loaded, cpu::CpuModel};
use wingbeat::low_level::tape::{Capacity, Run, Source, Step, Tape};
use wingbeat::low_level::tensor::{DType, View};
use wingbeat::low_level::words::synthetic::Synthetic;

/// A function that changes a tensor while it is loaded. Its arguments are the name, the shape and the numbers.
type Change<'a> = &'a (dyn Fn(&str, &[usize], &mut Vec<f32>) + Sync);

/// Synthetic weights with some tensors changed.
struct Changed<'a>(Change<'a>);

const SEED: u64 = 3;

/// Returns the numbers of a tensor in the unchanged weights.
fn plain(name: &str, shape: &[usize]) -> Vec<f32> {
    View::dense(DType::F16, shape, &Synthetic { seed: SEED }.bytes(name, shape)).unwrap().to_f32().unwrap()
}

impl Source for Changed<'_> {
    fn has(&self, _: &str) -> bool {
        true
    }
    fn dtype(&self, _: &str) -> Option<DType> {
        Some(DType::F32)
    }
    fn with(&self, name: &str, shape: &[usize], read: &mut dyn FnMut(&View<'_>) -> Result<()>) -> Result<()> {
        let mut values = plain(name, shape);
        (self.0)(name, shape, &mut values);
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        read(&View::dense(DType::F32, shape, &bytes)?)
    }
}

const HEADS: usize = 3;
const SIZE: usize = 16;
const C: usize = HEADS * SIZE;

/// Returns the sizes of a model with three layers and three heads.
fn base() -> Base {
    Base { n_layer: 3, ..Base::new(C, 4 * C, SIZE, 40) }
}

fn executor(model: &dyn Blueprint, change: Change<'_>) -> (Arc<Tape>, Box<dyn Executor>) {
    let mut tape = Tape::new();
    model.record(&mut tape);
    tape.store_as(wingbeat::low_level::quant::find("f32").unwrap());
    let tape = Arc::new(tape);
    let executor = CpuModel::load(tape.clone(), &Changed(change), &mut |_, _| ()).unwrap().executor(Capacity::pages(1)).unwrap();
    (tape, executor)
}

/// Returns a step with the tokens of one slot. The step requests the logits of all tokens, reads half `shift` (0 or 1) of the token-shift state, and
/// writes the other half.
fn step(tokens: &[u32], shift: u32) -> Step {
    let run =
        Run { first_row: 0, len: tokens.len() as u32, page_in: 0, page_out: 0, shift_in: shift, shift_out: 1 - shift, ..Run::default() };
    Step { tokens: tokens.to_vec(), runs: vec![run], outputs: (0..tokens.len() as u32).collect(), ..Step::default() }
}

fn logits(model: &dyn Blueprint, change: Change<'_>, tokens: &[u32]) -> Vec<f32> {
    let mut out = Vec::new();
    executor(model, change).1.run(&step(tokens, 0), &mut out).unwrap();
    out
}

/// Decodes `tokens` one by one. Returns the state `name` after each token.
fn states(model: &dyn Blueprint, change: Change<'_>, tokens: &[u32], name: &str) -> Vec<Vec<f32>> {
    let (tape, mut executor) = executor(model, change);
    let state = tape.find_state(name).unwrap();
    let mut out = Vec::new();
    let mut one = |(i, &token): (usize, &u32)| {
        executor.run(&step(&[token], i as u32 % 2), &mut out).unwrap();
        executor.read_state(state, 0).unwrap()
    };
    tokens.iter().enumerate().map(&mut one).collect()
}

fn is_one_of(name: &str, ends: &[&str]) -> bool {
    name.rsplit_once(".att.").is_some_and(|(_, n)| ends.contains(&n))
}

/// Returns the channel of the plain model that becomes channel `c` of the permuted model.
fn permuted(c: usize) -> usize {
    (c / SIZE + 1) % HEADS * SIZE + c % SIZE
}

/// Permutes the heads in a tensor of the time mix. `rows` names the tensors with one row per channel, `columns` the tensors with one column per
/// channel, and `flat` the vectors.
fn permute(name: &str, shape: &[usize], v: &mut [f32], rows: &[&str], columns: &[&str], flat: &[&str]) {
    let old = v.to_vec();
    let (by_row, by_column, is_flat) = (is_one_of(name, rows), is_one_of(name, columns), is_one_of(name, flat));
    let width = if is_flat || shape.len() == 1 { 1 } else { shape[shape.len() - 1] };
    for (i, v) in v.iter_mut().enumerate() {
        let (r, c) = (i / width, i % width);
        *v = match (by_row || is_flat, by_column) {
            (true, _) => old[permuted(r) * width + c],
            (_, true) => old[r * width + permuted(c)],
            _ => *v,
        };
    }
}

/// Exchanges the weights of layers 1 and 2.
fn swap_layers(name: &str, shape: &[usize], v: &mut Vec<f32>) {
    let other = if name.starts_with("blocks.1.") { name.replacen("1", "2", 1) } else { name.replacen("blocks.2.", "blocks.1.", 1) };
    if other != name {
        *v = plain(&other, shape);
    }
}

const TOKENS: [u32; 9] = [3, 1, 4, 1, 5, 9, 2, 6, 35];

/// Returns one model of every version.
fn every_version() -> Vec<Box<dyn Blueprint>> {
    vec![Box::new(rwkv4::model()), Box::new(rwkv56::v50()), Box::new(rwkv56::v52()), Box::new(rwkv56::v6()), Box::new(rwkv7::model())]
}

#[test]
fn permuting_layers_changes_the_logits() {
    for model in every_version() {
        let before = logits(model.as_ref(), &|_, _, _| (), &TOKENS);
        assert!(nmse(&logits(model.as_ref(), &swap_layers, &TOKENS), &before) > 1e-6, "{:?}", model.facts());
    }
}

#[test]
fn a_model_without_ln0_expects_a_normalised_table() {
    let normed = |v: &mut Vec<f32>, width: usize| {
        let (g, b) = (plain("blocks.0.ln0.weight", &[width]), plain("blocks.0.ln0.bias", &[width]));
        for row in v.chunks_exact_mut(width) {
            let mean = row.iter().sum::<f32>() / width as f32;
            let var = row.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / width as f32;
            row.iter_mut().enumerate().for_each(|(i, x)| *x = (*x - mean) / (var + 1e-5).sqrt() * g[i] + b[i]);
        }
    };
    let with = rwkv56::v52();
    let without = wingbeat::low_level::arch::Rwkv5 { base: Base { has_ln0: false, ..base() }, ..rwkv56::v52() };
    let fold = |name: &str, shape: &[usize], v: &mut Vec<f32>| {
        if name == "emb.weight" {
            normed(v, shape[1]);
        }
    };
    let error = nmse(&logits(&without, &fold, &TOKENS), &logits(&with, &|_, _, _| (), &TOKENS));
    assert!(error < 1e-10, "{error:.2e}");
}
