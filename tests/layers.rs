//! Tests the layers of the code. A module imports only from lower layers, only `exec::gpu` names wgpu, and only shaders number bindings.

mod circles;

use std::fs;
use std::path::{Path, PathBuf};

/// The layers of the modules, lowest first. Modules of one layer do not import each other.
const LAYERS: &[&[&str]] = &[
    &["error"],
    &["quant", "files"],
    &["tensor"],
    &["sample", "weights", "vocab"],
    &["tape", "constrain", "template", "hub"],
    &["words"],
    &["arch", "exec"],
    &["session"],
    &["calls"],
    &["chat"],
    &["engine"],
    &["conversation"],
    &["report"],
    &["serve"],
    &["cli"],
];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Returns the names and contents of all files in a folder of the repository, except pictures.
pub fn sources(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut found = Vec::new();
    files(&root, &mut found);
    found.iter().filter_map(|p| Some((p.strip_prefix(&root).unwrap().display().to_string(), fs::read_to_string(p).ok()?))).collect()
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|row| row.contains(&module))
}

#[test]
fn modules_import_downward_only() {
    let mut wrong = Vec::new();
    for (file, text) in sources("src") {
        let module = file.split(['/', '.']).next().unwrap();
        let Some(own) = layer(module) else { continue };
        for (at, _) in text.match_indices("crate::") {
            let other: String = text[at + 7..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if other != module && layer(&other).is_some_and(|theirs| theirs >= own) {
                wrong.push(format!("{file} imports {other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn only_the_gpu_executor_names_wgpu() {
    for (file, text) in sources("src") {
        if !file.starts_with("exec/gpu") {
            let named = text.lines().find(|l| l.contains("wgpu::") && !l.trim_start().starts_with("//"));
            assert!(named.is_none(), "{file}: {named:?}");
        }
    }
}

#[test]
fn only_shaders_number_bindings() {
    for (file, text) in sources("src") {
        assert!(!text.contains("@binding(") && !text.contains("binding: 0"), "{file}");
    }
    for (file, text) in sources("shaders") {
        let limit = if file.starts_with("lib") { 60 } else { 150 };
        assert!(text.lines().count() <= limit, "{file} is longer than {limit} lines");
        assert!(text.starts_with("//"), "{file} does not begin with its formula or purpose");
    }
}

/// Only the program has flags. Errors of all other modules name the option in backticks, or as the error's field.
#[test]
fn only_the_program_names_flags() {
    // Matches `--text`, but not `---` as in a rule or a table.
    let names_a_flag = |line: &str| {
        line.match_indices("--").any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let is_begun = before.is_none_or(|c| !c.is_alphanumeric() && !"-<!".contains(c));
            is_begun && line[at + 2..].starts_with(|c: char| c.is_ascii_lowercase())
        })
    };
    assert!(names_a_flag("hint(\"use a smaller --context\")") && !names_a_flag("| --- | a--b <!--x"));
    for (file, text) in sources("src").iter().filter(|(file, _)| file.ends_with(".rs") && !file.starts_with("cli")) {
        let named = text.lines().find(|line| names_a_flag(line));
        assert!(named.is_none(), "{file}: {named:?}");
    }
}

/// Calls that block a thread, and a clock that browsers do not have.
const NOT_IN_A_BROWSER: [&str; 3] = ["pollster::", "_blocking(", "std::time::Instant"];
/// Parts of the program that no browser has.
const ELSEWHERE: [&str; 5] = ["cli", "hub", "main.rs", "report", "serve"];

/// Chromium runs the tests of web/test. This test finds a wait that they do not reach.
#[test]
fn one_module_waits() {
    let mut wrong = Vec::new();
    for (file, text) in sources("src") {
        let is_elsewhere = ELSEWHERE.iter().any(|part| file.starts_with(part)) || file.contains("test") || file == "exec/wait.rs";
        let own = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for line in own.lines().filter(|line| !is_elsewhere && !line.trim_start().starts_with("//")) {
            let waits = NOT_IN_A_BROWSER.iter().any(|word| line.contains(word));
            if waits || line.contains("std::time::{") && line.contains("Instant") {
                wrong.push(format!("{file}: {}", line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "use exec/wait.rs and web_time: {wrong:#?}");
}
