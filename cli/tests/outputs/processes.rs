//! Tests the files of processes that are interrupted, killed or told to end.

use super::*;
use crate::terminal::{Setting, Terminal};
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
    command.args(args).env_remove("RUST_LOG").env("WINGBEAT_DEVICE", "cpu");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn send(signal: &str, id: u32) {
    assert!(Command::new("kill").args([&format!("-{signal}"), &id.to_string()]).status().unwrap().success());
}

/// Starts a chat through a pipe, sends the message `said` and waits for the answer.
fn chat(args: &[&str], said: &str) -> (Child, ChildStdin, Lines<BufReader<ChildStdout>>) {
    let mut child = command(&[&["chat", "--seed", "1", "--json"], args].concat()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    writeln!(input, "{said}").unwrap();
    lines.next().unwrap().unwrap();
    (child, input, lines)
}

/// Asserts that a file is a saved chat about light.
fn is_saved(path: &Path) {
    let output = feed(&["chat", "--load", text(path)], b"/history\n");
    assert!(stderr(&output).contains("User: light"), "{}", stderr(&output));
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

fn sh(script: &str, args: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_wingbeat")]).args(args);
    command.env_remove("RUST_LOG").env("WINGBEAT_DEVICE", "cpu").stdin(Stdio::null()).output().unwrap()
}

#[test]
fn every_signal_that_ends_a_text_saves_its_state() {
    for signal in ["TERM", "HUP", "INT"] {
        let folder = folder();
        let state = folder.path().join("s.st");
        let args = ["generate", "x", "-n", "100000000", "--ignore-eos", "--jsonl", "--save-state", text(&state)];
        let mut child = command(&args).stdin(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        lines.next().unwrap().unwrap();
        send(signal, child.id());
        let last: serde_json::Value = serde_json::from_str(&lines.last().unwrap().unwrap()).unwrap();
        assert_eq!(last["finish"], "interrupted", "{signal}");
        assert_eq!(child.wait().unwrap().code(), Some(130), "{signal}");
        stdout(&run(&["generate", "-n", "2", "--state", text(&state)]));
    }
}

#[test]
fn a_prompt_that_is_interrupted_leaves_the_state_so_far() {
    // With `-n 0`, the text has its finish (`length`) before the prompt is prefilled. The interrupt must be reported all the same.
    for n in ["1", "0"] {
        let folder = folder();
        let state = folder.path().join("s.st");
        let prompt = put(&folder, "p.txt", &b"In the beginning God created the heaven and the earth. ".repeat(40_000));
        let args = ["-v", "generate", "-f", text(&prompt), "-n", n, "--chunk", "16", "--save-state", text(&state), "--state-tokens"];
        let mut child = command(&args).stdin(Stdio::null()).spawn().unwrap();
        // The program names the device after it opens the model. Some chunks later, the program is prefilling the prompt.
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        said.find(|line| line.starts_with("device: ")).unwrap();
        std::thread::sleep(Duration::from_millis(1500));
        send("TERM", child.id());
        let rest: Vec<String> = said.collect();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
        assert!(rest.iter().any(|line| line.starts_with("note: the saved state includes ")), "{rest:?}");
        assert!(rest.iter().any(|line| line.starts_with("error: interrupted after ")), "{rest:?}");
        stdout(&run(&["generate", " and", "-n", "2", "--state", text(&state)]));
    }
}

#[test]
fn a_chat_that_waits_is_saved_when_it_is_told_to_end() {
    for signal in ["TERM", "HUP"] {
        let folder = folder();
        let file = folder.path().join("chat.st");
        let (mut child, input, lines) = chat(&["--save", text(&file)], "light");
        send(signal, child.id());
        assert_eq!(lines.count(), 0);
        assert_eq!(child.wait().unwrap().code(), Some(130), "{signal}");
        drop(input);
        is_saved(&file);

        // The same test at a terminal, in the line editor.
        let at_terminal = folder.path().join("terminal.st");
        let mut terminal = Terminal::ready(&["chat", "--seed", "1", "--save", text(&at_terminal)], folder.path(), Setting::default());
        terminal.say("light");
        terminal.keys("half a line");
        terminal.wait("half a line");
        send(signal, terminal.id());
        let (exit, screen) = terminal.end();
        assert_eq!((exit, screen.contains("error")), (130, false), "{signal}: {screen}");
        is_saved(&at_terminal);
    }
}

#[test]
fn a_terminal_that_is_told_to_end_stops_the_answer_and_saves() {
    let folder = folder();
    let file = folder.path().join("chat.st");
    let vocab = wingbeat::vocab::Vocab::tiny();
    let newlines: Vec<String> = (1..2048).filter(|&id| vocab.token(id).contains(&b'\n')).map(|id| id.to_string()).collect();
    let args = ["chat", "--seed", "1", "--ban", &newlines.join(","), "--save", text(&file)];
    let mut terminal = Terminal::ready(&args, folder.path(), Setting::default());
    terminal.say("/set CHAT_LEN_MAX 10000000");
    terminal.keys("light\r");
    terminal.wait("Assistant");
    terminal.wait(" the");
    send("TERM", terminal.id());
    // A terminal that closes sends several signals.
    send("HUP", terminal.id());
    assert_eq!(terminal.end().0, 130);
    is_saved(&file);
}

#[test]
fn batch_ends_with_whole_lines_when_it_is_told_to_end() {
    let folder = folder();
    let out = folder.path().join("out.jsonl");
    let mut child = command(&["batch", "-", "-o", text(&out)]).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{{\"id\":1,\"prompt\":\"In\",\"max_tokens\":1}}").unwrap();
    let began = Instant::now();
    while out.metadata().map_or(0, |m| m.len()) == 0 {
        assert!(began.elapsed() < Duration::from_secs(100));
        std::thread::sleep(Duration::from_millis(10));
    }
    send("TERM", child.id());
    refused_quietly(&child.wait_with_output().unwrap());
    drop(input);
    assert!(std::fs::read_to_string(&out).unwrap().ends_with("}\n"));
}

/// Checks that a signal ended the process, and that the process printed no error.
fn refused_quietly(output: &Output) {
    assert_eq!(code(output), 130);
    assert!(stderr(output).contains("interrupted") && !stderr(output).contains("error"), "{}", stderr(output));
}

#[test]
fn an_interrupt_from_outside_is_a_ctrl_c_for_the_line_editor() {
    let folder = folder();
    let mut terminal = Terminal::ready(&["chat", "--seed", "1"], folder.path(), Setting::default());
    let id = terminal.id();
    // The line editor misses a signal that arrives just before the editor waits for a key. So the signal is sent again until the process ends.
    std::thread::spawn(move || {
        let alive = || Command::new("kill").args(["-INT", &id.to_string()]).stderr(Stdio::null()).status().is_ok_and(|s| s.success());
        while alive() {
            std::thread::sleep(Duration::from_millis(500));
        }
    });
    terminal.wait("press Ctrl-C again or Ctrl-D to leave");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn nohup_is_respected() {
    let script = "trap '' HUP; \"$@\" & pid=$!; sleep 1; kill -HUP $pid; sleep 0.3; kill -TERM $pid; wait $pid; echo \"exit $?\" >&2";
    let output = sh(script, &["generate", "x", "-n", "100000000", "--ignore-eos", "--jsonl"]);
    let said = stderr(&output);
    assert!(said.contains("exit 130"), "{said}");
    let last: serde_json::Value = serde_json::from_slice(output.stdout.trim_ascii_end().rsplit(|b| *b == b'\n').next().unwrap()).unwrap();
    let ms = last["timings"]["decode_ms"].as_f64().unwrap() + last["timings"]["prefill_ms"].as_f64().unwrap();
    assert!(ms > 250.0, "it ended at SIGHUP, after {ms} ms");
}

#[test]
fn a_chat_whose_file_cannot_be_written_is_saved_elsewhere() {
    let (folder, temporary) = (folder(), folder());
    // While the chat runs, a file of the same name appears.
    let file = folder.path().join("chat.st");
    let (child, input, _) = chat(&["--save", text(&file)], "light");
    std::fs::write(&file, "appeared").unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    refused(&output, 1, "chat.st.1 instead");
    is_saved(&folder.path().join("chat.st.1"));
    assert_eq!(std::fs::read(&file).unwrap(), b"appeared");

    // While the chat runs, the folder of its file is removed.
    let gone = folder.path().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let mut child =
        command(&["chat", "--save", text(&gone.join("c.st")), "--json", "--seed", "1"]).env("TMPDIR", temporary.path()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "light").unwrap();
    BufReader::new(child.stdout.as_mut().unwrap()).lines().next().unwrap().unwrap();
    std::fs::remove_dir(&gone).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    refused(&output, 1, &format!("saved as {} instead", temporary.path().join("c.st").display()));
    is_saved(&temporary.path().join("c.st"));
}

/// Waits until the process has written bytes to a temporary file. Returns false if the process ended before.
fn writes(child: &mut Child, folder: &Path) -> bool {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < Duration::from_secs(100), "no temporary file: {:?}", names(folder));
        if std::fs::read_dir(folder).unwrap().flatten().any(|e| e.metadata().is_ok_and(|m| m.len() > 0)) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// Starts a process that writes a file for some seconds.
fn slow(folder: &Path) -> Child {
    let out = folder.join("slow.safetensors");
    let args = ["bench", "--synthetic", "rwkv7-0.1b", "-p", "0", "-n", "0", "--write", text(&out)];
    let mut child = command(&args).stdin(Stdio::null()).spawn().unwrap();
    assert!(writes(&mut child, folder), "it ended before it was seen");
    child
}

#[test]
fn a_writer_that_is_interrupted_leaves_nothing() {
    for signal in ["INT", "TERM", "HUP"] {
        let folder = folder();
        let mut child = slow(folder.path());
        send(signal, child.id());
        assert_eq!(child.wait().unwrap().code(), Some(130), "{signal}");
        assert_eq!(names(folder.path()), [""; 0], "{signal}");
    }
    // If memory is limited and the process crashes, the process reports that memory was probably exhausted.
    let short = folder();
    let out = short.path().join("slow.safetensors");
    let line = "ulimit -v 8000000; exec \"$0\" bench --synthetic rwkv7-0.1b --device cpu -p 0 -n 0 --write \"$1\"";
    let mut crashed = Command::new("sh");
    crashed.args(["-c", line, env!("CARGO_BIN_EXE_wingbeat"), text(&out)]).stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = crashed.spawn().unwrap();
    assert!(writes(&mut child, short.path()), "it ended before it was seen");
    send("ABRT", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(4));
    assert_eq!(names(short.path()), [""; 0]);
    // Writing a small checkpoint takes some milliseconds, so several attempts are needed to interrupt the write.
    let model = crate::support::goldens().find(|g| g.name == "rwkv6").unwrap().path();
    let mut n_hit = 0;
    for _ in 0..20 {
        let folder = folder();
        let out = folder.path().join("out.safetensors");
        let mut child = command(&["convert", text(&model), text(&out), "--quant", "i4-mixed"]).stdin(Stdio::null()).spawn().unwrap();
        if writes(&mut child, folder.path()) {
            send("INT", child.id());
        }
        let exit = child.wait().unwrap().code();
        assert!(matches!(exit, Some(0 | 130)), "{exit:?}");
        assert!(names(folder.path()).iter().all(|name| name == "out.safetensors"), "{:?}", names(folder.path()));
        n_hit += usize::from(exit == Some(130));
        if n_hit == 2 {
            break;
        }
    }
    assert!(n_hit > 0, "nobody was interrupted");
}

#[test]
fn what_a_killed_run_left_is_removed_and_what_is_written_stays() {
    let folder = folder();
    let mut killed = slow(folder.path());
    killed.kill().unwrap();
    killed.wait().unwrap();
    let left = names(folder.path());
    assert!(left.len() == 1 && left[0].starts_with(".wingbeat-") && left[0].ends_with(".part"), "{left:?}");
    let mut running = command(&["bench", "--synthetic", "rwkv7-0.1b", "-p", "0", "-n", "0", "--write"]);
    let mut running = running.arg(folder.path().join("b.safetensors")).stdin(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    // The run may make and remove a first file, to check that it can write.
    let is_written = |name: &String| std::fs::metadata(folder.path().join(name)).is_ok_and(|file| file.len() > 0);
    while names(folder.path()) == left || !names(folder.path()).iter().any(is_written) {
        assert!(running.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(100));
        std::thread::sleep(Duration::from_millis(1));
    }
    let own = names(folder.path());
    assert!(own.len() == 1 && own != left, "the killed run's file is gone: {own:?}");
    stdout(&run(&["generate", "In", "-n", "1", "--save-state", text(&folder.path().join("s.st"))]));
    assert_eq!(names(folder.path()), [own[0].as_str(), "s.st"], "a file that is being written stays");
    send("TERM", running.id());
    assert_eq!(running.wait().unwrap().code(), Some(130));
    assert_eq!(names(folder.path()), ["s.st"]);
}

#[test]
fn states_are_the_owners_and_replaced_files_keep_their_mode() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let (state, chat, model, logits) = (path("s.st"), path("c.st"), path("m.st"), path("l.st"));
    let umask = sh("umask 022; \"$@\"", &["convert", TINY, text(&model)]);
    assert_eq!((code(&umask), mode(&model)), (0, 0o644), "{}", stderr(&umask));
    let save = |force: &[&str]| run(&[&["generate", "In", "-n", "1", "--save-state", text(&state)], force].concat());
    stdout(&save(&[]));
    stdout(&feed(&["chat", "--save", text(&chat)], b"light\n"));
    assert_eq!((mode(&state), mode(&chat)), (0o600, 0o600));
    for (file, kept) in [(&state, 0o640), (&model, 0o600), (&logits, 0o600)] {
        if !file.exists() {
            std::fs::write(file, "old").unwrap();
        }
        std::fs::set_permissions(file, PermissionsExt::from_mode(kept)).unwrap();
    }
    stdout(&save(&["--force"]));
    stdout(&run(&["convert", TINY, text(&model), "--force"]));
    stdout(&run(&["score", "--text", "In the", "--logits", text(&logits), "--force"]));
    assert_eq!((mode(&state), mode(&model), mode(&logits)), (0o640, 0o600, 0o600));
    // `batch --retry-errors` rewrites the file of results.
    let prompts = put(&folder, "in.jsonl", b"{\"id\":1,\"prompt\":\"In\",\"max_tokens\":1}\n");
    let results = put(&folder, "out.jsonl", b"{\"id\":1,\"error\":{\"kind\":\"input\"}}\n");
    std::fs::set_permissions(&results, PermissionsExt::from_mode(0o600)).unwrap();
    run(&["batch", text(&prompts), "-o", text(&results), "--retry-errors"]);
    assert_eq!(mode(&results), 0o600);
}

#[test]
fn a_limit_on_file_sizes_is_an_error() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let limited = |args: &[&str]| sh("ulimit -f 8; \"$@\"", args);
    for args in [
        ["generate", "In", "-n", "1", "--save-state"].as_slice(),
        &["convert", TINY],
        &["score", "--text", "In the beginning God created", "--logits"],
        &["bench", "--synthetic", "rwkv7-0.1b", "-p", "0", "-n", "0", "--write"],
    ] {
        refused(&limited(&[args, &[text(&path("x.st"))]].concat()), 1, "File too large");
        assert_eq!(names(folder.path()), [""; 0], "{args:?}");
    }
    let prompts: String = (0..200).map(|i| format!("{{\"id\":{i},\"prompt\":\"In the\",\"max_tokens\":20}}\n")).collect();
    let prompts = put(&folder, "in.jsonl", prompts.as_bytes());
    refused(&limited(&["batch", text(&prompts), "-o", text(&path("out.jsonl"))]), 1, "File too large");
    let script = format!("ulimit -f 8; \"$@\" > {}", text(&path("stdout")));
    refused(&sh(&script, &["generate", "In", "-n", "4000", "--ignore-eos", "--jsonl"]), 1, "standard output: File too large");
    if Path::new("/dev/full").exists() {
        for line in ["--help", "generate --help", "tokenize x", "inspect --json", "completions bash", "batch -", "devices"] {
            let script = format!("echo '{{\"id\":1,\"prompt\":\"In\",\"max_tokens\":1}}' | \"$0\" {line} > /dev/full");
            let mut shell = Command::new("sh");
            shell.args(["-c", &script, env!("CARGO_BIN_EXE_wingbeat")]).env("WINGBEAT_DEVICE", "cpu");
            refused(&shell.output().unwrap(), 1, "standard output: No space left");
        }
    }
}
