//! Tests that every relative link of a page leads to an existing file, and to an existing heading or anchor in this file.

use super::root;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the anchor that GitHub makes for a heading.
fn anchor(heading: &str) -> String {
    let is_kept = |c: &char| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_';
    heading.to_lowercase().chars().filter(is_kept).map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn has_anchor(page: &str, wanted: &str) -> bool {
    let is_heading = |line: &str| line.starts_with('#') && anchor(line.trim_start_matches('#').trim()) == wanted;
    page.contains(&format!("<a id=\"{wanted}\">")) || page.lines().any(is_heading)
}

/// Returns the relative links of a page that lead to no file, heading or anchor.
fn broken(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    // Code blocks are skipped, because brackets in code are not links.
    let prose: String = text.split("```").step_by(2).collect();
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let is_wrong = |target: &&str| {
        let (file, wanted) = target.split_once('#').map_or((*target, None), |(file, wanted)| (file, Some(wanted)));
        let file = if file.is_empty() { path.to_path_buf() } else { path.parent().unwrap().join(file) };
        !file.exists() || wanted.is_some_and(|wanted| !has_anchor(&fs::read_to_string(&file).unwrap_or_default(), wanted))
    };
    targets.filter(|target| !target.contains("://")).filter(is_wrong).map(|target| format!("{}: {target}", path.display())).collect()
}

#[test]
fn links_lead_somewhere() {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let others = [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "assets/README.md",
        "tests/README.md",
        "server/fields.md",
        "server/tests/README.md",
    ]
    .map(|page| root().join(page));
    let pages: Vec<PathBuf> = docs.filter(|path| path.extension().is_some_and(|e| e == "md")).chain(others).collect();
    let broken: Vec<String> = pages.iter().flat_map(|page| broken(page)).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn a_broken_link_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.md");
    fs::write(&page, "# One `two`\n[a](#one-two) [b](page.md) [c](none.md) [d](#three) [e](https://none.example)\n").unwrap();
    let found: Vec<String> = broken(&page).iter().map(|line| line.rsplit(' ').next().unwrap().into()).collect();
    assert_eq!(found, ["none.md", "#three"]);
}
