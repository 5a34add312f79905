//! Tests GLM-4.7-Flash: random models with their logits in `transformers`. `tools/golden-flash.py` made both.

use crate::support::{Golden, check_official, check_states, devices, kernel_cases, logits_of, nmse, options, root};
use std::path::{Path, PathBuf};
use wingbeat::low_level::quant::Activations;
use wingbeat::low_level::session::{GgufVocab, Model, ModelSource, Options, convert_gguf};
use wingbeat::low_level::tensor::DType;
use wingbeat::low_level::weights::{Checkpoint, Conversion, Layout, convert};

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

/// A GGUF file has the weights and the settings of the model, also in block types. llama.cpp has no place for a dense layer after a layer with experts.
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
