//! Tests activations that the CPU rounds to 8 bits: where they are rounded, what they cost, and that texts do not depend on the batch.

use crate::support::{Tiny, adapter, golden, goldens, nmse, options, read};
use wingbeat::low_level::quant::FORMATS;
use wingbeat::low_level::session::{Session, Windows, quality};
use wingbeat::vocab::Vocab;
use wingbeat::{Activations, Model, Options};

/// Returns options for the CPU.
fn on_cpu(quant: &str, activations: &str) -> Options {
    let mut options = options("cpu");
    options.quant = (!quant.is_empty()).then(|| quant.parse().unwrap());
    options.activations = activations.parse().unwrap();
    options
}

#[test]
fn only_whole_weights_have_rounded_activations() {
    let tiny = goldens().find(|t| t.name == "rwkv7").unwrap();
    let of = |quant: &str, activations: &str| tiny.load(&on_cpu(quant, activations)).activations();
    for (quant, auto, asked) in
        [("", false, false), ("nf4", false, false), ("i8rc", false, false), ("i8", false, true), ("q8_0", false, true)].into_iter().chain([
            ("q6_k", true, true),
            ("i4", true, true),
            ("q5_k", true, true),
            ("q2_k", true, true),
            ("i8,head=q4_0", true, true),
        ])
    {
        let expected = |rounded: bool| if rounded { Activations::I8 } else { Activations::Float };
        assert_eq!(of(quant, "auto"), expected(auto), "{quant}");
        assert_eq!(of(quant, "i8"), expected(asked), "{quant}");
        assert_eq!(of(quant, "float"), Activations::Float, "{quant}");
    }
}

#[test]
fn a_model_says_which_activations_it_has() {
    let tiny = goldens().find(|t| t.name == "rwkv7").unwrap();
    let [float, rounded] = ["float", "i8"].map(|activations| tiny.load(&on_cpu("q4_k", activations)));
    assert!(!float.numerics().contains("activations") && rounded.numerics().contains("i8 activations"));
    let tokens = golden().prompt(20, 1);
    let error = nmse(&read(&rounded, &tokens), &read(&float, &tokens));
    assert!(error > 1e-9 && error < 1e-3, "{error:.1e}");
}

#[test]
fn gpus_refuse_rounded_activations() {
    let error = "i9".parse::<Activations>().unwrap_err().to_string();
    assert_eq!(error, "activations: expected auto, i8 or float, found \"i9\"");
    if adapter().is_none() {
        return;
    }
    let tiny = goldens().find(|t| t.name == "rwkv7").unwrap();
    let of = |activations: &str| {
        let asked = Options { device: "gpu".parse().unwrap(), ..on_cpu("i4", activations) };
        Model::load(&tiny.source(), &asked, &mut |_, _| ())
    };
    assert!(of("i8").unwrap_err().to_string().starts_with("activations: GPUs do not round activations"));
    assert_eq!(of("auto").unwrap().activations(), Activations::Float);
}

/// Reads a prompt in chunks of `chunk` tokens, and returns the logits of its last token.
fn in_chunks(model: &Model, tokens: &[u32], chunk: usize) -> Vec<f32> {
    let mut session = Session::new(model, 1).unwrap();
    let slot = session.open().unwrap();
    let mut last = Vec::new();
    for tokens in tokens.chunks(chunk) {
        last = session.prefill(slot, tokens).unwrap().to_vec();
    }
    last
}

#[test]
fn a_text_does_not_depend_on_chunks() {
    for tiny in goldens() {
        let tokens = tiny.golden().prompt(33, 2);
        for quant in ["q8_0", "q4_k", "i4"] {
            let model = tiny.load(&on_cpu(quant, "i8"));
            let whole = in_chunks(&model, &tokens, 33);
            for chunk in [1, 2, 13] {
                assert!(in_chunks(&model, &tokens, chunk) == whole, "{} {quant} {chunk}", tiny.name);
            }
        }
    }
}

/// Returns the mean divergence of a quantised model from the same model in floats.
fn divergence(tiny: &Tiny, reference: &Model, quant: &str, activations: &str, tokens: &[u32]) -> f64 {
    let model = tiny.load(&on_cpu(quant, activations));
    let session = |model: &Model| Session::new(model, 1).unwrap();
    let windows = Windows { start: &[], tokens, len: 512 };
    quality(&mut session(reference), &mut session(&model), &windows, &mut |_, _| ()).unwrap().kl_mean
}

/// With weights of few bits, rounded activations add at most a tenth to the loss. With weights of 8 bits, the loss stays small.
#[test]
fn rounded_activations_lose_little() {
    let text = include_str!("ruth.txt");
    let tokens = Vocab::tiny().encode(&text.as_bytes()[..4000]).unwrap();
    for tiny in goldens().filter(|t| ["rwkv7", "rwkv6"].contains(&t.name)) {
        let reference = tiny.load(&on_cpu("", "float"));
        for format in FORMATS.iter().filter(|format| Activations::I8.are_rounded(**format)) {
            let [float, rounded] = ["float", "i8"].map(|a| divergence(tiny, &reference, format.name(), a, &tokens));
            let bound = if Activations::Auto.are_rounded(*format) { 1.1 * float } else { float + 5e-4 };
            assert!(rounded <= bound, "{} {format:?}: {float:.2e} with floats, {rounded:.2e} rounded", tiny.name);
        }
    }
}
