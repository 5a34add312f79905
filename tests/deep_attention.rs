//! Tests RWKV-7b (DeepEmbed attention) with a small model of seeded weights. `tools/golden-rwkv7b.py` makes the same weights and runs the
//! official demo. The model has a recurrent state and a KV cache.

use crate::support::{Golden, adapter, caps, draws_ahead, kernel_cases, logits_of, made, nmse, one_by_one, options, read, unwatched};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use wingbeat::chat::Format;
use wingbeat::conversation::Conversation;
use wingbeat::engine::{CacheOptions, Engine, EngineOptions, Request};
use wingbeat::low_level::arch::{Base, DeepAttention, Ranks, Rwkv7};
use wingbeat::low_level::exec::DeviceChoice;
use wingbeat::low_level::exec::gpu::Device;
use wingbeat::low_level::sample::Sampling;
use wingbeat::low_level::session::{Finish, Limits, Model, ModelSource, Options, PartOn, Session};
use wingbeat::low_level::tape::Class;

/// Writes the model of the golden logits into a new folder.
fn written() -> (tempfile::TempDir, PathBuf) {
    written_with(40)
}

/// Writes a model of `n_vocab` token ids into a new folder.
fn written_with(n_vocab: usize) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.safetensors");
    let ranks = Ranks { w: 8, a: 9, v: 7, g: 10 };
    let base = Base { n_layer: 3, ..Base::new(48, 200, 16, n_vocab) };
    made::write(&Rwkv7 { base, ranks, deep_embed: Some(32), attention: Some(DeepAttention::PUBLISHED) }, &path);
    (folder, path)
}

fn open(path: &Path, options: &Options) -> Model {
    Model::load(&ModelSource::Path(path.into()), options, &mut |_, _| ()).unwrap()
}

/// Returns options for the CPU, and for both kernel families of the adapter if the machine has one.
fn everywhere() -> Vec<(String, Options)> {
    let mut cases = vec![("cpu".to_string(), options("cpu"))];
    if let Some(adapter) = adapter() {
        let base = Device::open(&adapter, true).unwrap();
        for class in [Class::Groups, Class::Lanes] {
            let mut options = options("gpu");
            options.gpu = Some(unwatched(&base, caps(base.caps.clone(), class)));
            cases.push((format!("{class:?}"), options));
        }
    }
    cases
}

/// Returns `n` token ids.
fn prompt(n: usize, seed: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * (7 + seed) + 3 * seed + i * i % 11) % 40) as u32).collect()
}

#[test]
fn logits_and_greedy_texts_are_the_official_ones() {
    let Some(golden) = Golden::of_made("made-rwkv7b") else { return };
    let (_folder, path) = written();
    for (name, mut options) in kernel_cases() {
        if options.gpu.is_some() {
            options.context = Some(256);
        }
        let model = open(&path, &options);
        assert_eq!((model.facts().architecture, model.facts().version), ("rwkv7", "x070b"));
        let (many, single) = (logits_of(&model, &golden.tokens), one_by_one(&model, &golden.tokens));
        options.chunk = Some(37);
        let chunks = logits_of(&open(&path, &options), &golden.tokens);
        for (found, how) in [(&many, "in one step"), (&chunks, "in chunks"), (&single, "one by one")] {
            let error = nmse(found, &golden.logits);
            eprintln!("{name}, {how}: {error:.2e}");
            assert!(error <= 1e-7, "{name}, {how}: error {error:.2e}");
        }
        if options.deterministic {
            assert!(many == single && many == chunks, "{name}: one kernel class, but different bits");
        }
        let limits = Limits { stop_ids: Some(vec![]), ..Limits::new(golden.greedy.len()) };
        let mut session = Session::new(&model, 1).unwrap();
        let made = session.generate(golden.tokens.as_slice(), &Sampling::greedy(0), &limits, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(made.tokens, golden.greedy, "{name}");
        // A cache in f16 takes half the memory.
        let slot_bytes = model.slot_bytes();
        options.cache_dtype = "f16".parse().unwrap();
        let half = open(&path, &options);
        let error = nmse(&logits_of(&half, &golden.tokens), &golden.logits);
        eprintln!("{name}, cache in f16: {error:.2e}");
        assert!(error > 0.0 && error <= 1e-5, "{name}, cache in f16: error {error:.2e}");
        // Three layers with 256 numbers per key and 48 per value.
        let blocks = model.context().unwrap().div_ceil(64) as u64;
        assert_eq!(slot_bytes - half.slot_bytes(), 3 * blocks * 64 * (256 + 48) * 2, "{name}");
    }
}

#[test]
fn slots_of_a_batch_fork_save_and_return() {
    let (folder, path) = written();
    for (name, mut options) in everywhere() {
        (options.deterministic, options.context) = (true, Some(192));
        let model = open(&path, &options);
        let mut session = Session::new(&model, 4).unwrap();
        let prompts = [prompt(90, 1), prompt(5, 2), prompt(70, 3)];
        let slots = [(); 3].map(|()| session.open().unwrap());
        let work: Vec<_> = slots.iter().zip(&prompts).map(|(slot, prompt)| (*slot, prompt.as_slice())).collect();
        session.prefill_many(&work, &mut |_, _| ()).unwrap();
        for (slot, prompt) in slots.iter().zip(&prompts) {
            assert!(session.logits(*slot).unwrap() == read(&model, prompt), "{name}: a batch changes logits");
        }
        // The slot and its fork share the second block of 64 tokens until one of the two slots writes to the block.
        let fork = session.fork(slots[0]).unwrap();
        let (left, right) = (prompt(40, 4), prompt(60, 5));
        session.prefill_many(&[(slots[0], &left), (fork, &right)], &mut |_, _| ()).unwrap();
        for (slot, more) in [(slots[0], &left), (fork, &right)] {
            assert!(session.logits(slot).unwrap() == read(&model, &[&prompts[0][..], more].concat()), "{name}: a fork changes logits");
        }
        session.close(slots[1]).unwrap();
        // A saved state has the recurrent state and the cache.
        let file = folder.path().join("state");
        session.save(fork, &file, None, None).unwrap();
        let snapshot = session.snapshot(fork).unwrap();
        let before = session.logits(fork).unwrap().to_vec();
        let want = session.decode(fork, 7).unwrap().to_vec();
        let (loaded, state) = session.load(&file, false).unwrap();
        assert_eq!(state.tokens.unwrap(), [&prompts[0][..], &right].concat());
        assert!(session.logits(loaded).unwrap() == before, "{name}");
        assert!(session.decode(loaded, 7).unwrap() == want, "{name}: a loaded state continues with other logits");
        session.close(loaded).unwrap();
        let restored = session.restore(&snapshot).unwrap();
        assert!(session.decode(restored, 7).unwrap() == want, "{name}: a snapshot continues with other logits");
    }
}

/// The KV cache could return to an earlier token, but the recurrent state cannot.
#[test]
fn a_slot_starts_over_where_a_transformer_rewinds() {
    let (_folder, path) = written();
    let mut options = options("cpu");
    options.context = Some(100);
    let model = open(&path, &options);
    assert!(!model.can_rewind() && model.context() == Some(100));
    let mut session = Session::new(&model, 1).unwrap();
    let slot = session.open().unwrap();
    let tokens = prompt(80, 1);
    assert_eq!(session.read_to(slot, &tokens[..70]).unwrap(), 0);
    assert_eq!(session.read_to(slot, &tokens).unwrap(), 70, "a longer prompt continues");
    assert!(session.logits(slot).unwrap().len() == 40);
    assert_eq!(session.read_to(slot, &tokens[..75]).unwrap(), 0);
    assert!(session.logits(slot).unwrap() == read(&model, &tokens[..75]));
    assert!(session.rewind(slot, 1).unwrap_err().to_string().contains("the state of a recurrent model holds no earlier states"));
    session.rewind(slot, 0).unwrap();
    assert!(session.prefill(slot, &tokens[..5]).unwrap() == read(&model, &tokens[..5]));
}

#[test]
fn a_full_context_ends_a_text_and_refuses_a_prompt() {
    let (_folder, path) = written();
    for (name, mut options) in everywhere() {
        options.context = Some(100);
        let model = open(&path, &options);
        let mut session = Session::new(&model, 1).unwrap();
        let limits = Limits { stop_ids: Some(vec![]), ..Limits::new(1000) };
        let go = &mut |_: &str| ControlFlow::Continue(());
        let made = session.generate(prompt(90, 1).as_slice(), &Sampling::greedy(0), &limits, go).unwrap();
        assert_eq!((made.finish, made.tokens.len()), (Finish::Context, 10), "{name}");
        let slot = session.open().unwrap();
        session.prefill(slot, &prompt(60, 1)).unwrap();
        let error = session.prefill(slot, &prompt(41, 1)).unwrap_err().to_string();
        assert!(error.contains("has read 60 tokens, and 41 more tokens exceed the context of 100 tokens"), "{error}");
        session.prefill(slot, &prompt(40, 2)).unwrap();
        assert!(session.decode(slot, 5).is_err(), "{name}");
    }
}

#[test]
fn a_chat_that_fills_the_context_can_take_turns_back() {
    let (_folder, path) = written_with(2048);
    let mut options = options("cpu");
    (options.context, options.vocab) = (Some(100), Some("tiny".into()));
    let model = open(&path, &options);
    let format = Format::of(&model).unwrap();
    let mut settings = format.settings();
    settings.chat_len_max = 1000;
    let mut chat = Conversation::new(&model, format, settings, Box::new(|_, _| ())).unwrap();
    let say = |chat: &mut Conversation| chat.say("light", &mut |_| ControlFlow::Continue(()));
    let answer = say(&mut chat).unwrap();
    assert!(answer.is_kept && answer.finish == Finish::Context, "{:?}", answer.finish);
    let error = say(&mut chat).unwrap_err().to_string();
    assert!(error.contains("context") && error.contains("100 tokens"), "{error}");
    chat.undo().unwrap();
    say(&mut chat).unwrap();
}

/// A device that samples writes several steps ahead, into new pages and into the same cache blocks.
#[test]
fn texts_sampled_on_the_device_are_those_of_the_host() {
    if !draws_ahead("deep_attention::texts_sampled_on_the_device_are_those_of_the_host") {
        return;
    }
    let (_folder, path) = written();
    for (name, options) in everywhere() {
        let model = open(&path, &options);
        let text = |stop: u32| {
            let mut session = Session::new(&model, 1).unwrap();
            let limits = Limits { stop_ids: Some(vec![stop]), ..Limits::new(100) };
            let go = &mut |_: &str| ControlFlow::Continue(());
            session.generate(prompt(50, 1).as_slice(), &Sampling::greedy(0), &limits, go).unwrap().tokens
        };
        // The logits after each token of the longest text must favour the next token of the text.
        let whole = text(1000);
        assert_eq!(whole.len(), 100, "{name}");
        let logits = logits_of(&model, &[&prompt(50, 1)[..], &whole].concat());
        let best = |row: &[f32]| row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0 as u32;
        let expected: Vec<u32> = logits.chunks_exact(40).skip(49).take(100).map(best).collect();
        assert_eq!(whole, expected, "{name}");
        let stop = whole[20];
        let end = whole.iter().position(|&t| t == stop).unwrap();
        assert_eq!(text(stop), whole[..end], "{name}");
    }
}

/// An entry of the prefix cache serves only prompts that begin with all of its tokens, because the state cannot return to fewer tokens.
#[test]
fn cached_prompts_continue_with_the_same_texts() {
    let (_folder, path) = written();
    let mut options = options("cpu");
    (options.deterministic, options.context) = (true, Some(256));
    let model = open(&path, &options);
    for (device_bytes, host_bytes) in [(64 << 20, 0), (1, 64 << 20), (model.slot_bytes(), 64 << 20)] {
        let mut engine_options = EngineOptions::default();
        (engine_options.slots, engine_options.cache) = (2, CacheOptions { device_bytes, host_bytes, ..CacheOptions::off() });
        let engine = Engine::start(&model, engine_options).unwrap();
        let first = prompt(100, 1);
        let asked = |tokens: &[u32], no_cache: bool| {
            let mut request = Request::tokens(tokens).max_tokens(3).set("temperature", 0);
            request.no_cache = no_cache;
            engine.submit(request.clone()).unwrap().wait().unwrap().remove(0)
        };
        asked(&first, false);
        for (tokens, least) in [([&first[..], &prompt(30, 2)].concat(), 100), (first[..70].to_vec(), 0), (prompt(20, 3), 0)] {
            let (with, without) = (asked(&tokens, false), asked(&tokens, true));
            assert!(with.usage.cached_tokens >= least && with.usage.cached_tokens < tokens.len());
            assert_eq!(with.tokens, without.tokens);
        }
        for i in 0..6 {
            asked(&prompt(60 + 9 * i, 3 + i % 5), false);
        }
        engine.drain();
        assert_eq!(engine.stats().free_slots, 2);
    }
}

#[test]
fn quantised_weights_load_and_reports_name_the_model() {
    let (_folder, path) = written();
    let tokens = prompt(40, 1);
    let expected = logits_of(&open(&path, &options("cpu")), &tokens);
    for (name, options) in everywhere() {
        for (quant, bound) in [("i8", 1e-2), ("i4", 0.3)] {
            let mut options = options.clone();
            options.quant = Some(quant.parse().unwrap());
            let error = nmse(&logits_of(&open(&path, &options), &tokens), &expected);
            eprintln!("{name}, {quant}: {error:.2e}");
            assert!(error > 0.0 && error < bound, "{name}, {quant}: {error:.2e}");
        }
    }
}

/// If a layer with a table is streamed, all tables stay in host memory, and each step copies the rows of its tokens to the device.
#[test]
fn tables_in_host_memory_and_several_devices_change_nothing() {
    let Some(adapter) = adapter() else { return };
    let (_folder, path) = written();
    let base = Device::open(&adapter, false).unwrap();
    let tokens = prompt(20, 3);
    for class in [Class::Lanes, Class::Groups] {
        let gpu = unwatched(&base, caps(base.caps.clone(), class));
        let open = |on: &[(&str, Range<usize>, usize)]| {
            let mut options = options("own");
            (options.gpu, options.context) = (Some(gpu.clone()), Some(64));
            let part = |(device, layers, resident): &(&str, Range<usize>, usize)| {
                let device = if *device == "own" { DeviceChoice::Own } else { device.parse().unwrap() };
                PartOn { device, layers: layers.clone(), resident: *resident, experts: None }
            };
            options.parts = on.iter().map(part).collect();
            open(&path, &options)
        };
        let expected = one_by_one(&open(&[("own", 0..4, 4)]), &tokens);
        for resident in [0, 2] {
            assert!(one_by_one(&open(&[("own", 0..4, resident)]), &tokens) == expected, "{class:?}: {resident} layers stay");
        }
        for parts in [[("own", 0..1, 1), ("cpu", 1..4, 3)], [("cpu", 0..2, 2), ("own", 2..4, 0)]] {
            let error = nmse(&one_by_one(&open(&parts), &tokens), &expected);
            assert!(error <= 1e-9, "{class:?} {parts:?}: {error:.2e}");
        }
    }
}
