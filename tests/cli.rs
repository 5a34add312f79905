//! The program as a shell sees it: text, JSON, exit codes, and what it does with hostile or absent input.

use crate::support::{devices, golden, goldens};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const VERBS: [&str; 13] = [
    "generate",
    "chat",
    "batch",
    "score",
    "tokenize",
    "detokenize",
    "inspect",
    "convert",
    "devices",
    "doctor",
    "bench",
    "quality",
    "completions",
];

/// Runs the program with nothing on stdin.
pub fn run<S: AsRef<OsStr>>(args: &[S]) -> Output {
    feed(args, b"")
}

pub fn feed<S: AsRef<OsStr>>(args: &[S], stdin: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
    command.args(args).env_remove("RUST_LOG").env("WINGBEAT_DEVICE", "cpu");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A program that refuses its flags reads nothing and closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    child.wait_with_output().unwrap()
}

pub fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("ended by a signal: {output:?}"))
}

pub fn stdout(output: &Output) -> String {
    assert_eq!(code(output), 0, "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn json(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap()
}

/// Exit code, and that stderr ends with one line `error: …` that contains `text`.
pub fn refused(output: &Output, expected: i32, text: &str) {
    let said = stderr(output);
    assert_eq!(code(output), expected, "{said}");
    let line = said.lines().rev().find(|l| l.starts_with("error: ")).unwrap_or_else(|| panic!("no error line in {said:?}"));
    assert!(line.contains(text), "{line:?} does not say {text:?}");
}

fn ids(tokens: &[u32]) -> String {
    tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

pub fn put(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn tiny() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/models/tiny-rwkv7.safetensors"))
}

#[test]
fn generate_continues_the_golden_prompt_on_every_device() {
    let golden = golden();
    let n = 12.to_string();
    for device in devices() {
        let args = ["generate", "--tokens", &ids(&golden.tokens), "-n", &n, "--temp", "0", "--ignore-eos", "--json", "--device", device];
        let report = json(&run(&args));
        assert_eq!(report["tokens"], serde_json::json!(golden.greedy[..12]), "{device}");
        assert_eq!(report["prompt_tokens"], golden.tokens.len());
        assert_eq!((report["finish"].as_str(), report["model"]["architecture"].as_str()), (Some("length"), Some("rwkv7")));
        assert!(report["device"]["id"].as_str().unwrap().starts_with(device), "{}", report["device"]);
        assert!(report["text"].is_string() && report["seed"].is_u64() && report["choices"].is_null());
        for key in ["load_ms", "prefill_ms", "prefill_tokens_per_second", "decode_ms", "decode_tokens_per_second"] {
            assert!(report["timings"][key].is_number(), "{key}");
        }
    }
}

#[test]
fn the_prompt_comes_from_an_argument_a_file_or_stdin() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(&folder, "p.txt", b"\xef\xbb\xbfIn the beginning");
    let rest = words("-n 8 --temp 0");
    let by_argument = stdout(&run(&[&["generate", "In the beginning"], rest.as_slice()].concat()));
    assert_eq!(stdout(&run(&[&["generate", "-f", file.to_str().unwrap()], rest.as_slice()].concat())), by_argument);
    assert_eq!(stdout(&feed(&[&["generate"], rest.as_slice()].concat(), b"In the beginning")), by_argument);
    assert!(!by_argument.is_empty() && !by_argument.contains("beginning"));
    refused(&feed(&["generate"], b"caf\xe9"), 1, "UTF-8");
    refused(&run(&["generate", "-f", "/no/such/prompt"]), 1, "No such file");
    refused(&run(&["generate"]), 1, "empty");
    refused(&run(&["generate", "--tokens", ""]), 1, "empty");
}

#[test]
fn trials_have_seeds_of_their_own_and_lines_come_token_by_token() {
    let report = json(&run(&words("generate --tokens 74,111 -n 6 --trials 3 --seed 5 --json")));
    let choices = report["choices"].as_array().unwrap();
    assert_eq!(choices.iter().map(|c| c["seed"].as_u64().unwrap()).collect::<Vec<_>>(), [5, 6, 7]);
    assert_eq!(choices[0]["tokens"], report["tokens"]);
    let text = stdout(&run(&words("generate --tokens 74,111 -n 6 --trials 3 --seed 5")));
    assert_eq!(text.lines().filter(|l| l.starts_with("--- trial ")).count(), 3);
    assert!(text.contains(choices[2]["text"].as_str().unwrap()));

    let lines = stdout(&run(&words("generate --tokens 74,111 -n 6 --seed 5 --jsonl")));
    let lines: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let (last, tokens) = lines.split_last().unwrap();
    let tokens: Vec<_> = tokens.iter().filter(|l| !l["token"].is_null()).map(|l| l["token"].clone()).collect();
    assert_eq!(Value::Array(tokens), last["tokens"]);
}

#[test]
fn a_saved_state_goes_on_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("s.st");
    let state = state.to_str().unwrap();
    let looking_back = "--mirostat 4 --dry-multiplier 1 --repeat-penalty 1.2 --repeat-last-n 12";
    for (sampling, seed) in [("--temp 0", ""), ("", "--seed 3"), (looking_back, "--seed 4"), ("", "--seed 3")] {
        let seeded = format!("{sampling} {seed}");
        let whole = json(&run(&words(&format!("generate --tokens 74,111,1276 -n 20 --ignore-eos {seeded} --json"))));
        let first = format!("generate --tokens 74,111,1276 -n 10 --ignore-eos {seeded} --json --save-state {state} --state-tokens --force");
        let first = json(&run(&words(&first)));
        let second = json(&run(&words(&format!("generate -n 10 --ignore-eos {sampling} --json --state {state}"))));
        let both = [first["tokens"].as_array().unwrap().as_slice(), second["tokens"].as_array().unwrap()].concat();
        assert_eq!(Value::Array(both), whole["tokens"], "{seeded}");
    }
    let bytes = std::fs::read(state).unwrap();
    let (tensors, _) = wingbeat::low_level::weights::read_safetensors(&bytes).unwrap();
    assert_eq!(tensors["tokens"].1, [13]);
    refused(&run(&["generate", "x", "--state", tiny().to_str().unwrap()]), 1, "state");
    refused(&run(&["generate", "x", "--trials", "2", "--save-state", state]), 2, "--trials");
    if Path::new("/dev/full").exists() {
        refused(&run(&words("generate x -n 1 --save-state /dev/full")), 1, "/dev/full");
    }
}

#[test]
fn what_is_wrong_with_a_model_is_said_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, bytes: &[u8]| put(&folder, name, bytes).to_str().unwrap().to_string();
    let generate = |model: &str| run(&["generate", "x", "-m", model]);
    refused(&generate("/no/such/model"), 1, "no such file");
    refused(&generate(folder.path().to_str().unwrap()), 1, "found none");
    refused(&generate(&path("lfs.pth", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")), 1, "git lfs pull");
    refused(&generate(&path("empty.pth", b"")), 1, "empty");
    let whole = std::fs::read(tiny()).unwrap();
    refused(&generate(&path("cut.safetensors", &whole[..whole.len() / 2])), 1, "cut.safetensors");
    refused(&run(&["generate", "x", "--device", "no such adapter"]), 3, "adapter");
}

#[test]
fn usage_errors_exit_with_2_and_bad_ids_with_1() {
    refused(&run(&words("generate --bogus")), 2, "--bogus");
    refused(&run(&words("generate x --quant int8")), 2, "--quant");
    refused(&run(&words("generate x --top-p 2")), 2, "--top-p");
    refused(&run(&words("generate x --top-p nan")), 2, "--top-p");
    refused(&run(&words("generate x --ban 99999")), 2, "--ban");
    refused(&run(&words("generate x --logit-bias 5")), 2, "--logit-bias");
    refused(&run(&words("generate x --dry-base 0.5")), 2, "--dry-base");
    refused(&run(&words("generate x --repeat-last-n -2")), 2, "--repeat-last-n");
    refused(&run(&words("generate x --preset best")), 2, "one of pip, demo, chat");
    for (line, expected) in [
        ("generate x -n abc", "expected a whole number from 0, or -1 for no limit"),
        ("generate x -t some", "expected a whole number from 1 to 4096"),
        ("generate x --chunk 0", "expected a whole number from 1 to 4294967295"),
        ("generate x --trials 2000", "expected a whole number from 1 to 1024"),
        ("batch in.jsonl -o out.jsonl --slots many", "expected a whole number from 1 to 1023"),
        ("bench -p 12,abc", "expected a whole number from 0"),
        ("bench -n -5", "unexpected argument"),
        ("bench -r 0", "expected a whole number from 1 to 4294967295"),
        ("inspect x -c 1k", "expected a whole number from 1 to 4294967295"),
    ] {
        refused(&run(&words(line)), 2, expected);
    }
    refused(&run(&words("generate x --preset midi --vocab tiny --ban 70000")), 2, "--ban");
    refused(&run(&words("generate x --dry-multiplier 1 --dry-breaker @@@@")), 2, "--dry-breaker");
    refused(&run(&words("generate --tokens 1,x")), 2, "--tokens");
    refused(&run(&words("generate x -f y")), 2, "cannot be used with");
    refused(&run(&words("generate --tokens 5,99999 -n 1")), 1, "99999");
    assert_eq!(code(&run(&["serve"])), 2);
}

#[test]
fn with_json_an_error_is_an_object_too() {
    let output = run(&words("generate --tokens 99999 --json"));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["error"]["kind"], "input");
    assert!(object["error"]["message"].as_str().unwrap().contains("99999"));
    refused(&output, 1, "99999");
    let output = run(&words("generate --bogus --json"));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((code(&output), object["error"]["kind"].as_str()), (2, Some("usage")));
}

#[test]
fn presets_are_listed_and_what_is_asked_for_wins_over_them() {
    let listed = stdout(&run(&words("generate --preset list")));
    assert!(listed.contains("chat") && listed.contains("sets temperature 1.2, top-p 0.5, presence-penalty 0.4"), "{listed}");
    let tokens = |flags: &str| json(&run(&words(&format!("generate --tokens 74,111 -n 12 -s 3 --json {flags}"))))["tokens"].clone();
    let chat = "--temp 1.2 --top-p 0.5 --presence-penalty 0.4 --frequency-penalty 0.4 --penalty-decay 0.996";
    assert_eq!(tokens("--preset chat"), tokens(chat));
    assert_eq!(tokens("--top-p 0.9 --preset chat"), tokens(&chat.replace("0.5", "0.9")));
    assert_eq!(tokens("--preset greedy"), tokens("--temp 0"));
    assert_ne!(tokens("--preset chat"), tokens("--preset greedy"));
}

#[test]
fn stop_texts_bans_and_biases_shape_a_text() {
    let free = json(&run(&words("generate --tokens 74,111 -n 8 --temp 0 --json")));
    let text = free["text"].as_str().unwrap();
    let word = text.split_whitespace().nth(1).unwrap();
    let stopped = json(&run(&["generate", "--tokens", "74,111", "-n", "8", "--temp", "0", "--json", "--stop", word]));
    assert_eq!(stopped["finish"], "stop");
    assert_eq!(stopped["text"].as_str().unwrap(), &text[..text.find(word).unwrap()]);
    let first = free["tokens"][0].to_string();
    let banned = json(&run(&["generate", "--tokens", "74,111", "-n", "8", "--temp", "0", "--json", "--ban", &first]));
    assert!(banned["tokens"].as_array().unwrap().iter().all(|t| *t != free["tokens"][0]));
    let forced = json(&run(&words("generate --tokens 74,111 -n 3 --temp 0 --json --logit-bias 9=1000")));
    assert_eq!(forced["tokens"], serde_json::json!([9, 9, 9]));
    let read_only = json(&run(&words("generate --tokens 74,111 -n 0 --json")));
    assert_eq!((read_only["tokens"].as_array().unwrap().len(), read_only["finish"].as_str()), (0, Some("length")));
}

#[test]
fn scores_are_natural_logarithms_and_logits_go_to_a_file() {
    let golden = golden();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("l.safetensors");
    let report = json(&run(&["score", "--tokens", &ids(&golden.tokens), "--json", "--logits", out.to_str().unwrap()]));
    assert_eq!(report["tokens"], serde_json::json!(golden.tokens));
    let logprobs = report["logprobs"].as_array().unwrap();
    assert!(logprobs[0].is_null() && logprobs.len() == golden.tokens.len());
    let row = &golden.logits[..golden.logits.len() / golden.tokens.len()];
    let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
    let expected = f64::from(row[golden.tokens[1] as usize]) - sum.ln();
    assert!((logprobs[1].as_f64().unwrap() - expected).abs() < 1e-3);
    let (nll, n) = (report["nll"].as_f64().unwrap(), report["n"].as_f64().unwrap());
    assert!(((nll / n).exp() - report["perplexity"].as_f64().unwrap()).abs() < 1e-9);

    let bytes = std::fs::read(&out).unwrap();
    let (tensors, _) = wingbeat::low_level::weights::read_safetensors(&bytes).unwrap();
    assert_eq!(tensors["logits"].1, [golden.tokens.len(), row.len()]);
    let found: Vec<f32> = tensors["logits"].2.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    assert!(crate::support::nmse(&found, &golden.logits) < 1e-7);
    refused(&run(&words("score --tokens 5")), 1, "two tokens");
    assert!(stdout(&run(&words("perplexity --tokens 5,6,7"))).contains("perplexity"));
}

#[test]
fn text_to_ids_and_back() {
    let text = "In the beginning\nthere was é and 漢字.";
    for vocab in ["world", "tiny"] {
        let text = if vocab == "tiny" { "In the beginning" } else { text };
        let ids = stdout(&feed(&["tokenize", "--vocab", vocab], text.as_bytes()));
        assert_eq!(stdout(&feed(&["detokenize", "--vocab", vocab], ids.as_bytes())), text);
        assert_eq!(stdout(&run(&["detokenize", "--vocab", vocab, &ids.trim().replace(' ', ",")])), text);
    }
    let report = json(&run(&["tokenize", "In the", "--json"]));
    assert_eq!(report["n"].as_u64().unwrap() as usize, report["tokens"].as_array().unwrap().len());
    assert!(stdout(&run(&["tokenize", "In the", "--pretty"])).lines().next().unwrap().ends_with('"'));
    refused(&run(&words("detokenize 999999")), 1, "out of range");
    refused(&run(&words("detokenize x")), 2, "token ids");
    refused(&run(&words("tokenize x --vocab /no/such/vocab")), 1, "No such file");
    refused(&feed(&["tokenize"], b"\xff"), 1, "UTF-8");
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

#[test]
fn convert_writes_what_generates_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let text = |model: &str| stdout(&run(&["generate", "In", "-n", "5", "--temp", "0", "-m", model, "--vocab", "tiny"]));
    let original = text(tiny().to_str().unwrap());
    for flags in ["--layout official", "--layout web-rwkv", "--dtype f32"] {
        let out = folder.path().join("out.st");
        let out = out.to_str().unwrap();
        stdout(&run(&[&["convert", tiny().to_str().unwrap(), out, "--force"], words(flags).as_slice()].concat()));
        assert_eq!(text(out), original, "{flags}");
    }
    let same = put(&folder, "same.safetensors", &std::fs::read(tiny()).unwrap());
    let same = same.to_str().unwrap();
    refused(&run(&["convert", same, same]), 2, "same.safetensors");
    let out = folder.path().join("merged.safetensors");
    let merge = run(&["convert", same, out.to_str().unwrap(), "--lora", same, "--lora-alpha", "8"]);
    refused(&merge, 1, "expected an adapter with pairs of lora_A and lora_B");
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

/// A safetensors file of F32 tensors with seeded numbers, `scale` large.
fn made(path: &Path, tensors: &[(String, Vec<usize>, f32)]) {
    use wingbeat::low_level::tensor::DType;
    use wingbeat::low_level::weights::{Entry, write_safetensors};
    let entry = |(name, shape, scale): &(String, Vec<usize>, f32)| {
        let numbers =
            wingbeat::low_level::words::testing::numbers(wingbeat::low_level::words::testing::seed_of(name)).map(move |x| x * scale);
        let bytes: Vec<u8> = numbers.take(shape.iter().product()).flat_map(f32::to_le_bytes).collect();
        let data = move |out: &mut dyn Write| out.write_all(&bytes).map_err(|e| wingbeat::error::Error::io(e, Path::new("made")));
        Entry { name: name.clone(), dtype: DType::F32, shape: shape.clone(), data: Box::new(data) }
    };
    write_safetensors(path, &Default::default(), tensors.iter().map(entry).collect(), &mut |_, _| ()).unwrap();
}

fn sibling(name: &str) -> String {
    goldens().find(|g| g.name == name).unwrap().path().to_str().unwrap().to_string()
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

        // In the model's own file it is where every text begins.
        let whole = path("whole.safetensors");
        let merged = merge(&model, &tuned, &whole);
        assert_eq!(text(&["-m", &merged]), plain);
    }
    refused(&run(&["convert", &tuned, &state]), 1, "chat.state: expected a new file");
    let new = path("new.state");
    refused(&run(&["convert", &tuned, &new, "--state-of", &sibling("rwkv4")]), 1, "RWKV-4");
    refused(&run(&["convert", &sibling("rwkv5"), &new, "--state-of", &sibling("rwkv5")]), 1, "time_state");
    refused(&run(&["generate", "-m", &tuned, "x"]), 1, "tuned initial state, not a model");
    refused(&run(&["convert", &tuned, &state, "--state-orientation", "key-value"]), 2, "--state-of");
    refused(&run(&["convert", &tuned, &path("state.pth")]), 2, "safetensors");
    let model = path("own.safetensors");
    std::fs::copy(sibling("rwkv6"), &model).unwrap();
    refused(&run(&["convert", &tuned, &model, "--state-of", &model]), 2, "one that is read");
    refused(&run(&["convert", &tuned, &tuned, "--state-of", &model]), 2, "one that is read");
    made(Path::new(&tuned), &(0..7).map(|i| (format!("blocks.{i}.att.time_state"), vec![2, 64, 64], 3.0)).collect::<Vec<_>>());
    refused(&run(&["generate", "-m", &model, "--vocab", "tiny", "--state", &tuned, "x"]), 1, "tuned state of 6 layers, found one of 7");
    refused(&run(&["generate", "-m", &model, "--vocab", "tiny", "--state", &model, "x"]), 1, "found a model");
    // It knows whose it is.
    refused(&run(&["generate", "-m", &sibling("rwkv5"), "--vocab", "tiny", "--state", &state, "x"]), 1, "rwkv6");
}

/// The tensors of both files in one.
fn merge(a: &str, b: &str, to: &str) -> String {
    use wingbeat::low_level::weights::{Checkpoint, Entry, write_safetensors, write_view};
    let files = [a, b].map(|path| Checkpoint::open(Path::new(path)).unwrap());
    let entry = |c: &'static Checkpoint, name: &str| {
        let view = c.tensor(name).unwrap();
        let (dtype, shape) = (view.dtype(), view.shape().to_vec());
        Entry { name: name.into(), dtype, shape, data: Box::new(move |out| write_view(&view, dtype, out)) }
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
    // Merged and encoded at once is merged, then encoded.
    let (at_once, later) = (path("at-once.safetensors"), path("later.safetensors"));
    stdout(&run(&["convert", &model, &at_once, "--lora", &lora, "--lora-alpha", "8", "--quant", "i8", "--dtype", "f32"]));
    stdout(&run(&["convert", &model, &path("wide.safetensors"), "--lora", &lora, "--lora-alpha", "8", "--dtype", "f32"]));
    stdout(&run(&["convert", &path("wide.safetensors"), &later, "--quant", "i8"]));
    assert!(std::fs::read(at_once).unwrap() == std::fs::read(later).unwrap());
    refused(&run(&["generate", "-m", &lora, "x"]), 1, "LoRA adapter, not a model");
    let new = path("new.safetensors");
    refused(&run(&["convert", &sibling("rwkv7").replace("rwkv7", "rwkv4"), &new, "--lora", &lora, "--lora-alpha", "8"]), 1, "time_maa_k");
}

#[test]
fn every_sibling_tells_what_it_is_and_continues_a_text() {
    for tiny in goldens().filter(|g| g.name != "rwkv7") {
        let model = sibling(tiny.name);
        let report = json(&run(&["inspect", &model, "--json"]));
        assert_eq!((report["architecture"].as_str(), report["n_layer"].as_u64()), (Some(tiny.name), Some(6)));
        assert!(report.get("note").is_none(), "{report}");
        let golden = tiny.golden();
        let n = golden.greedy.len().to_string();
        let output =
            run(&["generate", "-m", &model, "--temperature", "0", "--ignore-eos", "-n", &n, "--tokens", &ids(&golden.tokens), "--json"]);
        let tokens: Vec<u32> = serde_json::from_value(json(&output)["tokens"].clone()).unwrap();
        assert_eq!(tokens, golden.greedy);
        // Without a vocabulary ids still work, and text says what is missing.
        refused(&run(&["generate", "-m", &model, "x"]), 1, "vocabulary");
    }
}

#[test]
fn bench_speaks_llama_bench() {
    let records = json(&run(&words("bench -p 6 -n 3 -pg 4,2 -d 5 -b 1,2 -r 2 -o json")));
    let records = records.as_array().unwrap();
    let tests: Vec<_> =
        records.iter().map(|r| [&r["n_prompt"], &r["n_gen"], &r["n_batch"], &r["n_depth"]].map(|v| v.as_u64().unwrap())).collect();
    assert_eq!(tests, [[6, 0, 1, 5], [0, 3, 1, 5], [4, 2, 1, 5], [6, 0, 2, 5], [0, 3, 2, 5], [4, 2, 2, 5]]);
    for r in records {
        assert_eq!(r["samples_ns"].as_array().unwrap().len(), 2);
        assert!(r["avg_ts"].as_f64().unwrap() > 0.0 && r["model_type"].as_str().unwrap().starts_with("rwkv7"));
        assert_eq!(r["wingbeat"]["p50_ms"].is_number(), r["n_gen"] != 0);
    }
    assert_eq!(stdout(&run(&words("bench -p 4 -n 0 -r 1"))).lines().count(), 3);
    assert_eq!(stdout(&run(&words("bench -p 4 -n 2 -r 1 -o csv"))).lines().count(), 3);
    assert_eq!(stdout(&run(&words("bench -p 4 -n 2 -r 1 -o jsonl"))).lines().count(), 2);
    refused(&run(&words("bench --synthetic rwkv7-1t")), 2, "rwkv7-1t");
    let listed = |flags: &str| {
        let mut list = json(&run(&words(flags)));
        // Memory comes and goes between two lists.
        list.as_array_mut().unwrap().iter_mut().for_each(|d| d["memory_free_bytes"] = Value::Null);
        list
    };
    assert_eq!(listed("bench --list-devices -o json"), listed("devices --json"));
    for device in devices() {
        let profiled = run(&["bench", "-p", "5", "-n", "2", "-r", "1", "--profile", "-o", "json", "--device", device]);
        let counted = json(&profiled)[1]["wingbeat"]["dispatches_per_token"].as_u64();
        assert_eq!(counted.is_some(), *device != "cpu");
        let sparsity = |out: &Output| json(out)[1]["wingbeat"]["ffn_sparsity"].as_f64().unwrap();
        let dense = run(&["bench", "-p", "5", "-n", "2", "-r", "1", "--no-sparse", "-o", "json", "--device", device]);
        assert!(sparsity(&profiled) > 0.3 && sparsity(&profiled) < 1.0 && sparsity(&profiled) == sparsity(&dense));
        let said = stderr(&profiled);
        for line in ["a step of 1 tokens", "a step of 5 tokens", "norm_shift_linear", "wkv7", "head"] {
            assert!(said.contains(line), "{device}: {said}");
        }
        // Every dispatch is some word's.
        let table = said.split("a step of 1 tokens").nth(1).unwrap().lines().skip(2).take(6);
        let sum: u64 = table.map(|l| l.split_whitespace().nth(2).unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(sum, counted.unwrap_or(0), "{device}: {said}");
    }
    refused(&run(&words("bench -pg 4")), 2, "-pg");
}

#[test]
fn doctor_finds_the_host_sound() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.txt");
    let shown = stdout(&run(&["doctor", "--device", "cpu", "--out", page.to_str().unwrap()]));
    assert!(shown.contains("all results are right"), "{shown}");
    assert_eq!(std::fs::read_to_string(&page).unwrap(), shown);
    let report = json(&run(&words("doctor --device cpu --json")));
    assert_eq!((report["ok"].as_bool(), report["device"].as_str()), (Some(true), Some("cpu")));
}

#[test]
fn every_verb_has_examples_and_completions_know_it() {
    let script = stdout(&run(&["completions", "bash"]));
    for verb in VERBS {
        let help = stdout(&run(&[verb, "--help"]));
        let examples = help.split("Examples:").nth(1).unwrap_or_else(|| panic!("{verb} has no examples"));
        assert!(examples.matches(&format!("wingbeat {verb}")).count() >= 2, "{verb}");
        assert!(script.contains(verb), "{verb}");
    }
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_is_no_error_and_a_full_disk_is_one() {
    let shell = |script: &str| {
        let script = script.replace("wingbeat", env!("CARGO_BIN_EXE_wingbeat"));
        Command::new("bash").args(["-c", &script]).env("WINGBEAT_DEVICE", "cpu").output().unwrap()
    };
    for command in ["generate x -n 400 --ignore-eos", "generate x -n 400 --ignore-eos --jsonl", "inspect --tensors", "completions bash"] {
        let output = shell(&format!("wingbeat {command} | head -c 1 >/dev/null; exit ${{PIPESTATUS[0]}}"));
        assert_eq!(code(&output), 0, "{command}: {}", stderr(&output));
        assert!(!stderr(&output).contains("error"), "{}", stderr(&output));
    }
    if Path::new("/dev/full").exists() {
        refused(&shell("wingbeat generate x -n 4 > /dev/full"), 1, "standard output");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_ends_with_130_and_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("s.st");
    let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
    command.args(["generate", "x", "-n", "100000000", "--ignore-eos", "--jsonl", "--device", "cpu", "--save-state"]).arg(&state);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    lines.next().unwrap().unwrap(); // it is generating
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let last: Value = serde_json::from_str(&lines.last().unwrap().unwrap()).unwrap();
    assert_eq!(last["finish"], "interrupted");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(state.exists());
}

/// The second test would take hours.
#[cfg(unix)]
#[test]
fn an_interrupted_bench_prints_what_it_measured() {
    for (flags, is_array) in [("--json", true), ("-o jsonl", false)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
        command.args(words("bench --device cpu -p 4,100000000 -n 0 -r 1")).args(words(flags));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
        let first = said.find(|line| line.as_ref().is_ok_and(|line| line.contains(": pp4, ")));
        assert!(first.is_some(), "{flags}: the first test ends");
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        said.for_each(drop);
        let output = child.wait_with_output().unwrap();
        assert_eq!(code(&output), 130);
        let records: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{flags}: {e}: {output:?}"));
        let record = if is_array { &records[0] } else { &records };
        assert_eq!((record["n_prompt"].as_u64(), records.as_array().map_or(1, Vec::len)), (Some(4), 1), "{flags}");
    }
}

#[test]
fn quality_is_a_table_or_an_object() {
    let golden = golden();
    let tokens = ids(&golden.tokens);
    let n = golden.tokens.len() as u64;
    let report = json(&run(&["quality", "--tokens", &tokens, "--dtype", "f16,f32", "--json"]));
    assert_eq!((report["n"].as_u64(), report["n_windows"].as_u64(), report["window"].as_u64()), (Some(n - 1), Some(1), Some(2048)));
    assert_eq!((report["reference"]["name"].as_str(), report["reference"]["dtype"].as_str()), (Some("auto"), Some("f16")));
    let [same, wide] = [&report["variants"][0], &report["variants"][1]];
    assert_eq!(
        (same["kl_max"].as_f64(), same["agreement_percent"].as_f64(), same["loss_percent"].as_f64()),
        (Some(0.0), Some(100.0), Some(0.0))
    );
    assert_eq!(same["perplexity"], report["reference"]["perplexity"]);
    let size = |variant: &Value| variant["weight_bytes"].as_u64().unwrap();
    assert_eq!((wide["name"].as_str(), size(wide)), (Some("f32"), 2 * size(same)));
    assert!((wide["bits_per_weight"].as_f64().unwrap() / 32.0 - 1.0).abs() < 0.05);
    let scored = json(&run(&["score", "--tokens", &tokens, "--json"]));
    let [perplexity, expected] = [&report["reference"], &scored].map(|r| r["perplexity"].as_f64().unwrap());
    assert!((perplexity - expected).abs() < 1e-5 * expected);

    // Without --dtype: what the reference is not; and a state in half precision.
    let table = stdout(&run(&["quality", "--tokens", &tokens, "--window", "16"]));
    let rows: Vec<&str> = table.lines().collect();
    let kinds = ["auto (f16)", "f32", "i8", "i4", "nf4", "i8rc (f16+i8rc)", "i4-mixed (i4+i8)"];
    assert!(rows[2..].iter().zip(kinds).all(|(row, kind)| row.starts_with(&format!("| {kind} |"))), "{table}");
    assert!(rows.len() == 4 + kinds.len() && rows[3 + kinds.len()].contains("of 16"), "{table}");
    let half = json(&run(&["quality", "--text", "In the beginning", "--dtype", "auto", "--state-dtype", "f16", "--json"]));
    assert_eq!(half["variants"][0]["name"], "auto, f16 state");
    assert!(half["variants"][0]["kl_mean"].as_f64().unwrap() > 0.0);

    refused(&run(&words("quality --tokens 5")), 1, "two tokens");
    refused(&run(&words("quality --tokens 5,6 --window 1")), 2, "--window");
    refused(&run(&words("quality --tokens 5,6 --dtype f17")), 2, "f17");
    refused(&run(&words("quality --tokens 5,6 --quant i3")), 2, "i3");
}

#[test]
fn strategies_and_formats_are_flags_of_every_model() {
    let text = |flags: &[&str]| stdout(&run(&[&["generate", "-n", "12", "--temp", "0", "In the beginning"], flags].concat()));
    let plain = text(&["--device", "cpu"]);
    assert_eq!(text(&["--strategy", "cpu fp16"]), plain);
    assert_eq!(text(&["--strategy", "cpu fp16 *2 -> cpu fp32"]), plain);
    if devices().contains(&"gpu") {
        assert_eq!(text(&["--strategy", "gpu fp16 *3 -> gpu:0 fp16"]), plain);
        assert_eq!(text(&["--strategy", "gpu fp16 *2+"]), plain);
    }
    let coded = json(&run(&words("generate -n 4 --temp 0 --device cpu --quant i4,head=i8,low-rank=f16 --json Lo")));
    assert_eq!(coded["model"]["dtype"], "f16+i4+i8");
    let parts = json(&run(&["generate", "-n", "4", "--strategy", "cpu fp16i8 *2 -> cpu fp32", "--json", "Lo"]));
    assert_eq!(parts["model"]["dtype"], "f32+i8");
    refused(&run(&["generate", "-n", "4", "--quant", "i4,att.kay=i8", "Lo"]), 2, "att.kay");
    refused(&run(&["generate", "-n", "4", "--strategy", "cpu fp16", "--device", "cpu", "Lo"]), 2, "--device");
    let wrong = run(&["generate", "-n", "4", "--strategy", "gpu fp16 -> tpu fp16", "Lo"]);
    let shown = String::from_utf8_lossy(&wrong.stderr).into_owned();
    refused(&wrong, 2, "column 13");
    assert!(shown.contains("\n  gpu fp16 -> tpu fp16\n              ^^^"), "{shown}");
}
