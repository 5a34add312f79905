//! Tests checkpoints, states and adapters: `inspect`, `convert`, and files that are refused.

use super::*;

#[test]
fn what_is_wrong_with_a_model_is_said_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, bytes: &[u8]| put(&folder, name, bytes).to_str().unwrap().to_string();
    let generate = |model: &str| run(&["generate", "x", "-m", model]);
    refused(&generate("/no/such/model"), 1, "no such file");
    refused(&generate(folder.path().to_str().unwrap()), 1, "the folder has no checkpoint");
    refused(&generate(&path("lfs.pth", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")), 1, "git lfs pull");
    refused(&generate(&path("empty.pth", b"")), 1, "empty");
    let whole = std::fs::read(tiny()).unwrap();
    refused(&generate(&path("cut.safetensors", &whole[..whole.len() / 2])), 1, "cut.safetensors");
    refused(&run(&["generate", "x", "--device", "no such adapter"]), 3, "adapter");
}

#[test]
fn inspect_and_devices_say_what_there_is() {
    let report = json(&run(&["inspect", tiny().to_str().unwrap(), "--tensors", "--json"]));
    assert_eq!((report["kind"].as_str(), report["architecture"].as_str()), (Some("safetensors"), Some("rwkv7")));
    assert_eq!((report["layout"].as_str(), report["files"].as_u64()), (Some("official"), Some(1)));
    assert_eq!(report["n_params"], json(&run(&words("generate x -n 0 --json")))["model"]["n_params"]);
    let tensors = report["tensors"].as_array().unwrap();
    assert_eq!(tensors.len() as u64, report["dtypes"]["F16"].as_u64().unwrap());
    assert!(report["memory"]["weights"].as_u64().unwrap() > report["bytes_per_token"]["f16"].as_u64().unwrap());
    assert!(stdout(&run(&["show"])).contains("rwkv7"));

    let list = json(&run(&["devices", "--json"]));
    let list = list.as_array().unwrap();
    assert_eq!(list.iter().filter(|d| d["chosen"] == true).count(), 1);
    let last = list.last().unwrap();
    assert_eq!((last["id"].as_str(), last["type"].as_str(), last["chosen"].as_bool()), (Some("cpu"), Some("builtin"), Some(true)));
}

/// Runs the program with its measurements in `cache`.
fn run_with(cache: &Path, args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
    command.args(words(args)).env("WINGBEAT_CACHE", cache).env("WINGBEAT_DEVICE", "cpu").stdin(Stdio::null()).output().unwrap()
}

#[test]
fn inspect_adds_up_the_memory() {
    let cache = tempfile::tempdir().unwrap();
    let report = |args: &str| json(&run_with(cache.path(), args));
    let sum = |of: &Value| ["weights", "state", "scratch"].iter().map(|part| of[part].as_u64().unwrap()).sum::<u64>();
    let whole = report("inspect --json");
    assert_eq!(whole["memory"]["total"].as_u64(), Some(sum(&whole["memory"])));
    assert_eq!((whole["vocabulary"].as_str(), whole.get("speed")), (Some("small-world"), None));
    let split = json(&run(&["inspect", "--json", "--strategy", "gpu fp16 *1+"]));
    assert_eq!(split["devices"].as_array().unwrap().len(), 2);
    assert_eq!(split["devices"][0]["total"].as_u64(), Some(sum(&split["devices"][0])));
    let page = stdout(&run_with(cache.path(), "inspect"));
    assert!(page.contains("\nshape            6 layers, embedding 128, ffn 512, 2 heads of 64\n"), "{page}");
    assert!(page.contains("\nvocabulary       2048 tokens, small-world (built in)\n") && page.contains(" scratch = "), "{page}");
    assert!(page.lines().count() <= 12, "{page}");
}

#[test]
fn inspect_estimates_the_speed_of_a_measured_machine() {
    let cache = tempfile::tempdir().unwrap();
    let rates = r#"{"cpu":{"id":"cpu","name":"cpu","is_software":false,"memory_bytes":null,"read_gb_s":{"f16":10.0,"i8":10.0,"i4":10.0},"word_us":0.0}}"#;
    std::fs::write(cache.path().join("rates.json"), rates).unwrap();
    let report = json(&run_with(cache.path(), "inspect --json"));
    assert_eq!((report["speed"]["estimate"].as_bool(), report["speed"]["device"].as_str()), (Some(true), Some("cpu")));
    for format in ["f16", "i8", "i4"] {
        let want = 10e9 / report["bytes_per_token"][format].as_f64().unwrap();
        assert!((report["speed"]["tokens_per_second"][format].as_f64().unwrap() / want - 1.0).abs() < 1e-9, "{report}");
    }
    let page = stdout(&run_with(cache.path(), "inspect"));
    assert!(page.contains("\nspeed, estimate  tokens/s on cpu: 2900 in f16, "), "{page}");
    // The measured rates replace the rates in the file.
    let measured = json(&run_with(cache.path(), "inspect --speed --json"));
    assert!(measured["speed"]["tokens_per_second"]["i4"].as_f64().unwrap() > 0.0, "{measured}");
    assert_ne!(std::fs::read_to_string(cache.path().join("rates.json")).unwrap(), rates);
}

#[test]
fn convert_writes_what_generates_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let text = |model: &str| stdout(&run(&["generate", "In", "-n", "5", "--temp", "0", "-m", model, "--vocab", "small-world"]));
    let original = text(tiny().to_str().unwrap());
    for flags in ["--layout official", "--layout web-rwkv", "--dtype f32"] {
        let out = folder.path().join("out.st");
        let out = out.to_str().unwrap();
        stdout(&run(&[&["convert", tiny().to_str().unwrap(), out, "--force"], words(flags).as_slice()].concat()));
        assert_eq!(text(out), original, "{flags}");
    }
    let out = folder.path().join("out.gguf");
    let out = out.to_str().unwrap();
    for flags in ["--dtype f16", "--dtype f32", "--quant q8_0"] {
        let convert = ["convert", tiny().to_str().unwrap(), out, "--layout", "gguf", "--vocab", "small-world", "--force"];
        stdout(&run(&[&convert[..], words(flags).as_slice()].concat()));
        assert_eq!(stdout(&run(&["generate", "In", "-n", "5", "--temp", "0", "-m", out])), original, "the file has its vocabulary");
    }
    refused(&run(&["convert", tiny().to_str().unwrap(), out, "--layout", "gguf", "--shard", "1M"]), 2, "--shard");
    refused(&run(&["convert", tiny().to_str().unwrap(), out, "--layout", "gguf", "--quant", "i8", "--vocab", "none", "--force"]), 2, "i8");
    refused(&run(&["convert", tiny().to_str().unwrap(), out, "--force"]), 2, "--layout gguf");
    let same = put(&folder, "same.safetensors", &std::fs::read(tiny()).unwrap());
    let same = same.to_str().unwrap();
    refused(&run(&["convert", same, same]), 2, "same.safetensors");
    let out = folder.path().join("merged.safetensors");
    let merge = run(&["convert", same, out.to_str().unwrap(), "--lora", same, "--lora-alpha", "8"]);
    refused(&merge, 1, "not a LoRA adapter: the file has no pair of lora_A and lora_B");
    let without_alpha = run(&["convert", same, out.to_str().unwrap(), "--lora", same]);
    assert_eq!(code(&without_alpha), 2);
    assert!(stderr(&without_alpha).contains("--lora-alpha") && !out.exists());
    refused(&run(&["convert", same, "/no/such/folder/x.safetensors"]), 1, "/no/such/folder");
    if Path::new("/dev/full").exists() {
        refused(&run(&["convert", same, "/dev/full"]), 1, "/dev/full");
    }
}

#[test]
fn a_file_in_few_bits_is_written_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let model = sibling("rwkv6");
    let (out, other) = (path("i4.safetensors"), path("killed.safetensors"));
    stdout(&run(&["convert", &model, &out, "--quant", "i4-mixed"]));
    let text = |flags: &[&str]| stdout(&run(&[&["generate", "In the", "-n", "8", "--temp", "0", "--vocab", "tiny"], flags].concat()));
    assert_eq!(text(&["-m", &out]), text(&["-m", &model, "--quant", "i4-mixed"]));
    let report = json(&run(&["inspect", &out, "--json"]));
    assert!(report["dtypes"]["i4"].as_u64() > report["dtypes"]["i8"].as_u64() && report["weights"] == "i4+i8", "{report}");

    let whole = std::fs::read(&out).unwrap();
    let mut n_killed = 0;
    for ms in (0..40).map(|i| i * 3) {
        let mut child =
            Command::new(env!("CARGO_BIN_EXE_wingbeat")).args(["convert", &model, &other, "--quant", "i4-mixed"]).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(ms));
        let _ = child.kill();
        n_killed += usize::from(!child.wait().unwrap().success());
        if let Ok(found) = std::fs::read(&other) {
            assert!(found == whole, "after {ms} ms: {} of {} bytes", found.len(), whole.len());
            std::fs::remove_file(&other).unwrap();
        }
    }
    assert!(n_killed > 0, "nobody was killed");

    refused(&run(&["convert", &model, &other, "--quant", "i3"]), 2, "i4-mixed");
    refused(&run(&["convert", &model, &other, "--quant", "i8", "--layout", "web-rwkv"]), 2, "web-rwkv");
    refused(&run(&["convert", &model, &other, "--quant", "att.kay=i8"]), 2, "att.kay");
}

/// Writes a safetensors file with F32 tensors of pseudo-random numbers. `tensors` lists each tensor's name, its shape and the scale of its numbers.
pub fn made(path: &Path, tensors: &[(String, Vec<usize>, f32)]) {
    use wingbeat::low_level::tensor::DType;
    use wingbeat::low_level::weights::{NewTensor, write_safetensors};
    let entry = |(name, shape, scale): &(String, Vec<usize>, f32)| {
        let numbers =
            wingbeat::low_level::words::testing::numbers(wingbeat::low_level::words::testing::seed_of(name)).map(move |x| x * scale);
        let bytes: Vec<u8> = numbers.take(shape.iter().product()).flat_map(f32::to_le_bytes).collect();
        let data = move |out: &mut dyn Write| out.write_all(&bytes).map_err(|e| wingbeat::error::Error::io(e, Path::new("made")));
        NewTensor { name: name.clone(), dtype: DType::F32, shape: shape.clone(), data: Box::new(data) }
    };
    write_safetensors(path, &Default::default(), tensors.iter().map(entry).collect(), &mut |_, _| ()).unwrap();
}

#[test]
fn a_tuned_state_is_taken_as_it_is_or_made_into_a_state_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (tuned, state) = (path("tuned.safetensors"), path("chat.state"));
    made(Path::new(&tuned), &(0..6).map(|i| (format!("blocks.{i}.att.time_state"), vec![2, 64, 64], 3.0)).collect::<Vec<_>>());
    for name in ["rwkv5", "rwkv6"] {
        let model = sibling(name);
        let text = |more: &[&str]| {
            let common = ["score", "--vocab", "tiny", "--text", "In the beginning God", "--json"];
            json(&run(&[&common[..], more].concat()))["logprobs"].clone()
        };
        let score = |more: &[&str]| text(&[&["-m", &model], more].concat());
        stdout(&run(&["convert", &tuned, &state, "--state-of", &model, "--force"]));
        let plain = score(&["--state", &tuned]);
        assert_eq!(score(&["--state", &state]), plain);
        assert_ne!(score(&[]), plain);
        let turned = score(&["--state", &tuned, "--state-orientation", "key-value"]);
        assert_ne!(turned, plain);
        stdout(&run(&["convert", &tuned, &state, "--state-of", &model, "--state-orientation", "key-value", "--force"]));
        assert_eq!(score(&["--state", &state]), turned);

        // A tuned state in the model's own file is the initial state of every text.
        let whole = path("whole.safetensors");
        let merged = merge(&model, &tuned, &whole);
        assert_eq!(text(&["-m", &merged]), plain);
    }
    refused(&run(&["convert", &tuned, &state]), 1, "chat.state: the output file exists already");
    let new = path("new.state");
    refused(&run(&["convert", &tuned, &new, "--state-of", &sibling("rwkv4")]), 1, "RWKV-4");
    refused(&run(&["convert", &sibling("rwkv5"), &new, "--state-of", &sibling("rwkv5")]), 1, "time_state");
    refused(&run(&["generate", "-m", &tuned, "x"]), 1, "tuned initial state, not a model");
    refused(&run(&["convert", &tuned, &state, "--state-orientation", "key-value"]), 2, "--state-of");
    refused(&run(&["convert", &tuned, &path("state.pth")]), 2, "safetensors");
    let model = path("own.safetensors");
    std::fs::copy(sibling("rwkv6"), &model).unwrap();
    refused(&run(&["convert", &tuned, &model, "--state-of", &model]), 2, "is also an input file");
    refused(&run(&["convert", &tuned, &tuned, "--state-of", &model]), 2, "is also an input file");
    made(Path::new(&tuned), &(0..7).map(|i| (format!("blocks.{i}.att.time_state"), vec![2, 64, 64], 3.0)).collect::<Vec<_>>());
    refused(
        &run(&["generate", "-m", &model, "--vocab", "tiny", "--state", &tuned, "x"]),
        1,
        "tuned state of 6 layers, as in the model; found 7 layers",
    );
    refused(&run(&["generate", "-m", &model, "--vocab", "tiny", "--state", &model, "x"]), 1, "found a model");
    // The state file records its architecture, so other architectures refuse it.
    refused(&run(&["generate", "-m", &sibling("rwkv5"), "--vocab", "tiny", "--state", &state, "x"]), 1, "rwkv6");
}

/// Writes the tensors of the files `a` and `b` to the file `to`. Returns `to`.
fn merge(a: &str, b: &str, to: &str) -> String {
    use wingbeat::low_level::weights::{Checkpoint, NewTensor, write_safetensors, write_view};
    let files = [a, b].map(|path| Checkpoint::open(Path::new(path)).unwrap());
    let entry = |c: &'static Checkpoint, name: &str| {
        let view = c.tensor(name).unwrap();
        let (dtype, shape) = (view.dtype(), view.shape().to_vec());
        NewTensor { name: name.into(), dtype, shape, data: Box::new(move |out| write_view(&view, dtype, out)) }
    };
    let entries = files.into_iter().flat_map(|c| {
        let c: &'static Checkpoint = Box::leak(Box::new(c));
        c.names().map(|n| entry(c, n)).collect::<Vec<_>>()
    });
    write_safetensors(Path::new(to), &Default::default(), entries.collect(), &mut |_, _| ()).unwrap();
    to.into()
}

#[test]
fn an_adapter_is_merged_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (lora, out) = (path("lora.safetensors"), path("merged.safetensors"));
    let mut tensors = Vec::new();
    for i in 0..6 {
        tensors.push((format!("blocks.{i}.att.key.lora_A"), vec![4, 128], 0.3));
        tensors.push((format!("blocks.{i}.att.key.lora_B"), vec![128, 4], 0.3));
    }
    tensors.push(("blocks.0.ffn.time_maa_k".into(), vec![1, 1, 128], 0.5));
    made(Path::new(&lora), &tensors);
    let model = sibling("rwkv6");
    let merged = run(&["convert", &model, &out, "--lora", &lora, "--lora-alpha", "8"]);
    stdout(&merged);
    assert!(stderr(&merged).contains("merged 6 pairs, replaced 1 tensors"), "{}", stderr(&merged));
    let nll = |model: &str| {
        json(&run(&["score", "-m", model, "--vocab", "tiny", "--text", "In the beginning God", "--json"]))["nll"].as_f64().unwrap()
    };
    assert!((nll(&model) - nll(&out)).abs() > 0.1);
    let bone = path("bone.safetensors");
    made(Path::new(&bone), &[("blocks.0.att.key.bone".into(), vec![4, 128], 0.3)]);
    refused(
        &run(&["generate", "x", "-m", &model, "--vocab", "tiny", "--lora", &bone, "--lora-alpha", "8"]),
        1,
        "this is a Bone, DiSHA or MiSS adapter",
    );
    refused(&run(&["generate", "x", "-m", &model, "--lora", &lora]), 2, "--lora-alpha");
    // Merging and quantising in one call gives the same file as merging first and quantising later.
    let (at_once, later) = (path("at-once.safetensors"), path("later.safetensors"));
    stdout(&run(&["convert", &model, &at_once, "--lora", &lora, "--lora-alpha", "8", "--quant", "i8", "--dtype", "f32"]));
    stdout(&run(&["convert", &model, &path("wide.safetensors"), "--lora", &lora, "--lora-alpha", "8", "--dtype", "f32"]));
    stdout(&run(&["convert", &path("wide.safetensors"), &later, "--quant", "i8"]));
    assert!(std::fs::read(at_once).unwrap() == std::fs::read(later).unwrap());
    // Merging the adapter while the model loads gives the same numbers as a merged file in f32. A file in f16 would round them.
    let score = |args: &[&str]| {
        json(&run(&[&["score", "--vocab", "tiny", "--text", "In the beginning God", "--json"], args].concat()))["nll"].clone()
    };
    let loaded = ["-m", &model, "--lora", &lora, "--lora-alpha", "8"];
    assert_eq!(score(&loaded), score(&["-m", &path("wide.safetensors")]));
    refused(&run(&["generate", "-m", &lora, "x"]), 1, "LoRA adapter, not a model");
    let new = path("new.safetensors");
    refused(&run(&["convert", &sibling("rwkv4"), &new, "--lora", &lora, "--lora-alpha", "8"]), 1, "time_maa_k");
}
