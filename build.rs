//! Lists the shaders, so that adding one is adding a file.

use std::{env, fs, path::Path};

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let out = env::var("OUT_DIR").expect("cargo sets it");
    let mut table = String::from("&[\n");
    visit(&Path::new(&root).join("shaders"), "", &mut table);
    table.push(']');
    fs::write(Path::new(&out).join("shaders.rs"), table).expect("the build folder is writable");
}

fn visit(folder: &Path, prefix: &str, table: &mut String) {
    println!("cargo:rerun-if-changed={}", folder.display());
    let entries = fs::read_dir(folder).expect("the shaders are part of the package");
    let mut entries: Vec<_> = entries.map(|e| e.expect("a readable folder").path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_stem().expect("a named file").to_string_lossy().into_owned();
        if path.is_dir() {
            visit(&path, &format!("{prefix}{name}/"), table);
        } else if path.extension().is_some_and(|e| e == "wgsl") {
            table.push_str(&format!("    ({:?}, include_str!({:?})),\n", format!("{prefix}{name}"), path.display().to_string()));
        }
    }
}
