//! Tests errors. An error names what is wrong, where it is, and what to do: in one line for people, and in one JSON object for programs.

use crate::cli::{code, feed, put, refused, run, stderr, stdout, words};
use crate::support::{floats, goldens};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;
use wingbeat::low_level::weights::write_safetensors;

fn tiny() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../assets/models/small-world.safetensors")
}

/// Writes a safetensors file with tensors of these names and shapes. Returns the path of the file.
fn tensors(folder: &TempDir, name: &str, all: impl IntoIterator<Item = (String, Vec<usize>)>) -> PathBuf {
    let path = folder.path().join(name);
    let entries = all.into_iter().map(|(name, shape)| {
        let numbers = vec![0.5; shape.iter().product()];
        floats(name, shape, &numbers)
    });
    write_safetensors(&path, &BTreeMap::new(), entries.collect(), &mut |_, _| ()).unwrap();
    path
}

fn tuned(folder: &TempDir) -> PathBuf {
    tensors(folder, "tuned.safetensors", (0..6).map(|i| (format!("blocks.{i}.att.time_state"), vec![2, 64, 64])))
}

fn lora(folder: &TempDir) -> PathBuf {
    let halves = [("A", vec![4, 128]), ("B", vec![128, 4])];
    tensors(folder, "lora.safetensors", halves.map(|(half, shape)| (format!("blocks.0.att.key.lora_{half}"), shape)))
}

fn state(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("saved.state");
    stdout(&run(&["generate", "light", "-n", "1", "--save-state", path.to_str().unwrap()]));
    path
}

/// Runs the program with one more environment variable. The flags and this variable determine the device.
fn with_variable(variable: &str, value: &str, args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
    command.args(words(args)).env_remove("RUST_LOG").env_remove("WINGBEAT_DEVICE").env(variable, value);
    command.stdin(std::process::Stdio::null()).output().unwrap()
}

#[test]
fn a_file_of_another_kind_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let saved = state(&folder);
    let whole = std::fs::read(&saved).unwrap();
    let (tuned, lora) = (tuned(&folder), lora(&folder));
    let file = |name: &str, bytes: &[u8]| put(&folder, name, bytes);
    let zip = b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let files = [
        (saved.clone(), "this is a state file of wingbeat for rwkv7, not a model (pass this file as --state", ""),
        (tuned.clone(), "this is a tuned initial state, not a model (pass this file as --state", ""),
        (lora, "this is a LoRA adapter, not a model", "found a LoRA adapter (merge the adapter into its model"),
        (
            file("cut.state", &whole[..whole.len() / 2]),
            "(the state file is incomplete: save the state again)",
            "(the state file is incomplete",
        ),
        (file("a.png", b"\x89PNG\r\n\x1a\n........"), "found a PNG image", "found a PNG image (make a state with generate --save-state)"),
        (file("a.zip", zip), "found an empty zip archive", "found an empty zip archive"),
        (file("page.pth", b"<!DOCTYPE html>"), "found a web page", "found a web page"),
        (file("lfs.pth", b"version https://git-lfs.github.com/spec/v1\n"), "found a Git-LFS pointer", "found a Git-LFS pointer"),
        (file("none.pth", b""), "found an empty file", "found an empty file (make a state with generate --save-state)"),
        (file("notes.txt", b"hello"), "found text that begins with \"hello\"", "found text"),
        (file("vocab.txt", b"1 '\\x00' 1\n2 '\\x01' 1\n"), "found a vocabulary (give this file as --vocab", "found a vocabulary"),
        (file("tokenizer.json", br#"{"version":"1.0","added_tokens":[],"model":{}}"#), "found a tokenizer.json", "found a tokenizer.json"),
        (file("config.json", br#"{"architectures":["Llama"]}"#), "found a config.json, which describes a model", "found a config.json"),
        (file("out.jsonl", b"{\"id\":1,\"text\":\"x\"}\n{\"id\":2,\"text\":\"y\"}\n"), "prompts or results of batch", "results of batch"),
        (folder.path().join("empty"), "the folder has no checkpoint", "initial state, found a folder (give the path of a state file)"),
        (folder.path().join("absent"), "no such file", "no such file"),
        (PathBuf::from(tiny()), "", "found a model (give a model with -m"),
    ];
    for (path, as_model, as_state) in &files {
        let path = path.to_str().unwrap();
        let once = |output: &Output| {
            let said = stderr(output);
            let line = said.lines().rfind(|l| l.starts_with("error: ")).unwrap_or_else(|| panic!("{said}")).to_string();
            assert_eq!(line.matches(path).count(), 1, "{line}");
            assert_eq!(line.matches("error:").count(), 1, "{line}");
        };
        if !as_model.is_empty() {
            for verb in [&["generate", "x", "-n", "1"][..], &["tokenize", "x"], &["score", "--text", "a b"]] {
                let output = run(&[verb, &["-m", path]].concat());
                refused(&output, 1, as_model);
                once(&output);
            }
        }
        if !as_state.is_empty() {
            let output = run(&["generate", "x", "-n", "1", "--state", path]);
            refused(&output, 1, as_state);
            once(&output);
        }
    }
    refused(&run(&["generate", "x", "--vocab", "world"]), 1, "world: the vocabulary has token ids up to 65529");
    let image = folder.path().join("a.png");
    refused(
        &run(&["generate", "x", "--grammar", image.to_str().unwrap()]),
        1,
        "a.png: expected UTF-8 text, found the invalid byte 0x89 at byte 0",
    );
    // Paths that are not vocabulary files.
    for (path, want) in [("empty", "expected a vocabulary file, found a folder"), ("a.png", "a.png: line 1"), ("absent", "absent")] {
        let path = folder.path().join(path);
        refused(&run(&["tokenize", "x", "--vocab", path.to_str().unwrap()]), 1, want);
    }
    refused(&run(&["generate", "-f", folder.path().to_str().unwrap()]), 1, "(this is a folder: give a file)");
}

#[test]
fn a_state_is_not_converted_as_if_it_were_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let (tuned, saved) = (tuned(&folder), state(&folder));
    let out = folder.path().join("out.safetensors");
    for (input, want) in [(&tuned, "--state-of MODEL"), (&saved, "found a state file of wingbeat")] {
        let before = std::fs::read(input).unwrap();
        refused(&run(&["convert", input.to_str().unwrap(), out.to_str().unwrap(), "--force"]), 1, want);
        assert_ne!(code(&run(&["convert", input.to_str().unwrap(), input.to_str().unwrap(), "--force"])), 0);
        assert!(!out.exists() && std::fs::read(input).unwrap() == before);
    }
}

/// Metal and Direct3D 12 do not exist on Linux.
#[cfg(target_os = "linux")]
#[test]
fn a_backend_that_is_not_there_is_an_error() {
    for backend in ["metal", "dx12", "Metal"] {
        let name = backend.to_lowercase();
        let want = format!("--backend: this program does not support the backend {name} on this system; it supports vulkan, gl");
        for line in
            ["generate x -n 1 --device auto", "generate x -n 1 --device gpu", "devices --device auto", "bench -p 1 -n 1 --device auto"]
        {
            refused(&run(&words(&format!("{line} --backend {backend}"))), 3, &want);
        }
        let object = run(&words(&format!("generate x --json --device auto --backend {backend}")));
        let object: Value = serde_json::from_slice(&object.stdout).unwrap();
        assert_eq!((object["error"]["kind"].as_str(), object["error"]["where"].as_str()), (Some("device"), Some("--backend")));
        refused(
            &run(&words(&format!("generate x --device cpu --backend {backend}"))),
            2,
            &format!("--backend: the backend {name} needs a GPU"),
        );
    }
    // The Vulkan loader finds no driver.
    let output = with_variable("VK_DRIVER_FILES", "/nowhere.json", "generate x -n 1 --backend vulkan");
    refused(&output, 3, "--backend: no GPU was found with the backend vulkan");
    let output = with_variable("VK_DRIVER_FILES", "/nowhere.json", "generate x -n 1 --seed 1");
    assert!(code(&output) == 0 && stderr(&output).contains("device: cpu, because no GPU adapter was found"), "{}", stderr(&output));
}

#[test]
fn devices_are_named_in_any_case() {
    for device in ["CPU", "Cpu", " cpu"] {
        assert_eq!(code(&run(&["generate", "x", "-n", "1", "--device", device])), 0);
    }
    assert_eq!(code(&run(&words("devices --device AUTO"))), 0);
    refused(&run(&words("generate x -n 1 --device GPU:99")), 3, "--device: ");
    refused(&run(&words("generate x -n 1 --device Gpu:x")), 2, "--device: expected the number of a GPU after gpu:,");
    refused(&run(&["generate", "x", "-n", "1", "--device", ""]), 2, "--device: expected auto, cpu, gpu, gpu:N");
}

#[test]
fn a_wrong_variable_is_named() {
    refused(&with_variable("WINGBEAT_DEVICE", "nothing-like-it", "generate x -n 1"), 3, "WINGBEAT_DEVICE: ");
    refused(&with_variable("WINGBEAT_DEVICE", "gpu:x", "generate x -n 1 --json"), 2, "WINGBEAT_DEVICE: expected the number");
    refused(&with_variable("WINGBEAT_DEVICE", "cpu", "generate x -n 1 --device nothing-like-it"), 3, "--device: ");
    assert_eq!(code(&with_variable("WINGBEAT_DEVICE", "CPU", "generate x -n 1")), 0);
    for (variable, value, want) in [
        ("WINGBEAT_KERNELS", "foo", "expected groups or lanes, found \"foo\""),
        ("WINGBEAT_SUBGROUPS", "yes", "expected 0 or 1, found \"yes\""),
        ("WINGBEAT_COOPERATIVE", "2", "expected 0 or 1, found \"2\""),
        ("WINGBEAT_DRAWS", "gpu", "expected device or host, found \"gpu\""),
        ("WINGBEAT_TUNE", "-1", "expected 0 or 1, found \"-1\""),
        ("WINGBEAT_MAX_BINDING", "1k", "expected a number of bytes, found \"1k\""),
        ("WINGBEAT_CHECKED_SHADERS", "on", "expected 0 or 1, found \"on\""),
        ("WINGBEAT_VECTORS", "sse", "expected avx2 or plain, found \"sse\""),
    ] {
        for verb in ["generate x -n 1 --device cpu", "tokenize x", "inspect"] {
            refused(&with_variable(variable, value, verb), 2, &format!("{variable}: {want}"));
        }
        assert_eq!(code(&with_variable(variable, "", "generate x -n 1 --device cpu")), 0, "{variable} is not set");
    }
    let typo = with_variable("WINGBEAT_DEVCE", "gpu", "tokenize x");
    assert!(code(&typo) == 0 && stderr(&typo).contains("WINGBEAT_DEVCE is not a variable of wingbeat; did you mean WINGBEAT_DEVICE?"));
}

/// Runs wrong commands. Checks what the error line says, and which place it names.
#[test]
fn careless_commands_are_told_what_is_wrong_and_where() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (lora, tuned) = (lora(&folder).to_str().unwrap().to_string(), tuned(&folder).to_str().unwrap().to_string());
    let input = put(&folder, "in.jsonl", b"{\"id\":1,\"prompt\":\"x\"}\n").to_str().unwrap().to_string();
    put(&folder, "bad.gbnf", b"root ::= [a");
    put(&folder, "bad.json", b"{");
    let [absent, gbnf, json] = ["absent", "bad.gbnf", "bad.json"].map(path);
    let (beyond, new) = (path("absent/out"), path("new.st"));
    let cases: Vec<(Vec<&str>, i32, &str, &str)> = vec![
        (words("generate x --dtype f17"), 2, "--dtype", "expected one of auto, f16, f32"),
        (words("generate x --tempp 3"), 2, "--tempp", "unknown flag"),
        (words("generate x --temp abc"), 2, "--temperature", "expected a number of at least 0"),
        (words("generate x --top-p 7"), 2, "--top-p", "from 0 to 1, found 7"),
        (words("generate x -n"), 2, "--max-tokens", "the value is missing"),
        (words("generate x --quant i9"), 2, "--quant", "unknown weight format \"i9\""),
        (words("generate x --logit-bias 1"), 2, "--logit-bias", "ID=X"),
        (words("generate x --ban 99999"), 2, "--ban", "below 2048"),
        (words("generate --tokens 1,x"), 2, "--tokens", "token ids such as 1,2,3"),
        (words("generate x --chunk 0"), 2, "--chunk", "expected a whole number from 1"),
        (words("generate x --device nothing-like-it"), 3, "--device", "nothing-like-it"),
        (vec!["generate", "x", "--strategy", "gpu fp17"], 2, "--strategy, column 5", "found \"fp17\""),
        (words("generat x"), 2, "generat", "unknown command"),
        (words("completions foo"), 2, "<SHELL>", "expected one of bash"),
        (words("batch"), 2, "<IN.jsonl>", "the argument is missing"),
        (vec!["batch", &input, "-o", &beyond], 1, &beyond, "found no such folder"),
        (vec!["batch", &absent], 1, &absent, "No such file"),
        (vec!["batch", &input, "-o", &input], 2, "--output", "the results cannot go to the file of the prompts"),
        (vec!["generate", "-m", &absent, "x"], 1, &absent, "no such file"),
        (vec!["generate", "-f", &absent], 1, &absent, "No such file"),
        (vec!["generate", "x", "--state", &absent], 1, &absent, "no such file"),
        (vec!["generate", "x", "--grammar", &absent], 1, &absent, "No such file"),
        (vec!["generate", "x", "--grammar", &gbnf], 1, &gbnf, "expected ]"),
        (vec!["generate", "x", "--json-schema", &json], 1, &json, "the JSON schema is not valid JSON"),
        (vec!["generate", "x", "--vocab", &absent], 1, &absent, "No such file"),
        (vec!["generate", "x", "-n", "1", "--save-state", &beyond], 1, &beyond, ""),
        (vec!["score", "--text", "a b", "--logits", &beyond], 1, &beyond, ""),
        (vec!["embed", "-f", &absent], 1, &absent, "No such file"),
        (vec!["embed", "a", "-o", &beyond], 2, &beyond, ".npy or .safetensors"),
        (vec!["rerank", "a", "-f", &absent], 1, &absent, "No such file"),
        (vec!["rerank", "a", "b", "-m", &absent], 1, &absent, "no such file"),
        (vec!["inspect", &absent], 1, &absent, "no such file"),
        (vec!["inspect", "-m", &absent], 1, &absent, "no such file"),
        (vec!["convert", &absent, &new], 1, &absent, "no such file"),
        (vec!["convert", tiny(), &beyond], 1, &beyond, ""),
        (vec!["convert", tiny(), &path("x.st")[..], "--lora", tiny(), "--lora-alpha", "1"], 1, tiny(), "pair of lora_A"),
        (vec!["convert", &lora, &path("y.st")[..], "--state-of", tiny()], 1, &lora, "tuned initial state"),
        (vec!["quality", "-f", &absent], 1, &absent, "No such file"),
        (words("bench --synthetic foo"), 2, "--synthetic", "rwkv7-0.1b"),
        (words("detokenize 1 2 x"), 2, "", "found \"x\""),
        (vec!["chat", "--load", tiny()], 1, tiny(), "found a model"),
        (vec!["chat", "--load", &tuned], 1, &tuned, ""),
        (vec!["chat", "--prompt", &absent], 1, &absent, ""),
        (words("chat --format best"), 2, "--format", "expected one of"),
    ]
    .into_iter()
    .map(|(args, code, place, text)| (args.into_iter().map(|a| &*a.to_string().leak()).collect(), code, &*place.to_string().leak(), text))
    .collect();
    for (args, expected, place, text) in &cases {
        let output = run(args);
        let said = stderr(&output);
        assert_eq!(code(&output), *expected, "{args:?}: {said}");
        // The usage follows after an empty line.
        let from = said.find("error: ").unwrap_or_else(|| panic!("{args:?}: no error in {said:?}"));
        let line = said[from..].split("\n\n").next().unwrap();
        assert!(line.contains(text) && line.contains(place), "{args:?}: {line:?} does not say {place:?} and {text:?}");
        assert_eq!(said.matches("error: ").count(), 1, "{args:?}: {said}");
        if place.starts_with('/') {
            assert_eq!(line.matches(place).count(), 1, "{args:?}: {line}");
        }
        if !["generate", "score", "bench"].contains(&args[0]) || place.is_empty() {
            continue;
        }
        let output = run(&[args.as_slice(), if args[0] == "bench" { &["-o", "json"] } else { &["--json"] }].concat());
        let last = String::from_utf8(output.stdout).unwrap();
        let object: Value = serde_json::from_str(last.trim()).unwrap_or_else(|e| panic!("{args:?}: {last:?}: {e}"));
        let error = &object["error"];
        let found = error["where"].as_str().unwrap_or_else(|| panic!("{args:?}: no place in {error}"));
        assert!(found.starts_with(place), "{args:?}: {error}");
        assert!(error["message"].as_str().unwrap().contains(text), "{args:?}: {error}");
    }
}

#[test]
fn an_unknown_flag_is_followed_by_the_usage_in_lines_of_its_own() {
    let output = run(&words("generate --zzyzx"));
    let expected = "error: --zzyzx: unknown flag (--help-all lists all flags)\n\nUsage: wingbeat generate [OPTIONS] [TEXT]\n\n\
                    For more information, try '--help'.\n";
    assert_eq!((code(&output), stderr(&output).as_str()), (2, expected));
}

#[test]
fn a_tensor_that_is_wrong_is_named_with_its_file_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = tensors(&folder, "tuned.safetensors", (0..6).map(|i| (format!("blocks.{i}.att.time_state"), vec![2, 64, 63])));
    let output = run(&["generate", "x", "-n", "1", "--state", path.to_str().unwrap()]);
    refused(&output, 1, "tensor blocks.0.att.time_state: the model needs the shape [2, 64, 64], found the shape [2, 64, 63]");
    assert_eq!(stderr(&output).matches("tuned.safetensors").count(), 1, "{}", stderr(&output));
    // Runs verbs that open a model, on a file that lacks one tensor of its model.
    let (all, _) = wingbeat::low_level::weights::read_safetensors(include_bytes!("../../assets/models/small-world.safetensors")).unwrap();
    let kept =
        all.iter().filter(|(name, _)| *name != "blocks.1.ffn.key.weight").map(|(name, (_, shape, _))| (name.to_string(), shape.clone()));
    let path = tensors(&folder, "lacking.safetensors", kept.collect::<Vec<_>>());
    let path = path.to_str().unwrap();
    for verb in [&["generate", "x", "-m"][..], &["score", "--text", "a b", "-m"], &["quality", "--text", "a b", "-m"]] {
        let output = run(&[verb, &[path]].concat());
        refused(&output, 1, "blocks.1.ffn.key.weight");
        assert_eq!(stderr(&output).matches(path).count(), 1, "{}", stderr(&output));
    }
}

#[test]
fn every_sibling_has_a_state_that_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for sibling in goldens() {
        let model = sibling.path();
        let saved = folder.path().join(format!("{}.state", sibling.name));
        let flags =
            ["generate", "--vocab", "tiny", "light", "-n", "1", "-m", model.to_str().unwrap(), "--save-state", saved.to_str().unwrap()];
        stdout(&run(&flags));
        let want = format!("this is a state file of wingbeat for {}", sibling.name);
        refused(&run(&["generate", "x", "-m", saved.to_str().unwrap()]), 1, &want);
    }
    let chat = folder.path().join("talk.state");
    stdout(&feed(&["chat", "--save", chat.to_str().unwrap()], b"light\n"));
    assert!(Path::new(&chat).exists());
    refused(&run(&["generate", "x", "-m", chat.to_str().unwrap()]), 1, "continue a saved chat with chat --load");
}
