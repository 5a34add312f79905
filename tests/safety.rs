//! Tests that the table in `tests/unsafe.md` lists every file with unsafe blocks, and the number of these blocks.

use crate::layers::crates;
use std::collections::BTreeMap;

#[test]
fn every_unsafe_block_has_its_argument_in_the_docs() {
    let page = include_str!("unsafe.md");
    let table = page.split("## Unsafe blocks").nth(1).expect("the page has the table");
    let mut documented = BTreeMap::new();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let n: usize = cells[2].parse().expect("the second column is a number");
        let mut folder = String::new();
        for name in cells[1].split(',').map(|name| name.trim().trim_matches('`')) {
            if let Some((parent, _)) = name.rsplit_once('/') {
                folder = format!("{parent}/");
            }
            let path = if name.contains('/') { name.to_string() } else { format!("{folder}{name}") };
            documented.insert(path, n);
        }
        assert!(cells[3].len() > 20, "{row}");
    }
    let is_unsafe =
        |line: &&str| !line.trim_start().starts_with("//") && line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == "unsafe");
    let found: BTreeMap<String, usize> = crates()
        .into_iter()
        .filter(|(file, _)| file.ends_with(".rs"))
        .map(|(file, text)| (file, text.lines().filter(is_unsafe).count()))
        .filter(|(_, n)| *n > 0)
        .collect();
    assert_eq!(documented, found);
}
