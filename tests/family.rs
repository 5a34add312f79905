//! What a user of any architecture relies on, for every sibling of the embedded model: chunks, slots, forks, state files, formats
//! of weights, large activations. `session.rs` has more of it for the embedded one.

use crate::support::{GOLDENS, Tiny, devices, nmse, options};
use std::path::Path;
use wingbeat::session::{Model, ModelSource, Options, Session, Slot};
use wingbeat::tensor::DType;
use wingbeat::weights::{Checkpoint, Entry, write_safetensors, write_view};

/// All but the embedded one.
fn siblings() -> impl Iterator<Item = (&'static Tiny, &'static str)> {
    GOLDENS.iter().filter(|t| t.name != "rwkv7").flat_map(|t| devices().iter().map(move |d| (t, *d)))
}

fn load(tiny: &Tiny, options: &Options) -> Model {
    Model::load(&tiny.source(), options, &mut |_, _| ()).unwrap()
}

/// A prompt of `n` tokens of running text, different for different seeds.
fn prompt(tiny: &Tiny, n: usize, seed: usize) -> Vec<u32> {
    let text = tiny.golden().tokens;
    (0..n).map(|i| text[(i * (1 + seed % 5) + 7 * seed) % text.len()]).collect()
}

fn read(model: &Model, tokens: &[u32]) -> Vec<f32> {
    let mut session = Session::new(model, 1).unwrap();
    let slot = session.open().unwrap();
    session.prefill(slot, tokens).unwrap().to_vec()
}

#[test]
fn chunks_of_any_length_agree_with_single_tokens() {
    for (tiny, device) in siblings() {
        let tokens = prompt(tiny, 130, 1);
        let model = load(tiny, &options(device));
        let mut session = Session::new(&model, 1).unwrap();
        let slot = session.open().unwrap();
        tokens.iter().for_each(|&t| drop(session.decode(slot, t).unwrap().to_vec()));
        let one_by_one = session.logits(slot).unwrap().to_vec();
        for chunk in [2, 7, 31, 32, 33, 64, 129, 256] {
            let mut options = options(device);
            options.chunk = chunk;
            let error = nmse(&read(&load(tiny, &options), &tokens), &one_by_one);
            assert!(error <= 1e-9, "{} on {device}, chunks of {chunk}: {error:.2e}", tiny.name);
        }
    }
}

#[test]
fn neighbours_forks_and_state_files_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    for (tiny, device) in siblings() {
        let mut options = options(device);
        options.deterministic = true;
        let model = load(tiny, &options);
        let prompts: Vec<Vec<u32>> = (0..9).map(|i| prompt(tiny, 1 + (i * 11) % 23, i)).collect();
        let mut session = Session::new(&model, 9).unwrap();
        let slots: Vec<Slot> = (0..9).map(|_| session.open().unwrap()).collect();
        let work: Vec<(Slot, &[u32])> = slots.iter().zip(&prompts).map(|(s, p)| (*s, p.as_slice())).collect();
        session.prefill_many(&work, &mut |_, _| ()).unwrap();
        for (slot, prompt) in slots.iter().zip(&prompts) {
            assert!(session.logits(*slot).unwrap() == read(&model, prompt).as_slice(), "{} on {device}", tiny.name);
        }

        // What a slot goes on with is the same for itself, for a fork, and for who loads its file into a used page.
        let slot = slots[5];
        session.save(slot, &path, None, None).unwrap();
        session.close(slots[0]).unwrap();
        let fork = session.fork(slot).unwrap();
        session.close(slots[1]).unwrap();
        let (loaded, _) = session.load(&path, false).unwrap();
        session.decode_many(&[(slot, 200), (fork, 100), (loaded, 200)]).unwrap();
        for (slot, last) in [(slot, 200), (fork, 100), (loaded, 200)] {
            let all = [prompts[5].as_slice(), &[last]].concat();
            assert!(session.logits(slot).unwrap() == read(&model, &all).as_slice(), "{} on {device}: after {last}", tiny.name);
        }
        // A page that was in use begins like a fresh one.
        session.close(fork).unwrap();
        let fresh = session.open().unwrap();
        session.prefill(fresh, &prompts[3]).unwrap();
        assert!(session.logits(fresh).unwrap() == read(&model, &prompts[3]).as_slice(), "{} on {device}", tiny.name);
    }
}

#[test]
fn half_precision_weights_say_the_same() {
    for tiny in GOLDENS {
        let tokens = tiny.golden().tokens;
        let logits = |dtype: &str| {
            let mut options = options("cpu");
            options.dtype = dtype.into();
            read(&load(tiny, &options), &tokens)
        };
        let (p, q) = (log_softmax(&logits("f32")), log_softmax(&logits("f16")));
        let kl: f64 = p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum();
        assert!(kl.abs() < 1e-3, "{}: {kl:.2e} nat", tiny.name);
    }
}

fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let max = f64::from(logits.iter().copied().fold(f32::MIN, f32::max));
    let sum: f64 = logits.iter().map(|&l| (f64::from(l) - max).exp()).sum();
    logits.iter().map(|&l| f64::from(l) - max - sum.ln()).collect()
}

/// A copy of a model whose every block adds a thousand times as much, and whose ffn reaches far beyond what f16 holds.
fn loud(tiny: &Tiny, path: &Path) {
    let quiet = if tiny.name == "rwkv7" { wingbeat::session::embedded().unwrap() } else { Checkpoint::open(&tiny.path()).unwrap() };
    let louder = |name: &str| match name {
        n if n.ends_with("att.output.weight") || n.ends_with("ffn.value.weight") => 1e3,
        n if n.ends_with("ffn.key.weight") => 64.0,
        _ => 1.0,
    };
    let entry = |name: &str| {
        let view = quiet.tensor(name).unwrap().scaled(louder(name));
        let shape = view.shape().to_vec();
        Entry { name: name.into(), dtype: DType::F32, shape, data: Box::new(move |out| write_view(&view, DType::F32, out)) }
    };
    write_safetensors(path, &Default::default(), quiet.names().map(entry).collect(), &mut |_, _| ()).unwrap();
}

#[test]
fn ten_thousand_tokens_with_large_activations_stay_finite() {
    let folder = tempfile::tempdir().unwrap();
    for tiny in GOLDENS {
        let path = folder.path().join(tiny.name);
        loud(tiny, &path);
        for device in devices() {
            let mut options = options(device);
            options.dtype = "f16".into();
            let model = Model::load(&ModelSource::Path(path.clone()), &options, &mut |_, _| ()).unwrap();
            let mut session = Session::new(&model, 1).unwrap();
            let slot = session.open().unwrap();
            // A software adapter takes a tenth: the numbers that could overflow are there from the first token on.
            let n = if *device == "cpu" { 40 } else { 4 };
            for i in 0..n {
                let logits = session.prefill(slot, &prompt(tiny, 250, i)).unwrap();
                assert!(logits.iter().all(|v| v.is_finite()), "{} on {device}: token {}", tiny.name, 250 * i);
            }
            assert_eq!(session.n_tokens(slot).unwrap(), 250 * n);
        }
    }
}
