//! Compares the kernels of every word with the word's reference implementation on the CPU (twin), on one adapter. `doctor`, tests and browsers
//! run the comparison. Each function has a form that blocks.

mod cases;

pub use cases::{Extent, cases, takes};

use super::cpu::CpuModel;
use super::gpu::{Device, GpuModel};
use super::wait::block_on;
use super::{Excerpt, Executor, Loaded, read_async, ready};
use crate::error::Result;
use crate::quant::{self, Activations, Format, Scaling};
use crate::sample::{Order, Sampler, Sampling};
use crate::tape::{
    BATCH, Cache, Capacity, Class, MatrixPart, Rows, Run, State, StateSpec, Step, TOKENS_PER_BLOCK, Tape, Var, VarSpec, vector,
};
use crate::words::synthetic::Synthetic;
use crate::words::testing::{BLOCKS, CONTEXT, Case, PAGES, nmse, numbers};
use crate::words::{Activation, IN_SPANS, LAYER_NORM_EPS, Norm, Projection, WORDS};
use std::sync::Arc;

/// The result of one case.
#[derive(Debug, Clone)]
pub struct CaseOutcome {
    /// The name of the case: `word/sizes/format`.
    pub case: String,
    /// The largest normalised mean squared error of all outputs, or infinity if a kernel wrote beyond an output.
    pub error: f64,
    /// The largest error that is accepted.
    pub bound: f64,
}

impl CaseOutcome {
    /// Returns whether the error is at most the bound.
    pub fn is_right(&self) -> bool {
        self.error <= self.bound
    }
}

/// The bound on the error is at least this number on a device with cooperative matrices, because such a device rounds activations to f16.
const COOPERATIVE_BOUND: f64 = 1e-5;

/// A case with an f16 state has at least this bound. Device and twin may round nearly equal numbers to different f16 values, and later
/// steps start from the rounded values.
const HALF_STATE_BOUND: f64 = 1e-7;

/// A case with an f16 state has at least this bound on a device that computes the recurrence in spans of 16 tokens. The device rounds the state once
/// per span, and the twin rounds the state after each token. So the two results differ by the rounding errors that only the twin makes.
const HALF_STATE_IN_SPANS_BOUND: f64 = 1e-5;

/// Returns the device, without cooperative matrices if their products differ from the twin's products. Cooperative matrices are
/// checked before a model uses them, because wgpu calls them experimental and few drivers support them.
pub async fn settle_async(mut device: Device) -> Result<Device> {
    if device.caps.cooperative.is_some() && !device.caps.batch_invariant {
        let mut chunks = cases_of(&[PRODUCTS.as_slice(), &["experts"]].concat());
        chunks.iter_mut().for_each(|c| c.steps.retain(|s| s.tokens.len() > BATCH && s.outputs.len() <= s.runs.len()));
        if let Some(wrong) = first_wrong_async(&Arc::new(device.with_caps(device.caps.clone())), chunks, "f16").await {
            log::warn!("this driver's cooperative matrices are wrong and not used: {wrong}");
            device.caps.cooperative = None;
        }
    }
    Ok(device)
}

/// Calls [`settle_async`] and blocks until it returns.
pub fn settle(device: Device) -> Result<Device> {
    block_on(settle_async(device))
}

/// Runs cases with weights of a format. Returns a description of the first case that fails: its error and bound, or the driver's error. Returns
/// `None` if all cases pass.
pub(super) async fn first_wrong_async(device: &Arc<Device>, cases: Vec<Case>, format: &str) -> Option<String> {
    let format = quant::find(format).ok()?;
    for case in cases {
        match run_async(case, format, device).await {
            Ok(o) if o.is_right() => {}
            Ok(o) => return Some(format!("{}: expected an error of at most {:.0e}, found {:.1e}", o.case, o.bound, o.error)),
            Err(e) => return Some(e.to_string()),
        }
    }
    None
}

/// Calls [`first_wrong_async`] and blocks until it returns.
pub(super) fn first_wrong(device: &Arc<Device>, cases: Vec<Case>, format: &str) -> Option<String> {
    block_on(async { Ok(first_wrong_async(device, cases, format).await) }).unwrap_or_else(|e| Some(e.to_string()))
}

/// Words whose products use only kernels whose sizes are tuned.
const PRODUCTS: [&str; 7] =
    ["linear_add", "linear_add_sparse", "norm_shift_linear", "norm_ddlerp_linear", "norm_linear", "swiglu", "linear_norm_add"];

/// Returns all cases of [`PRODUCTS`].
pub(super) fn products_of_words() -> Vec<Case> {
    cases_of(&PRODUCTS)
}

fn cases_of(names: &[&str]) -> Vec<Case> {
    WORDS.iter().filter(|w| names.contains(&w.name)).flat_map(|w| (w.cases)()).collect()
}

/// Compares sampling on the device, several steps in one submission, with sampling on the host from the same logits. Ids and states must
/// be equal: the error is 0 or infinite.
pub async fn draws_async(device: &Arc<Device>) -> Result<CaseOutcome> {
    const STREAMS: usize = 6;
    const STEPS: usize = 8;
    let plain = Sampling { temperature: 1.5, order: Order::Hf, ..Sampling::greedy(3) };
    let settings = [
        Sampling::rwkv(),
        Sampling::greedy(1),
        Sampling { top_k: 20, top_p: 0.7, ..Sampling::glm() },
        Sampling { min_p: 0.1, top_n_sigma: 2.0, repeat_penalty: 1.4, frequency_penalty: 0.5, ..plain.clone() },
        Sampling { logit_bias: vec![(5, 2.5), (17, -1.0)], ban: vec![3], ..Sampling::rwkv() },
        plain,
    ];
    let mut streams: Vec<Sampler> = settings.into_iter().map(Sampler::new).collect();
    let run = |i: u32| Run { first_row: i, len: 1, page_in: 0, page_out: i + 1, shift_in: 0, shift_out: 2 * i + 2, ..Run::default() };
    let rows = 0..STREAMS as u32;
    let mut step =
        Step { tokens: rows.clone().collect(), runs: rows.clone().map(run).collect(), outputs: rows.collect(), ..Step::default() };

    let model = GpuModel::load_async(device.clone(), Arc::new(small_model()), &Synthetic { seed: 7 }, &mut |_, _| ()).await?;
    let (mut ahead, mut one_by_one) =
        (model.clone().executor(Capacity::pages(STREAMS + 1))?, model.executor(Capacity::pages(STREAMS + 1))?);
    let mut found = Vec::new();
    ahead.begin_draws(&streams.iter().collect::<Vec<_>>(), &[])?;
    ahead.begin_ahead(&step, STEPS)?;
    ready(ahead.as_mut()).await?;
    ahead.finish_ahead(&mut found)?;
    let (mut expected, mut logits) = (Vec::new(), Vec::new());
    for _ in 0..STEPS {
        run_step(one_by_one.as_mut(), &step, &mut logits).await?;
        for (stream, logits) in streams.iter_mut().zip(logits.chunks_exact(logits.len() / STREAMS)) {
            let id = stream.sample(logits)?;
            stream.accept(id, 1.0);
            expected.push(id);
        }
        step.advance(&expected[expected.len() - STREAMS..]);
    }
    let mut is_right = found == expected;
    for half in 0..2 * STREAMS + 2 {
        let excerpt = Excerpt::State(State(0), half);
        is_right &= read_async(ahead.as_mut(), excerpt).await? == read_async(one_by_one.as_mut(), excerpt).await?;
    }
    Ok(CaseOutcome { case: "draws".into(), error: if is_right { 0.0 } else { f64::INFINITY }, bound: 0.0 })
}

/// Calls [`draws_async`] and blocks until it returns.
pub fn draws(device: &Arc<Device>) -> Result<CaseOutcome> {
    block_on(draws_async(device))
}

/// Plays a step, as [`Executor::run`] does, and waits as [`ready`] does.
async fn run_step(executor: &mut dyn Executor, step: &Step, logits: &mut Vec<f32>) -> Result<()> {
    executor.begin(step)?;
    ready(executor).await?;
    executor.finish(logits)
}

/// Returns the smallest tape that can decode: embedding, one channel mix with a state, and an output head.
fn small_model() -> Tape {
    let (width, n_vocab) = (64, 1000);
    let mut t = Tape::new();
    let table = t.table(MatrixPart::new("emb", n_vocab, width));
    let x = t.embed(table, None);
    let mix = t.vectors(width, ["g", "b", "mix"].map(vector).into());
    let shift = t.state("shift".into(), &[width], true);
    let key = Projection { part: MatrixPart::new("key", 2 * width, width), mix: 0, activation: Activation::ReluSquared, bias: None };
    let k = t.norm_shift_linear("ffn", x, Norm::layer(mix, LAYER_NORM_EPS), vec![key], shift);
    t.linear_add(MatrixPart::new("value", width, 2 * width), k, x);
    let norm = t.vectors(width, ["g", "b"].map(vector).into());
    t.head(x, Norm::layer(norm, LAYER_NORM_EPS), MatrixPart::new("head", n_vocab, width), None);
    t
}

/// Returns the number of rows after a step's last row that are compared: no kernel may write to these rows. The buffer of an activation with a
/// fixed number of rows has no other rows.
fn guard_rows(spec: &VarSpec) -> usize {
    if matches!(spec.rows, Rows::Fixed(_)) { 0 } else { 2 }
}

/// The capacity for the steps of all cases.
const CAPACITY: Capacity = Capacity { pages: PAGES, blocks: BLOCKS, listed: BLOCKS, context: CONTEXT };

/// Plays a case on the device and on the CPU, and compares the results.
pub async fn run_async(case: Case, format: &'static dyn Format, device: &Arc<Device>) -> Result<CaseOutcome> {
    let Case { name, mut tape, steps, bound, from_nothing, zeros } = case;
    tape.store_as(format);
    if !device.caps.rounds(tape.activations, usize::MAX) {
        tape.activations = Activations::Float;
    }
    tape.keep_rounded();
    if format.scaling() == Scaling::None {
        tape.cache_format = format;
    }
    // f16 weights are tested with f16 states.
    let is_half = format.name() == "f16" && tape.states.iter().any(StateSpec::is_matrices);
    tape.store_states(quant::find(if is_half { "f16" } else { "f32" })?)?;
    let tape = Arc::new(tape);
    let source = Synthetic { seed: 7 };
    let name = format!("{name}/{}", format.name());
    let has_spans = is_half && tape.words.iter().any(|word| IN_SPANS.contains(&word.name()));
    let in_spans = has_spans && device.caps.spans && device.caps.class == Class::Groups && !device.caps.batch_invariant;
    let bound = if is_half { bound.max(HALF_STATE_BOUND) } else { bound };
    let bound = if in_spans { bound.max(HALF_STATE_IN_SPANS_BOUND) } else { bound };
    // Kernels and twins add the products of codes and of offsets in different orders. The two sums partly cancel, so rounding errors weigh
    // more.
    let bound = if format.scaling() == Scaling::Affine { bound.max(1e-7) } else { bound };
    let bound = if device.caps.cooperative.is_some() { bound.max(COOPERATIVE_BOUND) } else { bound };
    let run = async {
        let mut gpu = GpuModel::load_async(device.clone(), tape.clone(), &source, &mut |_, _| ()).await?.executor(CAPACITY)?;
        let mut cpu = CpuModel::load(tape.clone(), &source, &mut |_, _| ())?.executor(CAPACITY)?;
        let mut worst = 0f64;
        let all_blocks: Vec<u32> = (0..BLOCKS as u32).collect();
        for (i, spec) in tape.states.iter().enumerate() {
            for page in 0..pages(spec) {
                let seeded = || numbers((i * 1000 + page) as u64).take(spec.len()).collect();
                let values = if from_nothing { cpu.read_state(State(i), 0)? } else { seeded() };
                gpu.write_state(State(i), page, &values)?;
                cpu.write_state(State(i), page, &values)?;
            }
        }
        for (i, spec) in tape.caches.iter().enumerate() {
            let values: Vec<f32> = numbers(i as u64).take(BLOCKS * spec.block_len()).collect();
            gpu.write_cache(Cache(i), &all_blocks, &values)?;
            cpu.write_cache(Cache(i), &all_blocks, &values)?;
        }
        for (i, step) in steps.iter().enumerate() {
            worst = worst.max(compare(&tape, step, zeros, i as u64, gpu.as_mut(), cpu.as_mut()).await?);
        }
        Ok(worst)
    };
    let error = run.await.map_err(|e: crate::error::Error| e.at(&name))?;
    Ok(CaseOutcome { case: name, error, bound })
}

/// Calls [`run_async`] and blocks until it returns.
pub fn run(case: Case, format: &'static dyn Format, device: &Arc<Device>) -> Result<CaseOutcome> {
    block_on(run_async(case, format, device))
}

fn pages(spec: &StateSpec) -> usize {
    PAGES * if spec.halves { 2 } else { 1 }
}

async fn compare(
    tape: &Tape,
    step: &Step,
    zeros: Option<(Var, f32)>,
    seed: u64,
    gpu: &mut dyn Executor,
    cpu: &mut dyn Executor,
) -> Result<f64> {
    let n_rows = |spec: &VarSpec| spec.rows.count(step.tokens.len(), step.outputs.len());
    let mut filled = Vec::new();
    for (i, spec) in tape.vars.iter().enumerate() {
        let zeros = zeros.filter(|(var, _)| *var == Var(i)).map_or(0.0, |(_, share)| share);
        let values = fill(spec, n_rows(spec) + guard_rows(spec), zeros, seed * 100 + i as u64);
        gpu.write_var(Var(i), &values)?;
        cpu.write_var(Var(i), &values)?;
        filled.push(values);
    }
    // A write may enlarge the buffers and so drop earlier writes. So all values are written again at the final size.
    for (i, values) in filled.iter().enumerate() {
        gpu.write_var(Var(i), values)?;
    }
    let mut logits = (Vec::new(), Vec::new());
    run_step(gpu, step, &mut logits.0).await?;
    cpu.run(step, &mut logits.1)?;
    let mut worst = nmse(&logits.0, &logits.1);
    for (i, spec) in tape.vars.iter().enumerate() {
        let rows = n_rows(spec);
        let (inside, all) = (rows * spec.stride(), (rows + guard_rows(spec)) * spec.stride());
        let found = read_async(gpu, Excerpt::Var(Var(i), rows + guard_rows(spec))).await?;
        let expected = cpu.read_var(Var(i), rows)?;
        for (p, found) in found.chunks_exact(all).enumerate() {
            if !spec.device_only && !spec.is_internal {
                worst = worst.max(nmse(&found[..inside], &expected[p * inside..][..inside]));
            }
            if found[inside..] != filled[i][p * all + inside..][..all - inside] {
                worst = f64::INFINITY;
            }
        }
    }
    for (i, spec) in tape.states.iter().enumerate() {
        for page in 0..pages(spec) {
            let found = read_async(gpu, Excerpt::State(State(i), page)).await?;
            worst = worst.max(nmse(&found, &cpu.read_state(State(i), page)?));
        }
    }
    let all_blocks: Vec<u32> = (0..BLOCKS as u32).collect();
    for i in (0..tape.caches.len()).map(Cache) {
        let n = BLOCKS * TOKENS_PER_BLOCK;
        let found = read_async(gpu, Excerpt::Cache(i, &all_blocks, n)).await?;
        worst = worst.max(nmse(&found, &cpu.read_cache(i, &all_blocks, n)?));
    }
    Ok(worst)
}

/// Returns rows of seeded random values, with zeros as padding. The fraction `zeros` of the values in the first range of columns is zero.
fn fill(spec: &VarSpec, rows: usize, zeros: f32, seed: u64) -> Vec<f32> {
    let (mut made, mut drawn) = (numbers(seed), numbers(!seed));
    let mut values = vec![0.0; spec.planes * rows * spec.stride()];
    for row in values.chunks_exact_mut(spec.stride()) {
        for (i, &width) in spec.columns.iter().enumerate() {
            row[spec.column(i)..][..width].iter_mut().zip(&mut made).for_each(|(v, n)| *v = n);
        }
        let is_zero = |draw: f32| draw < 2.0 * zeros - 1.0;
        row[..spec.columns[0]].iter_mut().zip(&mut drawn).filter(|(_, draw)| is_zero(*draw)).for_each(|(v, _)| *v = 0.0);
    }
    values
}
