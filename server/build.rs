//! Build script. Writes a table of the chat page's files (`page/`) that becomes a part of the program, so the server needs no files to show the page.

use std::{env, fs, path::Path};

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let out = env::var("OUT_DIR").expect("cargo sets it");
    println!("cargo:rerun-if-changed=build.rs");
    write_page(&Path::new(&root).join("page"), &Path::new(&out).join("page.rs"));
}

/// Writes the table `FILES` to the file `table`: name and content of each file in `folder`. A file in a subfolder has a name such as `lib/code.js`.
fn write_page(folder: &Path, table: &Path) {
    let mut lines = String::new();
    visit_page(folder, "", &mut lines);
    fs::write(table, format!("const FILES: &[(&str, &[u8])] = &[\n{lines}];\n")).expect("the build folder is writable");
}

fn visit_page(folder: &Path, prefix: &str, lines: &mut String) {
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut paths: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    // The page's package.json is for developers: it names the versions of the libraries.
    for path in paths.into_iter().filter(|path| !path.ends_with("package.json")) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if path.is_dir() {
            visit_page(&path, &format!("{prefix}{name}/"), lines);
        } else if let Some(place) = path.to_str() {
            println!("cargo:rerun-if-changed={place}");
            lines.push_str(&format!("({:?}, include_bytes!({place:?}).as_slice()),\n", format!("{prefix}{name}")));
        }
    }
}
