//! Loading streams: beside the file's map, the host never holds more than a few blocks of it.
//!
//! A binary of its own, because it counts every allocation of the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use wingbeat::arch::{Base, Blueprint, Ranks, Rwkv7};
use wingbeat::session::{Model, ModelSource, Options};
use wingbeat::tape::Tape;
use wingbeat::tensor::DType;
use wingbeat::weights::{Entry, write_safetensors};
use wingbeat::words::synthetic::Synthetic;

/// Counts what is allocated through Rust; device buffers are the driver's own.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(NOW.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn loading_300_megabytes_takes_less_than_64_of_host_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.safetensors");
    let ranks = Ranks { w: 64, a: 64, v: 32, g: 128 };
    let model = Rwkv7 { base: Base { n_layer: 14, ..Base::new(1024, 4096, 64, 4096) }, ranks };
    let mut tape = Tape::new();
    model.record(&mut tape);
    let made = Synthetic { seed: 1 };
    let mut tensors = tape.tensors();
    tensors.sort();
    tensors.dedup();
    let entry = |(name, shape, _): &(&str, Vec<usize>, bool)| {
        let (name, shape) = (name.to_string(), shape.clone());
        let bytes = {
            let (name, shape) = (name.clone(), shape.clone());
            move |out: &mut dyn std::io::Write| {
                out.write_all(&made.bytes(&name, &shape)).map_err(|e| wingbeat::error::Error::io(e, std::path::Path::new("made")))
            }
        };
        Entry { name, dtype: DType::F16, shape, data: Box::new(bytes) }
    };
    write_safetensors(&path, &Default::default(), tensors.iter().map(entry).collect(), &mut |_, _| ()).unwrap();
    let size = std::fs::metadata(&path).unwrap().len();
    assert!(size > 300_000_000, "{size}");

    let mut devices = vec!["cpu"];
    match wingbeat::exec::gpu::adapters(Default::default()).is_empty() {
        false => devices.push("gpu"),
        true => eprintln!("SKIPPED on gpu: there is no adapter"),
    }
    for device in devices {
        let mut options = Options::default();
        options.device = device.into();
        PEAK.store(NOW.load(Relaxed), Relaxed);
        let before = NOW.load(Relaxed);
        let model = Model::load(&ModelSource::Path(path.clone()), &options, &mut |_, _| ()).unwrap();
        let peak = PEAK.load(Relaxed) - before;
        eprintln!("{device}: {:.1} MB at the most for a file of {:.0} MB", peak as f64 / 1e6, size as f64 / 1e6);
        assert!(peak < 64_000_000, "{device}: {peak} bytes");
        drop(model);
    }
}
