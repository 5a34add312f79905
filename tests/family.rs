//! Tests all tiny models except RWKV-7: chunks, slots, forks, state files, weight formats and large activations. `session.rs` has the tests of
//! RWKV-7.

use crate::support::{Tiny, adapter, caps, devices, floats, goldens, nmse, options, read, runs_all, score};
use std::path::Path;
use std::sync::Arc;
use wingbeat::low_level::exec::{Loaded, cpu::CpuModel, gpu::Device};
use wingbeat::low_level::sample::Sampling;
use wingbeat::low_level::session::{Limits, Model, ModelSource, Options, Session, Slot, measure};
use wingbeat::low_level::tape::{Capacity, Caps, Class, Run, Step, Tape};
use wingbeat::low_level::weights::{Checkpoint, write_safetensors};

/// Returns every pair of a device and a tiny model, without RWKV-7.
fn siblings() -> impl Iterator<Item = (&'static Tiny, &'static str)> {
    goldens().filter(|t| t.name != "rwkv7").flat_map(|t| devices().iter().map(move |d| (t, *d)))
}

fn load(tiny: &Tiny, options: &Options) -> Model {
    tiny.load(options)
}

fn prompt(tiny: &Tiny, n: usize, seed: usize) -> Vec<u32> {
    tiny.golden().prompt(n, seed)
}

/// Returns the names and the numbers of all floating-point tensors in a state file.
fn numbers_of(path: &Path) -> Vec<(String, Vec<f32>)> {
    let state = Checkpoint::open(path).unwrap();
    let numbers = |n: &str| state.tensor(n).filter(|view| view.dtype().is_weight()).map(|view| (n.to_string(), view.to_f32().unwrap()));
    state.names().filter_map(numbers).collect()
}

#[test]
fn chunks_of_any_length_agree_with_single_tokens() {
    let folder = tempfile::tempdir().unwrap();
    for (tiny, device) in siblings() {
        let tokens = prompt(tiny, 200, 1);
        let model = load(tiny, &options(device));
        let mut session = Session::new(&model, 1).unwrap();
        let slot = session.open().unwrap();
        tokens.iter().for_each(|&t| drop(session.decode(slot, t).unwrap().to_vec()));
        let one_by_one = session.logits(slot).unwrap().to_vec();
        let state = folder.path().join("state");
        session.save(slot, &state, None, None).unwrap();
        let expected = numbers_of(&state);
        let few = [2, 7, 31, 32, 33, 64, 129, 256];
        let all: Vec<usize> = (1..=200).collect();
        let lengths = if runs_all() { all.as_slice() } else { &few };
        for &chunk in lengths {
            let mut options = options(device);
            options.chunk = Some(chunk);
            let model = load(tiny, &options);
            let mut session = Session::new(&model, 1).unwrap();
            let slot = session.open().unwrap();
            let error = nmse(session.prefill(slot, &tokens).unwrap(), &one_by_one);
            assert!(error <= 1e-9, "{} on {device}, chunks of {chunk}: {error:.2e}", tiny.name);
            session.save(slot, &state, None, None).unwrap();
            for ((name, found), (_, expected)) in numbers_of(&state).iter().zip(&expected) {
                let error = nmse(found, expected);
                assert!(error <= 1e-9, "{} on {device}, chunks of {chunk}, {name}: {error:.2e}", tiny.name);
            }
        }
    }
}

#[test]
fn other_slots_forks_and_state_files_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    for (tiny, device) in siblings() {
        let mut options = options(device);
        options.deterministic = true;
        let model = load(tiny, &options);
        // The cache of a transformer has blocks of 64 tokens, so some prompts are longer than one block.
        let longest = if tiny.name == "glm4" { 150 } else { 23 };
        let prompts: Vec<Vec<u32>> = (0..9).map(|i| prompt(tiny, 1 + (i * 47) % longest, i)).collect();
        let mut session = Session::new(&model, 9).unwrap();
        let slots: Vec<Slot> = (0..9).map(|_| session.open().unwrap()).collect();
        let work: Vec<(Slot, &[u32])> = slots.iter().zip(&prompts).map(|(s, p)| (*s, p.as_slice())).collect();
        session.prefill_many(&work, &mut |_, _| ()).unwrap();
        for (slot, prompt) in slots.iter().zip(&prompts) {
            assert!(session.logits(*slot).unwrap() == read(&model, prompt).as_slice(), "{} on {device}", tiny.name);
        }

        // A slot, its fork and its state file continue like one text. The file is loaded into a page that was used before.
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
        // The state file also continues in a session with another number of slots.
        let mut other = Session::new(&model, 2).unwrap();
        other.open().unwrap();
        let (elsewhere, _) = other.load(&path, false).unwrap();
        other.decode(elsewhere, 200).unwrap();
        assert!(other.logits(elsewhere).unwrap() == session.logits(loaded).unwrap(), "{} on {device}", tiny.name);
        // A page that was used before begins a text like a new page.
        session.close(fork).unwrap();
        let fresh = session.open().unwrap();
        session.prefill(fresh, &prompts[3]).unwrap();
        assert!(session.logits(fresh).unwrap() == read(&model, &prompts[3]).as_slice(), "{} on {device}", tiny.name);
    }
}

/// Writes a copy of a model in which every number is changed slightly, so that conversion to f16 rounds every number.
fn perturbed(tiny: &Tiny, path: &Path) {
    rewrite(tiny, path, &|name, values| {
        let noise = wingbeat::low_level::words::testing::numbers(wingbeat::low_level::words::testing::seed_of(name));
        values.iter_mut().zip(noise).for_each(|(v, n)| *v *= 1.0 + 2e-4 * n);
    });
}

#[test]
fn half_precision_weights_give_the_same_text() {
    let folder = tempfile::tempdir().unwrap();
    for tiny in goldens() {
        let path = folder.path().join(tiny.name);
        perturbed(tiny, &path);
        let golden = tiny.golden();
        for device in devices() {
            let run = |dtype: &str| {
                let mut options = options(device);
                options.dtype = dtype.parse().unwrap();
                let model = Model::load(&ModelSource::Path(path.clone()), &options, &mut |_, _| ()).unwrap();
                let logits = read(&model, &golden.tokens);
                let limits = Limits { stop_ids: Some(vec![]), ..Limits::new(16) };
                let mut session = Session::new(&model, 1).unwrap();
                let go = &mut |_: &str| std::ops::ControlFlow::Continue(());
                (logits, session.generate(golden.tokens.as_slice(), &Sampling::greedy(0), &limits, go).unwrap().tokens)
            };
            let ((exact, exact_text), (half, half_text)) = (run("f32"), run("f16"));
            assert_ne!(exact, half, "f16 must round something");
            let (p, q) = (log_softmax(&exact), log_softmax(&half));
            let kl: f64 = p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum();
            assert!(kl.abs() < 1e-3, "{} on {device}: {kl:.2e} nat", tiny.name);
            assert_eq!(exact_text, half_text, "{} on {device}", tiny.name);
        }
    }
}

fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let max = f64::from(logits.iter().copied().fold(f32::MIN, f32::max));
    let sum: f64 = logits.iter().map(|&l| (f64::from(l) - max).exp()).sum();
    logits.iter().map(|&l| f64::from(l) - max - sum.ln()).collect()
}

/// Writes a copy of a model in F32. `change` receives the name and the numbers of each tensor, and may change the numbers.
fn rewrite(tiny: &Tiny, path: &Path, change: &dyn Fn(&str, &mut [f32])) {
    let model = Checkpoint::open(&tiny.path()).unwrap();
    let entry = |name: &str| {
        let view = model.tensor(name).unwrap();
        let mut values = view.to_f32().unwrap();
        change(name, &mut values);
        floats(name, view.shape().to_vec(), &values)
    };
    write_safetensors(path, model.metadata(), model.names().map(entry).collect(), &mut |_, _| ()).unwrap();
}

/// Writes a copy of a model in which every layer adds ten thousand times as much to the residual stream as in the original. Its ffn activations
/// exceed the range of f16.
fn loud(tiny: &Tiny, path: &Path) {
    rewrite(tiny, path, &|name, values| {
        let factor = match name {
            n if ["att.output.weight", "ffn.value.weight", "o_proj.weight", "down_proj.weight"].iter().any(|end| n.ends_with(end)) => 1e4,
            n if n.ends_with("ffn.key.weight") || n.ends_with("gate_up_proj.weight") => 256.0,
            _ => 1.0,
        };
        values.iter_mut().for_each(|v| *v *= factor);
    });
}

/// Returns the largest magnitude in the activation `var` after four tokens.
fn largest(path: &Path, var: &str) -> f32 {
    let checkpoint = Checkpoint::open(path).unwrap();
    let mut tape = Tape::new();
    wingbeat::low_level::arch::detect(&checkpoint).unwrap().record(&mut tape);
    let at = tape.find_var(var).unwrap();
    let mut cpu = CpuModel::load(Arc::new(tape), &checkpoint, &mut |_, _| ())
        .unwrap()
        .executor(Capacity { pages: 1, blocks: 1, listed: 1, context: 8 })
        .unwrap();
    let tokens = vec![5, 6, 7, 8];
    let run = Run { first_row: 0, len: 4, page_in: 0, page_out: 0, shift_in: 0, shift_out: 1, ..Run::default() };
    cpu.run(&Step { tokens, runs: vec![run], outputs: vec![], blocks: vec![0] }, &mut Vec::new()).unwrap();
    cpu.read_var(at, 4).unwrap().into_iter().fold(0.0, |max, v| v.abs().max(max))
}

#[test]
fn ten_thousand_tokens_with_large_activations_stay_finite() {
    const F16_MAX: f32 = 65504.0;
    let folder = tempfile::tempdir().unwrap();
    for tiny in goldens() {
        let path = folder.path().join(tiny.name);
        loud(tiny, &path);
        for var in ["x", if tiny.name == "glm4" { "mlp" } else { "ffn" }] {
            let max = largest(&path, var);
            assert!(max > 2.0 * F16_MAX, "{}: {var} reaches only {max}", tiny.name);
        }
        for device in devices() {
            let mut options = options(device);
            options.dtype = "auto".parse().unwrap();
            options.context = Some(4000);
            let model = Model::load(&ModelSource::Path(path.clone()), &options, &mut |_, _| ()).unwrap();
            let mut session = Session::new(&model, 1).unwrap();
            let slot = session.open().unwrap();
            // A software adapter runs only a tenth of the tokens. This is enough, because activations are large from the first token on.
            let whole = model.context().map_or(40, |n| n / 250);
            let n = if *device == "cpu" { whole } else { 4 };
            for i in 0..n {
                let logits = session.prefill(slot, &prompt(tiny, 250, i)).unwrap();
                assert!(logits.iter().all(|v| v.is_finite()), "{} on {device}: token {}", tiny.name, 250 * i);
            }
            assert_eq!(session.n_tokens(slot).unwrap(), 250 * n);
        }
    }
}

/// Compares RWKV-5.0 and 5.1 with 5.2, because no tiny models of 5.0 and 5.1 exist. The early versions are special cases of 5.2: decay and bonus
/// are equal for all channels of a head, and 5.0 has no gate. So a 5.2 model with such weights is the reference.
#[test]
fn the_first_versions_of_5_read_from_files_agree_with_5_2() {
    let folder = tempfile::tempdir().unwrap();
    let five = goldens().find(|t| t.name == "rwkv5").unwrap();
    let checkpoint = Checkpoint::open(&five.path()).unwrap();
    let per_head = |name: &str| checkpoint.tensor(name).unwrap().to_f32().unwrap().chunks(64).map(|head| head[3]).collect::<Vec<f32>>();
    let write = |file: &str, version: &str| {
        let mut entries = Vec::new();
        for name in checkpoint.names() {
            let view = checkpoint.tensor(name).unwrap();
            let (mut name, mut shape, mut values) = (name.to_string(), view.shape().to_vec(), view.to_f32().unwrap());
            let gateless = version == "5.0" || version == "5.2 ungated";
            if gateless && (name.contains(".att.gate.") || name.ends_with("att.time_mix_g")) {
                continue;
            }
            if name.ends_with("att.time_decay") || name.ends_with("att.time_faaaa") {
                values = per_head(&name);
                if version.starts_with("5.2") {
                    values = values.iter().flat_map(|&v| [v; 64]).collect();
                } else {
                    shape = vec![2];
                }
                if version == "5.0" && name.ends_with("time_faaaa") {
                    // The file stores the logarithm of the bonus, so the bonus must be positive.
                    name = name.replace("time_faaaa", "time_first");
                }
                if name.ends_with("time_first") {
                    values.iter_mut().for_each(|v| *v = v.abs().max(0.01).ln());
                } else if gateless && name.ends_with("time_faaaa") {
                    values.iter_mut().for_each(|v| *v = v.abs().max(0.01).ln().exp());
                }
            }
            entries.push(floats(name, shape, &values));
        }
        let path = folder.path().join(file);
        write_safetensors(&path, &Default::default(), entries, &mut |_, _| ()).unwrap();
        path
    };
    let pairs = [("5.0", "5.2 ungated", "5.0"), ("5.1", "5.2", "5.1")];
    for (version, expanded, reported) in pairs {
        let (path, other) = (write("one.safetensors", version), write("other.safetensors", expanded));
        for device in devices() {
            let open = |path: &Path| Model::load(&ModelSource::Path(path.into()), &options(device), &mut |_, _| ()).unwrap();
            let model = open(&path);
            assert_eq!((model.facts().architecture, model.facts().version), ("rwkv5", reported));
            let tokens = prompt(five, 40, 2);
            let error = nmse(&read(&model, &tokens), &read(&open(&other), &tokens));
            assert!(error < 1e-10, "{version} on {device}: {error:.2e}");
        }
    }
}

#[test]
fn both_kernel_classes_give_the_official_logits() {
    let Some(adapter) = adapter() else { return };
    let base = Device::open(&adapter, true).unwrap();
    for tiny in goldens() {
        let golden = tiny.golden();
        for (class, max_binding) in [(Class::Groups, 128 << 20), (Class::Groups, 100_000), (Class::Lanes, 128 << 20)] {
            let mut options = options("gpu");
            options.gpu = Some(Arc::new(base.with_caps(Caps { max_binding, ..caps(base.caps.clone(), class) })));
            let model = load(tiny, &options);
            let n_vocab = model.facts().n_vocab;
            let mut session = Session::new(&model, 1).unwrap();
            let slot = session.open().unwrap();
            let logits = score(&mut session, slot, &golden.tokens);
            let error = nmse(&logits, &golden.logits);
            assert!(error <= 1e-7, "{} {class:?}: {error:.2e}", tiny.name);
            let last = &logits[logits.len() - n_vocab..];
            assert!(session.logits(slot).unwrap() == last && read(&model, &golden.tokens) == last, "{} {class:?}", tiny.name);
            session.prefill(slot, &[]).unwrap();
            assert!(session.logits(slot).unwrap() == last, "an empty prompt changes nothing");
        }
    }
}

/// Returns the tiny models that are RWKV. GLM has no sparse ffn: in its SwiGLU, no activation is exactly zero.
fn recurrences() -> impl Iterator<Item = &'static Tiny> {
    goldens().filter(|t| t.name != "glm4")
}

#[test]
fn sparse_and_dense_ffns_give_the_same_logits() {
    let Some(adapter) = adapter() else { return };
    let base = Device::open(&adapter, false).unwrap();
    for tiny in recurrences() {
        let golden = tiny.golden();
        let open = |sparse, max_binding| {
            let mut options = options("gpu");
            options.gpu = Some(Arc::new(base.with_caps(Caps { sparse, max_binding, ..caps(base.caps.clone(), Class::Groups) })));
            load(tiny, &options)
        };
        // Prefills four single tokens, then a chunk of twelve tokens.
        let logits = |model: &Model| {
            let mut session = Session::new(model, 1).unwrap();
            let slot = session.open().unwrap();
            let (few, chunk) = golden.tokens[..16].split_at(4);
            few.chunks(1).chain([chunk]).flat_map(|tokens| session.prefill(slot, tokens).unwrap().to_vec()).collect::<Vec<f32>>()
        };
        let dense = open(false, 128 << 20);
        assert_eq!(dense.sparse_bytes(), 0);
        let expected = logits(&dense);
        for max_binding in [128 << 20, 100_000] {
            let sparse = open(true, max_binding);
            assert!(sparse.sparse_bytes() > 0);
            let found = logits(&sparse);
            let error = nmse(&found, &expected);
            assert!(error < 1e-9, "{} {max_binding}: {error:.2e}", tiny.name);
            assert!(found == logits(&sparse), "{}: the second run differs", tiny.name);
        }
    }
}

#[test]
fn counting_zeros_agrees_on_all_devices_and_changes_no_slot() {
    for tiny in recurrences() {
        let golden = tiny.golden();
        let mut found = Vec::new();
        for device in devices() {
            let model = load(tiny, &options(device));
            let mut session = Session::new(&model, 2).unwrap();
            let slot = session.open().unwrap();
            session.prefill(slot, &golden.tokens[..20]).unwrap();
            let share = measure::ffn_sparsity(&mut session, slot, golden.tokens[20]).unwrap().unwrap();
            let after = session.decode(slot, golden.tokens[20]).unwrap().to_vec();
            assert!(nmse(&after, &read(&model, &golden.tokens[..21])) < 1e-10 && session.n_tokens(slot).unwrap() == 21);
            assert!(measure::ffn_sparsity(&mut session, slot, u32::MAX).is_err());
            found.push(share);
        }
        eprintln!("{}: {:.3} of the ffn's activations are zero", tiny.name, found[0]);
        assert!(found.iter().all(|s| (s - found[0]).abs() < 0.01 && *s > 0.2 && *s < 1.0), "{} {found:?}", tiny.name);
    }
}
