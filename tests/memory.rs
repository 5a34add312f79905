//! Tests host memory: loading holds only a few blocks of the file beside the file's memory map, and decoding allocates nothing.
//!
//! These tests are in a separate binary, because the allocator counts every allocation of the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use wingbeat::low_level::arch::{Base, Blueprint, Ranks, Rwkv7};
use wingbeat::low_level::sample::{Sampler, Sampling};
use wingbeat::low_level::session::{Limits, Session, Text};
use wingbeat::low_level::session::{Model, ModelSource, Options};
use wingbeat::low_level::tape::Tape;
use wingbeat::low_level::tensor::DType;
use wingbeat::low_level::weights::{NewTensor, write_safetensors};
use wingbeat::low_level::words::synthetic::Synthetic;

/// An allocator that counts allocations, except device buffers that a driver allocates.
struct Counting;

/// A test holds this lock while it runs, because the counts are for the whole process.
static ALONE: Mutex<()> = Mutex::new(());
static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        PEAK.fetch_max(NOW.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: this function's caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        PEAK.fetch_max(NOW.fetch_add(size, Relaxed) + size, Relaxed);
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: this function's caller keeps the contract of `realloc`.
        unsafe { System.realloc(at, layout, size) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: this function's caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

thread_local! {
    /// `true` if this thread's allocations are recorded.
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}
/// The size and the call stack of each recorded allocation.
static WATCHED_CALLS: Mutex<Vec<(usize, Vec<usize>)>> = Mutex::new(Vec::new());

fn note(size: usize) {
    if !WATCHED.replace(false) {
        return;
    }
    let mut calls = Vec::new();
    // SAFETY: only one thread records allocations, and no other code walks stacks through this crate.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            calls.push(frame.ip() as usize);
            calls.len() < 24
        })
    };
    WATCHED_CALLS.lock().unwrap().push((size, calls));
    WATCHED.set(true);
}

/// Returns the recorded allocations that wingbeat's own code makes. Leaves out allocations inside wgpu, naga and parking_lot.
fn ours() -> Vec<String> {
    let name_of = |ip: &usize| {
        let mut found = String::new();
        backtrace::resolve(*ip as *mut _, |symbol| found = symbol.name().map_or_else(String::new, |n| n.to_string()));
        found.trim_start_matches('<').to_string()
    };
    let mut ours = Vec::new();
    for (size, calls) in WATCHED_CALLS.lock().unwrap().drain(..) {
        let first = calls.iter().map(name_of).find(|name| ["wingbeat", "wgpu", "naga", "parking_lot"].iter().any(|c| name.starts_with(c)));
        ours.extend(first.filter(|name| name.starts_with("wingbeat")).map(|name| format!("{size} bytes in {name}")));
    }
    ours
}

#[path = "support/made.rs"]
mod made;
#[path = "support/null.rs"]
mod null;

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn loading_300_megabytes_takes_less_than_64_of_host_memory() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.safetensors");
    let ranks = Ranks { w: 64, a: 64, v: 32, g: 128 };
    let model = Rwkv7 { base: Base { n_layer: 14, ..Base::new(1024, 4096, 64, 4096) }, ranks, deep_embed: None, attention: None };
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
        NewTensor { name, dtype: DType::F16, shape, data: Box::new(bytes) }
    };
    write_safetensors(&path, &Default::default(), tensors.iter().map(entry).collect(), &mut |_, _| ()).unwrap();
    let size = std::fs::metadata(&path).unwrap().len();
    assert!(size > 300_000_000, "{size}");

    let mut devices = vec!["cpu"];
    match wingbeat::low_level::exec::gpu::adapters(Default::default()).is_empty() {
        false => devices.push("gpu"),
        true => eprintln!("SKIPPED on gpu: no adapter found"),
    }
    for device in devices {
        let mut options = Options::default();
        options.device = device.parse().unwrap();
        PEAK.store(NOW.load(Relaxed), Relaxed);
        let before = NOW.load(Relaxed);
        let model = Model::load(&ModelSource::Path(path.clone()), &options, &mut |_, _| ()).unwrap();
        let peak = PEAK.load(Relaxed) - before;
        eprintln!("{device}: at most {:.1} MB for a file of {:.0} MB", peak as f64 / 1e6, size as f64 / 1e6);
        assert!(peak < 64_000_000, "{device}: {peak} bytes");
        drop(model);
    }
}

#[test]
fn decoding_allocates_nothing_and_memory_does_not_grow() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let model = null::model(folder.path());
    WATCHED.set(true);
    let mut session = Session::new(&model, 1).unwrap();
    WATCHED.set(false);
    assert!(ours().len() > 5, "no allocation was recorded");
    let slot = session.open().unwrap();
    session.prefill(slot, &[1]).unwrap();
    let limits = Limits { stop_ids: Some(Vec::new()), ..Limits::new(10_000) };
    let mut continuations = [Text::after(slot, Sampler::new(Sampling::rwkv()), &limits)];
    let (mut n, mut at_1000) = (0, 0);
    session
        .continue_many(&mut continuations, &mut |_| {
            n += 1;
            // by then kernels, plans and buffers exist; only the buffers of text and ids still double sometimes
            WATCHED.set((200..250).contains(&n));
            if n == 1000 {
                at_1000 = NOW.load(Relaxed);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    WATCHED.set(false);
    let ours = ours();
    assert!(ours.is_empty(), "{} allocations in 50 tokens:\n{}", ours.len(), ours[..ours.len().min(20)].join("\n"));
    let grown = NOW.load(Relaxed).saturating_sub(at_1000);
    assert!(grown < 200_000, "{grown} bytes more after 9000 tokens");
}

/// Dropping a model must free all its memory. Only the wgpu instance that lists adapters lives as long as the process.
#[cfg(all(target_os = "linux", feature = "embedded-model"))]
#[test]
fn opening_and_dropping_models_does_not_grow() {
    let _alone = ALONE.lock();
    if wingbeat::low_level::exec::gpu::adapters(Default::default()).is_empty() {
        return eprintln!("SKIPPED: no adapter found");
    }
    let resident = || {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    let mut options = Options::default();
    options.device = "gpu".parse().unwrap();
    let mut at = Vec::new();
    for _ in 0..60 {
        let model = Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap();
        let engine = wingbeat::engine::Engine::start(&model, Default::default()).unwrap();
        engine.submit(wingbeat::engine::Request::text("In the beginning").max_tokens(2)).unwrap().wait().unwrap();
        drop((model, engine));
        at.push(resident());
    }
    // The first models fill the caches of the driver and the allocator.
    let grown = at[59].saturating_sub(at[29]);
    assert!(grown < 7 << 20, "{grown} bytes more after 30 models; in MiB: {:?}", at.iter().map(|n| n >> 20).collect::<Vec<_>>());
}
