//! Tests models whose layers are on several devices. Such a model must compute the same results as the model on one device.

use crate::support::{Tiny, adapter, caps, devices, goldens, made, nmse, options, read, unwatched};
use std::ops::{ControlFlow, Range};
use wingbeat::low_level::arch::{Base, Ranks, Rwkv7};
use wingbeat::low_level::exec::DeviceChoice;
use wingbeat::low_level::exec::gpu::{Device, adapters};
use wingbeat::low_level::sample::Sampling;
use wingbeat::low_level::session::{Limits, Model, ModelSource, Options, PartOn, Session, Slot, measure};
use wingbeat::low_level::tape::{Caps, Class};
use wingbeat::low_level::weights::Checkpoint;

/// Returns one part per device. The first part has only layer 0. If there are three parts, the third has only the head.
fn parts(devices: &[&str], n_layer: usize) -> Vec<PartOn> {
    let ends: &[usize] = if devices.len() == 2 { &[1, n_layer + 1] } else { &[1, n_layer, n_layer + 1] };
    let starts = [0].into_iter().chain(ends.iter().copied());
    devices.iter().zip(starts.zip(ends)).map(|(device, (start, &end))| part(device, start..end)).collect()
}

/// Returns a part whose layers all stay on the device.
fn part(device: &str, layers: Range<usize>) -> PartOn {
    PartOn {
        device: if device == "own" { DeviceChoice::Own } else { device.parse().unwrap() },
        resident: layers.len(),
        layers,
        experts: None,
    }
}

/// Loads the model on these devices, one part per device.
fn open(tiny: &Tiny, on: &[&str], base: &Options) -> Model {
    let mut options = base.clone();
    options.chunk = Some(16);
    match on {
        [device] => options.device = device.parse().unwrap(),
        several => options.parts = parts(several, 6),
    }
    let model = tiny.load(&options);
    assert_eq!(model.device().id, on.join(" -> "));
    model
}

/// The results of a model: lists of numbers, each with a name, and a greedy text.
#[derive(PartialEq)]
struct Said {
    numbers: Vec<(String, Vec<f32>)>,
    greedy: Vec<u32>,
}

impl Said {
    /// Returns the names of the lists that differ.
    fn differs(&self, expected: &Said) -> Vec<&str> {
        let pairs = self.numbers.iter().zip(&expected.numbers).filter(|(found, expected)| found != expected);
        pairs.map(|((name, _), _)| name.as_str()).collect()
    }

    /// Returns the largest error of all lists of numbers. Panics if the greedy texts differ.
    fn error(&self, expected: &Said) -> f64 {
        assert_eq!(self.greedy, expected.greedy);
        let errors = self.numbers.iter().zip(&expected.numbers).map(|((_, found), (_, expected))| nmse(found, expected));
        errors.fold(0.0, f64::max)
    }
}

/// Prefills several slots, decodes them in a batch, and uses a fork and a state file. Also computes the head's input, the sparsity and a greedy
/// text. Returns all results.
fn ask(model: &Model, tiny: &Tiny, state: &std::path::Path) -> Said {
    let mut numbers = Vec::new();
    let mut session = Session::new(model, 4).unwrap();
    let golden = tiny.golden();
    // For a model with attention, the longest prompt is longer than a block of the KV cache (64 tokens).
    let longest = if tiny.name == "glm4" { 70 } else { 21 };
    let prompts: Vec<Vec<u32>> = [1, longest, 6].iter().enumerate().map(|(i, &n)| golden.prompt(n, i)).collect();
    let slots: Vec<Slot> = prompts.iter().map(|_| session.open().unwrap()).collect();
    let work: Vec<(Slot, &[u32])> = slots.iter().zip(&prompts).map(|(s, p)| (*s, p.as_slice())).collect();
    session.prefill_many(&work, &mut |_, _| ()).unwrap();
    let fork = session.fork(slots[1]).unwrap();
    session.decode_many(&[(slots[0], 50), (slots[1], 60), (fork, 70)]).unwrap();
    for slot in [slots[0], slots[1], slots[2], fork] {
        numbers.push(("logits".into(), session.logits(slot).unwrap().to_vec()));
    }
    session.save(fork, state, None, None).unwrap();
    let file = Checkpoint::open(state).unwrap();
    for name in file.names() {
        if let Some(view) = file.tensor(name).filter(|view| view.dtype().is_weight()) {
            numbers.push((name.to_string(), view.to_f32().unwrap()));
        }
    }
    session.close(slots[0]).unwrap();
    // Loads the state file into a page that was used before.
    let (loaded, _) = session.load(state, false).unwrap();
    numbers.push(("logits after loading".into(), session.decode(loaded, 80).unwrap().to_vec()));
    numbers.push(("hidden".into(), session.hidden(loaded, &[90, 91]).unwrap()));
    session.close(slots[2]).unwrap();
    numbers.extend(measure::ffn_sparsity(&mut session, loaded, 7).unwrap().map(|share| ("zeros".into(), vec![share as f32])));
    let limits = Limits { stop_ids: Some(vec![]), ..Limits::new(12) };
    let go = &mut |_: &str| ControlFlow::Continue(());
    let greedy = session.generate(golden.tokens[..20].to_vec().as_slice(), &Sampling::greedy(0), &limits, go).unwrap().tokens;
    Said { numbers, greedy }
}

#[test]
fn parts_on_one_kind_of_device_are_bit_identical() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    for tiny in goldens() {
        for device in devices().iter().map(|device| if *device == "gpu" { "gpu:0" } else { *device }) {
            // Without the option `deterministic`, chunk lengths depend on time, and rounding depends on chunk lengths.
            let mut options = options(device);
            options.deterministic = true;
            let expected = ask(&open(tiny, &[device], &options), tiny, &state);
            for n in [2, 3] {
                let found = ask(&open(tiny, &vec![device; n], &options), tiny, &state);
                assert!(found == expected, "{} in {n} parts on {device}: {:?}", tiny.name, found.differs(&expected));
            }
        }
    }
}

#[test]
fn parts_with_gpu_kernels_are_bit_identical() {
    let Some(adapter) = adapter() else { return };
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let base = Device::open(&adapter, false).unwrap();
    for tiny in goldens() {
        let mut options = options("own");
        options.gpu = Some(unwatched(&base, Caps { max_binding: 100_000, ..caps(base.caps.clone(), Class::Groups) }));
        let expected = ask(&open(tiny, &["own"], &options), tiny, &state);
        let found = ask(&open(tiny, &["own", "own"], &options), tiny, &state);
        assert!(found == expected, "{}: {:?}", tiny.name, found.differs(&expected));
    }
}

#[test]
fn parts_on_a_gpu_and_on_the_cpu_agree() {
    if !devices().contains(&"gpu") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let n_adapters = adapters(Default::default()).len();
    if n_adapters < 2 {
        eprintln!("SKIPPED on two adapters: there is one");
    }
    for tiny in goldens() {
        let expected = ask(&open(tiny, &["cpu"], &options("cpu")), tiny, &state);
        let mixes: [&[&str]; 5] =
            [&["gpu:0", "cpu"], &["cpu", "gpu:0"], &["gpu:0", "cpu", "gpu:0"], &["gpu:0", "gpu:1"], &["gpu:1", "cpu", "gpu:0"]];
        for on in mixes.into_iter().filter(|on| n_adapters > 1 || !on.contains(&"gpu:1")) {
            let error = ask(&open(tiny, on, &options("auto")), tiny, &state).error(&expected);
            assert!(error <= 1e-9, "{} on {on:?}: {error:.2e}", tiny.name);
        }
    }
}

/// Loads the model on these devices. In each part, `resident` layers stay on the device, and all other layers are streamed.
fn streamed(tiny: &Tiny, on: &[&str], resident: usize, base: &Options) -> Model {
    let mut options = base.clone();
    options.chunk = Some(16);
    options.parts = if on.len() == 1 { vec![part(on[0], 0..7)] } else { parts(on, 6) };
    options.parts.iter_mut().for_each(|p| p.resident = resident);
    tiny.load(&options)
}

#[test]
fn streamed_layers_are_bit_identical() {
    let Some(adapter) = adapter() else { return };
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let base = Device::open(&adapter, false).unwrap();
    for tiny in goldens() {
        // The second case also splits tables and matrices, so that the tokens of a step are in several pieces of the embedding.
        let cases: [(Class, usize, &[usize]); 2] = [(base.caps.class, 128 << 20, &[4, 0]), (Class::Groups, 20_000, &[2])];
        for (class, max_binding, residents) in cases {
            let mut options = options("own");
            options.gpu = Some(unwatched(&base, Caps { max_binding, ..caps(base.caps.clone(), class) }));
            let whole = open(tiny, &["own"], &options);
            let expected = ask(&whole, tiny, &state);
            let mut last = whole.device_bytes();
            for &resident in residents {
                let model = streamed(tiny, &["own"], resident, &options);
                assert!(model.device_bytes() < last, "{}: {resident} layers stay in {} bytes", tiny.name, model.device_bytes());
                last = model.device_bytes();
                let found = ask(&model, tiny, &state);
                assert!(found == expected, "{} {class:?}, {resident} stay: {:.2e}", tiny.name, found.error(&expected));
            }
        }
        let error = ask(&streamed(tiny, &["gpu:0", "cpu", "gpu:0"], 0, &options("auto")), tiny, &state).error(&ask(
            &open(tiny, &["cpu"], &options("auto")),
            tiny,
            &state,
        ));
        assert!(error <= 1e-9, "{}: {error:.2e}", tiny.name);
    }
}

#[test]
fn a_deep_model_is_streamed_through_a_tenth_of_its_size() {
    if !devices().contains(&"gpu") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep.safetensors");
    let n_layer = 48;
    let ranks = Ranks { w: 8, a: 8, v: 8, g: 8 };
    made::write(&Rwkv7 { base: Base { n_layer, ..Base::new(128, 512, 64, 2000) }, ranks, deep_embed: None, attention: None }, &path);
    let open = |resident: Option<usize>| {
        let mut options = options("gpu");
        options.parts = resident
            .map(|resident| PartOn { device: DeviceChoice::Gpu(None), layers: 0..n_layer + 1, resident, experts: None })
            .into_iter()
            .collect();
        Model::load(&ModelSource::Path(path.clone()), &options, &mut |_, _| ()).unwrap()
    };
    let (whole, streamed) = (open(None), open(Some(0)));
    let (all, passing) = (whole.device_bytes(), streamed.device_bytes());
    assert!(passing > 0 && 10 * passing < all, "{passing} of {all} bytes");
    assert_eq!(open(Some(n_layer + 1)).device_bytes(), all);
    let tokens: Vec<u32> = (0..40).map(|i| (i * 37) % 2000).collect();
    // Several sessions share the buffers through which layers are streamed.
    std::thread::scope(|scope| {
        let readers: Vec<_> = [&tokens[..], &tokens[7..], &tokens[30..31]]
            .map(|tokens| (tokens, scope.spawn(|| logits_of(&streamed, tokens))))
            .into_iter()
            .collect();
        for (tokens, reader) in readers {
            assert!(reader.join().unwrap() == logits_of(&whole, tokens), "{} tokens", tokens.len());
        }
    });
    assert!(read(&streamed, &tokens) == read(&whole, &tokens));
}

/// Returns the logits after a prompt, then the logits after each of three further tokens.
fn logits_of(model: &Model, tokens: &[u32]) -> Vec<f32> {
    let mut session = Session::new(model, 1).unwrap();
    let slot = session.open().unwrap();
    let mut logits = session.prefill(slot, tokens).unwrap().to_vec();
    for token in [3, 1999, 3] {
        logits.extend_from_slice(session.decode(slot, token).unwrap());
    }
    logits
}

#[test]
fn a_state_continues_in_any_placement_of_layers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mut placements: Vec<&[&str]> = vec![&["cpu"], &["cpu", "cpu"]];
    if devices().contains(&"gpu") {
        placements.extend([["gpu:0", "cpu"].as_slice(), &["cpu", "gpu:0", "gpu:0"]]);
    }
    for tiny in goldens() {
        let models: Vec<Model> = placements.iter().map(|on| open(tiny, on, &options("auto"))).collect();
        let tokens = tiny.golden().prompt(70, 3);
        for (from, to) in models.iter().zip(models[1..].iter().chain(&models[..1])) {
            let mut session = Session::new(from, 1).unwrap();
            let slot = session.open().unwrap();
            session.prefill(slot, &tokens).unwrap();
            session.save(slot, &path, None, None).unwrap();
            let expected = session.decode(slot, 5).unwrap();
            let mut other = Session::new(to, 2).unwrap();
            other.open().unwrap();
            let (slot, _) = other.load(&path, false).unwrap();
            let error = nmse(other.decode(slot, 5).unwrap(), expected);
            assert!(error <= 1e-9, "{}, {} to {}: {error:.2e}", tiny.name, from.device().id, to.device().id);
        }
    }
}

#[test]
fn wrong_parts_are_named_before_anything_is_loaded() {
    let tiny = goldens().find(|t| t.name == "rwkv7").unwrap();
    let refused = |parts: Vec<PartOn>| {
        let mut options = options("cpu");
        options.parts = parts;
        Model::load(&tiny.source(), &options, &mut |_, _| panic!("loads")).err().unwrap().to_string()
    };
    let cpu = |layers| part("cpu", layers);
    let text = refused(vec![cpu(0..2), cpu(3..7)]);
    assert!(text.contains("expected a part with layers from 2") && text.contains("found layers 3..7"), "{text}");
    let text = refused(vec![cpu(0..6)]);
    assert!(text.contains("expected parts for all 7 layers, the head included, found parts for 6 layers"), "{text}");
    let text = refused(vec![part("gpu:99", 0..7)]);
    assert!(text.contains("gpu:99"), "{text}");
}

#[test]
fn measurements_cover_every_part() {
    let tiny = goldens().find(|t| t.name == "rwkv7").unwrap();
    let words = |on: &[&str]| {
        let model = open(tiny, on, &options("auto"));
        let mut session = Session::new(&model, 1).unwrap();
        let profile = measure::profile(&mut session, 3).unwrap();
        (profile.iter().map(|w| (w.word, w.weight_bytes)).collect::<Vec<_>>(), measure::dispatches_per_token(&mut session).unwrap())
    };
    let (whole, _) = words(&["cpu"]);
    assert_eq!(words(&["cpu", "cpu", "cpu"]), (whole.clone(), None));
    if devices().contains(&"gpu") {
        let alone = words(&["gpu:0"]).1.unwrap();
        assert_eq!(words(&["gpu:0", "gpu:0"]).1, Some(alone));
        let some = words(&["gpu:0", "cpu"]).1.unwrap();
        assert!(some > 0 && some < alone);
    }
}
