//! Tests `generate`: sources of the prompt, settings of a text, and printed results.

use super::*;

#[test]
fn generate_continues_the_golden_prompt_on_every_device() {
    let golden = Golden::of_the_embedded();
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
fn guesses_change_no_text() {
    let text =
        "Once upon a time there was a fox named Luna. She lived in the forest. Once upon a time there was a fox named Luna. She lived";
    let made =
        |flags: &str| json(&run(&[&["generate", text], words(&format!("-n 40 --seed 3 --json --device cpu {flags}")).as_slice()].concat()));
    let plain = made("");
    assert!(plain["timings"]["drafted"].is_null() && plain["timings"]["accepted"].is_null());
    let folder = tempfile::tempdir().unwrap();
    let draft = folder.path().join("draft.safetensors");
    std::fs::write(&draft, include_bytes!("../../../assets/models/small-world.safetensors")).unwrap();
    let by_model = format!("--draft {} --draft-quant i8 --draft-device cpu --draft-tokens 2", draft.display());
    for flags in [
        "--speculate ngram --draft-tokens 8",
        "--speculate auto --draft-tokens 5",
        "--trials 2 --speculate ngram --draft-tokens 3",
        &by_model,
    ] {
        let report = made(flags);
        assert_eq!((&report["tokens"], &report["text"]), (&plain["tokens"], &plain["text"]), "{flags}");
        let [drafted, accepted] = ["drafted", "accepted"].map(|name| report["timings"][name].as_u64().unwrap());
        assert!(drafted > 0 && accepted <= drafted, "{flags}: {report}");
    }
    let said =
        stderr(&run(
            &[&["generate", text], words("-n 40 -v --device cpu --temperature 0 --speculate ngram --draft-tokens 4").as_slice()].concat()
        ));
    assert!(said.contains(" guesses right"), "{said}");
    for (flags, want) in [
        ("--speculate draft", "draft needs a draft model"),
        ("--draft-tokens 3", "a number of guesses has no effect"),
        ("--speculate magic", "expected off, auto, ngram, draft or forced"),
        ("--speculate auto --draft-tokens 33", "33"),
    ] {
        refused(&run(&[&["generate", text], words(flags).as_slice()].concat()), 2, want);
    }
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
        // Without a vocabulary, prompts of token ids work. A text prompt is refused, and the error names the vocabulary.
        refused(&run(&["generate", "-m", &model, "x"]), 1, "vocabulary");
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
    lines.next().unwrap().unwrap(); // the program generates
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let last: Value = serde_json::from_str(&lines.last().unwrap().unwrap()).unwrap();
    assert_eq!(last["finish"], "interrupted");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(state.exists());
}

#[test]
fn many_trials_are_one_batch() {
    let report = json(&run(&["generate", "light", "-n", "1", "--trials", "150", "--seed", "1", "--json"]));
    assert_eq!((report["choices"].as_array().unwrap().len(), report["choices"][149]["seed"].as_u64()), (150, Some(150)));
    // The prompt is prefilled even if no token is to be generated.
    let read = json(&run(&["generate", "In the beginning God created", "-n", "0", "--json"]));
    assert_eq!((read["finish"].as_str(), read["tokens"].as_array().unwrap().len()), (Some("length"), 0));
    assert!(read["timings"]["prefill_tokens_per_second"].as_f64().unwrap() < 1e6, "{read}");
}
