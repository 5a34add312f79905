//! Tests how the program presents itself and its work: versions, the doctor's page, lines after a text, colours of messages.

#[allow(dead_code)]
#[path = "../build/commit.rs"]
mod commit;
#[cfg(unix)]
mod terminal;

use crate::cli::{code, json, put, run, stderr, stdout, words};
use crate::support::devices;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn versions_name_the_build() {
    let short = stdout(&run(&["-V"]));
    assert_eq!(short.lines().count(), 1, "{short}");
    assert!(short.starts_with(concat!("wingbeat ", env!("CARGO_PKG_VERSION"))), "{short}");
    let long = stdout(&run(&["--version"]));
    assert_eq!(long.lines().next(), short.lines().next());
    let lock = std::fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("Cargo.lock")).unwrap();
    let wgpu = lock.split("\nname = \"wgpu\"\nversion = \"").nth(1).unwrap().split('"').next().unwrap();
    let value = |name: &str| long.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {long}")).trim();
    assert_eq!(value("wgpu "), wgpu);
    assert!(value("features ").contains("download, serve"), "{long}");
    assert!(value("target ").contains(std::env::consts::ARCH) && value("profile ").contains("opt-level"), "{long}");
    assert!(!value("backends ").is_empty() && !value("backends ").contains("noop"), "{long}");
    let found = commit::of(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))).commit;
    match value("commit ") {
        // A build for development names no commit.
        "unknown" => assert!(cfg!(debug_assertions) || found.is_none(), "{long}"),
        named => assert!(std::env::var("WINGBEAT_COMMIT").is_ok() || found.as_deref() == Some(named), "{long}"),
    }

    let record = json(&run(&words("bench -p 4 -n 0 -r 1 --device cpu -o json")));
    let build = &record[0]["wingbeat"]["build"];
    assert_eq!((build["wgpu"].as_str(), build["version"].as_str()), (Some(wgpu), Some(env!("CARGO_PKG_VERSION"))));
    let commit = record[0]["build_commit"].as_str().unwrap();
    assert_eq!(commit, build["commit"].as_str().unwrap_or("unknown"));
}

#[test]
fn a_commit_is_found_without_git() {
    const HASH: &str = "0123456789abcdef0123456789abcdef01234567";
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let found = |at: &str| commit::of(&root.join(at));
    assert_eq!(found("."), commit::Found::default());

    write("loose/.git/HEAD", "ref: refs/heads/main\n");
    write("loose/.git/refs/heads/main", &format!("{HASH}\n"));
    assert_eq!(found("loose").commit.as_deref(), Some(HASH));
    assert!(found("loose").watch.iter().any(|path| path.ends_with("refs/heads/main")));

    write("packed/.git/HEAD", "ref: refs/heads/topic/one\n");
    write("packed/.git/packed-refs", &format!("# pack-refs with: peeled\n{HASH} refs/heads/topic/one\n^{HASH}\n"));
    std::fs::create_dir_all(root.join("packed/.git/refs/heads")).unwrap();
    let packed = found("packed");
    assert_eq!(packed.commit.as_deref(), Some(HASH));
    // The next commit writes its loose reference into this folder.
    assert!(packed.watch.iter().any(|path| path.ends_with("refs/heads")), "{packed:?}");
    assert!(packed.watch.iter().all(|path| path.exists()), "a file that is missing would rebuild every time: {packed:?}");

    write("detached/.git/HEAD", HASH);
    assert_eq!(found("detached").commit.as_deref(), Some(HASH));

    write("tree/.git", "gitdir: ../loose/.git/worktrees/tree\n");
    write("loose/.git/worktrees/tree/HEAD", "ref: refs/heads/main\n");
    write("loose/.git/worktrees/tree/commondir", "../..\n");
    assert_eq!(found("tree").commit.as_deref(), Some(HASH));

    write("package/.cargo_vcs_info.json", &format!("{{\n  \"git\": {{\n    \"sha1\": \"{HASH}\"\n  }},\n  \"path_in_vcs\": \"\"\n}}"));
    assert_eq!(found("package").commit.as_deref(), Some(HASH));
    write("dirty/.cargo_vcs_info.json", &format!("{{\"git\":{{\"sha1\":\"{HASH}\",\"dirty\":true}},\"path_in_vcs\":\"\"}}"));
    assert_eq!(found("dirty").commit, Some(format!("{HASH}-dirty")));
    write("hostile/.git/HEAD", "ref: refs/heads/main\n");
    write("hostile/.git/refs/heads/main", "cargo:rustc-env=X=1\n");
    assert_eq!(found("hostile").commit, None);
}

#[test]
fn the_doctor_counts_its_checks() {
    let report = json(&run(&words("doctor --device cpu --json")));
    assert_eq!((report["full"].as_bool(), report["interrupted"].as_bool()), (Some(false), Some(false)));
    assert_eq!(report["checks"], serde_json::json!({"planned": 1, "done": 1, "right": 1}));
    assert_eq!(report["build"]["version"], env!("CARGO_PKG_VERSION"));
    let report = json(&run(&words("doctor --device cpu --json --full")));
    assert_eq!((report["full"].as_bool(), report["ok"].as_bool()), (Some(true), Some(true)));
}

/// If the doctor is interrupted while it checks kernels, the doctor prints the results so far.
#[cfg(target_os = "linux")]
#[test]
fn a_stopped_doctor_gives_a_verdict() {
    if !devices().contains(&"gpu") {
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
    command.args(["doctor", "--device", "gpu"]).env("RUST_LOG", "wingbeat_cli=debug");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let announced = said.next().unwrap().unwrap();
    assert!(announced.starts_with("checking ") && announced.contains("quick check of ") && announced.contains("--full"), "{announced}");
    // The doctor logs every case before it runs the case.
    said.find(|line| line.as_ref().is_ok_and(|line| line.contains("embed/"))).unwrap().unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    said.for_each(drop);
    let output = child.wait_with_output().unwrap();
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(code(&output), 130, "{page}");
    let verdict = page.lines().last().unwrap();
    assert!(verdict.starts_with("interrupted: ") && verdict.contains(" checks right, ") && verdict.ends_with(" not made"), "{page}");
    // The doctor checks the official logits after the first kernels, so this early interruption leaves them unchecked.
    assert!(page.contains(" not checked\n") && page.contains("built-in model\n  not checked\n"), "{page}");
}

#[test]
fn convert_says_what_it_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../assets/models/small-world.safetensors");
    let out = folder.path().join("out.safetensors");
    for (args, dtypes) in [(&["--dtype", "f32"][..], " F32)"), (&["--quant", "i8"], " i8)")] {
        let output = run(&[&["convert", model, out.to_str().unwrap()], args].concat());
        assert_eq!(stdout(&output), "");
        let said = stderr(&output);
        let line = said.lines().find(|l| l.starts_with("wrote ")).unwrap_or_else(|| panic!("{said}"));
        let size = std::fs::metadata(&out).unwrap().len() as f64 / f64::from(1 << 20);
        assert!(line.contains("out.safetensors: ") && line.contains(" tensors (") && line.contains(dtypes), "{line}");
        assert!(line.contains(&format!("{size:.2} MiB")) && line.ends_with(" s"), "{line}");
        std::fs::remove_file(&out).unwrap();
    }
}

#[test]
fn nothing_is_said_after_a_text_that_goes_to_a_file() {
    let output = run(&words("generate light -n 4 --temp 0"));
    assert!(!stderr(&output).contains("first token"), "{}", stderr(&output));
    let report = json(&run(&words("generate light -n 4 --temp 0 --json")));
    let timings = &report["timings"];
    assert!(timings["first_token_ms"].as_f64().unwrap() >= timings["prefill_ms"].as_f64().unwrap(), "{timings}");
    let empty = json(&run(&words("generate light -n 0 --json")));
    assert!(empty["timings"].get("first_token_ms").is_none(), "{empty}");
}

#[test]
fn a_retry_keeps_the_name_that_was_typed() {
    let folder = tempfile::tempdir().unwrap();
    let messages = put(&folder, "messages", b"light\n/retry\n/clear\n/retry -temp=2\n/set temperature\n");
    let output = crate::cli::feed(&words("chat --seed 1 --json"), &std::fs::read(messages).unwrap());
    let answers: Vec<serde_json::Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let prompts: Vec<&str> = answers.iter().map(|a| a["prompt"].as_str().unwrap()).collect();
    assert_eq!(prompts, ["light", "/retry", "/retry -temp=2"]);
    assert!(stderr(&output).contains("the chat was restarted") && stderr(&output).contains("temperature is "), "{}", stderr(&output));
}
