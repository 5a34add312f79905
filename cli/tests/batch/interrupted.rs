//! Tests runs of `batch` that end early: killed, interrupted, or with a closed output pipe.

use super::*;

/// The run ends if the reader of the results closes the pipe.
#[cfg(target_os = "linux")]
#[test]
fn a_closed_pipe_behind_the_results_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder, "in.jsonl", prompts(4000, 1).as_bytes());
    let shell = |script: &str| {
        let mut command = Command::new("timeout");
        command.args(["60", "bash", "-c", &script.replace("wingbeat", env!("CARGO_BIN_EXE_wingbeat"))]);
        let output = command.env("WINGBEAT_DEVICE", "cpu").current_dir(folder.path()).output().unwrap();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert!(!stderr(&output).contains(" done"), "it went on to the end: {}", stderr(&output));
    };
    shell("wingbeat batch in.jsonl -o /dev/stdout | head -n 1 >/dev/null; exit ${PIPESTATUS[0]}");
    shell("mkfifo out; head -n 1 out >/dev/null & wingbeat batch in.jsonl -o out");
}

fn start(input: &Path, out: &Path, slots: &str) -> std::process::Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
    command.arg("batch").arg(input).arg("-o").arg(out).args(["--slots", slots, "--seed", "7", "--deterministic", "--device", "cpu"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Kills the run many times, at random moments.
#[cfg(unix)]
#[test]
fn killed_and_run_again_no_line_is_lost_or_doubled() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let text = prompts(120, 32);
    let input = put(&folder, "in.jsonl", text.as_bytes());
    let out = folder.path().join("out.jsonl");
    let expected = batch(&text, "--slots 3 --device cpu");
    let (mut kills, mut torn, mut lengths) = (0, 0, vec![0]);
    // Random numbers from the clock, so that every run of this test differs.
    let mut chance = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos() as u64 | 1;
    let code = loop {
        let mut child = start(&input, &out, "3");
        if kills == 12 {
            break child.wait().unwrap().code();
        }
        chance = chance.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        std::thread::sleep(Duration::from_millis(30 + (chance >> 33) % 250));
        child.kill().unwrap();
        if child.wait().unwrap().code() == Some(0) {
            break Some(0);
        }
        kills += 1;
        // Writes half a line, as a kill in the middle of a write would.
        if kills % 2 == 1 && out.exists() {
            let half = br#"{"id":0,"text":"And th"#;
            std::fs::OpenOptions::new().append(true).open(&out).unwrap().write_all(half).unwrap();
            torn += 1;
        }
        lengths.push(std::fs::read(&out).map_or(0, |bytes| bytes.iter().filter(|b| **b == b'\n').count()));
    };
    assert_eq!(code, Some(0));
    assert!(lengths.is_sorted(), "a whole line was lost: {lengths:?}");
    assert!(kills > 0 && torn > 0, "it was never killed: {kills} kills, {torn} torn lines");
    assert_eq!(by_id(&kept(&out)), expected, "after {lengths:?} lines");
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_leaves_whole_lines_and_says_how_to_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let text = prompts(400, 64);
    let input = put(&folder, "in.jsonl", text.as_bytes());
    let out = folder.path().join("out.jsonl");
    let child = start(&input, &out, "4");
    let n_lines = || std::fs::read(&out).map_or(0, |bytes| bytes.iter().filter(|b| **b == b'\n').count());
    while n_lines() < 5 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output: Output = child.wait_with_output().unwrap();
    let said = stderr(&output);
    assert_eq!(code(&output), 130, "{said}");
    assert!(said.contains("interrupted: run the same command again to continue") && said.contains(" of 400 prompts done"), "{said}");
    let results = kept(&out);
    assert!((5..400).contains(&by_id(&results).len()));
    assert!(results.iter().all(|line| line["finish"] != "interrupted"));
}
