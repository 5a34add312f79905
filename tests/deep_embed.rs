//! Tests RWKV-7a (DeepEmbed) with a small model of seeded weights. `tools/golden-rwkv7a.py` makes the same weights and runs the official
//! implementation.

use crate::support::{Golden, adapter, caps, kernel_cases, logits_of, made, nmse, one_by_one, options, unwatched};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use wingbeat::low_level::arch::{Base, Ranks, Rwkv7};
use wingbeat::low_level::exec::DeviceChoice;
use wingbeat::low_level::exec::gpu::Device;
use wingbeat::low_level::sample::Sampling;
use wingbeat::low_level::session::{Limits, Model, ModelSource, Options, PartOn, Session};
use wingbeat::low_level::tape::{Caps, Class};

/// Writes the model of the golden logits.
fn write(path: &Path) {
    let ranks = Ranks { w: 8, a: 9, v: 7, g: 10 };
    made::write(&Rwkv7 { base: Base { n_layer: 3, ..Base::new(48, 200, 16, 40) }, ranks, deep_embed: Some(32), attention: None }, path);
}

/// Returns the official logits, or `None` in the published package, which lacks the file of these logits.
fn golden() -> Option<Golden> {
    Golden::of_made("made-rwkv7a")
}

fn open(path: &Path, options: &Options) -> Model {
    Model::load(&ModelSource::Path(path.into()), options, &mut |_, _| ()).unwrap()
}

#[test]
fn logits_and_greedy_texts_are_the_official_ones() {
    let Some(golden) = golden() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.safetensors");
    write(&path);
    for (name, options) in kernel_cases() {
        let model = open(&path, &options);
        assert_eq!((model.facts().architecture, model.facts().version), ("rwkv7", "x070a"));
        let (many, single) = (logits_of(&model, &golden.tokens), one_by_one(&model, &golden.tokens));
        for (found, how) in [(&many, "in one step"), (&single, "one by one")] {
            let error = nmse(found, &golden.logits);
            eprintln!("{name}, {how}: {error:.2e}");
            assert!(error <= 1e-7, "{name}, {how}: error {error:.2e}");
        }
        if options.deterministic {
            assert!(many == single, "{name}: one kernel class, but different bits");
        }
        let limits = Limits { stop_ids: Some(vec![]), ..Limits::new(golden.greedy.len()) };
        let mut session = Session::new(&model, 1).unwrap();
        let made = session.generate(golden.tokens.as_slice(), &Sampling::greedy(0), &limits, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(made.tokens, golden.greedy, "{name}");
    }
}

/// If a layer with a table is streamed, all tables stay in host memory, and each step copies the rows of its tokens to the device.
#[test]
fn tables_in_host_memory_and_several_devices_change_nothing() {
    let Some(adapter) = adapter() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.safetensors");
    write(&path);
    let base = Device::open(&adapter, false).unwrap();
    let tokens: Vec<u32> = (0..20).map(|i| (i * 7 + 3) % 40).collect();
    for (class, max_binding) in [(Class::Lanes, 128 << 20), (Class::Groups, 20_000)] {
        let gpu = unwatched(&base, Caps { max_binding, ..caps(base.caps.clone(), class) });
        let open_in = |quant: &str, on: &[(&str, Range<usize>, usize)]| {
            let mut options = options("own");
            options.gpu = Some(gpu.clone());
            options.quant = Some(quant.parse().unwrap());
            let part = |(device, layers, resident): &(&str, Range<usize>, usize)| {
                let device = if *device == "own" { DeviceChoice::Own } else { device.parse().unwrap() };
                PartOn { device, layers: layers.clone(), resident: *resident, experts: None }
            };
            options.parts = on.iter().map(part).collect();
            open(&path, &options)
        };
        let open = |on: &[(&str, Range<usize>, usize)]| open_in("f16", on);
        let whole = open(&[("own", 0..4, 4)]);
        let expected = [logits_of(&whole, &tokens), one_by_one(&whole, &tokens)];
        for resident in [0, 1, 2, 3] {
            let model = open(&[("own", 0..4, resident)]);
            assert!([logits_of(&model, &tokens), one_by_one(&model, &tokens)] == expected, "{class:?}: {resident} layers stay");
            // The head, layer 3, has no table.
            assert_eq!(model.device_bytes() + 40 * 1024 * 2 < whole.device_bytes(), resident < 3, "{class:?}: {resident} layers stay");
        }
        // Tables in host memory stay floats, whatever the format of the other matrices.
        for quant in ["i8", "i4", "q8_0", "q4_0"] {
            let floats = open_in(&format!("{quant},embedding=f16"), &[("own", 0..4, 4)]);
            let (streamed, coded) = (open_in(quant, &[("own", 0..4, 0)]), open_in(quant, &[("own", 0..4, 4)]));
            let expected = logits_of(&floats, &tokens);
            assert!(logits_of(&streamed, &tokens) == expected, "{class:?}: {quant}");
            assert!(logits_of(&coded, &tokens) != expected, "{class:?}: {quant} has tables of floats on the device");
        }
        // The second part gets x0, the embedding of each token, from the first part.
        for parts in [[("own", 0..1, 1), ("cpu", 1..4, 3)], [("cpu", 0..2, 2), ("own", 2..4, 0)]] {
            let error = nmse(&one_by_one(&open(&parts), &tokens), &expected[1]);
            assert!(error <= 1e-9, "{class:?} {parts:?}: {error:.2e}");
        }
    }
}
