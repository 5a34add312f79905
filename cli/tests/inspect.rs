//! Tests the report of `inspect` for models whose tensors in memory differ from the tensors in their files.

use crate::cli::{json, run};
use crate::support::{goldens, made, options, root};
use std::path::Path;
use wingbeat::low_level::arch::{Base, DeepAttention, Ranks, Rwkv7};
use wingbeat::low_level::session::{Model, Options};
use wingbeat::low_level::weights::Checkpoint;
use wingbeat_cli::inspect;

#[test]
fn states_in_f16_halve_the_state() {
    let half = |device: &str| {
        let mut options = options(device);
        options.state_dtype = "f16".parse().unwrap();
        options
    };
    for tiny in goldens().filter(|t| t.name == "rwkv6") {
        let checkpoint = Checkpoint::open(&tiny.path()).unwrap();
        let size = |options: &Options| inspect(&checkpoint, false, options).unwrap().memory.unwrap().state_per_slot;
        let report = inspect(&checkpoint, false, &half("cpu")).unwrap();
        let (layers, width, head) = (report.hyper.n_layer.unwrap(), report.hyper.n_embd.unwrap(), report.hyper.head_size.unwrap());
        assert_eq!(size(&options("cpu")) - size(&half("cpu")), (layers * width * head * 2) as u64);
        assert!(report.note.is_none());
    }
}

#[test]
fn a_deep_attention_has_a_context() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.safetensors");
    let ranks = Ranks { w: 8, a: 9, v: 7, g: 10 };
    let base = Base { n_layer: 3, ..Base::new(48, 200, 16, 40) };
    made::write(&Rwkv7 { base, ranks, deep_embed: Some(32), attention: Some(DeepAttention::PUBLISHED) }, &path);
    let of = |context| {
        let mut options = options("cpu");
        options.context = context;
        inspect(&Checkpoint::open(&path).unwrap(), false, &options).unwrap()
    };
    let report = of(None);
    assert_eq!((report.architecture, report.version, report.context), (Some("rwkv7"), Some("x070b"), Some(4096)));
    let slot = |context| of(Some(context)).memory.unwrap().state_per_slot;
    assert_eq!(slot(128) - slot(64), 3 * 64 * (256 + 48) * 4);
}

/// Files and reports have heads without padding. Only the recorded program (tape) and the executors pad the heads.
#[test]
fn heads_are_padded_only_in_memory() {
    let path = |name: &str| root().join("tests/models").join(name);
    if !path("").is_dir() {
        eprintln!("SKIPPED: the folder tests/models is in the repository only");
        return;
    }
    let (from, dir) = (path("glm-heads-12"), tempfile::tempdir().unwrap());
    let text = |p: &Path| p.display().to_string();
    let inspected = json(&run(&["inspect", &text(&from), "--json"]));
    assert_eq!(inspected["head_size"], 12, "{inspected}");
    let model = Model::open(&from).unwrap();
    let original = Checkpoint::open(&from).unwrap();
    let n_params: usize = original.names().map(|name| original.tensor(name).unwrap().len()).sum();
    assert_eq!((model.facts().head_size, model.n_params()), (12, n_params as u64));

    let to = dir.path().join("i8.safetensors");
    let done = run(&["convert", &text(&from), &text(&to), "--quant", "i8"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let converted = Checkpoint::open(&to).unwrap();
    for name in original.names() {
        let (a, b) = (original.tensor(name).unwrap(), converted.tensor(name).unwrap());
        assert_eq!(a.shape(), b.shape(), "{name}");
        let is_attention = ["q_proj", "k_proj", "v_proj", "o_proj"].iter().any(|part| name.contains(part));
        assert_eq!(b.matrix().is_some(), a.shape().len() == 2 && !is_attention, "{name}");
    }
    Model::open(&to).unwrap();
}

#[test]
fn a_model_with_experts_has_active_parameters() {
    let path = root().join("tests/models/flash");
    if !path.is_dir() {
        eprintln!("SKIPPED: the folder tests/models is in the repository only");
        return;
    }
    let path = path.to_str().unwrap();
    let found = json(&run(&["inspect", path, "--json"]));
    // In each of two layers, a token leaves 6 of 8 experts unused, each with 3 matrices. It also leaves 63 of 64 rows of the embedding unused.
    let idle = 2 * 6 * 3 * 64 * 32 + 63 * 64;
    let active = found["n_params"].as_u64().unwrap() - idle;
    assert_eq!(found["n_active_params"].as_u64(), Some(active));
    assert_eq!(Model::open(path).unwrap().token_params(), active);
    let read = |format: &str| (found["bytes_per_token"][format].as_f64().unwrap(), found["weight_bytes"][format].as_f64().unwrap());
    assert!(["f16", "f32"].into_iter().map(read).all(|(token, all)| token < 0.65 * all), "{found}");
    let text = run(&["inspect", path]).stdout;
    assert!(String::from_utf8(text).unwrap().contains(&format!(", {active} of them per token")));
    let without = json(&run(&["inspect", "--json"]));
    assert!(without.get("n_active_params").is_none(), "{without}");
}
