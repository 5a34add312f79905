//! Tests sessions of a model with attention: rewinding, shared prefixes, full contexts, caches in f16, rotations at far positions, classifiers.

use super::{argmax, executors, model as formula};
use crate::support::{devices, floats, glm4, nmse, options, read};
use std::ops::ControlFlow;
use wingbeat::low_level::arch::Glm4;
use wingbeat::low_level::sample::Sampling;
use wingbeat::low_level::session::{Finish, Limits, Model, ModelSource, Options, Session, measure};
use wingbeat::low_level::tape::{Capacity, Run, Step, TOKENS_PER_BLOCK};
use wingbeat::low_level::weights::{Checkpoint, write_safetensors};
use wingbeat::low_level::words::synthetic::Synthetic;

/// Returns the tiny trained GLM, or `None` in the published package, which lacks the model's file.
fn tiny(options: &Options) -> Option<Model> {
    glm4().map(|tiny| tiny.load(options))
}

fn prompt(n: usize, seed: usize) -> Vec<u32> {
    glm4().unwrap().golden().prompt(n, seed)
}

#[test]
fn a_common_prefix_is_not_prefilled_again() {
    for device in devices() {
        let mut options = options(device);
        options.deterministic = true;
        let Some(model) = tiny(&options) else { return };
        let mut session = Session::new(&model, 2).unwrap();
        let slot = session.open().unwrap();
        let (first, second) = (prompt(150, 1), prompt(30, 2));
        assert_eq!(session.read_to(slot, &first).unwrap(), 0);
        let before = session.logits(slot).unwrap().to_vec();
        assert_eq!(session.read_to(slot, &first).unwrap(), 150);
        // The fork continues. Then the slot and the fork both rewind into their common prefix.
        let fork = session.fork(slot).unwrap();
        session.prefill(fork, &second).unwrap();
        let branch = [&first[..100], &second[..]].concat();
        assert_eq!(session.read_to(fork, &branch).unwrap(), 100);
        assert!(session.logits(fork).unwrap() == read(&model, &branch), "{device}");
        assert_eq!(session.logits(slot).unwrap(), before);
        // The prompt's last token is prefilled again, because its logits are needed.
        assert_eq!(session.read_to(slot, &first[..70]).unwrap(), 69);
        assert!(session.logits(slot).unwrap() == read(&model, &first[..70]), "{device}");
        assert!(session.rewind(slot, 71).is_err());
        session.rewind(slot, 0).unwrap();
        assert!(session.prefill(slot, &second).unwrap() == read(&model, &second), "{device}");
    }
}

#[test]
fn a_recurrence_starts_over_where_a_transformer_rewinds() {
    let model = crate::support::tiny(&options("cpu"));
    let mut session = Session::new(&model, 1).unwrap();
    let slot = session.open().unwrap();
    let tokens = [5, 6, 7, 8];
    assert_eq!(session.read_to(slot, &tokens).unwrap(), 0);
    assert_eq!(session.read_to(slot, &tokens[..3]).unwrap(), 0);
    assert_eq!(session.n_tokens(slot).unwrap(), 3);
    assert!(session.logits(slot).unwrap() == read(&model, &tokens[..3]));
    assert!(session.rewind(slot, 1).unwrap_err().to_string().contains("the state of a recurrent model holds no earlier states"));
}

#[test]
fn a_full_context_ends_a_text_and_refuses_a_prompt() {
    for device in devices() {
        let mut options = options(device);
        options.context = Some(100);
        let Some(model) = tiny(&options) else { return };
        let mut session = Session::new(&model, 1).unwrap();
        let limits = Limits { stop_ids: Some(vec![]), ..Limits::new(1000) };
        let go = &mut |_: &str| ControlFlow::Continue(());
        let made = session.generate(prompt(90, 1).as_slice(), &Sampling::greedy(0), &limits, go).unwrap();
        assert_eq!((made.finish, made.tokens.len()), (Finish::Context, 10), "{device}");
        let slot = session.open().unwrap();
        session.prefill(slot, &prompt(60, 1)).unwrap();
        let error = session.prefill(slot, &prompt(41, 1)).unwrap_err().to_string();
        assert!(
            error.contains("has read 60 tokens, and 41 more tokens exceed the context of 100 tokens") && !error.contains('\n'),
            "{error}"
        );
        assert_eq!((session.n_tokens(slot).unwrap(), session.n_left(slot).unwrap()), (60, Some(40)));
        session.prefill(slot, &prompt(40, 1)).unwrap();
        assert!(session.decode(slot, 5).is_err());
        // A profile that is refused does not keep a slot open.
        session.close(slot).unwrap();
        assert!(measure::profile(&mut session, 101).is_err() && measure::profile(&mut session, 0).is_err());
        session.open().unwrap();
    }
}

#[test]
fn a_kept_prefix_counts_once_in_the_context() {
    let mut options = options("cpu");
    options.context = Some(100);
    let Some(model) = tiny(&options) else { return };
    let mut session = Session::new(&model, 1).unwrap();
    let slot = session.open().unwrap();
    session.read_to(slot, &prompt(60, 1)).unwrap();
    assert_eq!(session.read_to(slot, &[prompt(60, 1), prompt(40, 2)].concat()).unwrap(), 60);
    assert!(session.read_to(slot, &prompt(101, 1)).is_err());
    assert_eq!(session.n_tokens(slot).unwrap(), 100, "a refused prompt changes nothing");
}

#[test]
fn a_state_without_its_tokens_is_no_prefix() {
    let Some(model) = tiny(&options("cpu")) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mut session = Session::new(&model, 2).unwrap();
    let slot = session.open().unwrap();
    session.prefill(slot, &prompt(70, 1)).unwrap();
    session.save(slot, &path, Some(&[1, 2]), None).unwrap();
    let (loaded, _) = session.load(&path, false).unwrap();
    let more = prompt(5, 2);
    session.prefill(loaded, &more).unwrap();
    assert_eq!(session.read_to(loaded, &[&more[..], &[9]].concat()).unwrap(), 0);
    assert!(session.logits(loaded).unwrap() == read(&model, &[&more[..], &[9]].concat()));
    // A model with another `rope_theta` refuses the state.
    let mut other = options("cpu");
    other.rope_theta = Some(1e4);
    let mut other = Session::new(&tiny(&other).unwrap(), 1).unwrap();
    assert!(other.load(&path, false).err().unwrap().to_string().contains("weights of another model"));
}

#[test]
fn broken_models_are_refused_in_a_line() {
    let Some(family) = glm4() else { return };
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::open(&family.path()).unwrap();
    let refusal = |change: &dyn Fn(&str) -> Option<Vec<usize>>| {
        let path = folder.path().join("broken.safetensors");
        let entry = |name: &str| {
            let shape = change(name)?;
            let zeros = vec![0.0; shape.iter().product()];
            Some(floats(name, shape, &zeros))
        };
        let entries = checkpoint.names().chain(["score.weight"]).filter_map(entry).collect();
        write_safetensors(&path, checkpoint.metadata(), entries, &mut |_, _| ()).unwrap();
        let error = Model::load(&ModelSource::Path(path), &options("cpu"), &mut |_, _| ()).err().unwrap().to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    };
    let shape = |name: &str| checkpoint.tensor(name).map(|view| view.shape().to_vec());
    let but = |changed: &'static str, to: Vec<usize>| move |name: &str| if name == changed { Some(to.clone()) } else { shape(name) };
    assert!(refusal(&but("score.weight", vec![1 << 40, 0])).contains("classes"));
    assert!(refusal(&but("score.weight", vec![0, 128])).contains("classes"));
    assert!(refusal(&but("model.embed_tokens.weight", vec![2048, 0])).contains("expected"));
    let gap = |name: &str| shape(name).filter(|_| !name.starts_with("model.layers.3."));
    assert!(refusal(&gap).contains("layer 3 has no tensors, although a later layer"));
}

#[test]
fn keys_and_values_in_f16_cost_little() {
    for device in devices() {
        let mut options = options(device);
        let Some(exact) = tiny(&options) else { return };
        options.cache_dtype = "f16".parse().unwrap();
        let half = tiny(&options).unwrap();
        let (exact, half) = (read(&exact, &prompt(200, 3)), read(&half, &prompt(200, 3)));
        let largest = exact.iter().fold(0f32, |max, v| v.abs().max(max));
        let error = exact.iter().zip(&half).fold(0f32, |max, (a, b)| (a - b).abs().max(max)) / largest;
        assert!(error > 0.0 && error < 2e-3, "{device}: {error:.1e}");
    }
}

/// Weights for comparisons between executors.
const SYNTHETIC: Synthetic = Synthetic { seed: 5 };

/// At far positions, sin and cos computed in a shader are wrong by at least 5e-4, and tables in f16 are wrong by 2e-4.
#[test]
fn far_positions_are_rotated_by_the_formula() {
    const FAR: usize = 100_000;
    let listed = FAR / TOKENS_PER_BLOCK + 1;
    let capacity = Capacity { blocks: 2, listed, context: FAR + 8, pages: 1 };
    let model = Glm4 { n_layer: 1, ..formula("glm") };
    // The list names block 1 for the last positions, and block 0 for all earlier positions.
    let step = |position: u32| {
        let run = Run { len: 8, position, shift_out: 1, ..Run::default() };
        let blocks = (0..listed as u32).map(|i| u32::from(i == FAR as u32 / TOKENS_PER_BLOCK as u32)).collect();
        Step { tokens: vec![3, 1, 4, 1, 5, 9, 2, 6], runs: vec![run], outputs: vec![7], blocks }
    };
    for (device, tape, mut executor) in executors(&model, &SYNTHETIC, capacity) {
        let cache = tape.find_cache("model.layers.0.self_attn.k").unwrap();
        let mut keys = |position: u32, block: u32| {
            executor.run(&step(position), &mut Vec::new()).unwrap();
            executor.read_cache(cache, &[block], TOKENS_PER_BLOCK).unwrap()
        };
        let near = keys(0, 0)[..8 * 16].to_vec();
        let at = FAR % TOKENS_PER_BLOCK * 16;
        let far = keys(FAR as u32, 1)[at..at + 8 * 16].to_vec();
        let mut expected = near.clone();
        for (token, row) in expected.chunks_exact_mut(16).enumerate() {
            for (i, pair) in row.chunks_exact_mut(2).enumerate().filter(|(i, _)| i % 4 < 2) {
                // Undo the rotation of the near position, then rotate by the angle of the far position.
                let speed = 1.0 / 5e6f64.powf(2.0 * (i % 4) as f64 / 4.0);
                let (here, there) = (token as f64 * speed, f64::from((FAR + token) as f32 * speed as f32));
                let (x, y, a) = (f64::from(pair[0]), f64::from(pair[1]), there - here);
                (pair[0], pair[1]) = ((x * a.cos() - y * a.sin()) as f32, (y * a.cos() + x * a.sin()) as f32);
            }
        }
        let error = nmse(&far, &expected);
        assert!(error < 1e-11, "{device}: {error:.1e}");
        assert!(nmse(&far, &near) > 0.1);
    }
}

/// The head has more rows than the largest number of workgroups in one dimension of a grid. The ffn width is no multiple of the tile sizes 64 and
/// 256.
#[test]
fn large_vocabularies_and_odd_widths_are_computed_completely() {
    let model = Glm4 { n_layer: 1, n_ffn: 107 * 32, n_vocab: 65_600, ..formula("glm4") };
    let capacity = Capacity { blocks: 1, listed: 1, context: TOKENS_PER_BLOCK, pages: 1 };
    let run = Run { len: 40, shift_out: 1, ..Run::default() };
    let tokens = (0..40).map(|i| 65_599 - i * 1000).collect();
    let step = Step { tokens, runs: vec![run], outputs: vec![39, 0], blocks: vec![0] };
    let all: Vec<Vec<f32>> = executors(&model, &SYNTHETIC, capacity)
        .into_iter()
        .map(|(_, _, mut executor)| {
            let mut logits = Vec::new();
            executor.run(&step, &mut logits).unwrap();
            logits
        })
        .collect();
    for found in &all {
        assert_eq!(found.len(), 2 * 65_600);
        for (part, expected) in found.chunks(1000).zip(all[0].chunks(1000)) {
            assert!(nmse(part, expected) < 1e-9);
        }
    }
}

#[test]
fn a_classifier_returns_classes_and_no_tokens() {
    let Some(family) = glm4() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("classifier.safetensors");
    let (checkpoint, language) = (Checkpoint::open(&family.path()).unwrap(), family.load(&options("cpu")));
    // The classifier's head consists of three rows of the language model's head, with a bias.
    let head = checkpoint.tensor("lm_head.weight").unwrap().to_f32().unwrap()[7 * 128..10 * 128].to_vec();
    let bias = [0.5f32, -1.0, 2.0];
    let made = [floats("score.weight", vec![3, 128], &head), floats("score.bias", vec![3], &bias)];
    let kept = checkpoint.names().filter(|n| *n != "lm_head.weight").map(|name| {
        let view = checkpoint.tensor(name).unwrap();
        floats(name, view.shape().to_vec(), &view.to_f32().unwrap())
    });
    write_safetensors(&path, checkpoint.metadata(), kept.chain(made).collect(), &mut |_, _| ()).unwrap();
    let tokens = prompt(20, 4);
    let logits = read(&language, &tokens);
    let expected: Vec<f32> = (0..3).map(|i| logits[7 + i] + bias[i]).collect();
    for device in devices() {
        let mut options = options(device);
        options.dtype = "f32".parse().unwrap();
        let model = Model::load(&ModelSource::Path(path.clone()), &options, &mut |_, _| ()).unwrap();
        let mut session = Session::new(&model, 1).unwrap();
        let found = session.classify(&tokens).unwrap();
        assert!(nmse(&found, &expected) < 1e-9, "{device}: {found:?} {expected:?}");
        assert_eq!(argmax(&found), argmax(&expected));
        assert_eq!(model.facts().labels.as_deref().unwrap(), ["0", "1", "2"]);
        let go = &mut |_: &str| ControlFlow::Continue(());
        let error = session.generate(tokens.as_slice(), &Sampling::greedy(0), &Limits::new(3), go).unwrap_err();
        assert!(error.to_string().contains("is a classifier"), "{error}");
    }
    let mut session = Session::new(&language, 1).unwrap();
    assert!(session.classify(&tokens).unwrap_err().to_string().contains("score.weight"));
}

#[test]
fn another_base_rotates_by_other_angles() {
    let mut options = options("cpu");
    let Some(model) = tiny(&options) else { return };
    options.rope_theta = Some(10_000.0);
    let other = tiny(&options).unwrap();
    let (a, b) = (read(&model, &prompt(60, 1)), read(&other, &prompt(60, 1)));
    assert!(nmse(&a, &b) > 1e-6);
    options.rope_theta = Some(5e6);
    assert_eq!(read(&tiny(&options).unwrap(), &prompt(60, 1)), a);
    let error = Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).err().unwrap().to_string();
    assert!(error.contains("only a GLM has a rotary base"), "{error}");
}
