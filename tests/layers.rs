//! Tests the layers of the code. A module imports only from lower layers, only `exec::gpu` names wgpu, and only shaders number bindings.

mod circles;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::root;

/// The layers of the library's modules, lowest first. Modules of one layer do not import each other. The front ends are crates of their own.
const LAYERS: &[&[&str]] = &[
    &["error", "assets"],
    &["quant", "files"],
    &["tensor"],
    &["sample", "weights", "vocab"],
    &["tape", "constrain", "template"],
    &["words"],
    &["arch", "exec"],
    &["session"],
    &["calls"],
    &["chat"],
    &["engine"],
    &["conversation"],
];

/// Files above all layers, which may import every module.
const ABOVE: [&str; 3] = ["lib", "low_level", "seeds"];

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
    let root = root().join(folder);
    let mut found = Vec::new();
    files(&root, &mut found);
    found.iter().filter_map(|p| Some((p.strip_prefix(&root).unwrap().display().to_string(), fs::read_to_string(p).ok()?))).collect()
}

/// Returns the names and contents of the sources of the library, the server and the program.
pub fn crates() -> Vec<(String, String)> {
    // The published package has only the library.
    ["src", "server/src", "cli/src"]
        .into_iter()
        .filter(|folder| root().join(folder).is_dir())
        .flat_map(|folder| sources(folder).into_iter().map(move |(file, text)| (format!("{folder}/{file}"), text)))
        .collect()
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|row| row.contains(&module))
}

/// Returns the module that a name of the crate's root belongs to: the module of this name, or the module from which `lib.rs` re-exports the item.
fn home(root: &BTreeMap<String, String>, name: &str) -> String {
    root.get(name).cloned().unwrap_or_else(|| name.into())
}

/// Returns the items that the crate's root re-exports, and the module of each.
fn re_exports(lib: &str) -> BTreeMap<String, String> {
    let paths = circles::imports(&circles::code(lib), true);
    let pairs = paths.iter().filter_map(|path| Some((path.rsplit("::").next()?.to_string(), path.split("::").next()?.to_string())));
    pairs.collect()
}

/// Returns the first name of every path that begins with `crate::`, in `use` trees as the compiler reads them and anywhere else.
fn named_modules(text: &str) -> BTreeSet<String> {
    let text = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let paths = circles::imports(&text, false).into_iter().chain(circles::named_in_place(&text));
    let first = |path: String| Some(path.strip_prefix("crate::")?.split("::").next()?.split(" as ").next()?.trim().to_string());
    paths.filter_map(first).filter(|name| !name.is_empty()).collect()
}

#[test]
fn modules_import_downward_only() {
    let mut wrong = Vec::new();
    let all = sources("src");
    let root = re_exports(&all.iter().find(|(file, _)| file == "lib.rs").unwrap().1);
    assert_eq!(home(&root, "Engine"), "engine");
    for (file, text) in &all {
        let module = file.split(['/', '.']).next().unwrap();
        let Some(own) = layer(module) else {
            assert!(ABOVE.contains(&module) || !file.ends_with(".rs"), "{file} is in no layer");
            continue;
        };
        for other in named_modules(text).iter().map(|name| home(&root, name)) {
            if other != module && layer(&other).is_some_and(|theirs| theirs >= own) {
                wrong.push(format!("{file} imports {other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn grouped_imports_and_re_exports_are_seen() {
    let root = re_exports("pub use engine::{Engine, Event as E};\npub use chat::Format;\nuse session::Hidden;\n");
    let named = |text: &str| named_modules(text).iter().map(|name| home(&root, name)).collect::<Vec<_>>();
    assert_eq!(named("use crate::{engine::Request, session::{self, Model}};"), ["engine", "session"]);
    assert_eq!(
        named("use crate::Engine;\nfn f() -> crate::Format { crate::arch::g() }\n// crate::conversation"),
        ["engine", "chat", "arch"]
    );
}

#[test]
fn only_the_gpu_executor_names_wgpu() {
    for (file, text) in crates() {
        if !file.starts_with("src/exec/gpu") {
            let named = text.lines().find(|l| l.contains("wgpu::") && !l.trim_start().starts_with("//"));
            assert!(named.is_none(), "{file}: {named:?}");
        }
    }
}

#[test]
fn only_shaders_number_bindings() {
    for (file, text) in crates() {
        assert!(!text.contains("@binding(") && !text.contains("binding: 0"), "{file}");
    }
    for (file, text) in sources("shaders") {
        let limit = if file.starts_with("lib") { 60 } else { 150 };
        assert!(text.lines().count() <= limit, "{file} is longer than {limit} lines");
        assert!(text.starts_with("//"), "{file} does not begin with its formula or purpose");
    }
}

/// Long files mix several ideas, so a file of Rust code has at most 450 lines.
#[test]
fn files_are_short() {
    const LIMIT: usize = 450;
    let tests = ["tests", "server/tests", "cli/tests"].into_iter().filter(|folder| root().join(folder).is_dir());
    let tests = tests.flat_map(|folder| sources(folder).into_iter().map(move |(file, text)| (format!("{folder}/{file}"), text)));
    let all = crates().into_iter().chain(tests).filter(|(file, _)| file.ends_with(".rs"));
    let long: Vec<_> = all.filter(|(_, text)| text.lines().count() > LIMIT).map(|(file, _)| file).collect();
    assert!(long.is_empty(), "more than {LIMIT} lines: {long:?}");
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
    for (file, text) in crates().iter().filter(|(file, _)| file.ends_with(".rs") && !file.starts_with("cli")) {
        let named = text.lines().find(|line| names_a_flag(line));
        assert!(named.is_none(), "{file}: {named:?}");
    }
}

/// Calls that block a thread, and a clock that browsers do not have.
const NOT_IN_A_BROWSER: [&str; 3] = ["pollster::", "_blocking(", "std::time::Instant"];
/// Finds calls that do not work in browsers. Chromium runs the tests of web/test, but these tests do not reach every call.
#[test]
fn one_module_waits() {
    let mut wrong = Vec::new();
    for (file, text) in sources("src") {
        let is_elsewhere = file.contains("test") || file == "exec/wait.rs";
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
