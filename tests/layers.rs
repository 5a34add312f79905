//! The house's layers: a file imports only from lower ones; only `exec::gpu` names wgpu; bindings are numbered in shaders only.

use std::fs;
use std::path::{Path, PathBuf};

/// Lowest first; modules of one row do not import each other.
const LAYERS: &[&[&str]] = &[
    &["error"],
    &["quant"],
    &["tensor"],
    &["sample", "weights", "vocab"],
    &["tape", "constrain", "template"],
    &["words"],
    &["arch", "exec"],
    &["session"],
    &["chat"],
    &["engine"],
    &["report"],
    &["cli", "serve"],
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

pub fn sources(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut found = Vec::new();
    files(&root, &mut found);
    found.iter().map(|p| (p.strip_prefix(&root).unwrap().display().to_string(), fs::read_to_string(p).unwrap())).collect()
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

/// A flag belongs to the program: elsewhere an error names the option, between backticks or as its field.
#[test]
fn only_the_program_names_flags() {
    // `--text`, but not `---` of a rule or a table.
    let names_a_flag = |line: &str| {
        line.match_indices("--").any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let is_begun = before.is_none_or(|c| !c.is_alphanumeric() && !"-<!".contains(c));
            is_begun && line[at + 2..].starts_with(|c: char| c.is_ascii_lowercase())
        })
    };
    assert!(names_a_flag("hint(\"use a smaller --context\")") && !names_a_flag("| --- | a--b <!--x"));
    for (file, text) in sources("src").iter().filter(|(file, _)| !file.starts_with("cli")) {
        let named = text.lines().find(|line| names_a_flag(line));
        assert!(named.is_none(), "{file}: {named:?}");
    }
}
