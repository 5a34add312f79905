//! Tests GLM-4.7-Flash: random models with their logits in `transformers`. `tools/golden-flash.py` made both.

use crate::support::{Golden, adapter, caps, check_official, check_states, devices, kernel_cases, logits_of, nmse, options, root};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wingbeat::low_level::exec::cpu::CpuModel;
use wingbeat::low_level::exec::gpu::{Device, GpuModel};
use wingbeat::low_level::exec::{Executor, Loaded};
use wingbeat::low_level::quant::Activations;
use wingbeat::low_level::session::{Model, ModelSource, Options};
use wingbeat::low_level::tape::{Capacity, Class, MatrixPart, Rows, Run, Step, Tape, Var, vector};
use wingbeat::low_level::weights::{Checkpoint, Conversion, convert};
use wingbeat::low_level::words::synthetic::Synthetic;
use wingbeat::low_level::words::testing::numbers;
use wingbeat::low_level::words::{Norm, Router};

/// The published structure; groups of experts, weights that are not divided by their sum, two shared experts and layers in another order; and stacked
/// experts with queries without a latent.
const MODELS: [&str; 3] = ["flash", "flash-groups", "flash-stacked"];

/// Returns the models with their logits, or none in the published package, which lacks them.
fn all() -> impl Iterator<Item = (&'static str, PathBuf, Golden)> {
    MODELS.into_iter().filter_map(|name| Some((name, root().join("tests/models").join(name), Golden::of_made(name)?)))
}

fn load(path: &Path, options: &Options) -> Model {
    let options = Options { dtype: "f32".parse().unwrap(), ..options.clone() };
    Model::load(&ModelSource::Path(path.into()), &options, &mut |_, _| ()).unwrap()
}

#[test]
fn logits_and_greedy_texts_are_the_official_ones() {
    for (name, path, golden) in all() {
        for (how, options) in kernel_cases() {
            let model = load(&path, &options);
            check_official(&format!("{name}, {how}"), &model, &golden, options.deterministic);
        }
    }
}

/// Other slots, forks and saved states change nothing.
#[test]
fn states_are_whole() {
    for (name, path, golden) in all() {
        for device in devices() {
            let model = load(&path, &options(device));
            check_states(&format!("{name}, {device}"), &model, &golden, 67);
        }
    }
}

/// In quantised formats, all kernels give the logits of the CPU. These are not close to the official ones: in a random model, small errors choose other experts.
#[test]
fn kernels_agree_in_quantised_formats() {
    for (name, path, golden) in all().take(1) {
        for plan in ["i8", "q4_k"] {
            let quantised = |options: &Options| {
                let model =
                    load(&path, &Options { quant: Some(plan.parse().unwrap()), activations: Activations::Float, ..options.clone() });
                logits_of(&model, &golden.tokens)
            };
            let expected = quantised(&options("cpu"));
            let far = nmse(&expected, &golden.logits);
            assert!(far > 1e-7, "{name}, {plan}: {far:.1e}");
            for (how, options) in kernel_cases() {
                let error = nmse(&quantised(&options), &expected);
                assert!(error <= 1e-8, "{name}, {how}, {plan}: {error:.1e}");
            }
        }
    }
}

/// A converted file has the settings in its metadata, and one tensor per head and expert.
#[test]
fn a_converted_file_has_the_same_logits() {
    for (name, path, golden) in all() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("flash.safetensors");
        convert(&Checkpoint::open(&path).unwrap(), &file, &Conversion::default(), &mut |_, _| ()).unwrap();
        let [found, expected] = [&file, &path].map(|path| logits_of(&load(path, &options("cpu")), &golden.tokens));
        assert!(nmse(&found, &expected) <= 1e-5, "{name}: {:.1e}", nmse(&found, &expected));
    }
}

/// Devices add the products of the router in another order than the CPU, so a score differs in its last bits. Another expert is chosen only where two scores are
/// nearly equal: then either choice is within the rounding of the official code.
#[test]
fn the_same_experts_are_chosen_for_10_000_tokens() {
    const STEP: usize = 1000;
    let Some(adapter) = adapter() else { return };
    let of = Router { n_experts: 64, n_used: 4, n_groups: 1, n_used_groups: 1, scale: 1.8, normalises: true };
    let width = 256;
    let mut tape = Tape::new();
    let x = tape.var("x", Rows::Tokens, &[width]);
    let norm = Norm::rms(tape.vectors(width, vec![vector("norm.weight")]), 1e-5);
    let routed = tape.route(x, norm, MatrixPart::new("gate.weight", of.n_experts, width), vector("bias"), of);
    let (tape, source) = (Arc::new(tape), Synthetic { seed: 5 });
    let [x_stride, stride] = [x, routed.chosen].map(|v| tape.var_spec(v).stride());
    let step = Step {
        tokens: vec![0; STEP],
        runs: vec![Run { len: STEP as u32, shift_out: 1, ..Run::default() }],
        outputs: vec![0],
        ..Step::default()
    };
    let logits = Var(tape.vars.iter().position(|v| v.name == "expert_logits").unwrap());
    let play = |executor: &mut dyn Executor, part: usize| {
        let input: Vec<f32> = numbers(part as u64).take(STEP * x_stride).collect();
        // Written twice, because the first write may enlarge the buffers and lose its numbers.
        (0..2).for_each(|_| executor.write_var(x, &input).unwrap());
        executor.run(&step, &mut Vec::new()).unwrap();
        [routed.chosen, logits].map(|v| executor.read_var(v, STEP).unwrap())
    };
    let bias: Vec<f32> = source.bytes("bias", &[64]).chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect();
    let base = Device::open(&adapter, false).unwrap();
    let mut cpu = CpuModel::load(tape.clone(), &source, &mut |_, _| ()).unwrap().executor(Capacity::pages(1)).unwrap();
    for class in [Class::Groups, Class::Lanes] {
        let device = Arc::new(base.with_caps(caps(base.caps.clone(), class)));
        let mut gpu = GpuModel::load(device, tape.clone(), &source, &mut |_, _| ()).unwrap().executor(Capacity::pages(1)).unwrap();
        let mut others = 0;
        for part in 0..10 {
            let [expected, logits] = play(cpu.as_mut(), part);
            let [found, _] = play(gpu.as_mut(), part);
            let logits = logits.chunks_exact(logits.len() / STEP);
            for ((expected, found), logits) in expected.chunks_exact(stride).zip(found.chunks_exact(stride)).zip(logits) {
                let score = |e: f32| 1.0 / (1.0 + (-logits[e as usize]).exp()) + bias[e as usize];
                let [expected, found] = [expected, found].map(|row| &row[..of.n_used]);
                for (a, b) in expected.iter().zip(found) {
                    assert!((score(*a) - score(*b)).abs() < 1e-5, "{class:?}: {expected:?} {found:?}");
                }
                others += usize::from(expected != found);
            }
        }
        eprintln!("{class:?}: other experts for {others} of 10000 tokens");
    }
}
