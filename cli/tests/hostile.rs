//! Tests hostile files and limits on memory, threads and time. The program must end soon, with one line and an exit code.

use crate::cli::{code, feed, put, refused, run, stderr, stdout};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs the program under limits that the shell sets, such as `ulimit -v 300000`.
#[cfg(unix)]
fn limited(limits: &str, args: &str) -> Output {
    let line = format!("{limits}; exec \"$0\" {args}");
    let mut command = Command::new("sh");
    command.args(["-c", &line, env!("CARGO_BIN_EXE_wingbeat")]).env_remove("RUST_LOG").env("WINGBEAT_DEVICE", "cpu");
    command.stdin(Stdio::null()).output().unwrap()
}

/// Writes a safetensors file: the header, then `data` zero bytes. The zero bytes take no space on the disk.
fn sparse(folder: &tempfile::TempDir, name: &str, header: &str, data: u64) -> std::path::PathBuf {
    let mut header = header.to_string();
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let path = put(folder, name, &[&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat());
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(8 + header.len() as u64 + data).unwrap();
    path
}

/// Writes a safetensors file with `n` tensors of one byte each.
fn tensors(folder: &tempfile::TempDir, file: &str, n: usize, name: impl Fn(usize) -> String) -> std::path::PathBuf {
    let one = |i| format!(r#""{}":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{}]}}"#, name(i), i + 1);
    let all: Vec<String> = (0..n).map(one).collect();
    sparse(folder, file, &format!("{{{}}}", all.join(",")), n as u64)
}

/// Runs `f`. Panics if `f` takes 100 seconds or more. The tested work takes far less time. Without limits, the work would take far more time.
fn soon<T>(what: &str, f: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let done = f();
    assert!(started.elapsed() < Duration::from_secs(100), "{what} took {:?}", started.elapsed());
    done
}

#[cfg(unix)]
#[test]
fn out_of_memory_is_a_line_and_exit_code_4() {
    let folder = tempfile::tempdir().unwrap();
    let path = tensors(&folder, "many.st", 300_000, |i| format!("t{i}"));
    let path = path.display();
    // `kilobytes` is the address space that the limit leaves beyond the size of the program. This space is too small for the names in the file,
    // so memory runs out at several points.
    let own = std::fs::metadata(env!("CARGO_BIN_EXE_wingbeat")).unwrap().len() / 1024;
    for kilobytes in [10_000, 30_000, 60_000, 100_000] {
        let limit = format!("ulimit -v {}", own + kilobytes);
        for args in [format!("inspect {path} --json"), "bench --synthetic rwkv7-0.1b -p 0 -n 1 -r 1 -o json".into()] {
            let output = limited(&limit, &args);
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(4), "{limit} {args}: {said}");
            assert!(said.lines().count() == 1 && said.starts_with("error: "), "{limit} {args}: {said}");
            let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{limit} {args}: {e}"));
            assert_eq!(object["error"]["kind"], "memory");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_model_beyond_the_limit_is_refused_before_it_is_loaded() {
    let output = soon("a refusal", || limited("ulimit -v 6000000", "bench --synthetic rwkv7-7.2b -p 0 -n 1 -r 1"));
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.lines().count() == 1 && said.contains("cpu: the model needs ") && said.contains(", but this device has "), "{said}");
}

/// Tests a limit on processes and threads. The limit does not apply to root, so the program runs as another user.
#[cfg(unix)]
#[test]
fn a_limit_on_threads_is_a_line_and_exit_code_4() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("wingbeat");
    std::fs::copy(env!("CARGO_BIN_EXE_wingbeat"), &program).unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let limited = |limit: u32, args: &[&str]| {
        let line = format!("ulimit -u {limit} && exec \"$0\" \"$@\"");
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--clear-groups", "bash", "-c", &line]).arg(&program).args(args);
        command.env("WINGBEAT_DEVICE", "cpu").stdin(Stdio::null()).output()
    };
    let is_able = limited(1000, &["--version"]).is_ok_and(|output| output.status.success());
    if !is_able {
        println!("SKIPPED: no setpriv, no bash, no root, or a folder that other users cannot enter");
        return;
    }
    for args in [&["generate", "hello", "-n", "2"][..], &["generate", "hello", "-n", "2", "--json-object"]] {
        let output = limited(1, args).unwrap();
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        let said = stderr(&output);
        assert!(said.contains("error: cannot start") && !said.contains("panicked"), "{said}");
    }
}

/// Some drivers abort the process if they get no memory. Here a signal aborts the process.
#[cfg(unix)]
#[test]
fn a_crash_under_a_limit_is_a_line() {
    let line =
        "ulimit -v 4000000; \"$0\" generate -n 100000000 --ignore-eos --device cpu --json a >/dev/null & sleep 2; kill -ABRT $!; wait $!";
    let output = Command::new("sh").args(["-c", line, env!("CARGO_BIN_EXE_wingbeat")]).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(stderr(&output).contains("error: the program crashed under a memory limit"), "{output:?}");
}

#[cfg(unix)]
#[test]
fn text_without_end_is_refused() {
    let zeros = |limits: &str, args: &str| {
        let line = format!("{limits}; head -c 3G /dev/zero | \"$0\" {args}; exit $?");
        Command::new("sh").args(["-c", &line, env!("CARGO_BIN_EXE_wingbeat")]).env("WINGBEAT_DEVICE", "cpu").output().unwrap()
    };
    refused(&soon("a pipe", || zeros("true", "tokenize")), 1, "standard input: expected a text of at most 1.00 GiB, found a longer one");
    refused(&soon("a pipe under a limit", || zeros("ulimit -v 600000", "tokenize")), 4, "out of memory");
    refused(&run(&["tokenize", "-f", "/dev/zero"]), 1, "/dev/zero: expected a text of at most 1.00 GiB, found a longer one");
}

#[test]
fn states_that_claim_too_much_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("good.state");
    stdout(&run(&["generate", "ab", "-n", "1", "--save-state", good.to_str().unwrap(), "--state-tokens", "--temp", "0"]));
    let bytes = std::fs::read(&good).unwrap();
    let n = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + n]).unwrap();
    // A file of version 1 has no checksum that would show the change first.
    header["__metadata__"]["format_version"] = "1".into();
    header["__metadata__"].as_object_mut().unwrap().remove("checksum").unwrap();
    let load = |path: &std::path::Path| run(&["generate", "c", "-n", "1", "--temp", "0", "--state", path.to_str().unwrap()]);
    stdout(&load(&good));

    let write = |name: &str, header: &serde_json::Value| {
        let header = header.to_string();
        let header = format!("{header}{}", " ".repeat(header.len().next_multiple_of(8) - header.len()));
        put(&folder, name, &[&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &bytes[8 + n..]].concat())
    };
    for (said, expected) in [
        ("18446744073709551616", "expected a number as metadata value n_tokens"),
        ("18446744073709551615", "expected a state of at most"),
        ("many", "expected a number as metadata value n_tokens"),
    ] {
        let mut hostile = header.clone();
        hostile["__metadata__"]["n_tokens"] = said.into();
        refused(&load(&write("n.state", &hostile)), 1, expected);
    }

    let mut changed = header.clone();
    changed["__metadata__"]["format_version"] = "2".into();
    refused(&load(&write("n.state", &changed)), 1, "the state is damaged: it has no checksum");
    changed["__metadata__"]["checksum"] = "crc32:00000000".into();
    refused(&load(&write("n.state", &changed)), 1, "the state is damaged: expected the checksum crc32:00000000, found crc32:");

    // The header declares 25 billion token ids, 100 GB in a sparse file.
    let (end, numbers) = (bytes.len() as u64 - 8 - n as u64, 25_000_000_000u64);
    let mut hostile = header.clone();
    hostile["many"] = hostile["tokens"].clone();
    hostile.as_object_mut().unwrap().remove("tokens");
    let mut text = hostile.to_string().replace("\"many\"", "\"recent_tokens_of_old\"");
    let more = format!(r#","tokens":{{"dtype":"I32","shape":[{numbers}],"data_offsets":[{end},{}]}}}}"#, end + 4 * numbers);
    text.pop();
    let path = sparse(&folder, "sparse.state", &(text + &more), 0);
    let mut file = std::fs::read(&path).unwrap();
    file.extend_from_slice(&bytes[8 + n..]);
    std::fs::write(&path, &file).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(file.len() as u64 + 4 * numbers).unwrap();
    refused(&soon("100 GB of ids", || load(&path)), 1, "tokens: expected at most");

    let empty = folder.path().join("empty.state");
    std::fs::File::create(&empty).unwrap().set_len(100 << 30).unwrap();
    assert_eq!(code(&soon("100 GB of nothing", || load(&empty))), 1);
}

#[test]
fn names_of_megabytes_take_no_time() {
    let folder = tempfile::tempdir().unwrap();
    let inspect = |path: &std::path::Path| soon("inspect", || run(&["inspect", path.to_str().unwrap()]));

    let long = tensors(&folder, "long.st", 200, |i| format!("{}{i}", "a.".repeat(50_000)));
    refused(&inspect(&long), 1, "expected a tensor name of at most 512 bytes, found");
    let dotted = tensors(&folder, "dotted.st", 40_000, |i| format!("{}{i:05}", "a.".repeat(250)));
    assert_eq!(code(&inspect(&dotted)), 0);
    let many = tensors(&folder, "many.st", 300_000, |i| format!("t{i}"));
    refused(&inspect(&many), 1, "expected a checkpoint of at most 100000 tensors, found 300000");
}

#[test]
fn names_and_labels_are_shown_without_control_characters() {
    let folder = tempfile::tempdir().unwrap();
    let name = r#"a\u001b[2J\u009b1m\nb"#;
    let header = format!(r#"{{"{name}":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}}}"#);
    let path = sparse(&folder, "x\u{1b}[1m.st", &header, 4);
    let path = path.to_str().unwrap();
    for args in [vec!["inspect", path], vec!["inspect", path, "--tensors"]] {
        let output = run(&args);
        let (shown, said) = (stdout(&output), stderr(&output));
        assert!(!(shown.clone() + &said).contains(['\u{1b}', '\u{9b}']), "{shown}{said}");
    }
    assert!(stdout(&run(&["inspect", path, "--tensors"])).contains(r"a\u{1b}[2J\u{9b}1m\nb  F32 [1]"));
    let tensors = crate::cli::json(&run(&["inspect", path, "--tensors", "--json"]));
    assert_eq!(tensors["tensors"][0]["name"], "a\u{1b}[2J\u{9b}1m\nb");
}

/// Writes a classifier of `n` classes into a new folder. `labels` is the `id2label` of its config.json.
fn classifier(labels: &serde_json::Value, n: usize) -> tempfile::TempDir {
    let family = crate::support::glm4().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = wingbeat::low_level::weights::Checkpoint::open(&family.path()).unwrap();
    let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(family.path().join("config.json")).unwrap()).unwrap();
    config["id2label"] = labels.clone();
    put(&folder, "config.json", config.to_string().as_bytes());
    for entry in std::fs::read_dir(family.path()).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if name != "config.json" && !name.ends_with(".safetensors") {
            std::fs::copy(entry.path(), folder.path().join(name)).unwrap();
        }
    }
    let kept = checkpoint.names().filter(|n| *n != "lm_head.weight").map(|name| {
        let view = checkpoint.tensor(name).unwrap();
        crate::support::floats(name, view.shape().to_vec(), &view.to_f32().unwrap())
    });
    let head: Vec<f32> = (0..n * 128).map(|i| (i % 97) as f32 * 1e-3).collect();
    let all = kept.chain([crate::support::floats("score.weight", vec![n, 128], &head)]).collect();
    wingbeat::low_level::weights::write_safetensors(&folder.path().join("model.safetensors"), checkpoint.metadata(), all, &mut |_, _| ())
        .unwrap();
    folder
}

#[test]
fn labels_of_any_kind_are_lines_and_json() {
    if crate::support::glm4().is_none() {
        return;
    }
    let classify = |folder: &tempfile::TempDir, flags: &[&str]| {
        let args = [&["classify", "-m", folder.path().to_str().unwrap(), "--tokens", "5,6,7", "--device", "cpu"], flags].concat();
        soon("classify", || run(&args))
    };
    let long = "x".repeat(1 << 10);
    let names = ["\u{1b}[2Ja\u{9b}1m", "two\nlines\r\u{7}", &long, "", "same", "same", "\u{202e}right to left"];
    let labels: serde_json::Map<String, _> = names.iter().enumerate().map(|(i, name)| (i.to_string(), (*name).into())).collect();
    let folder = classifier(&labels.into(), names.len());
    let shown = stdout(&classify(&folder, &[]));
    assert_eq!(shown.lines().count(), names.len(), "one line per class");
    assert!(!shown.contains(['\u{1b}', '\u{9b}', '\r', '\u{7}']) && shown.contains(r"\u{1b}[2Ja\u{9b}1m"));
    assert!(shown.contains(r"two\nlines") && shown.matches("  same\n").count() == 2 && shown.contains("  \n"));
    let report = crate::cli::json(&classify(&folder, &["--json"]));
    let mut told: Vec<&str> = report["classes"].as_array().unwrap().iter().map(|c| c["label"].as_str().unwrap()).collect();
    let mut expected = names;
    told.sort_unstable();
    expected.sort_unstable();
    assert!(told == expected, "JSON has labels as they are");

    // Configurations with more names than classes, then with more classes than names.
    let many = |n: usize| (0..n).map(|i| (i.to_string(), "many".into())).collect::<serde_json::Map<String, _>>();
    let folder = classifier(&many(50_000).into(), 3);
    assert_eq!(stdout(&classify(&folder, &[])).matches("  many\n").count(), 3);
    refused(&classify(&classifier(&many(100_000).into(), 3), &[]), 1, "config.json: expected a file of at most 1048576 bytes");
    let folder = classifier(&serde_json::json!({"0": "first"}), 65_536);
    let shown = stdout(&classify(&folder, &[]));
    assert!(shown.lines().count() == 65_536 && shown.contains("  first\n") && shown.contains("  65535\n"));
    refused(&classify(&classifier(&serde_json::json!({}), 65_537), &[]), 1, "expected 1 to 65536 classes");
    let longer = serde_json::json!({"0": "x".repeat(1 << 19)});
    refused(&classify(&classifier(&longer, 3), &[]), 1, "class names of at most 1024 bytes");
    for wrong in [serde_json::json!({"0": 1}), serde_json::json!({"0": ["a"]}), serde_json::json!("label"), serde_json::json!([1])] {
        refused(&classify(&classifier(&wrong, 3), &[]), 1, "id2label");
    }
}

#[test]
fn vocabularies_that_make_texts_slow_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let tokenize =
        |vocab: &std::path::Path, text: &str| soon("tokenize", || feed(&["tokenize", "--vocab", vocab.to_str().unwrap()], text.as_bytes()));
    let text = "a".repeat(1 << 19);
    let many = "a".repeat((32 << 20) + 1);
    let long = put(&folder, "long.txt", format!("1 '{}' {}\n", "a".repeat(2000), 2000).as_bytes());
    refused(&tokenize(&long, "a"), 1, "expected tokens of at most 1024 bytes, found 2000");
    let slow = put(&folder, "slow.txt", format!("1 'a' 1\n2 '{}b' 1024\n", "a".repeat(1023)).as_bytes());
    refused(&tokenize(&slow, &text), 1, "with more than 64 steps per byte");

    let bpe = |pattern: &str| {
        let vocab: serde_json::Map<String, serde_json::Value> = (0..=255u32)
            .map(|byte| (char::from_u32(if byte < 0x21 { 0x100 + byte } else { byte }).unwrap().to_string(), byte.into()))
            .collect();
        let split = serde_json::json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        let bytes = serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false});
        let file = serde_json::json!({
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, bytes]},
            "model": {"type": "BPE", "vocab": vocab, "merges": [], "unk_token": "a"}
        });
        put(&folder, "tokenizer.json", file.to_string().as_bytes())
    };
    refused(&tokenize(&bpe(r"(?=(a+)+$)b"), &text[..1 << 16]), 1, "the vocabulary's pattern fails");
    refused(&tokenize(&bpe(r"a*b|a"), &text), 1, "the vocabulary's pattern takes too long");
    assert_eq!(code(&tokenize(&bpe(r"(a+)+$"), &text[..1 << 16])), 0);
    refused(&tokenize(&bpe("a"), &many), 1, "this vocabulary takes texts of at most 32.00 MiB");
}
