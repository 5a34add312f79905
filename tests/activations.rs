//! Tests activations that are rounded to 8 bits: which products round, how much quality is lost, and that texts do not depend on the batch.

use crate::support::{Tiny, adapter, caps, golden, goldens, nmse, options, read};
use std::sync::Arc;
use wingbeat::low_level::exec::gpu::Device;
use wingbeat::low_level::exec::selftest;
use wingbeat::low_level::quant::FORMATS;
use wingbeat::low_level::session::{Session, Windows, quality};
use wingbeat::low_level::tape::{Caps, Class, Tuning};
use wingbeat::low_level::words::WORDS;
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

/// Kernels for GPUs round and multiply as the CPU does.
#[test]
fn rounded_products_on_gpus_equal_their_twins() {
    let Some(adapter) = adapter() else { return };
    let base = Device::open(&adapter, false).unwrap();
    let word = WORDS.iter().find(|word| word.name == "linear_add").unwrap();
    let mut wrong = Vec::new();
    for (i, format) in FORMATS.iter().filter(|format| Activations::I8.are_rounded(**format)).enumerate() {
        let mut tuning = Tuning::default();
        for n in Tuning::STEPS {
            let tiles = Tuning::default().rounded_candidates(n);
            tuning = tuning.with_rounded(n, Some(tiles[i % tiles.len()]));
        }
        let device = Arc::new(base.with_caps(Caps { tuning, cooperative: None, ..caps(base.caps.clone(), Class::Groups) }));
        for case in (word.cases)().into_iter().filter(|case| case.tape.activations == Activations::I8) {
            let outcome = selftest::run(case, *format, &device).unwrap();
            // Sums of whole numbers are exact. One block with one factor has one sum, so nothing is left to round differently.
            let blocks = format.loops().blocks;
            let is_exact = outcome.case.contains("5x32") && blocks.sub >= 32 && !blocks.has_minima;
            if !outcome.is_right() || (is_exact && outcome.error > 0.0) {
                wrong.push(format!("{}: {:.2e}", outcome.case, outcome.error));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns options for a GPU with this tuning and the kernel family `Groups`.
fn on_gpu(device: &Device, tuning: Tuning, quant: &str, activations: &str) -> Options {
    let own = Caps { tuning, cooperative: None, ..caps(device.caps.clone(), Class::Groups) };
    on_cpu(quant, activations).gpu(Arc::new(device.with_caps(own)))
}

/// GPUs round the inputs of products of many tokens, if the caller asks for it, or if a measurement found such products faster.
#[test]
fn gpus_round_where_asked_or_faster() {
    let error = "i9".parse::<Activations>().unwrap_err().to_string();
    assert_eq!(error, "activations: expected auto, i8 or float, found \"i9\"");
    let Some(adapter) = adapter() else { return };
    let base = Device::open(&adapter, false).unwrap();
    let tuned = Tuning::default().with_rounded(32, Some(Tuning::default().rounded_candidates(32)[0]));
    for tiny in goldens().filter(|t| ["rwkv7", "glm4"].contains(&t.name)) {
        let load = |options: &Options| tiny.load(options);
        let on = |tuning: &Tuning, activations: &str| load(&on_gpu(&base, tuning.clone(), "q4_0", activations));
        let [float, asked, chosen, unmeasured] =
            [(&tuned, "float"), (&tuned, "i8"), (&tuned, "auto"), (&Tuning::default(), "auto")].map(|(tuning, a)| on(tuning, a));
        let kinds = [&float, &asked, &chosen, &unmeasured].map(Model::activations);
        assert_eq!(kinds, [Activations::Float, Activations::I8, Activations::I8, Activations::Float]);
        assert_eq!(load(&on_gpu(&base, tuned.clone(), "q8_0", "auto")).activations(), Activations::Float);

        // The head multiplies one token, so a GPU does not round its input.
        let tokens = tiny.golden().prompt(32, 1);
        let hidden = |model: &Model| {
            let mut session = Session::new(model, 1).unwrap();
            let slot = session.open().unwrap();
            session.hidden(slot, &tokens).unwrap()
        };
        let [float, asked, chosen, unmeasured] = [&float, &asked, &chosen, &unmeasured].map(hidden);
        assert!(asked == chosen && float == unmeasured, "{}", tiny.name);
        // Each device rounds the nearly equal inputs of later layers a little differently, so only the size of the error is the same.
        let [host, rounded_host] = ["float", "i8"].map(|activations| hidden(&load(&on_cpu("q4_0", activations))));
        let (error, expected) = (nmse(&asked, &float), nmse(&rounded_host, &host));
        assert!(nmse(&float, &host) < 1e-10 && (0.5..2.0).contains(&(error / expected)), "{}: {error:.1e} {expected:.1e}", tiny.name);
    }
}

#[test]
fn devices_that_cannot_round_refuse_to() {
    let Some(adapter) = adapter() else { return };
    let tiny = goldens().find(|t| t.name == "rwkv7").unwrap();
    let error = |options: &Options| Model::load(&tiny.source(), options, &mut |_, _| ()).unwrap_err().to_string();
    let device = Device::open(&adapter, false).unwrap();
    let lanes = Arc::new(device.with_caps(caps(device.caps.clone(), Class::Lanes)));
    let found = error(&on_cpu("i4", "i8").gpu(lanes));
    assert!(found.starts_with("activations: software adapters do not round activations"), "{found}");
    let own = Caps { batch_invariant: true, ..caps(device.caps.clone(), Class::Groups) };
    let found = error(&on_cpu("i4", "i8").gpu(Arc::new(device.with_caps(own))));
    assert!(found.starts_with("activations: GPUs with `deterministic` do not round activations"), "{found}");
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

/// Returns the mean KL divergence of a quantised model from `reference`, the same model in floats.
fn divergence(tiny: &Tiny, reference: &Model, quant: &str, activations: &str, tokens: &[u32]) -> f64 {
    let model = tiny.load(&on_cpu(quant, activations));
    let session = |model: &Model| Session::new(model, 1).unwrap();
    let windows = Windows { start: &[], tokens, len: 512 };
    quality(&mut session(reference), &mut session(&model), &windows, &mut |_, _| ()).unwrap().kl_mean
}

/// With weights of at most 6 bits, rounded activations add at most a tenth to the divergence. With weights of 8 bits, they add at most 5e-4.
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
