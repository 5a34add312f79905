//! Tests slots, chunks, forks and state files of the tiny RWKV-7 on every device of this machine.

mod streams;

use crate::support::{adapter, caps, devices, draws_ahead, golden, nmse, options, read, runs_all, tiny};
use std::ops::ControlFlow;
use std::sync::Arc;
use wingbeat::low_level::exec::gpu::Device;
use wingbeat::low_level::sample::{Sampler, Sampling};
use wingbeat::low_level::session::{Finish, Limits, Model, Options, Session, Slot, Text};
use wingbeat::low_level::tape::{Caps, Class};

fn prompt(n: usize, seed: usize) -> Vec<u32> {
    golden().prompt(n, seed)
}

/// Returns the tiny RWKV-7 on every device. The first adapter also gets models with GPU kernels and with split matrices.
fn models(change: impl Fn(&mut Options)) -> Vec<(String, Model)> {
    let mut models = Vec::new();
    for device in devices() {
        let mut options = options(device);
        change(&mut options);
        models.push((device.to_string(), tiny(&options)));
    }
    if let Some(adapter) = adapter() {
        let mut options = options("gpu");
        change(&mut options);
        let base = Device::open(&adapter, options.deterministic).unwrap();
        for (name, max_binding) in [("groups", 128 << 20), ("split", 100_000)] {
            let caps = Caps { max_binding, ..caps(base.caps.clone(), Class::Groups) };
            options.gpu = Some(Arc::new(base.with_caps(caps)));
            models.push((name.into(), tiny(&options)));
        }
    }
    models
}

#[test]
fn every_device_and_kernel_family_has_the_official_logits() {
    let golden = golden();
    for (name, model) in models(|_| ()) {
        let n_vocab = model.facts().n_vocab;
        let found = read(&model, &golden.tokens);
        let error = nmse(&found, &golden.logits[golden.logits.len() - n_vocab..]);
        assert!(error <= 1e-7, "{name}: {error:.2e}");
    }
}

#[test]
fn chunks_of_any_length_agree() {
    let tokens = prompt(300, 1);
    let few = [1, 2, 7, 31, 32, 33, 64, 100, 255, 256, 300];
    let all: Vec<usize> = (1..=300).collect();
    let lengths = if runs_all() { all.as_slice() } else { &few };
    for device in devices() {
        let reference = read(&tiny(&options(device)), &tokens);
        let mut options = options(device);
        for &chunk in lengths {
            options.chunk = Some(chunk);
            let error = nmse(&read(&tiny(&options), &tokens), &reference);
            assert!(error <= 1e-9, "{device}: chunks of {chunk}: {error:.2e}");
        }
    }
}

#[test]
fn logits_do_not_depend_on_other_slots() {
    let all = runs_all();
    for deterministic in [false, true] {
        for (name, model) in models(|o| o.deterministic = deterministic) {
            let prompts: Vec<Vec<u32>> = (0..70).map(|i| prompt(1 + (i * 11) % 23, i)).collect();
            let alone: Vec<Vec<f32>> = prompts.iter().take(9).map(|p| read(&model, p)).collect();
            // GPU kernels are slow on a software adapter, so the fast tests use few slots there.
            let quick = ["cpu", "gpu"].contains(&name.as_str());
            let counts: &[usize] = if all || quick { &[1, 3, 8, 33, 70] } else { &[3, 9] };
            for &n in counts {
                let mut session = Session::new(&model, n).unwrap();
                let slots: Vec<Slot> = (0..n).map(|_| session.open().unwrap()).collect();
                let work: Vec<(Slot, &[u32])> = slots.iter().zip(&prompts).map(|(s, p)| (*s, p.as_slice())).collect();
                session.prefill_many(&work, &mut |_, _| ()).unwrap();
                for (slot, alone) in slots.iter().zip(&alone) {
                    let together = session.logits(*slot).unwrap();
                    if deterministic {
                        assert!(together == alone.as_slice(), "{name}: {n} slots: {:.2e}", nmse(together, alone));
                    } else {
                        assert!(nmse(together, alone) <= 1e-9, "{name}: {n} slots: {:.2e}", nmse(together, alone));
                    }
                }
            }
        }
    }
}

#[test]
fn forks_do_not_change_the_original() {
    for (name, model) in models(|o| o.deterministic = true) {
        let mut session = Session::new(&model, 4).unwrap();
        let a = session.open().unwrap();
        session.prefill(a, &prompt(20, 2)).unwrap();
        let b = session.fork(a).unwrap();
        let c = session.fork(a).unwrap();
        assert_eq!(session.logits(a).unwrap(), session.logits(b).unwrap());
        session.decode(b, 100).unwrap();
        session.decode_many(&[(a, 200), (c, 300)]).unwrap();
        for (slot, last) in [(a, 200), (b, 100), (c, 300)] {
            let mut tokens = prompt(20, 2);
            tokens.push(last);
            assert!(session.logits(slot).unwrap() == read(&model, &tokens).as_slice(), "{name}");
        }
        session.close(b).unwrap();
        assert!(session.logits(b).is_err());
        let fresh = session.open().unwrap();
        session.prefill(fresh, &prompt(20, 2)).unwrap();
        assert!(session.logits(fresh).unwrap() == read(&model, &prompt(20, 2)).as_slice(), "{name}: a used page is not a fresh one");
    }
}

#[test]
fn a_saved_state_continues_exactly_in_another_slot_and_session() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.safetensors");
    for device in devices() {
        let model = tiny(&options(device));
        let mut session = Session::new(&model, 2).unwrap();
        let slot = session.open().unwrap();
        session.prefill(slot, &prompt(31, 3)).unwrap();
        let mut sampler = Sampler::new(Sampling { seed: 5, ..Sampling::rwkv() });
        sampler.accept(7, 1.0);
        session.save(slot, &path, Some(&[1, 2, 3]), Some(&sampler.memory())).unwrap();
        let at_save = session.logits(slot).unwrap().to_vec();
        let expected = session.decode(slot, 77).unwrap().to_vec();

        let mut other = Session::new(&model, 3).unwrap();
        other.open().unwrap();
        let (back, loaded) = other.load(&path, false).unwrap();
        assert_eq!(loaded.tokens.as_deref(), Some(&[1, 2, 3][..]));
        let memory = loaded.sampler.unwrap();
        assert_eq!((memory.counts.as_slice(), memory.seed, memory.draws), (&[(7, 1 << 20)][..], 5, 0));
        assert!(loaded.note.is_none());
        assert!(other.logits(back).unwrap() == at_save.as_slice());
        assert!(other.decode(back, 77).unwrap() == expected.as_slice(), "{device}");

        // Saving a loaded state writes the same bytes again.
        let again = folder.path().join("again.safetensors");
        let (third, _) = session.load(&path, false).unwrap();
        session.save(third, &again, Some(&[1, 2, 3]), Some(&memory)).unwrap();
        assert!(std::fs::read(&path).unwrap() == std::fs::read(&again).unwrap());
    }
}

#[test]
fn a_state_of_other_weights_and_a_damaged_state_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.safetensors");
    let model = tiny(&options("cpu"));
    let mut session = Session::new(&model, 2).unwrap();
    let slot = session.open().unwrap();
    session.prefill(slot, &[5, 6]).unwrap();
    session.save(slot, &path, None, None).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let mut other = bytes.clone();
    let hash = model.weights_hash();
    // A file of version 1 has no checksum that would show the change first.
    for (old, new) in
        [("\"checksum\"", "\"checksun\""), ("\"format_version\":\"2\"", "\"format_version\":\"1\""), (hash, &"0".repeat(hash.len()))]
    {
        let at = other.windows(old.len()).position(|w| w == old.as_bytes()).unwrap();
        other[at..at + old.len()].copy_from_slice(new.as_bytes());
    }
    std::fs::write(&path, &other).unwrap();
    assert!(session.load(&path, false).err().unwrap().to_string().contains("weights of another model"));
    let (_, loaded) = session.load(&path, true).unwrap();
    assert!(loaded.note.is_some());
    for cut in [0, 4, 8, 100, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        assert!(session.load(&path, true).is_err(), "cut at {cut}");
    }
}

#[test]
fn an_empty_prompt_changes_nothing_and_bad_tokens_are_refused() {
    for device in devices() {
        let model = tiny(&options(device));
        let mut session = Session::new(&model, 2).unwrap();
        let slot = session.open().unwrap();
        assert!(session.prefill(slot, &[]).unwrap().is_empty());
        session.prefill(slot, &[5, 6, 7]).unwrap();
        let before = session.logits(slot).unwrap().to_vec();
        session.prefill(slot, &[]).unwrap();
        assert_eq!(session.logits(slot).unwrap(), before);
        let error = session.prefill(slot, &[5, 2048]).err().unwrap().to_string();
        assert!(error.contains("2048") && error.contains("out of range"), "{error}");
        assert_eq!(session.logits(slot).unwrap(), before);
        assert!(session.prefill_many(&[(slot, &[1]), (slot, &[2])], &mut |_, _| ()).is_err());
        session.open().unwrap();
        assert!(session.open().is_err());
        let other = session.fork(slot);
        assert!(other.is_err(), "both slots are in use");
    }
}

#[test]
fn score_returns_the_logits_that_prefill_returns() {
    for (name, model) in models(|o| o.deterministic = true) {
        let tokens = prompt(40, 4);
        let mut session = Session::new(&model, 1).unwrap();
        let slot = session.open().unwrap();
        let mut last = Vec::new();
        let mut n = 0;
        let mut each = |t: usize, row: &[f32]| {
            assert_eq!(t, n);
            n += 1;
            last = row.to_vec();
            Ok(())
        };
        session.score(slot, &tokens, &mut each, &mut |_, _| ()).unwrap();
        assert_eq!(n, 40);
        assert!(last == read(&model, &tokens), "{name}");
        assert!(session.logits(slot).unwrap() == last.as_slice());
    }
}

#[test]
fn an_error_of_the_callback_does_not_undo_reading() {
    for (name, model) in models(|o| o.deterministic = true) {
        let mut session = Session::new(&model, 3).unwrap();
        let slot = session.open().unwrap();
        session.prefill(slot, &prompt(5, 8)).unwrap();
        for _ in 0..4 {
            let fork = session.fork(slot).unwrap();
            let mut fail = |_: usize, _: &[f32]| Err(wingbeat::error::Error::input("enough"));
            assert!(session.score(fork, &prompt(4, 9), &mut fail, &mut |_, _| ()).is_err());
            let expected = read(&model, &[prompt(5, 8), prompt(4, 9)].concat());
            assert!(session.logits(fork).unwrap() == expected.as_slice(), "{name}");
            let expected = read(&model, &[prompt(5, 8), prompt(4, 9), vec![9]].concat());
            assert!(session.decode(fork, 9).unwrap() == expected.as_slice(), "{name}");
            session.close(fork).unwrap();
        }
    }
}

#[test]
fn a_tuned_state_is_read_in_the_orientation_that_its_file_has() {
    use wingbeat::low_level::tensor::DType;
    use wingbeat::low_level::weights::{Checkpoint, Conversion, Layout, NewTensor, convert, write_safetensors};
    let folder = tempfile::tempdir().unwrap();
    let (official, swapped) = (folder.path().join("tuned.safetensors"), folder.path().join("tuned.st"));
    let model = tiny(&options("cpu"));
    let bytes = |layer: u8| {
        let values = wingbeat::low_level::words::testing::numbers(u64::from(layer)).take(2 * 64 * 64);
        values.flat_map(|v| (4.0 * v).to_le_bytes()).collect::<Vec<u8>>()
    };
    let entry = |layer: u8| NewTensor {
        name: format!("blocks.{layer}.att.time_state"),
        dtype: DType::F32,
        shape: vec![2, 64, 64],
        data: Box::new(move |out: &mut dyn std::io::Write| {
            out.write_all(&bytes(layer)).map_err(|e| wingbeat::error::Error::io(e, std::path::Path::new("made")))
        }),
    };
    write_safetensors(&official, &Default::default(), (0..6).map(entry).collect(), &mut |_, _| ()).unwrap();
    let what = Conversion { dtype: Some(DType::F32), layout: Layout::WebRwkv, ..Conversion::default() };
    convert(&Checkpoint::open(&official).unwrap(), &swapped, &what, &mut |_, _| ()).unwrap();
    let mut session = Session::new(&model, 2).unwrap();
    let mut after = Vec::new();
    for path in [&official, &swapped] {
        let (slot, loaded) = session.load(path, false).unwrap();
        assert!(loaded.note.unwrap().contains("tuned"));
        after.push(session.decode(slot, 11).unwrap().to_vec());
    }
    assert_eq!(after[0], after[1]);
    assert!(nmse(&after[0], &read(&model, &[11])) > 1e-3);
}

#[test]
fn hidden_activations_are_the_same_on_every_device() {
    let found: Vec<Vec<f32>> = models(|_| ())
        .iter()
        .map(|(_, model)| {
            let mut session = Session::new(model, 1).unwrap();
            let slot = session.open().unwrap();
            session.hidden(slot, &prompt(30, 7)).unwrap()
        })
        .collect();
    for other in &found {
        assert_eq!(other.len(), 128);
        assert!(nmse(other, &found[0]) < 1e-9);
    }
}

#[test]
fn a_state_keeps_the_tokens_that_the_sampler_needs() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old.st"), folder.path().join("new.st"));
    let model = tiny(&options("cpu"));
    let mut session = Session::new(&model, 2).unwrap();
    let slot = session.open().unwrap();
    session.prefill(slot, &prompt(5, 3)).unwrap();
    let settings = Sampling { mirostat: 3.0, dry_multiplier: 1.0, seed: 5, ..Sampling::rwkv() };
    let mut sampler = Sampler::new(settings.clone());
    sampler.read(&[3, 4, 5]);
    let id = sampler.sample(session.logits(slot).unwrap()).unwrap();
    sampler.accept(id, 1.0);
    session.save(slot, &new, None, Some(&sampler.memory())).unwrap();
    let mut load = |path: &std::path::Path| {
        let (slot, loaded) = session.load(path, false).unwrap();
        session.close(slot).unwrap();
        loaded.sampler.unwrap()
    };
    let memory = load(&new);
    assert_eq!(memory, sampler.memory());
    assert!(memory.mu.is_some() && memory.recent == [3, 4, 5, id]);
    // A sampler may need more tokens than the saved sampler kept. The sampler takes these tokens from the list of tokens in the state file.
    for look_back in [None, Some(1)] {
        let mut short = Sampler::new(Sampling { repeat_penalty: 1.01, repeat_last_n: look_back, ..Sampling::rwkv() });
        short.read(&[75, 76, 77, 75]);
        session.save(slot, &new, Some(&[75, 76, 77, 75]), Some(&short.memory())).unwrap();
        let (again, loaded) = session.load(&new, false).unwrap();
        session.close(again).unwrap();
        let mut longer = Sampler::new(Sampling { dry_multiplier: 1.0, ..Sampling::rwkv() });
        loaded.begin(&mut longer, Some(1));
        assert_eq!(longer.memory().recent, [75, 76, 77, 75], "saved looking back at {look_back:?}");
    }
    // State files of versions before DRY and mirostat lack the data of DRY and mirostat.
    let without = Sampler::new(Sampling::rwkv()).memory();
    session.save(slot, &old, None, Some(&without)).unwrap();
    let bytes = std::fs::read(&old).unwrap();
    let (tensors, metadata) = wingbeat::low_level::weights::read_safetensors(&bytes).unwrap();
    assert!(!tensors.contains_key("recent_tokens") && !metadata.contains_key("mirostat_mu"));
    let (_, loaded) = session.load(&old, false).unwrap();
    let mut sampler = Sampler::new(settings);
    sampler.restore(loaded.sampler.unwrap());
    assert!(sampler.sample(session.logits(slot).unwrap()).is_ok());
    // A file with token ids out of range is refused.
    let broken = wingbeat::low_level::sample::Memory { recent: vec![1 << 20], ..memory };
    session.save(slot, &new, None, Some(&broken)).unwrap();
    assert!(session.load(&new, false).unwrap_err().to_string().contains("recent_tokens"));
}

#[test]
fn ten_thousand_tokens_stay_finite() {
    let model = tiny(&options("cpu"));
    let mut session = Session::new(&model, 1).unwrap();
    let slot = session.open().unwrap();
    for i in 0..40 {
        let logits = session.prefill(slot, &prompt(250, i)).unwrap();
        assert!(logits.iter().all(|v| v.is_finite()));
    }
    assert_eq!(session.n_tokens(slot).unwrap(), 10_000);
}
