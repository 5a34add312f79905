//! Tests that imports inside a layer form no circles. Among its siblings, a module and all its submodules count as one file: a parent re-exports
//! the items of its children, and a child may use its parent. Siblings may import each other in one direction only.

use std::collections::{BTreeMap, BTreeSet};

/// Circles of imports that are allowed, and the reason for each.
const KNOWN: &[(&[&str], &str)] = &[
    (&["exec/gpu/device", "exec/gpu/kernel"], "a device keeps the kernels that were made on it"),
    (&["exec/gpu/executor", "exec/gpu/model"], "a model makes its executors, and an executor reads its model's weights"),
];

type Modules = BTreeMap<String, String>;

/// Returns the code of every module by its path, such as `exec/gpu/device`. Tests are left out.
fn modules() -> Modules {
    let is_code = |file: &str| file.ends_with(".rs") && !file.contains("test");
    let sources = super::sources("src").into_iter().filter(|(file, _)| is_code(file));
    let name = |file: &str| file.trim_end_matches(".rs").trim_end_matches("/mod").to_string();
    let mut all: Modules = sources.map(|(file, text)| (name(&file), code(&text))).collect();
    // Modules that are declared for tests only.
    let only_tests: Vec<String> = all
        .iter()
        .flat_map(|(module, text)| {
            let declared = text.match_indices("#[cfg(test)]\nmod ").map(|(at, begin)| &text[at + begin.len()..]);
            declared.map(move |rest| format!("{module}/{}", rest.split(';').next().unwrap_or_default()))
        })
        .collect();
    all.retain(|module, _| !only_tests.contains(module));
    all
}

/// Returns a text without its comments and tests.
pub fn code(text: &str) -> String {
    let text = ["\n#[cfg(test)]\nmod tests {", "\n#[cfg(all(test, feature = \"embedded-model\"))]\nmod tests {"]
        .iter()
        .fold(text, |text, tests| text.split(tests).next().unwrap());
    text.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// Expands `a::{b, c::{d, e}}` to `a::b`, `a::c::d` and `a::c::e`.
fn expanded(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((prefix, rest)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap().trim().to_string()];
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in inner.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 { parts.push(String::new()) } else { parts.last_mut().unwrap().push(c) }
    }
    parts.iter().filter(|part| !part.trim().is_empty()).flat_map(|part| expanded(&format!("{prefix}{}", part.trim()))).collect()
}

/// Returns the paths of `use` items, or only of `pub use` items if `only_public` is true.
pub fn imports(text: &str, only_public: bool) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("use ") {
        let line = &text[text[..at].rfind('\n').map_or(0, |n| n + 1)..at];
        let is_item = line.trim().is_empty() || line.trim().starts_with("pub");
        if is_item && (!only_public || line.contains("pub")) {
            found.extend(expanded(&text[at + 4..].split(';').next().unwrap().replace('\n', " ")));
        }
    }
    found
}

/// Returns the paths that code names without a `use` item, such as `super::windows::ALIGN`.
pub fn named_in_place(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for start in ["super::", "crate::"] {
        for (at, _) in text.match_indices(start) {
            let end = text[at..].find(|c: char| !c.is_alphanumeric() && !"_:".contains(c)).map_or(text.len(), |n| at + n);
            found.push(text[at..end].trim_end_matches(':').to_string());
        }
    }
    found
}

/// Returns the module that a path leads to, and the name of the item in this module.
fn resolved(all: &Modules, module: &str, path: &str) -> Option<(String, Option<String>)> {
    let mut words: Vec<&str> = path.split("::").map(str::trim).filter(|word| !word.is_empty()).collect();
    let mut at: Vec<&str> = match words.first()? {
        &"crate" => vec![],
        &"super" | &"self" => module.split('/').collect(),
        word if all.contains_key(&format!("{module}/{word}")) => module.split('/').collect(),
        _ => return None,
    };
    while ["crate", "self", "super"].contains(words.first()?) {
        if words.remove(0) == "super" {
            at.pop();
        }
        if words.is_empty() {
            break;
        }
    }
    while let Some(word) = words.first().filter(|word| all.contains_key(&[at.as_slice(), &[*word]].concat().join("/"))) {
        at.push(word);
        words.remove(0);
    }
    Some((at.join("/"), words.first().map(|word| word.to_string())))
}

/// Returns, for each module, the siblings that it imports, each with one example of an import.
fn graph(all: &Modules) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut passed_on: BTreeMap<(String, String), String> = BTreeMap::new();
    for (module, text) in all {
        for (from, item) in imports(text, true).iter().filter_map(|path| resolved(all, module, path)) {
            if let Some(item) = item.filter(|_| from != *module) {
                passed_on.insert((module.clone(), item), from);
            }
        }
    }
    let mut graph: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (module, text) in all {
        for path in imports(text, false).into_iter().chain(named_in_place(text)) {
            let Some((mut target, item)) = resolved(all, module, &path) else { continue };
            while let Some(from) = item.as_ref().and_then(|item| passed_on.get(&(target.clone(), item.clone()))) {
                target.clone_from(from);
            }
            let (ours, theirs): (Vec<&str>, Vec<&str>) = (module.split('/').collect(), target.split('/').collect());
            let common = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
            // If the paths have no common beginning, they are in different layers. If one path begins with the other, they are parent and child.
            if (1..ours.len().min(theirs.len())).contains(&common) {
                let sibling = |of: &[&str]| of[..=common].join("/");
                graph.entry(sibling(&ours)).or_default().insert(sibling(&theirs), format!("{module} uses {path}"));
            }
        }
    }
    graph
}

/// Returns the circles: groups of modules that import one another, directly or through others.
fn circles(graph: &BTreeMap<String, BTreeMap<String, String>>) -> BTreeSet<Vec<String>> {
    let reach = |from: &str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.to_string()]);
        while let Some(next) = open.pop() {
            let new = graph.get(&next).into_iter().flat_map(BTreeMap::keys).filter(|other| seen.insert((*other).clone()));
            open.extend(new.cloned().collect::<Vec<_>>());
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = graph.keys().map(|module| (module, reach(module))).collect();
    let of = |module: &String| {
        let others = graph.keys().filter(|other| reached[module].contains(*other) && reached[other].contains(module));
        others.cloned().collect::<Vec<_>>()
    };
    graph.keys().map(of).filter(|circle| !circle.is_empty()).collect()
}

#[test]
fn files_of_a_layer_import_in_one_direction() {
    let all = modules();
    assert!(all.len() > 100 && all.contains_key("exec/gpu/device"), "{:?}", all.keys());
    let graph = graph(&all);
    let found = circles(&graph);
    let known: BTreeSet<Vec<String>> = KNOWN.iter().map(|(circle, _)| circle.iter().map(|m| m.to_string()).collect()).collect();
    let inside = |circle: &Vec<String>| -> Vec<&String> {
        let edges = circle.iter().flat_map(|module| graph[module].iter().filter(|(other, _)| circle.contains(other)));
        edges.map(|(_, example)| example).collect()
    };
    let new: Vec<_> = found.difference(&known).map(|circle| (circle, inside(circle))).collect();
    assert!(new.is_empty(), "{new:#?}");
    assert_eq!(known.difference(&found).next(), None, "these circles are gone: take them out of KNOWN");
    assert!(KNOWN.len() <= 2, "two circles are enough");
}

#[test]
fn a_circle_is_found() {
    let of = |files: &[(&str, &str)]| {
        let all = files.iter().map(|(module, text)| (module.to_string(), code(text))).collect();
        circles(&graph(&all)).into_iter().collect::<Vec<_>>()
    };
    let parent = ("l", "mod a;\nmod b;\npub use b::{B, other as C};\n");
    assert_eq!(of(&[parent, ("l/a", "use super::{B, x};\n"), ("l/b", "fn f() { super::a::g() }\n")]), [["l/a", "l/b"]]);
    assert!(of(&[parent, ("l/a", "use super::b::B; // super::c\n"), ("l/b", "use super::Parent;\n")]).is_empty());
    assert!(
        of(&[
            parent,
            ("l/a", "use crate::l::b::B;\n"),
            ("l/b", "#[cfg(test)]\nmod x;\n\n#[cfg(test)]\nmod tests {\n use super::super::a;\n}\n")
        ])
        .is_empty()
    );
}
