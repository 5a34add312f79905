//! Tests the program with a cache that other programs wrote, left incomplete, or damaged.

use super::{COMMIT, Hub, MODEL};
use crate::cli::{json, refused, stderr, stdout};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const REPOSITORY: &str = "hub/models--me--models";

/// Starts a hub, and pulls its model into a new folder.
fn pulled() -> (Hub, tempfile::TempDir, PathBuf) {
    let (hub, home) = (Hub::start(), tempfile::tempdir().unwrap());
    let path = stdout(&hub.run(&["pull", MODEL], home.path()));
    (hub, home, path.trim_end().into())
}

fn pipe(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let _ = fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Checks that `pull` printed the path of the model in the cache, and a note with `said`.
fn is_kept(output: &std::process::Output, path: &Path, said: &str) {
    assert_eq!(stdout(output).trim_end(), path.to_str().unwrap());
    let note = stderr(output);
    assert!(note.contains("note: ") && note.contains(said) && note.contains("the copy in the cache"), "{note:?}");
}

/// Returns the name, the size in bytes and the field `partial` of each entry of `list --json`.
fn listed(hub: &Hub, home: &Path) -> Vec<(String, u64, bool)> {
    let value = json(&hub.run(&["list", "--json"], home));
    let row = |row: &serde_json::Value| {
        (row["name"].as_str().unwrap().into(), row["size_bytes"].as_u64().unwrap(), row["partial"].as_bool().unwrap())
    };
    value.as_array().unwrap().iter().map(row).collect()
}

#[test]
fn a_cached_model_is_pulled_without_a_network() {
    let (hub, home, path) = pulled();
    let n = hub.n_requests();
    let offline = hub.run_with(&["pull", MODEL], home.path(), &[("HF_HUB_OFFLINE", "1")]);
    is_kept(&offline, &path, "HF_HUB_OFFLINE forbids connections");
    is_kept(&hub.run_with(&["pull", "hf:me/models"], home.path(), &[("HF_HUB_OFFLINE", "1")]), &path, "HF_HUB_OFFLINE");
    let unknown = hub.run_with(&["pull", MODEL], home.path(), &[("HF_ENDPOINT", "http://hub.invalid")]);
    is_kept(&unknown, &path, "cannot reach the hub");
    assert_eq!(hub.n_requests(), n);
    refused(&hub.run_with(&["pull", "hf:me/other"], home.path(), &[("HF_HUB_OFFLINE", "1")]), 1, "HF_HUB_OFFLINE");
}

#[test]
fn a_cached_model_is_pulled_from_a_cache_that_cannot_be_written() {
    let (hub, home, path) = pulled();
    let locks = home.path().join("hub/.locks");
    fs::remove_dir_all(&locks).unwrap();
    fs::write(&locks, "no folder").unwrap();
    let same = hub.run(&["pull", MODEL], home.path());
    assert_eq!(
        (stdout(&same).trim_end(), stderr(&same).as_str()),
        (path.to_str().unwrap(), ""),
        "nothing is written for a model that is there"
    );
    // The cache has the model of an older commit, and nothing can be added to the cache: a file has the name of the folder that a new commit needs.
    // Unlike permissions, this also stops the superuser.
    let repository = home.path().join(REPOSITORY);
    let older = repository.join("snapshots").join("f".repeat(40));
    fs::rename(repository.join("snapshots").join(COMMIT), &older).unwrap();
    fs::write(repository.join("snapshots").join(COMMIT), "no folder").unwrap();
    let kept = hub.run(&["pull", MODEL], home.path());
    is_kept(&kept, &older.join("tiny.safetensors"), "cannot be written");
}

#[test]
fn interrupted_downloads_are_listed_and_removed() {
    let (hub, home, _) = pulled();
    let blobs = home.path().join(REPOSITORY).join("blobs");
    let whole = listed(&hub, home.path());
    let (own, old, new) = ("1".repeat(64), "2".repeat(64), "3".repeat(64));
    let lock = |etag: &str| home.path().join(format!("hub/.locks/models--me--models/{etag}.lock"));
    fs::write(lock(&own), "sub/half.pth").unwrap();
    fs::write(lock(&old), "../../../x").unwrap();
    fs::write(blobs.join(format!("{own}.incomplete")), "12345").unwrap();
    fs::write(blobs.join(format!("{old}.incomplete")), "123").unwrap();
    fs::write(blobs.join(format!("{new}.0123abcd.incomplete")), "1").unwrap();
    pipe(&blobs.join(format!("{}.incomplete", "4".repeat(64))));
    let mut all = listed(&hub, home.path());
    assert_eq!((all.remove(all.iter().position(|row| !row.2).unwrap()), all.len()), (whole[0].clone(), 3));
    all.sort();
    let partial = |name: &str, size| (name.to_string(), size, true);
    assert_eq!(all, [partial("hf:me/models", 1), partial("hf:me/models", 3), partial("hf:me/models/sub/half.pth", 5)]);
    let text = stdout(&hub.run(&["list"], home.path()));
    assert_eq!(text.lines().filter(|line| line.ends_with("(partial)")).count(), 3, "{text}");
    let missing = hub.run(&["rm", "--yes", "hf:me/models/other.pth"], home.path());
    assert!(stderr(&missing).contains("rm --partial hf:me/models"), "{}", stderr(&missing));
    assert!(stderr(&hub.run(&["rm", "--yes", "hf:me/models/sub/half.pth"], home.path())).contains("removed"));
    assert_eq!(listed(&hub, home.path()).len(), 3);
    let held = fs::File::open(lock(&old)).unwrap();
    held.lock().unwrap();
    refused(&hub.run(&["rm", "--yes", "--partial", "hf:me/models"], home.path()), 1, "another process downloads");
    refused(&hub.run(&["rm", "--yes", "hf:me/models"], home.path()), 1, "another process downloads");
    drop(held);
    stdout(&hub.run(&["rm", "--yes", "--partial", "hf:me/models"], home.path()));
    assert_eq!(listed(&hub, home.path()), whole);
    fs::write(blobs.join(format!("{own}.incomplete")), "12345").unwrap();
    stdout(&hub.run(&["rm", "--yes", "hf:me/models"], home.path()));
    assert!(listed(&hub, home.path()).is_empty() && !home.path().join(REPOSITORY).exists());
}

#[test]
fn an_interrupted_download_is_removed_by_its_name() {
    let (hub, home) = (Hub::start(), tempfile::tempdir().unwrap());
    hub.n_slow.store(1, std::sync::atomic::Ordering::SeqCst);
    let mut killed = hub.spawn(&["pull", MODEL], home.path(), &[]);
    let blobs = home.path().join(REPOSITORY).join("blobs");
    while fs::read_dir(&blobs).into_iter().flatten().flatten().all(|entry| entry.metadata().unwrap().len() < super::STOP as u64) {
        assert!(killed.try_wait().unwrap().is_none(), "the download ended");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    refused(&hub.run(&["rm", "--yes", MODEL], home.path()), 1, "another process downloads");
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(listed(&hub, home.path()), [(MODEL.to_string(), super::STOP as u64, true)]);
    stdout(&hub.run(&["rm", "--yes", MODEL], home.path()));
    assert!(!home.path().join(REPOSITORY).exists());
}

#[test]
fn a_broken_repository_does_not_hide_the_others() {
    let (hub, home, path) = pulled();
    let whole = listed(&hub, home.path());
    let cache = home.path().join("hub");
    fs::create_dir_all(cache.join("models--a--broken")).unwrap();
    fs::write(cache.join("models--a--broken/snapshots"), "no folder").unwrap();
    fs::write(cache.join("models--b--file"), "no folder").unwrap();
    symlink("/nowhere/at/all", cache.join("models--c--unplugged")).unwrap();
    pipe(&cache.join("models--d--piped/refs/main"));
    let list = hub.run(&["list"], home.path());
    assert!(stdout(&list).starts_with(MODEL));
    let said = stderr(&list);
    for broken in ["models--a--broken", "models--b--file", "models--c--unplugged", "models--d--piped/refs/main"] {
        assert_eq!(said.lines().filter(|line| line.starts_with("warning: ") && line.contains(broken)).count(), 1, "{broken}: {said}");
    }
    assert_eq!(listed(&hub, home.path()), whole);
    pipe(&home.path().join(REPOSITORY).join("refs/main"));
    let list = hub.run(&["list"], home.path());
    assert!(stdout(&list).starts_with(MODEL) && stderr(&list).contains("models--me--models/refs/main"), "{list:?}");
    let pulled = hub.run(&["pull", MODEL], home.path());
    assert_eq!(stdout(&pulled).trim_end(), path.to_str().unwrap());
    assert!(stderr(&pulled).contains("refs/main"), "{pulled:?}");
    assert_eq!(fs::read_to_string(home.path().join(REPOSITORY).join("refs/main")).unwrap(), COMMIT);
}

#[test]
fn pipes_in_the_place_of_weights_are_never_opened() {
    let (hub, home, _) = pulled();
    let snapshot = home.path().join("hub/models--a--piped/snapshots").join(COMMIT);
    fs::create_dir_all(&snapshot).unwrap();
    for file in ["model.safetensors", "x.pth", "y.gguf"] {
        pipe(&snapshot.join(file));
    }
    fs::write(snapshot.join("config.json"), "{}").unwrap();
    assert_eq!(listed(&hub, home.path()).len(), 1);
    let index = snapshot.join("model.safetensors.index.json");
    fs::write(&index, r#"{"weight_map": {"a": "model.safetensors"}}"#).unwrap();
    assert_eq!(listed(&hub, home.path()).len(), 1);
}

#[test]
fn a_repository_may_be_a_link_to_another_disk() {
    let (hub, home) = (Hub::start(), tempfile::tempdir().unwrap());
    let disk = tempfile::tempdir().unwrap();
    let (target, link) = (disk.path().join("big"), home.path().join(REPOSITORY));
    fs::create_dir_all(&target).unwrap();
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    symlink(&target, &link).unwrap();
    let path = stdout(&hub.run(&["pull", MODEL], home.path()));
    assert!(Path::new(path.trim_end()).exists() && target.join("blobs").exists(), "{path}");
    assert_eq!(listed(&hub, home.path())[0].0, MODEL);
    fs::write(target.join("mine.txt"), "mine").unwrap();
    let said = stderr(&hub.run(&["rm", "--yes", "hf:me/models"], home.path()));
    assert!(said.contains("are free") && !said.contains(": 0.00"), "{said}");
    let kept: Vec<_> = fs::read_dir(&target).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!((kept, fs::symlink_metadata(&link).is_ok()), (vec!["mine.txt".into()], false), "only what a cache has is removed");
    fs::remove_file(target.join("mine.txt")).unwrap();
    symlink(&target, &link).unwrap();
    stdout(&hub.run(&["pull", MODEL], home.path()));
    stdout(&hub.run(&["rm", "--yes", MODEL], home.path()));
    assert!(!target.exists() && fs::symlink_metadata(&link).is_err());
}

#[test]
fn folders_of_variables_are_expanded_as_python_does() {
    let (hub, home) = (Hub::start(), tempfile::tempdir().unwrap());
    let user = home.path().to_str().unwrap();
    for (name, value, place) in [("HF_HOME", "~/a", "a/hub"), ("HF_HUB_CACHE", "~/b", "b"), ("HF_HUB_CACHE", "$HOME/${PART}", "c")] {
        let env = [("HOME", user), ("PART", "c"), (name, value)];
        let path = stdout(&hub.run_with(&["pull", MODEL], Path::new("/nowhere"), &env));
        assert!(path.starts_with(home.path().join(place).to_str().unwrap()), "{name}={value}: {path}");
    }
}
