//! Provokes errors with wrong files and with wrong calls of the library.

use super::files::{Files, MODEL};
use super::printed;
use crate::flags;
use std::path::Path;
use wingbeat::chat::Format;
use wingbeat::error::Result;
use wingbeat::low_level::arch;
use wingbeat::low_level::exec::gpu::Backend;
use wingbeat::low_level::exec::strategy::StrategyChoice;
use wingbeat::low_level::exec::{DeviceChoice, QuantPlan};
use wingbeat::low_level::sample::Sampling;
use wingbeat::low_level::session::{Model, ModelSource, Options, Session, Snapshot};
use wingbeat::low_level::weights::Checkpoint;
use wingbeat::vocab::Vocab;

/// The names of files that are opened as a model.
const MODELS: &[&str] = &[
    "absent",
    "folder",
    "empty.pth",
    "picture.png",
    "page.pth",
    "pointer.pth",
    "empty.zip",
    "notes.txt",
    "notes.json",
    "vocabulary.txt",
    "tokenizer.json",
    "config.json",
    "results.jsonl",
    "prompts.jsonl",
    "cut.safetensors",
    "header.safetensors",
    "length.safetensors",
    "json.safetensors",
    "type.safetensors",
    "beyond.safetensors",
    "size.safetensors",
    "cut.pth",
    "archive.pth",
    "evil.pth",
    "pickle.pth",
    "outside.pth",
    "no-model.pth",
    "cut.gguf",
    "version.gguf",
    "many.gguf",
    "more.gguf",
    "key.gguf",
    "type.gguf",
    "architecture.gguf",
    "nothing.gguf",
    "saved.state",
    "cut.state",
    "tuned.safetensors",
    "lora.safetensors",
    "other.safetensors",
];

/// The names of files that are opened as a state.
const STATES: &[&str] = &[
    "absent",
    "folder",
    "empty.pth",
    "picture.png",
    "notes.txt",
    "lacking.safetensors",
    "lora.safetensors",
    "cut.state",
    "damaged.state",
    "other.state",
    "narrow.safetensors",
    "one.safetensors",
    "no-model.pth",
];

/// The names of files that are opened as a vocabulary.
const VOCABULARIES: &[&str] = &[
    "absent",
    "folder",
    "empty.pth",
    "picture.png",
    "notes.txt",
    "notes.json",
    "gap.txt",
    "length.txt",
    "literal.txt",
    "tokenizer.json",
    "config.json",
];

/// Returns the name of each case and the text of the error that the case provokes.
pub fn all(files: &Files) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut put = |name: String, result: Result<()>| {
        let text = result.map_or_else(|e| printed(&flags::in_field(e, &[])), |()| "accepted".into());
        found.push((name, text));
    };
    for name in MODELS {
        let opened = Checkpoint::open(&files.path(name)).and_then(|checkpoint| {
            arch::detect(&checkpoint).map(drop).map_err(|e| e.at(checkpoint.path().unwrap_or(Path::new("")).display()))
        });
        put(format!("as a model: {name}"), opened);
    }
    for name in STATES {
        put(format!("as a state: {name}"), Snapshot::load(&MODEL, &files.path(name), false).map(drop));
    }
    for name in VOCABULARIES {
        put(format!("as a vocabulary: {name}"), Vocab::open(&files.path(name)).map(drop));
    }
    for text in ["", "gpu:x"] {
        put(format!("device: {text:?}"), text.parse::<DeviceChoice>().map(drop));
    }
    put("backend: \"opengl\"".into(), "opengl".parse::<Backend>().map(drop));
    for text in ["", "gpu", "gpu fp17", "gpu fp16 *", "gpu fp16 *x", "gpu fp16 *2 ->", "gpu fp16 *2 *3", "-> cpu fp16"] {
        put(format!("strategy: {text:?}"), text.parse::<StrategyChoice>().map(drop));
    }
    for text in ["", "i9", "i4,head", "i4,tail=i8", "i4,head=i9"] {
        put(format!("quant: {text:?}"), text.parse::<QuantPlan>().map(drop));
    }
    for (name, value) in [
        ("top-p", "7"),
        ("top-k", "x"),
        ("temperature", "nan"),
        ("preset", "best"),
        ("heat", "1"),
        ("seed", "x"),
        ("ban", "1,x"),
        ("logit-bias", "1"),
    ] {
        put(format!("sampling: {name} {value:?}"), Sampling::rwkv().set(name, value));
    }
    put("format: \"best\"".into(), Format::named("best", &MODEL).map(drop));
    let options = Options { device: DeviceChoice::Cpu, ..Options::default() };
    let path = |name: &str| ModelSource::Path(files.path(name));
    for (name, source) in [
        ("unknown sizes", ModelSource::Synthetic("rwkv9-1b".into())),
        ("a missing tensor", path("lacking.safetensors")),
        ("a tensor of a wrong shape", path("shape.safetensors")),
    ] {
        put(format!("load: {name}"), Model::load(&source, &options, &mut |_, _| ()).map(drop));
    }
    session(files, &mut put).unwrap();
    found
}

/// Adds the errors of wrong calls of a session that has one slot.
fn session(files: &Files, put: &mut impl FnMut(String, Result<()>)) -> Result<()> {
    put("session: no slots".into(), Session::new(&MODEL, 0).map(drop));
    put("session: too many slots".into(), Session::new(&MODEL, 100_000).map(drop));
    let mut session = Session::new(&MODEL, 1)?;
    let slot = session.open()?;
    put("session: all slots are in use".into(), session.open().map(drop));
    put("session: fork without a free slot".into(), session.fork(slot).map(drop));
    put("session: a token out of range".into(), session.prefill(slot, &[1, 99_999]).map(drop));
    put("session: decode a token out of range".into(), session.decode(slot, 99_999).map(drop));
    put("session: the same slot twice".into(), session.decode_many(&[(slot, 1), (slot, 2)]));
    put("session: classify without a head".into(), session.classify(&[1, 2]).map(drop));
    put("session: save under the name of another file".into(), session.save(slot, &files.path("notes.txt"), None, None));
    session.close(slot)?;
    put("session: a closed slot".into(), session.prefill(slot, &[1]).map(drop));
    let mut other = Session::new(&MODEL, 1)?;
    let foreign = other.open()?;
    put("session: a slot of another session".into(), session.prefill(foreign, &[1]).map(drop));
    Ok(())
}
