//! Tests the models with a time mix of RWKV in the body of Qwen2: ARWKV-7, with and without gate and group norm, and QRWKV-6. Their weights are seeded.
//! `tools/golden-qwen.py` makes the same weights, and compares llama.cpp's logits with the formulas in float64.

use crate::support::{Golden, adapter, caps, devices, logits_of, made, nmse, one_by_one, options, score};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use wingbeat::low_level::arch::{Arwkv7, Base, Blueprint, Qrwkv6, QwenBody, Ranks};
use wingbeat::low_level::exec::gpu::Device;
use wingbeat::low_level::sample::Sampling;
use wingbeat::low_level::session::{GgufVocab, Limits, Model, ModelSource, Options, Session, convert_gguf};
use wingbeat::low_level::tape::{Caps, Class};
use wingbeat::low_level::weights::{Checkpoint, Conversion, Layout};

/// A model of seeded weights, with its official logits.
struct Made {
    name: &'static str,
    blueprint: Box<dyn Blueprint>,
    golden: Golden,
}

/// Returns the models, or none in the published package, which lacks the files of their logits.
fn all() -> Vec<Made> {
    let body = |head_size| {
        let published = QwenBody::published(3, 128, 200, head_size);
        QwenBody { base: Base { n_vocab: 40, ..published.base }, stop_ids: vec![1] }
    };
    let arwkv7 = |g, is_normed| Arwkv7 { body: body(64), ranks: Ranks { w: 8, a: 9, v: 7, g }, is_normed };
    let models: [(&str, Box<dyn Blueprint>); 3] = [
        ("arwkv7", Box::new(arwkv7(10, true))),
        ("arwkv7-bare", Box::new(arwkv7(0, false))),
        ("qrwkv6", Box::new(Qrwkv6 { body: body(32), n_kv_head: 2, mix_rank: 6, decay_rank: 8, has_bias: true })),
    ];
    let made = |(name, blueprint)| Some(Made { name, blueprint, golden: Golden::of_made(&format!("made-{name}"))? });
    models.into_iter().filter_map(made).collect()
}

fn open(path: &Path, options: &Options) -> Model {
    Model::load(&ModelSource::Path(path.into()), options, &mut |_, _| ()).unwrap()
}

#[test]
fn logits_and_greedy_texts_are_the_official_ones() {
    for Made { name, blueprint, golden } in all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made.safetensors");
        made::write(&*blueprint, &path);
        let mut cases: Vec<(String, Options)> = devices().iter().map(|d| (d.to_string(), options(d))).collect();
        if let Some(adapter) = adapter() {
            let base = Device::open(&adapter, true).unwrap();
            // A `max_binding` of 20 000 bytes splits every matrix into several pieces.
            for (class, max_binding) in [(Class::Groups, 128 << 20), (Class::Groups, 20_000), (Class::Lanes, 128 << 20)] {
                for batch_invariant in [false, true] {
                    let mut options = options("gpu");
                    options.deterministic = batch_invariant;
                    options.gpu = Some(Arc::new(base.with_caps(Caps { max_binding, batch_invariant, ..caps(base.caps.clone(), class) })));
                    cases.push((format!("{class:?}, {max_binding}, invariant: {batch_invariant}"), options));
                }
            }
        }
        for (how, options) in cases {
            let model = open(&path, &options);
            assert_eq!((model.facts().architecture, &model.facts().stop_ids), (blueprint.facts().architecture, &vec![1]));
            let (many, single) = (logits_of(&model, &golden.tokens), one_by_one(&model, &golden.tokens));
            for (found, steps) in [(&many, "in one step"), (&single, "one by one")] {
                let error = nmse(found, &golden.logits);
                assert!(error <= 1e-9, "{name}, {how}, {steps}: error {error:.2e}");
            }
            assert!(!options.deterministic || many == single, "{name}, {how}: one kernel class, but different bits");
            let limits = Limits { stop_ids: Some(vec![]), ..Limits::new(golden.greedy.len()) };
            let mut session = Session::new(&model, 1).unwrap();
            let made =
                session.generate(golden.tokens.as_slice(), &Sampling::greedy(0), &limits, &mut |_| ControlFlow::Continue(())).unwrap();
            assert_eq!(made.tokens, golden.greedy, "{name}, {how}");
        }
    }
}

/// Files of llama.cpp have other names and orientations. `tools/golden-qwen.py` compares the reader with files that llama.cpp reads.
#[test]
fn a_gguf_file_has_the_same_logits() {
    for Made { name, blueprint, golden } in all() {
        let folder = tempfile::tempdir().unwrap();
        let [path, gguf, quantised] = ["made.safetensors", "made.gguf", "quantised.gguf"].map(|file| folder.path().join(file));
        made::write(&*blueprint, &path);
        let input = Checkpoint::open(&path).unwrap();
        let what = Conversion { layout: Layout::Gguf, ..Conversion::default() };
        convert_gguf(&input, &gguf, &GgufVocab::Without, None, &what, &mut |_, _| ()).unwrap();
        let expected = logits_of(&open(&path, &options("cpu")), &golden.tokens);
        let model = open(&gguf, &options("cpu"));
        assert_eq!((model.facts().architecture, &model.facts().stop_ids), (blueprint.facts().architecture, &vec![1]));
        assert!(logits_of(&model, &golden.tokens) == expected, "{name}");
        // Types of blocks stay as they are.
        let plan = "q8_0".parse().unwrap();
        convert_gguf(&Checkpoint::open(&gguf).unwrap(), &quantised, &GgufVocab::Without, Some(&plan), &what, &mut |_, _| ()).unwrap();
        let error = nmse(&logits_of(&open(&quantised, &options("cpu")), &golden.tokens), &golden.logits);
        assert!((1e-7..1e-2).contains(&error), "{name}: {error:.1e}");
    }
}

/// Other slots, forks and saved states change nothing.
#[test]
fn states_are_whole() {
    for Made { name, blueprint, golden } in all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made.safetensors");
        made::write(&*blueprint, &path);
        for device in devices() {
            let model = open(&path, &options(device));
            let mut session = Session::new(&model, 3).unwrap();
            let (a, other) = (session.open().unwrap(), session.open().unwrap());
            let (first, rest) = golden.tokens.split_at(17);
            session.prefill(a, first).unwrap();
            session.prefill(other, &rest[..5]).unwrap();
            let saved = folder.path().join(format!("{device}.state"));
            session.save(a, &saved, None, None).unwrap();
            let fork = session.fork(a).unwrap();
            session.prefill(a, &rest[..3]).unwrap();
            let expected = score(&mut session, fork, rest);
            session.close(other).unwrap();
            let (loaded, _) = session.load(&saved, false).unwrap();
            assert!(score(&mut session, loaded, rest) == expected, "{name}, {device}");
        }
    }
}
