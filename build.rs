//! Build script. Writes a table of all WGSL files in `shaders/`. The crate includes this table, so a new shader needs no registration.
//! In WebAssembly, where every byte is downloaded, the files have no comments. Finds out which instructions of the CPU the compiler knows.

use std::{env, fs, path::Path};

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let out = env::var("OUT_DIR").expect("cargo sets it");
    let mut table = String::from("&[\n");
    visit(&Path::new(&root).join("shaders"), "", &mut table);
    table.push(']');
    fs::write(Path::new(&out).join("shaders.rs"), table).expect("the build folder is writable");
    println!("cargo:rerun-if-changed=build.rs");
    // The standard library has AVX-512 since Rust 1.89.
    println!("cargo:rustc-check-cfg=cfg(has_avx512)");
    if minor_version().is_some_and(|minor| minor >= 89) {
        println!("cargo:rustc-cfg=has_avx512");
    }
    println!("cargo:rustc-check-cfg=cfg(has_neon)");
    if has_neon() {
        println!("cargo:rustc-cfg=has_neon");
    }
    println!("cargo:rustc-check-cfg=cfg(has_simd128)");
    if target("ARCH") == "wasm32" && has_feature("simd128") {
        println!("cargo:rustc-cfg=has_simd128");
    }
}

/// Returns the minor version of the compiler: 89 for Rust 1.89. Returns `None` if the version cannot be read.
fn minor_version() -> Option<u32> {
    let output = std::process::Command::new(env::var_os("RUSTC")?).arg("--version").output().ok()?;
    String::from_utf8(output.stdout).ok()?.split('.').nth(1)?.parse().ok()
}

/// Returns whether every CPU of the target has NEON and is little-endian, as the weights' files are.
fn has_neon() -> bool {
    target("ARCH") == "aarch64" && target("ENDIAN") == "little" && has_feature("neon")
}

/// Returns whether the target is compiled for `feature`.
fn has_feature(feature: &str) -> bool {
    target("FEATURE").split(',').any(|found| found == feature)
}

/// Returns a property of the target from cargo: `ARCH`, `ENDIAN` or `FEATURE`.
fn target(key: &str) -> String {
    env::var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default()
}

/// Appends one pair of a name and a text to `table` for each WGSL file in `folder` and its subfolders. A name is `prefix`, then
/// the file's path in `folder` without its extension.
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
            let text = match target("ARCH").as_str() {
                "wasm32" => format!("{:?}", without_comments(&fs::read_to_string(&path).expect("a readable shader"))),
                _ => format!("include_str!({:?})", path.display().to_string()),
            };
            table.push_str(&format!("    ({:?}, {text}),\n", format!("{prefix}{name}")));
        }
    }
}

/// Returns WGSL without comments and without empty lines. The shaders have no comments of the form `/* */`.
fn without_comments(text: &str) -> String {
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default().trim_end());
    code.filter(|line| !line.is_empty()).flat_map(|line| [line, "\n"]).collect()
}
