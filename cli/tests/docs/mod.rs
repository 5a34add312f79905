//! Runs every console block of the README and of `docs/`, and compares the program's output with the output on the page.
//!
//! The commands run in a temporary folder. The folder has links to the repository's `tests`, `tools` and `examples`, and tiny models under the names
//! that the pages use for real models. A block that cannot run here has a comment above it that says why.

mod links;
mod page;
mod server;

use page::{Command, commands, matches};
use server::{Server, is_server};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

/// Files that the pages name, and the files or folders of the repository that replace them here.
const FILES: [(&str, &str); 10] = [
    ("model.pth", "assets/models/small-world.safetensors"),
    ("rwkv7-g1-1.5b.pth", "assets/models/small-world.safetensors"),
    ("vocab.txt", "assets/vocab/small-world.txt"),
    ("glm-4-9b-chat/config.json", "tests/models/tiny-glm4/config.json"),
    ("glm-4-9b-chat/model.safetensors", "tests/models/tiny-glm4/model.safetensors"),
    ("glm-4-9b-chat/vocab.txt", "assets/vocab/tiny.txt"),
    ("raven-7b.pth", "tests/models/tiny-rwkv4.safetensors"),
    ("examples", "examples"),
    ("tests", "tests"),
    ("tools", "tools"),
];
const TEXTS: [(&str, &str); 3] = [
    ("prompts.jsonl", "{\"id\": 1, \"prompt\": \"Once upon a time\", \"max_tokens\": 8}\n"),
    ("introduction.txt", "Once upon a time\n"),
    ("review.txt", "The fox was happy.\n"),
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn sandbox() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, target) in FILES {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(root().join(target), path).unwrap();
    }
    for (name, text) in TEXTS {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Returns a process that runs a command in bash. The folder of the program is the first in `PATH`.
fn bash(command: &str, folder: &Path) -> std::process::Command {
    let program = Path::new(env!("CARGO_BIN_EXE_wingbeat")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let mut bash = std::process::Command::new("bash");
    bash.args(["-o", "pipefail", "-c", command]).current_dir(folder).env("PATH", path).env("HOME", folder).env("NO_COLOR", "1");
    // Removes variables that configure other test runs, because the pages do not set them.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WINGBEAT_") || name == "RUST_LOG") {
        bash.env_remove(name);
    }
    bash
}

/// Runs a command in bash.
fn run(command: &str, input: &str, folder: &Path) -> Output {
    let mut bash = bash(command, folder);
    let typed = folder.join(".typed");
    fs::write(&typed, input).unwrap();
    bash.stdin(fs::File::open(typed).unwrap()).stdout(Stdio::piped()).stderr(Stdio::piped());
    bash.output().unwrap()
}

/// Returns the lines that begin with `name`, without the name.
fn said(shown: &[String], name: &str) -> Vec<String> {
    shown.iter().filter_map(|line| line.strip_prefix(name)).map(String::from).collect()
}

/// Returns the program that a command needs and this machine does not have, or `None` if the command can run.
fn missing(command: &Command) -> Option<&'static str> {
    let is_missing = |program: &str| std::process::Command::new(program).arg("--version").output().is_err();
    let is_needed = |program: &str| command.text.starts_with(&format!("{program} ")) || command.text.contains(&format!("| {program} "));
    ["jq", "curl", "python3"].into_iter().find(|program| is_needed(program) && is_missing(program))
}

/// Runs a command. Returns a description of what is wrong, or `None` if the output agrees with the page.
fn fault(command: &Command, folder: &Path) -> Option<String> {
    if let Some(program) = missing(command) {
        eprintln!("SKIPPED: {} (no {program})", command.text);
        return None;
    }
    let is_talk = command.text.starts_with("wingbeat chat") && ![" | ", " -p "].iter().any(|part| command.text.contains(part));
    let shown = command.shown.clone();
    // For a conversation at a terminal, the typed messages are piped in, and the answers are compared.
    let (input, shown) = match shown {
        Some(shown) if is_talk => (said(&shown, "User: ").join("\n"), Some(said(&shown, "Assistant: "))),
        shown => (String::new(), shown),
    };
    let output = run(&command.text, &input, folder);
    let [text, aside] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let is_error = shown.as_ref().is_some_and(|shown| shown.iter().any(|line| line.starts_with("error: ")));
    if output.status.success() == is_error {
        return Some(format!("{}\n{text}{aside}", output.status));
    }
    let all = format!("{text}{aside}");
    let is_right = |shown: &[String]| [&text, &all].iter().any(|found| matches(shown, &found.lines().collect::<Vec<_>>()));
    match shown {
        Some(shown) if !shown.is_empty() && !is_right(&shown) => Some(format!("the page shows\n{}\nfound\n{all}", shown.join("\n"))),
        _ => None,
    }
}

fn check(page: &str) {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let folder = sandbox();
    for (name, content) in page::files(&text) {
        fs::write(folder.path().join(name), content).unwrap();
    }
    let mut server = None;
    let faults = commands(&text).into_iter().filter_map(|mut command| {
        let fault = if is_server(&command.text) {
            // The earlier server ends first.
            drop(server.take());
            Server::start(&command.text, folder.path()).map(|started| server = Some(started)).err()
        } else {
            if let Some(server) = &server {
                command.text = server.at_address(&command.text);
                command.shown.iter_mut().flatten().for_each(|line| *line = server.at_address(line));
            }
            fault(&command, folder.path())
        }?;
        Some(format!("{page}:{}: {}\n{fault}", command.line, command.text))
    });
    let faults: Vec<String> = faults.collect();
    drop(server);
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// Makes one test for each page, so that the pages run in parallel.
macro_rules! pages {
    ($($test:ident $page:literal)*) => {
        const PAGES: &[&str] = &[$($page),*];
        $(#[test] fn $test() { check($page) })*
    };
}

pages! {
    readme "README.md"
    api "docs/api.md"
    architecture "docs/ARCHITECTURE.md"
    batch "docs/batch.md"
    browser "docs/browser.md"
    chat "docs/chat.md"
    deployment "docs/deployment.md"
    devices "docs/devices.md"
    embeddings "docs/embeddings.md"
    environment "docs/environment.md"
    files "docs/files.md"
    grammars "docs/grammars.md"
    kernels "docs/kernels.md"
    migrating "docs/migrating.md"
    models "docs/models.md"
    outputs "docs/outputs.md"
    performance "docs/performance.md"
    python "docs/python.md"
    quantisation "docs/quantisation.md"
    ray "docs/ray.md"
    safety "docs/safety.md"
    sampling "docs/sampling.md"
    scale "docs/scale.md"
    speculation "docs/speculation.md"
    server "docs/server.md"
    state_files "docs/state-files.md"
    strategies "docs/strategies.md"
    tools "docs/tools.md"
}

#[test]
fn every_page_with_commands_is_checked() {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|e| e == "md")).chain([root().join("README.md")]);
    let forgotten: Vec<PathBuf> = pages
        .filter(|path| !commands(&fs::read_to_string(path).unwrap()).is_empty())
        .filter(|path| !PAGES.iter().any(|page| root().join(page) == *path))
        .collect();
    assert!(forgotten.is_empty(), "add these to `pages!`: {forgotten:?}");
}

#[test]
fn a_wrong_page_is_found() {
    let folder = sandbox();
    let command = |text: &str, shown: &str| Command { line: 1, text: text.into(), shown: Some(vec![shown.into()]) };
    assert_eq!(fault(&command("wingbeat tokenize --vocab world \"Hello, world\"", "33155 45 40213"), folder.path()), None);
    assert!(fault(&command("wingbeat tokenize --vocab world \"Hello, world\"", "33155 45 40214"), folder.path()).is_some());
    assert!(fault(&command("wingbeat inspect no-such-file", "…"), folder.path()).is_some());
}
