//! Build script. Records the commit, target, profile and wgpu version for `wingbeat --version`.

#[path = "build/commit.rs"]
mod commit;

use std::{env, fs, path::Path};

fn main() {
    let package = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    // In the repository the package is a folder of the workspace, which has the commit and the lockfile. A published package has both itself.
    let workspace = Path::new(&package).parent().filter(|folder| folder.join("Cargo.lock").is_file());
    let root = workspace.unwrap_or(Path::new(&package));
    record_commit(root);
    record("TARGET", env::var("TARGET").ok());
    let level = env::var("OPT_LEVEL").unwrap_or_default();
    record("PROFILE", env::var("PROFILE").ok().map(|profile| format!("{profile}, opt-level {level}")));
    record("WGPU", locked(&root.join("Cargo.lock"), "wgpu"));
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
