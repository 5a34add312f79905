//! Compares random models of GLM-4.7-Flash's kind with their logits in `transformers`. `tools/golden-flash.py` made the models and the logits.

use crate::support::{
    Golden, adapter, caps, check_official, check_states, devices, kernel_cases, logits_of, nmse, one_by_one, options, root,
};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wingbeat::low_level::exec::cpu::CpuModel;
use wingbeat::low_level::exec::gpu::{Device, GpuModel};
use wingbeat::low_level::exec::{DeviceChoice, Executor, Loaded};
use wingbeat::low_level::quant::Activations;
use wingbeat::low_level::session::{ExpertsOn, GgufVocab, Model, ModelSource, Options, PartOn, Session, convert_gguf, measure};
use wingbeat::low_level::tape::{Capacity, Class, MatrixPart, Rows, Run, Step, Tape, vector};
use wingbeat::low_level::tensor::DType;
use wingbeat::low_level::weights::{Checkpoint, Conversion, Layout, convert};
use wingbeat::low_level::words::synthetic::Synthetic;
use wingbeat::low_level::words::testing::numbers;
use wingbeat::low_level::words::{Norm, Router};

/// Three random models. `flash` has the published structure. `flash-groups` has groups of experts, weights of experts that are not divided by their
/// sum, two shared experts, and layers in another order. `flash-stacked` has stacked experts, and queries without a latent.
const MODELS: [&str; 3] = ["flash", "flash-groups", "flash-stacked"];

/// Returns the models with their logits. Returns no models in the published package, which lacks their files.
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

/// In quantised formats, all kernels give the logits of the CPU. These logits are not close to the official logits: in a random model, small errors
/// choose other experts.
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

/// A GGUF file has the weights and the settings of the model, also in block types. llama.cpp has no place for a dense layer after a layer with
/// experts.
#[test]
fn a_gguf_file_has_the_same_logits() {
    for (name, path, golden) in all() {
        let (input, folder) = (Checkpoint::open(&path).unwrap(), tempfile::tempdir().unwrap());
        let file = folder.path().join("flash.gguf");
        // Rows that are no whole blocks of 32 weights are floats in the file.
        for plan in [None, Some("q8_0"), Some("q4_0"), Some("iq4_nl"), Some("q5_1,head=q8_0")] {
            let plan = plan.map(|plan| format!("{plan},self_attn.k_b=f16,layers.0.mlp.down_proj=f16"));
            let chosen = plan.as_ref().map(|plan| plan.parse().unwrap());
            let what = Conversion { layout: Layout::Gguf, dtype: Some(DType::F32), ..Conversion::default() };
            let written = convert_gguf(&input, &file, &GgufVocab::Without, chosen.as_ref(), &what, &mut |_, _| ());
            if name == "flash-groups" && plan.is_none() {
                let text = written.unwrap_err().to_string();
                let expected = "llama.cpp needs the layers without experts before all others, found layer 1 without experts after layer 0 with experts";
                assert!(text.contains(expected), "{text}");
                break;
            }
            written.unwrap();
            let loaded = load(&path, &Options { quant: chosen, ..options("cpu") });
            assert!(logits_of(&load(&file, &options("cpu")), &golden.tokens) == logits_of(&loaded, &golden.tokens), "{name}, {plan:?}");
        }
    }
}

/// Returns a part of a model on `device`. The experts of its last `n` layers with experts are on the device `experts`.
fn part(device: &str, experts: &str, layers: Range<usize>, n: usize) -> PartOn {
    let device_of = |name: &str| if name == "own" { DeviceChoice::Own } else { name.parse().unwrap() };
    PartOn { device: device_of(device), resident: layers.len(), layers, experts: Some(ExpertsOn { device: device_of(experts), layers: n }) }
}

/// All layers of a model: three blocks, two of them with experts, and the head.
const ALL: Range<usize> = 0..4;

/// Loads a model in parts, on the devices of `base` and of the parts.
fn in_parts(path: &Path, base: &Options, parts: Vec<PartOn>) -> Model {
    load(path, &Options { parts, ..base.clone() })
}

#[test]
fn experts_in_a_part_of_their_own_are_bit_identical() {
    for (name, path, golden) in all() {
        let base = Options { deterministic: true, ..options("cpu") };
        let model = load(&path, &base);
        let expected = [logits_of(&model, &golden.tokens), one_by_one(&model, &golden.tokens)];
        let cpu = |layers, n| part("cpu", "cpu", layers, n);
        let cut = |at: usize| vec![cpu(0..at, 9), PartOn { experts: None, ..cpu(at..4, 9) }];
        // The models of MODELS have experts in layer 2, and in layer 0 or 1.
        for (parts, id) in [
            (vec![cpu(ALL, 9)], "cpu, experts cpu"),
            (vec![cpu(ALL, 1)], "cpu, experts cpu"),
            (vec![cpu(0..2, 9), cpu(2..4, 9)], "cpu, experts cpu -> cpu, experts cpu"),
            (cut(2), "cpu, experts cpu -> cpu"),
            (cut(3), "cpu, experts cpu -> cpu"),
        ] {
            let apart = in_parts(&path, &base, parts.clone());
            assert_eq!((apart.device().id.as_str(), apart.device_bytes()), (id, model.device_bytes()), "{name}, {parts:?}");
            let found = [logits_of(&apart, &golden.tokens), one_by_one(&apart, &golden.tokens)];
            assert!(found == expected, "{name}, {parts:?}: {:.1e}", nmse(&found[0], &expected[0]));
            check_states(&format!("{name}, {parts:?}"), &apart, &golden, 67);
        }
    }
}

/// The dense layers are on a GPU and experts on the CPU, or the other way round.
#[test]
fn experts_on_another_device_give_the_official_logits() {
    for (name, path, golden) in all() {
        let on_cpu = logits_of(&load(&path, &options("cpu")), &golden.tokens);
        for (i, (how, base)) in kernel_cases().into_iter().filter(|(_, base)| base.device != DeviceChoice::Cpu).enumerate() {
            let gpu = if base.gpu.is_some() { "own" } else { "gpu" };
            // Each kernel case tests one of the divisions.
            let divisions = [
                vec![part(gpu, "cpu", ALL, 9)],
                vec![part("cpu", gpu, ALL, 9)],
                vec![part(gpu, "cpu", ALL, 1)],
                vec![part(gpu, "cpu", 0..2, 9), part("cpu", gpu, 2..4, 9)],
            ];
            let parts = divisions[i % divisions.len()].clone();
            let name = format!("{name}, {how}, {parts:?}");
            let model = in_parts(&path, &base, parts);
            check_official(&name, &model, &golden, false);
            let error = nmse(&logits_of(&model, &golden.tokens), &on_cpu);
            assert!(error <= 1e-9, "{name}: {error:.1e}");
        }
        if devices().contains(&"gpu") {
            let model = in_parts(&path, &options("gpu"), vec![part("gpu:0", "cpu", ALL, 9)]);
            assert_eq!(model.device().id, "gpu:0, experts cpu");
            check_states(&format!("{name}, gpu with experts on the CPU"), &model, &golden, 67);
        }
    }
}

#[test]
fn a_strategy_gives_experts_a_device_and_a_format() {
    for (name, path, golden) in all() {
        let open = |text: &str| load(&path, &Options { strategy: Some(text.parse().unwrap()), ..options("auto") });
        let quantised = |model: &Model| model.quantised_tensors().into_iter().map(|q| (q.tensor, q.format)).collect::<Vec<_>>();
        // On the CPU, the experts need no second part.
        let model = open("cpu fp32, experts cpu fp32i8");
        assert_eq!(model.device().id, "cpu");
        let both = quantised(&model);
        assert!(
            !both.is_empty() && both.iter().all(|(tensor, format)| tensor.contains(".experts.") && *format == "i8"),
            "{name}: {both:?}"
        );
        let last = quantised(&open("cpu fp32, experts cpu fp32i8 *1"));
        assert!(last.len() * 2 == both.len() && last.iter().all(|(tensor, _)| tensor.contains(".2.mlp.experts.")), "{name}: {last:?}");
        let rest = quantised(&open("cpu fp32i8, experts cpu fp32"));
        assert!(!rest.is_empty() && rest.iter().all(|(tensor, _)| !tensor.contains(".experts.")), "{name}: {rest:?}");
        if devices().contains(&"gpu") {
            let model = open("gpu:0 fp32, experts cpu -> cpu fp32");
            assert_eq!(model.device().id, "gpu:0, experts cpu -> cpu", "{name}");
            let error = nmse(&logits_of(&model, &golden.tokens), &golden.logits);
            assert!(error <= 1e-9, "{name}: {error:.1e}");
        }
    }
}

#[test]
fn a_place_of_experts_that_do_not_exist_is_refused() {
    let Some((_, path, _)) = all().next() else { return };
    let refused = |path: &Path, options: Options| {
        Model::load(&ModelSource::Path(path.into()), &options, &mut |_, _| panic!("loads")).err().unwrap().to_string()
    };
    let strategy = |text: &str| Options { strategy: Some(text.parse().unwrap()), ..options("cpu") };
    let text = refused(&root().join("tests/models/tiny-glm4"), strategy("cpu fp32, experts cpu"));
    assert!(text.contains("the model has no experts"), "{text}");
    let parts = |parts: Vec<PartOn>| refused(&path, Options { parts, ..options("cpu") });
    // The first model has a dense layer 0.
    let text = parts(vec![part("cpu", "cpu", 0..1, 9), part("cpu", "cpu", 1..4, 9)]);
    assert!(text.contains("found no experts in layers 0..1"), "{text}");
    let text = parts(vec![PartOn { resident: 2, ..part("cpu", "cpu", ALL, 9) }]);
    assert!(text.contains("layers 0..4 cannot be streamed while their experts are on another device"), "{text}");
}

#[test]
fn measurements_cover_the_experts() {
    for (name, path, _) in all() {
        let words = |model: &Model| {
            let mut session = Session::new(model, 1).unwrap();
            let profile = measure::profile(&mut session, 3).unwrap();
            profile.iter().map(|w| (w.word, w.weight_bytes)).collect::<Vec<_>>()
        };
        let whole = words(&load(&path, &options("cpu")));
        assert_eq!(words(&in_parts(&path, &options("cpu"), vec![part("cpu", "cpu", ALL, 9)])), whole, "{name}");
        assert_eq!(whole.iter().filter(|(word, _)| *word == "experts").count(), 2, "{name}");
    }
}

/// Devices add the products of the router in another order than the CPU, so a score differs in its last bits. Another expert is chosen only if two
/// scores are nearly equal. Then either choice is within the rounding of the official code.
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
    let play = |executor: &mut dyn Executor, part: usize| {
        let input: Vec<f32> = numbers(part as u64).take(STEP * x_stride).collect();
        // Written twice, because the first write may enlarge the buffers and lose its numbers.
        (0..2).for_each(|_| executor.write_var(x, &input).unwrap());
        executor.run(&step, &mut Vec::new()).unwrap();
        [routed.chosen, routed.logits].map(|v| executor.read_var(v, STEP).unwrap())
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
