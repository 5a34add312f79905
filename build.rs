//! Build script. Writes a table of all WGSL files in `shaders/`. The crate includes this table, so a new shader needs no registration.
//! Records the commit, target, profile and wgpu version for `wingbeat --version`.

#[path = "build/commit.rs"]
mod commit;

use std::{env, fs, path::Path};

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let out = env::var("OUT_DIR").expect("cargo sets it");
    let mut table = String::from("&[\n");
    visit(&Path::new(&root).join("shaders"), "", &mut table);
    table.push(']');
    fs::write(Path::new(&out).join("shaders.rs"), table).expect("the build folder is writable");
    write_page(&Path::new(&root).join("src/serve/page"), &Path::new(&out).join("page.rs"));
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    // The standard library has AVX-512 since Rust 1.89.
    println!("cargo:rustc-check-cfg=cfg(has_avx512)");
    if minor_version().is_some_and(|minor| minor >= 89) {
        println!("cargo:rustc-cfg=has_avx512");
    }
    println!("cargo:rustc-check-cfg=cfg(has_neon)");
    if has_neon() {
        println!("cargo:rustc-cfg=has_neon");
    }
    record_commit(Path::new(&root));
    record("TARGET", env::var("TARGET").ok());
    let level = env::var("OPT_LEVEL").unwrap_or_default();
    record("PROFILE", env::var("PROFILE").ok().map(|profile| format!("{profile}, opt-level {level}")));
    record("WGPU", locked(&Path::new(&root).join("Cargo.lock"), "wgpu"));
}

/// Writes the table `FILES`: the name and the content of each file in `folder`, the folder of the server's web page. A file in a subfolder has a
/// name such as `lib/code.js`.
fn write_page(folder: &Path, table: &Path) {
    let mut lines = String::new();
    visit_page(folder, "", &mut lines);
    fs::write(table, format!("const FILES: &[(&str, &[u8])] = &[\n{lines}];\n")).expect("the build folder is writable");
}

fn visit_page(folder: &Path, prefix: &str, lines: &mut String) {
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut paths: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if path.is_dir() {
            visit_page(&path, &format!("{prefix}{name}/"), lines);
        } else if let Some(place) = path.to_str() {
            println!("cargo:rerun-if-changed={place}");
            lines.push_str(&format!("({:?}, include_bytes!({place:?}).as_slice()),\n", format!("{prefix}{name}")));
        }
    }
}

/// Returns the minor version of the compiler: 89 for Rust 1.89. Returns `None` if the version cannot be read.
fn minor_version() -> Option<u32> {
    let output = std::process::Command::new(env::var_os("RUSTC")?).arg("--version").output().ok()?;
    String::from_utf8(output.stdout).ok()?.split('.').nth(1)?.parse().ok()
}

/// Returns whether every CPU of the target has NEON, and the bytes of numbers in memory are in the order of the weights' files.
fn has_neon() -> bool {
    let target = |key: &str| env::var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
    target("ARCH") == "aarch64" && target("ENDIAN") == "little" && target("FEATURE").split(',').any(|feature| feature == "neon")
}

/// Sets the environment variable `WINGBEAT_BUILD_{name}` for the compilation of the crate, which reads it with `option_env!`. Does nothing
/// if `value` is `None`.
fn record(name: &str, value: Option<String>) {
    if let Some(value) = value {
        println!("cargo:rustc-env=WINGBEAT_BUILD_{name}={value}");
    }
}

/// Records the commit of the sources. The environment variable `WINGBEAT_COMMIT` overrides the commit, for builds from an archive.
///
/// A build that records the commit watches git's files. Each new commit then runs this script again, and cargo compiles the crate again. Dev builds
/// are frequent, so only release builds search for the commit.
fn record_commit(root: &Path) {
    println!("cargo:rerun-if-env-changed=WINGBEAT_COMMIT");
    let given = env::var("WINGBEAT_COMMIT").ok().filter(|commit| !commit.is_empty());
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if given.is_some() || !is_release {
        return record("COMMIT", given);
    }
    let found = commit::of(root);
    found.watch.iter().for_each(|path| println!("cargo:rerun-if-changed={}", path.display()));
    record("COMMIT", found.commit);
}

/// Returns the version of the dependency `name` in `Cargo.lock`, or `None` if the file or the dependency is missing.
fn locked(lock: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(lock).ok()?;
    println!("cargo:rerun-if-changed={}", lock.display());
    let entry = text.split("[[package]]").find(|entry| entry.contains(&format!("\nname = \"{name}\"\n")))?;
    let line = entry.lines().find_map(|line| line.strip_prefix("version = "))?;
    Some(line.trim_matches('"').to_string())
}

/// Appends one pair `("name", include_str!("path"))` to `table` for each WGSL file in `folder` and its subfolders. A name is `prefix`, then
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
            table.push_str(&format!("    ({:?}, include_str!({:?})),\n", format!("{prefix}{name}"), path.display().to_string()));
        }
    }
}
