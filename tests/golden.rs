//! Compares the tiny trained models of all architectures with the official logits, on every available device.

use crate::support::{Golden, check_official, devices, goldens, kernel_cases, nmse, options, score};
use std::ops::ControlFlow;
use wingbeat::low_level::arch::ARCHS;
use wingbeat::low_level::sample::Sampling;
use wingbeat::low_level::session::{Limits, Model, ModelSource, Session};

#[test]
fn logits_and_greedy_texts_are_the_official_ones() {
    for (arch, device) in goldens().flat_map(|a| devices().iter().map(move |d| (a, *d))) {
        let golden = arch.golden();
        let model = Model::load(&arch.source(), &options(device), &mut |_, _| ()).unwrap();
        assert_eq!(model.facts().architecture, arch.name);
        let n_vocab = model.facts().n_vocab;
        let mut session = Session::new(&model, 1).unwrap();
        let slot = session.open().unwrap();
        let logits = score(&mut session, slot, &golden.tokens);
        assert_eq!(logits.len(), golden.tokens.len() * n_vocab);
        let error = nmse(&logits, &golden.logits);
        eprintln!("{} on {device}: {error:.2e}", arch.name);
        assert!(error <= 1e-7, "{} on {device}: error {error:.2e}", arch.name);
        session.close(slot).unwrap();

        let limits = Limits { stop_ids: Some(vec![]), ..Limits::new(golden.greedy.len()) };
        let made = session.generate(golden.tokens.as_slice(), &Sampling::greedy(0), &limits, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(made.tokens, golden.greedy, "{} on {device}", arch.name);
    }
}

#[test]
fn the_embedded_model_gives_the_official_logits_with_all_kernels() {
    for (name, options) in kernel_cases() {
        let model = Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap();
        check_official(&name, &model, &Golden::of_the_embedded(), false);
    }
}

#[test]
fn every_architecture_has_golden_logits() {
    for arch in ARCHS {
        // Random models have tests of their own (tests/qwen.rs, tests/flash.rs).
        let file = if arch.name() == "glm4_moe_lite" { "flash".into() } else { format!("made-{}", arch.name()) };
        let is_made = Golden::of_made(&file).is_some();
        assert!(is_made || goldens().any(|g| g.name == arch.name()), "{} has no golden logits", arch.name());
    }
}
