//! Tests that states in f16 are close to f32 states, do not depend on chunks, take half the memory, and are never infinite.

use crate::support::{adapter, caps, devices, glm4, golden, goldens, nmse, options, read, score, tiny};
use std::ops::ControlFlow;
use std::sync::Arc;
use wingbeat::low_level::exec::gpu::{Device, GpuModel};
use wingbeat::low_level::exec::{Executor, Loaded, cpu::CpuModel};
use wingbeat::low_level::quant;
use wingbeat::low_level::sample::Sampling;
use wingbeat::low_level::session::{Limits, Options, Session};
use wingbeat::low_level::tape::{Capacity, Caps, Class, Rows, Run, Step, Tape, Var, vector};
use wingbeat::low_level::weights::read_safetensors;
use wingbeat::low_level::words::synthetic::Synthetic;
use wingbeat::low_level::words::{Decay, Wkv6};

fn half(device: &str) -> Options {
    let mut options = options(device);
    options.state_dtype = "f16".parse().unwrap();
    options
}

/// Returns the index of the largest logit.
fn best(logits: &[f32]) -> usize {
    logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0
}

#[test]
fn logits_and_greedy_text_stay_close_to_an_f32_state() {
    const TOKENS: usize = 300;
    for tiny in goldens().filter(|t| ["rwkv5", "rwkv6", "rwkv7"].contains(&t.name)) {
        for device in devices() {
            let tokens = tiny.golden().prompt(TOKENS, 0);
            let of = |options: &Options| {
                let model = tiny.load(options);
                let mut session = Session::new(&model, 1).unwrap();
                let slot = session.open().unwrap();
                let logits = score(&mut session, slot, &tokens);
                session.close(slot).unwrap();
                let limits = Limits { stop_ids: Some(vec![]), ..Limits::new(60) };
                let made = session.generate(&tokens[..40], &Sampling::greedy(0), &limits, &mut |_| ControlFlow::Continue(())).unwrap();
                (logits, made.tokens, model.facts().n_vocab)
            };
            let ((found, text, n_vocab), (expected, expected_text, _)) = (of(&half(device)), of(&options(device)));
            let error = nmse(&found, &expected);
            let agree = found.chunks_exact(n_vocab).zip(expected.chunks_exact(n_vocab)).filter(|(a, b)| best(a) == best(b)).count();
            let same = text.iter().zip(&expected_text).take_while(|(a, b)| a == b).count();
            eprintln!("{} on {device}: error {error:.2e}, {agree} of {TOKENS} agree, {same} of 60 greedy tokens are the same", tiny.name);
            assert!(error > 0.0, "{} on {device}: nothing was rounded", tiny.name);
            assert!(error < 1e-7 && agree >= TOKENS - 2 && same >= 50, "{} on {device}: {error:.2e}, {agree}, {same}", tiny.name);
        }
    }
}

#[test]
fn chunks_of_any_length_are_bit_identical() {
    let tokens = golden().prompt(70, 1);
    let mut all: Vec<Options> = devices().iter().map(|d| half(d)).collect();
    if let Some(adapter) = adapter() {
        let base = Device::open(&adapter, true).unwrap();
        let groups = base.with_caps(caps(base.caps.clone(), Class::Groups));
        let mut own = half("gpu");
        own.gpu = Some(Arc::new(groups));
        all.push(own);
    }
    for mut options in all {
        options.deterministic = true;
        let mut of = |chunk| {
            options.chunk = Some(chunk);
            read(&tiny(&options), &tokens)
        };
        let expected = of(1);
        for chunk in [5, 256] {
            assert!(of(chunk) == expected, "chunks of {chunk}");
        }
    }
}

#[test]
fn an_f16_state_is_saved_exactly_and_loads_as_f16_and_f32() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("half.state");
    for device in devices() {
        let (in_half, in_full) = (tiny(&half(device)), tiny(&options(device)));
        let mut session = Session::new(&in_half, 2).unwrap();
        let slot = session.open().unwrap();
        session.prefill(slot, &golden().prompt(31, 3)).unwrap();
        let fork = session.fork(slot).unwrap();
        session.save(slot, &path, None, None).unwrap();
        let expected = session.decode(slot, 77).unwrap().to_vec();
        assert!(session.decode(fork, 77).unwrap() == expected.as_slice(), "{device}");

        let bytes = std::fs::read(&path).unwrap();
        let (tensors, metadata) = read_safetensors(&bytes).unwrap();
        assert_eq!((metadata["dtype"].as_str(), metadata["state_dtype"].as_str()), ("f32", "f16"));
        let numbers = tensors["blocks.3.att.wkv"].2.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let numbers: Vec<f32> = numbers.collect();
        assert!(numbers.iter().any(|x| *x != 0.0) && numbers.iter().all(|x| half::f16::from_f32(*x).to_f32() == *x));

        let mut after = Vec::new();
        for model in [&in_half, &in_full] {
            let mut other = Session::new(model, 1).unwrap();
            let (back, loaded) = other.load(&path, false).unwrap();
            assert!(loaded.note.is_none());
            after.push(other.decode(back, 77).unwrap().to_vec());
        }
        assert!(after[0] == expected, "{device}: the continuation is another one");
        assert!(nmse(&after[1], &expected) < 1e-9, "{device}");
    }
}

#[test]
fn models_without_matrix_states_refuse_f16() {
    let load = |source, options: &Options| wingbeat::low_level::session::Model::load(&source, options, &mut |_, _| ());
    for tiny in goldens().filter(|t| t.name == "rwkv4").chain(glm4()) {
        let error = load(tiny.source(), &half("cpu")).err().unwrap().to_string();
        assert!(error.contains("RWKV-5, 6 and 7") && error.contains("`state_dtype`"), "{error}");
    }
    assert!("f8".parse::<quant::Float>().unwrap_err().to_string().contains("found \"f8\""));
}

/// Returns a tape with one head of RWKV-5 whose state does not decay, and the activation that holds r, k and v.
fn one_head(size: usize) -> (Tape, Var) {
    let mut tape = Tape::new();
    let proj = tape.var("proj", Rows::Tokens, &[size; 3]);
    let one = |name: &str| vector(name).map(|_| 1.0);
    let vectors = tape.vectors(size, ["u", "g", "b", "w"].map(one).into());
    let state = tape.state("wkv".into(), &[1, size, size], false);
    tape.wkv6(proj, Wkv6 { head_size: size, eps: 64e-5, vectors, decay: Decay::Constant, gate: None, state });
    tape.store_states(quant::find("f16").unwrap()).unwrap();
    (tape, proj)
}

/// Returns a page of state after two tokens. Before these tokens, all numbers of the page are `before`. All numbers of r, k and v are `number`.
fn after(executor: &mut dyn Executor, tape: &Tape, proj: Var, size: usize, (before, number): (f32, f32)) -> Vec<f32> {
    let (spec, state) = (tape.var_spec(proj), tape.find_state("wkv").unwrap());
    let mut rows = vec![0.0; 2 * spec.stride()];
    for row in rows.chunks_exact_mut(spec.stride()) {
        (0..3).for_each(|c| row[spec.column(c)..][..size].fill(number));
    }
    let run = Run { first_row: 0, len: 2, page_in: 1, page_out: 0, shift_in: 2, shift_out: 1, ..Run::default() };
    let step = Step { tokens: vec![0; 2], runs: vec![run], outputs: vec![], ..Step::default() };
    // Writes twice, because the first write may enlarge the buffers and lose its numbers.
    executor.write_var(proj, &rows).unwrap();
    executor.write_var(proj, &rows).unwrap();
    executor.write_state(state, 1, &vec![before; size * size]).unwrap();
    executor.run(&step, &mut Vec::new()).unwrap();
    executor.read_state(state, 0).unwrap()
}

#[test]
fn numbers_are_rounded_to_nearest_and_never_become_infinite() {
    // Each case: the state before, the number in r, k and v, the state after. The cases cover the limits of f16, ties that round down or up to
    // even, and the second smallest number above zero.
    let cases = [(1e6, 300.0, 65504.0), (-7e4, 1.0, -65504.0), (2048.0, 1.0, 2048.0), (2050.0, 1.0, 2052.0), (0.0, 2e-4, 2f32.powi(-23))];
    for size in [8, 5] {
        let (tape, proj) = one_head(size);
        let tape = Arc::new(tape);
        let source = Synthetic { seed: 7 };
        let mut executors = vec![CpuModel::load(tape.clone(), &source, &mut |_, _| ()).unwrap().executor(Capacity::pages(2)).unwrap()];
        if let Some(adapter) = adapter() {
            let base = Device::open(&adapter, false).unwrap();
            // Three variants: the head in one dispatch; the recurrence as a dispatch of its own; kernels that read windows of uniform buffers.
            for (class, batch_invariant) in [(Class::Groups, false), (Class::Groups, true), (Class::Lanes, false)] {
                let device = Arc::new(base.with_caps(Caps { batch_invariant, ..caps(base.caps.clone(), class) }));
                let model = GpuModel::load(device, tape.clone(), &source, &mut |_, _| ()).unwrap();
                executors.push(model.executor(Capacity::pages(2)).unwrap());
            }
        }
        for (i, executor) in executors.iter_mut().enumerate() {
            for (before, number, expected) in cases {
                let found = after(executor.as_mut(), &tape, proj, size, (before, number));
                assert_eq!(found, vec![expected; size * size], "executor {i}, heads of {size}, {number} on {before}");
            }
        }
    }
}
