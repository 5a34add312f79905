//! Tests flags and values that users know from llama.cpp and ollama: the usual names have the usual meaning.

use crate::cli::{code, feed, json, put, refused, run, stderr, stdout, words};
use serde_json::Value;

const SHORT: &str = "-n 8 --temp 0 --device cpu";

fn generated(args: &[&str], stdin: &[u8]) -> String {
    stdout(&feed(&[&["generate"], args, words(SHORT).as_slice()].concat(), stdin))
}

#[test]
fn a_text_is_an_argument_a_flag_a_file_or_a_pipe_of_every_verb() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(&folder, "p.txt", b"In the beginning");
    let file = file.to_str().unwrap();
    for verb in [vec!["generate", "-n", "4", "--temp", "0"], vec!["score"], vec!["tokenize"], vec!["quality", "--dtype", "f16"]] {
        let of = |args: &[&str], stdin: &[u8]| stdout(&feed(&[verb.as_slice(), args, &["--json"][..]].concat(), stdin));
        // compare only fields that do not differ between runs
        let tokens = |text: String| {
            let v: Value = serde_json::from_str(&text).unwrap();
            [v["tokens"].clone(), v["n"].clone(), v["nll"].clone()]
        };
        let want = tokens(of(&["In the beginning"], b""));
        for args in
            [vec!["-p", "In the beginning"], vec!["--prompt", "In the beginning"], vec!["--text=In the beginning"], vec!["-f", file]]
        {
            assert_eq!(tokens(of(&args, b"")), want, "{verb:?} {args:?}");
        }
        assert_eq!(tokens(of(&["-f", "-"], b"In the beginning")), want, "{verb:?} -f -");
        assert_eq!(tokens(of(&[], b"In the beginning")), want, "{verb:?}");
        refused(&run(&[verb.as_slice(), &["a", "-p", "b"]].concat()), 2, "cannot be used with");
        refused(&run(&[verb.as_slice(), &["-p", "b", "-f", file]].concat()), 2, "cannot be used with");
    }
    assert_eq!(stdout(&run(&["tokenize", "-p", "--json"])), stdout(&feed(&["tokenize"], b"--json")));
    refused(&run(&["classify", "-p", "x"]), 1, "class");
    refused(&run(&["generate", "-p", ""]), 1, "empty");
}

#[test]
fn flags_that_begin_like_help_get_our_form() {
    for verb in ["chat", "generate"] {
        let output = run(&[verb, "-hf", "owner/repo"]);
        refused(&output, 2, "-m hf:OWNER/REPO");
        assert!(output.stdout.is_empty(), "{verb}: no help");
    }
    let object: Value = serde_json::from_slice(&run(&words("chat --json -hf owner/repo")).stdout).unwrap();
    assert_eq!(object["error"]["where"], "-hf");
    assert!(stdout(&run(&words("chat -h"))).contains("Usage:"));
    assert_eq!(stdout(&run(&words("tokenize -- -hf"))), stdout(&feed(&["tokenize"], b"-hf")));
}

#[test]
fn the_file_of_the_world_vocabulary_needs_no_file() {
    let want = stdout(&run(&words("tokenize --vocab world Hello")));
    let missing = run(&words("tokenize --vocab /no/such/rwkv_vocab_v20230424.txt Hello"));
    let file = run(&["tokenize", "--vocab", concat!(env!("CARGO_MANIFEST_DIR"), "/../assets/vocab/rwkv_vocab_v20230424.txt"), "Hello"]);
    for output in [missing, file] {
        assert_eq!(stdout(&output), want);
        assert!(stderr(&output).contains("the World vocabulary is built in, no file is needed: --vocab world"), "{}", stderr(&output));
    }
    assert!(stderr(&run(&words("tokenize --vocab world Hello"))).is_empty());
}

#[test]
fn a_text_that_is_the_name_of_a_file_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(&folder, "t.txt", b"Hello");
    let name = file.to_str().unwrap();
    let noted = run(&["tokenize", name]);
    assert!(stderr(&noted).contains(&format!("itself; `--file {name}` reads the file of this name")), "{}", stderr(&noted));
    assert!(stderr(&run(&["tokenize", "t.txt"])).is_empty());
}

#[test]
fn one_newline_at_the_end_of_a_pipe_or_a_file_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = |args: &[&str], stdin: &[u8]| stdout(&feed(&[&["tokenize", "--vocab", "world"], args].concat(), stdin));
    let plain = tokens(&["Hello"], b"");
    for ended in [&b"Hello\n"[..], b"Hello\r\n", b"Hello"] {
        let file = put(&folder, "t.txt", ended);
        assert_eq!(tokens(&[], ended), plain);
        assert_eq!(tokens(&["-f", file.to_str().unwrap()], b""), plain);
        assert_eq!(tokens(&["-f", "-"], ended), plain);
    }
    assert_ne!(tokens(&["--keep-newline"], b"Hello\n"), plain);
    assert_eq!(tokens(&["--keep-newline"], b"Hello\n"), tokens(&[], b"Hello\n\n"));
    assert_eq!(generated(&[], b"In the beginning\n"), generated(&["In the beginning"], b""));
    // `quality` keeps the newline at the end of its input
    let n = |text: &[u8]| json(&feed(&words("quality --dtype f16 --json"), text))["n"].as_u64().unwrap();
    assert_eq!(n(b"In the beginning\n"), n(b"In the beginning") + 1);
}

#[test]
fn escapes_are_replaced_on_request_and_hinted_at_without() {
    let tokens = |args: &[&str]| run(&[&["tokenize", "--vocab", "world"], args].concat());
    let real = stdout(&tokens(&["a\nb\té"]));
    assert_eq!(stdout(&tokens(&["-e", r"a\nb\t\u00e9"])), real);
    assert_eq!(stdout(&tokens(&["--escape", "-p", r"a\x0ab\x09\xc3\xa9"])), real);
    let literal = tokens(&[r"a\nb\nc"]);
    assert_ne!(stdout(&literal), real);
    assert_eq!(stderr(&literal).matches("--escape").count(), 1, "{}", stderr(&literal));
    refused(&tokens(&["-e", r"a\d"]), 2, r"TEXT: unknown escape \d");
    // a text from a file or a pipe is used without unescaping, and no hint is printed
    assert!(stderr(&feed(&["tokenize"], br"a\nb")).is_empty());

    let stopped =
        run(&["generate", "-e", "User: Tell me a story.\\n\\nAssistant:", "--temp", "0", "-n", "40", "--stop", r",\x20a", "--json"]);
    assert_eq!(json(&stopped)["finish"], "stop");
    let literal = run(&["generate", "x", "--stop", r"\n", "-n", "1"]);
    assert!(stderr(&literal).contains("--stop contains a backslash and an n"), "{}", stderr(&literal));
}

#[test]
fn minus_one_tokens_is_no_limit_and_minus_one_is_a_random_seed() {
    let endless = json(&run(&words("generate Once -n -1 --temp 0 --stop e --json")));
    assert_eq!(endless["finish"], "stop");
    refused(&run(&words("generate x -n -2")), 2, "-1 for no limit");

    let seed = |flags: &str| json(&run(&words(&format!("generate --tokens 74,111 -n 2 --json {flags}"))))["seed"].as_u64().unwrap();
    let (one, other) = (seed("--seed -1"), seed("-s -1"));
    assert!(one != other && one < 1 << 53, "{one} {other}");

    let lines = b"{\"id\":1,\"prompt\":\"Once\",\"max_tokens\":-1,\"stop\":\"e\",\"seed\":-1}\n{\"id\":2,\"prompt\":\"In\",\"max_tokens\":2,\"seed\":5}\n";
    let text = stdout(&feed(&words("batch - -n -1"), lines));
    let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let line = |id: u64| lines.iter().find(|l| l["id"] == id).unwrap();
    assert_eq!((line(1)["finish"].as_str(), line(2)["seed"].as_u64()), (Some("stop"), Some(5)));
    assert!(line(1)["seed"].as_u64().is_some_and(|seed| seed < 1 << 53));
}

#[cfg(target_os = "linux")]
#[test]
fn threads_are_as_many_as_asked_for() {
    use std::process::Command;
    let name = |args: &[&str], variable: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
        command.args(args).env("WINGBEAT_THREADS", variable).env("WINGBEAT_DEVICE", "cpu");
        let output = command.output().unwrap();
        let list: Value = serde_json::from_slice(&output.stdout).unwrap();
        list.as_array().unwrap().last().unwrap()["name"].as_str().unwrap().to_string()
    };
    assert_eq!(name(&["devices", "--json", "-t", "3"], ""), "3 threads");
    assert_eq!(name(&["devices", "--json"], "5"), "5 threads");
    assert_eq!(name(&["devices", "--json", "--threads", "1"], "5"), "1 threads");
    refused(&run(&words("generate x -t 0")), 2, "--threads");
    let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
    refused(&command.args(["generate", "x"]).env("WINGBEAT_THREADS", "many").output().unwrap(), 2, "WINGBEAT_THREADS");
    assert_eq!(generated(&["In", "-t", "1"], b""), generated(&["In", "-t", "3"], b""));
}

#[test]
fn every_verb_that_takes_a_model_takes_it_as_a_flag() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../assets/models/small-world.safetensors");
    assert_eq!(stdout(&run(&["inspect", "-m", model])), stdout(&run(&["inspect", model])));
    refused(&run(&["inspect", "-m", model, model]), 2, "cannot be used with");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    stdout(&run(&["convert", model, &path("a.safetensors")]));
    stdout(&run(&["convert", "-m", model, &path("b.safetensors")]));
    assert!(std::fs::read(path("a.safetensors")).unwrap() == std::fs::read(path("b.safetensors")).unwrap());
    assert_eq!(code(&run(&["convert", model])), 2);
    for verb in [
        "generate",
        "chat",
        "batch",
        "score",
        "classify",
        "embed",
        "rerank",
        "tokenize",
        "detokenize",
        "inspect",
        "convert",
        "bench",
        "quality",
    ] {
        assert!(stdout(&run(&[verb, "--help"])).contains("-m, --model"), "{verb}");
    }
}

#[test]
fn bench_prints_json_by_the_usual_flag() {
    let records = json(&run(&words("bench -p 4 -n 2 -r 1 --json")));
    assert_eq!(records.as_array().unwrap().len(), 2);
    refused(&run(&words("bench --json -o md")), 2, "cannot be used with");
}

/// Returns every verb that the program's help lists.
fn verbs() -> Vec<String> {
    let help = stdout(&run(&["--help"]));
    let listed = help.split("Commands:").nth(1).unwrap().lines().skip(1).take_while(|l| !l.trim().is_empty());
    let names = listed.filter(|l| l.starts_with("  ") && !l.starts_with("   ")).map(|l| l.split_whitespace().next().unwrap().to_string());
    names.filter(|name| name != "help").collect()
}

/// Returns the lines of a help text that begin with a flag.
fn flags(help: &str) -> Vec<&str> {
    let flag = |l: &&str| l.starts_with("  -") || l.starts_with("      --");
    help.lines().filter(flag).collect()
}

#[test]
fn help_shows_the_basics_and_help_all_the_rest() {
    let verbs = verbs();
    assert!(verbs.len() >= 14, "{verbs:?}");
    for verb in &verbs {
        let verb = verb.as_str();
        let [short, long, all, other] = ["-h", "--help", "--help-all", ""].map(|flag| match flag {
            "" => stdout(&run(&["help", verb])),
            flag => stdout(&run(&[verb, flag])),
        });
        assert_eq!((&short, &other), (&long, &long), "{verb}");
        let (basic, every) = (flags(&long).len(), flags(&all).len());
        assert!(basic <= 24, "{verb} shows {basic} flags at first");
        if every > basic {
            let closing = format!("--help-all shows {} more options", every - basic);
            assert_eq!(long.trim_end().lines().last(), Some(closing.as_str()), "{verb}");
        }
        assert!(!all.contains("more options"), "{verb}");
    }
    let [basic, all] = ["--help", "--help-all"].map(|flag| stdout(&run(&["generate", flag])));
    for heading in ["Input:", "Output:", "Model:", "Device:", "Sampling:", "Help:"] {
        assert!(basic.contains(&format!("\n{heading}\n")), "{basic}");
    }
    assert!(!basic.contains("--mirostat") && all.contains("--mirostat") && basic.contains("Examples:"));
    // the help of `chat` does not list sampling defaults, because the format determines them
    let chat = stdout(&run(&["chat", "--help-all"]));
    assert!(!chat.contains("[default: 1; GLM 0.8]") && all.contains("[default: 1; GLM 0.8]"));
    assert!(chat.contains("preset g1") && chat.contains("generation_config.json"), "{chat}");
}

#[test]
fn completions_know_presets_devices_and_formats() {
    let script = |shell: &str| stdout(&run(&["completions", shell]));
    let [bash, zsh, fish] = ["bash", "zsh", "fish"].map(script);
    for words in
        ["auto cpu gpu gpu:0 gpu:1", "pip demo chat", "i8 i4 nf4", "world small-world tiny", "auto vulkan metal dx12 gl", "g1-think"]
    {
        assert!(bash.contains(words), "bash: {words}");
    }
    for words in
        [":DEVICE:(auto cpu gpu gpu\\:0 gpu\\:1)", "greedy\\:", "i8 i4 nf4", "compadd -- world small-world tiny; _files", "g1-think"]
    {
        assert!(zsh.contains(words), "zsh: {words}");
    }
    for words in ["-l device", "gpu:1\\t", "greedy\\t", "i4-mixed\\t", "-r -F -a \"world", "g1-think\\t"] {
        assert!(fish.contains(words), "fish: {words}");
    }
    let help = stdout(&run(&["completions", "--help"]));
    for place in ["~/.local/share/bash-completion/completions/wingbeat", "~/.zfunc/_wingbeat", "~/.config/fish/completions/wingbeat.fish"] {
        assert!(help.contains(place), "{help}");
    }
    // the program accepts the values that a shell completes, and also other values
    assert!(code(&run(&words("generate x -n 0 --device cpu --vocab tiny --quant i8 --preset greedy"))) == 0);
    assert!(code(&run(&words("generate x -n 0 --quant i4,head=i8"))) == 0);
}

#[test]
fn standard_output_takes_text_only() {
    for line in [
        "generate x -n 0 --save-state -",
        "score In --logits -",
        "bench --synthetic rwkv7-0.1b --write -",
        "convert model.pth -",
        "convert -m model.pth -",
        "chat --save -",
        "doctor --out -",
    ] {
        refused(&run(&words(line)), 1, "expected the name of a file to write, found -");
    }
}

#[test]
fn the_error_for_a_missing_model_has_the_download() {
    let said = |args: &[&str], text: &str| refused(&run(args), 1, text);
    let pulls = cfg!(feature = "download");
    let how = match pulls {
        true => "wingbeat pull rwkv7-g1-1.5b; or add --yes",
        false => "curl -LO https://huggingface.co/BlinkDL/rwkv7-g1/resolve/main/rwkv7-g1k-1.5b-20260930-ctx25600.pth; then give -m",
    };
    for verb in ["generate", "score", "chat", "quality"] {
        said(&[verb, "-m", "rwkv7-g1-1.5b", "-p", "x"][..if verb == "chat" { 3 } else { 5 }], how);
    }
    for args in [vec!["inspect", "rwkv7-g1-1.5b"], vec!["tokenize", "-m", "rwkv7-g1-1.5b", "x"], vec!["bench", "-m", "rwkv7-g1-1.5b"]] {
        said(&args, how);
    }
    said(&["convert", "rwkv7-g1-1.5b", "out.safetensors"], how);
    let glm =
        if pulls { "wingbeat pull glm-4-9b-chat; or add --yes" } else { "hf download zai-org/glm-4-9b-chat --local-dir glm-4-9b-chat" };
    said(&["generate", "x", "-m", "glm4"], glm);
    said(&["generate", "x", "-m", "llama3"], "wingbeat runs RWKV-4 to RWKV-7 and GLM-4");
    said(
        &["generate", "x", "-m", "https://huggingface.co/BlinkDL/rwkv-7-world/blob/main/x.pth"],
        if pulls { "write -m hf:BlinkDL/rwkv-7-world/x.pth" } else { "resolve/main/x.pth'; then give -m x.pth" },
    );
    let object: Value = serde_json::from_slice(&run(&words("generate x -m rwkv7-g1-1.5b --json")).stdout).unwrap();
    assert!(object["error"]["hint"].as_str().unwrap().contains(how.split(' ').next().unwrap()), "{object}");
}
