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

/// Calls and types that block a thread, start a thread, or need a clock that browsers do not have.
const NOT_IN_A_BROWSER: [&str; 7] =
    ["block_on", "_blocking(", "thread::spawn", "thread::scope", "thread::Builder", "thread::sleep", "std::time::Instant"];

/// Returns whether an attribute leaves the next item out of the library for browsers.
fn leaves_out(attribute: &str) -> bool {
    let cfg: String = attribute.split_whitespace().collect();
    let is_exempt = ["not(target_arch=\"wasm32\")", "cfg(test)", "all(test,", "feature=\"cli\""].iter().any(|part| cfg.contains(part));
    cfg.starts_with("#[cfg(") && !cfg.starts_with("#[cfg(not(all(") && is_exempt && !cfg.contains("any(")
}

/// Returns a file's text without the items that the library for browsers leaves out, and the names of the modules among these items.
fn in_a_browser(text: &str) -> (String, Vec<String>) {
    let (mut kept, mut modules, mut lines) = (String::new(), Vec::new(), text.lines().peekable());
    while let Some(line) = lines.next() {
        if !leaves_out(line.trim_start()) {
            // Comments are not checked.
            kept += line.split("//").next().unwrap_or_default();
            kept.push('\n');
            continue;
        }
        // The item ends at its last closing brace, or at a semicolon or comma before any brace.
        let mut depth = 0isize;
        for line in lines.by_ref() {
            let item = line.trim().trim_start_matches("pub(crate) ").trim_start_matches("pub ");
            if let Some(name) = item.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) {
                modules.push(name.to_string());
            }
            let (opened, closed) = (line.matches(['{', '(', '[']).count(), line.matches(['}', ')', ']']).count());
            depth += opened as isize - closed as isize;
            if depth < 0 || depth == 0 && line.trim_end().ends_with(['}', ';', ',']) {
                break;
            }
        }
    }
    (kept, modules)
}

#[test]
fn a_browsers_library_neither_blocks_nor_starts_threads() {
    let sample =
        "fn a() {}\n#[cfg(not(target_arch = \"wasm32\"))]\nfn b() {\n    block_on(a)\n}\nfn c() {}\n#[cfg(test)]\nmod tests;\nfn d() {}";
    let (kept, modules) = in_a_browser(sample);
    assert_eq!((kept.as_str(), modules), ("fn a() {}\nfn c() {}\nfn d() {}\n", vec!["tests".to_string()]));

    let all: Vec<(String, String, Vec<String>)> = sources("src")
        .into_iter()
        .map(|(file, text)| {
            let (kept, modules) = in_a_browser(&text);
            // `low_level.rs` declares modules whose folders are beside it, as `lib.rs` does.
            let file = if file == "low_level.rs" { "lib.rs".into() } else { file };
            let folder = file.trim_end_matches("mod.rs").trim_end_matches("lib.rs").trim_end_matches(".rs").trim_end_matches('/');
            let path = |name: &String| if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            (file.clone(), kept, modules.iter().map(path).collect())
        })
        .collect();
    let left_out: Vec<&String> = all.iter().flat_map(|(_, _, modules)| modules).collect();
    assert!(left_out.iter().any(|module| *module == "exec/blocking") && left_out.iter().any(|module| *module == "report"), "{left_out:?}");
    let is_left_out =
        |file: &str| left_out.iter().any(|module| file.strip_prefix(module.as_str()).is_some_and(|rest| rest.starts_with(['.', '/'])));
    let mut wrong = Vec::new();
    for (file, kept, _) in all.iter().filter(|(file, ..)| file != "main.rs" && !is_left_out(file)) {
        for line in kept.lines() {
            if NOT_IN_A_BROWSER.iter().any(|word| line.contains(word)) || line.contains("std::time::{") && line.contains("Instant") {
                wrong.push(format!("{file}: {}", line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
