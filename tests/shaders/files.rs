//! Tests the form of the shader files: how they are indented, and what the comments at their top say about slots.

use super::all;
use crate::layers::sources;
use std::collections::{BTreeMap, BTreeSet};
use wingbeat::low_level::exec::gpu::{indented, slots};

/// Every line is indented by four spaces per bracket depth, also in `unroll`.
#[test]
fn shaders_are_indented_by_their_brackets() {
    for (file, text) in sources("shaders") {
        let wrong = text.lines().zip(indented(&text).lines()).position(|(found, expected)| found != expected);
        if let Some(i) = wrong {
            let expected = indented(&text).lines().nth(i).unwrap().to_string();
            panic!("shaders/{file}, line {}: expected the indentation of\n{expected}", i + 1);
        }
    }
}

/// A slot is a placeholder for a module, which the recipe of a kernel fills. The comment at the top of a file has the line `// Slot NAME: MODULES`
/// for each slot from which the file imports, and for no other slot. MODULES are all modules that fill the slot in some recipe.
#[test]
fn shaders_name_the_modules_that_fill_their_slots() {
    let files: BTreeMap<String, String> =
        sources("shaders").into_iter().map(|(f, text)| (f.trim_end_matches(".wgsl").into(), text)).collect();
    let mut fillers: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for found in all().iter().flat_map(|(recipe, _)| slots(recipe).unwrap()) {
        fillers.entry((found.file, found.slot)).or_default().insert(found.module);
    }
    let mut wrong = Vec::new();
    for (file, text) in &files {
        let header: Vec<&str> =
            text.lines().take_while(|line| line.starts_with("//")).filter(|line| line.starts_with("// Slot ")).collect();
        let mut expected = Vec::new();
        for slot in text.lines().filter_map(|line| line.strip_prefix("import package::slot::")?.split("::").next()) {
            let modules = fillers.get(&(file.clone(), slot.to_string()));
            let line = format!("// Slot {slot}: {}", listed(modules.unwrap_or(&BTreeSet::new()), &files));
            if !expected.contains(&line) {
                expected.push(line);
            }
        }
        if header != expected {
            wrong.push(format!("shaders/{file}.wgsl: write these lines in the comment at the top:\n{}", expected.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Lists modules. If a folder has more than one module and all of its modules are in the list, the list names `folder/*` in their place.
fn listed(modules: &BTreeSet<String>, files: &BTreeMap<String, String>) -> String {
    let folder = |path: &str| path.split('/').next().unwrap_or_default().to_string();
    let mut names: Vec<String> = Vec::new();
    for module in modules {
        let of_folder = || files.keys().filter(|file| folder(file) == folder(module));
        let is_whole = of_folder().count() > 1 && of_folder().all(|file| modules.contains(file));
        let name = if is_whole { format!("{}/*", folder(module)) } else { module.clone() };
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}
