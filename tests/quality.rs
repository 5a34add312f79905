//! Tests the function `quality`, which measures quantised models: compares its numbers with a simple computation.

use crate::support::{devices, floats, golden, options, score, tiny};
use std::path::Path;
use std::sync::atomic::Ordering;
use wingbeat::error::Kind;
use wingbeat::low_level::arch::{Base, Blueprint, Ranks, Rwkv7};
use wingbeat::low_level::session::{Model, ModelSource, Quality, Session, Windows, quality};
use wingbeat::low_level::tape::Tape;
use wingbeat::low_level::weights::write_safetensors;
use wingbeat::low_level::words::testing::numbers;

fn compare(reference: &Model, model: &Model, text: &Windows<'_>) -> wingbeat::error::Result<Quality> {
    let (mut a, mut b) = (Session::new(reference, 1)?, Session::new(model, 1)?);
    let mut last = (0, 0);
    let found = quality(&mut a, &mut b, text, &mut |done, total| last = (done, total));
    if let Ok(q) = &found {
        assert_eq!(last, (q.n, q.n), "progress goes to the end");
    }
    found
}

/// Loads the tiny RWKV-7 with `eps` as its `group_norm_eps`. `None` keeps the model's own value. The model is deterministic, so rounding does not
/// depend on the number of tokens in a step.
fn with_eps(eps: Option<f32>) -> Model {
    let mut options = options("cpu");
    options.deterministic = true;
    options.group_norm_eps = eps;
    tiny(&options)
}

/// Writes a small model of pseudo-random numbers with a vocabulary of `n_vocab` tokens, and loads it.
fn of_vocabulary(n_vocab: usize, path: &Path) -> Model {
    let blueprint =
        Rwkv7 { base: Base::new(64, 128, 64, n_vocab), ranks: Ranks { w: 8, a: 8, v: 8, g: 8 }, deep_embed: None, attention: None };
    let mut tape = Tape::new();
    blueprint.record(&mut tape);
    let entries = tape.tensors().into_iter().map(|(name, shape, _)| {
        let values: Vec<f32> = numbers(1).take(shape.iter().product()).collect();
        floats(name, shape, &values)
    });
    write_safetensors(path, &Default::default(), entries.collect(), &mut |_, _| ()).unwrap();
    Model::load(&ModelSource::Path(path.into()), &options("cpu"), &mut |_, _| ()).unwrap()
}

#[test]
fn a_model_is_as_good_as_itself() {
    let tokens = golden().prompt(300, 2);
    for device in devices() {
        let model = tiny(&options(device));
        let q = compare(&model, &model, &Windows { start: &[], tokens: &tokens, len: 120 }).unwrap();
        assert_eq!((q.n, q.kl_mean, q.kl_max, q.agreement_percent, q.loss_percent()), (297, 0.0, 0.0, 100.0, 0.0), "{device}");
        assert!(q.perplexity > 1.0 && q.perplexity == q.reference_perplexity);
    }
}

#[test]
fn the_distance_of_another_model_agrees_with_a_plain_computation() {
    let tokens = golden().prompt(700, 0);
    // The model was trained with an epsilon of 64e-5.
    let (reference, model) = (with_eps(None), with_eps(Some(5.0)));
    // Each window has more tokens than one step computes logits for.
    let (start, len) = ([5, 9], 402);
    let q = compare(&reference, &model, &Windows { start: &start, tokens: &tokens, len }).unwrap();

    let (mut nll, mut kls, mut same) = ([0f64; 2], Vec::new(), 0);
    for piece in tokens.chunks(len - start.len()) {
        let window = [&start, piece].concat();
        let [p, q] = [&reference, &model].map(|model| {
            let mut session = Session::new(model, 1).unwrap();
            let slot = session.open().unwrap();
            let logits = score(&mut session, slot, &window);
            let softmax = |row: &[f32]| {
                let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
                row.iter().map(|&x| f64::from(x).exp() / sum).collect::<Vec<f64>>()
            };
            logits.chunks_exact(model.facts().n_vocab).map(softmax).collect::<Vec<_>>()
        });
        let best = |p: &[f64]| (0..p.len()).max_by(|&a, &b| p[a].total_cmp(&p[b])).unwrap();
        for t in 1..window.len() - 1 {
            let next = window[t + 1] as usize;
            nll[0] -= p[t][next].ln();
            nll[1] -= q[t][next].ln();
            kls.push(p[t].iter().zip(&q[t]).map(|(p, q)| p * (p / q).ln()).sum::<f64>());
            same += usize::from(best(&p[t]) == best(&q[t]));
        }
    }
    let n = kls.len() as f64;
    kls.sort_by(f64::total_cmp);
    let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-6, "{found}, expected {expected}");
    assert_eq!((q.n, kls.len()), (700, 700));
    near(q.reference_perplexity, (nll[0] / n).exp());
    near(q.perplexity, (nll[1] / n).exp());
    near(q.kl_mean, kls.iter().sum::<f64>() / n);
    near(q.kl_p99, kls[692]);
    near(q.kl_max, kls[699]);
    near(q.agreement_percent, 100.0 * same as f64 / n);
    eprintln!("{q:?}");
    assert!(q.kl_mean > 1e-4 && q.kl_max > q.kl_p99 && q.agreement_percent < 100.0 && q.perplexity != q.reference_perplexity);
}

#[test]
fn an_impossible_comparison_is_refused_and_leaves_no_slot() {
    let model = tiny(&options("cpu"));
    let tokens = golden().tokens;
    let error = |tokens: &[u32], len| compare(&model, &model, &Windows { start: &[], tokens, len }).unwrap_err().to_string();
    assert!(error(&tokens[..1], 10).contains("at least 2 tokens"));
    assert!(error(&tokens, 1).contains("at least 2"));
    assert!(error(&[5, 4000, 6], 10).contains("4000"));
    let text = Windows { start: &[], tokens: &tokens, len: 10 };
    let folder = tempfile::tempdir().unwrap();
    let other = of_vocabulary(50, &folder.path().join("other.safetensors"));
    assert!(compare(&model, &other, &text).unwrap_err().to_string().contains("vocabulary of 2048 tokens"));

    let (mut a, mut b) = (Session::new(&model, 1).unwrap(), Session::new(&model, 1).unwrap());
    a.stop_flag().store(true, Ordering::Relaxed);
    assert_eq!(quality(&mut a, &mut b, &text, &mut |_, _| ()).unwrap_err().kind, Kind::Interrupted);
    a.stop_flag().store(false, Ordering::Relaxed);
    assert!(quality(&mut a, &mut b, &text, &mut |_, _| ()).is_ok());
}
