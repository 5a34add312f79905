use super::super::testing::{COMMIT, sha256};
use super::*;
use std::os::unix::fs::symlink;

const OTHER: &str = "fedcba9876543210fedcba9876543210fedcba98";

/// Writes a file into the cache as Hugging Face's programs do: as a blob and a link to the blob.
fn put(cache: &Cache, commit: &str, file: &str, content: &str) {
    let address = at("hf:me/models");
    let etag = Etag::parse(&sha256(content.as_bytes())).unwrap();
    let blobs = cache.folder(&address).join("blobs");
    fs::create_dir_all(&blobs).unwrap();
    fs::write(blobs.join(etag.as_str()), content).unwrap();
    cache.link(&address, commit, file, &etag).unwrap();
}

fn at(text: &str) -> Address {
    Address::parse(text).unwrap()
}

fn made() -> (Cache, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Cache::new(folder.path().join("hub")), folder)
}

fn found(cache: &Cache, text: &str) -> Option<String> {
    let path = cache.find(&at(text)).unwrap()?;
    Some(path.strip_prefix(cache.folder(&at("hf:me/models")).join("snapshots")).unwrap().display().to_string())
}

#[test]
fn models_are_found_by_file_repository_and_revision() {
    let (cache, _folder) = made();
    assert_eq!(found(&cache, "hf:me/models"), None);
    put(&cache, OTHER, "m.pth", "old");
    assert_eq!(found(&cache, "hf:me/models/m.pth"), Some(format!("{OTHER}/m.pth")), "any snapshot serves an address without a revision");
    assert_eq!(found(&cache, "hf:me/models/m.pth@v1"), None);
    put(&cache, COMMIT, "m.pth", "new");
    cache.remember(&at("hf:me/models"), COMMIT).unwrap();
    assert_eq!(found(&cache, "hf:me/models/m.pth"), Some(format!("{COMMIT}/m.pth")));
    assert_eq!(found(&cache, &format!("hf:me/models/m.pth@{OTHER}")), Some(format!("{OTHER}/m.pth")));
    assert_eq!(found(&cache, "hf:me/models"), Some(format!("{COMMIT}/m.pth")));
    put(&cache, COMMIT, "sub/n.gguf", "n");
    let e = cache.find(&at("hf:me/models")).unwrap_err().to_string();
    assert!(e.contains("found 2") && e.contains("hf:me/models/m.pth"), "{e}");
}

#[test]
fn a_folder_counts_when_all_its_weights_are_there() {
    let (cache, _folder) = made();
    let whole = Some(COMMIT.to_string());
    put(&cache, COMMIT, "model-1.safetensors", "1");
    put(&cache, COMMIT, INDEX, r#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}"#);
    put(&cache, COMMIT, CONFIG, "{}");
    assert_eq!(found(&cache, "hf:me/models"), None);
    put(&cache, COMMIT, "model-2.safetensors", "22");
    assert_eq!(found(&cache, "hf:me/models"), whole);
    let listed = cache.list().unwrap().models;
    assert_eq!((listed.len(), listed[0].address.to_string().as_str(), listed[0].size_bytes), (1, "hf:me/models", 3));
}

#[test]
fn links_that_leave_the_cache_are_refused_and_not_listed() {
    let (cache, folder) = made();
    let outside = folder.path().join("outside.pth");
    fs::write(&outside, "mine").unwrap();
    put(&cache, COMMIT, "m.pth", "x");
    let snapshot = cache.folder(&at("hf:me/models")).join("snapshots").join(COMMIT);
    symlink(&outside, snapshot.join("evil.pth")).unwrap();
    symlink(folder.path(), snapshot.join("up")).unwrap();
    symlink(folder.path(), cache.folder(&at("hf:me/models")).join("snapshots").join(OTHER)).unwrap();
    for file in ["evil.pth", "up/outside.pth"] {
        let e = cache.find(&at(&format!("hf:me/models/{file}"))).unwrap_err().to_string();
        assert!(e.contains("a link that leaves it"), "{e}");
    }
    assert_eq!(cache.list().unwrap().models.iter().map(|c| c.address.to_string()).collect::<Vec<_>>(), ["hf:me/models/m.pth"]);
    fs::create_dir_all(cache.folder(&at("hf:me/models")).join("refs")).unwrap();
    fs::write(cache.folder(&at("hf:me/models")).join("refs/main"), "../../../..").unwrap();
    assert_eq!(found(&cache, "hf:me/models/m.pth"), Some(format!("{COMMIT}/m.pth")), "a ref that is no commit is ignored");
    symlink(&outside, cache.folder(&at("hf:me/models")).join("refs/v1")).unwrap();
    cache.remember(&at("hf:me/models@v1"), COMMIT).unwrap();
    assert_eq!(fs::read_to_string(&outside).unwrap(), "mine");
    cache.removal(&at("hf:me/models/evil.pth")).unwrap().unwrap().run().unwrap();
    assert!(cache.removal(&at("hf:me/models/up/outside.pth")).is_err());
    assert!(!snapshot.join("evil.pth").exists() && outside.exists());
    cache.removal(&at("hf:me/models")).unwrap().unwrap().run().unwrap();
    assert!(outside.exists() && !cache.folder(&at("hf:me/models")).exists());
    symlink(folder.path(), cache.folder(&at("hf:me/models"))).unwrap();
    cache.removal(&at("hf:me/models")).unwrap().unwrap().run().unwrap();
    assert!(outside.exists(), "of a folder to which a repository leads, only the parts of a cache are removed");
}

#[test]
fn a_blob_stays_while_another_link_needs_it() {
    let (cache, _folder) = made();
    let blob = |content: &str| cache.folder(&at("hf:me/models")).join("blobs").join(sha256(content.as_bytes()));
    put(&cache, COMMIT, "m.pth", "shared");
    put(&cache, COMMIT, "copy.pth", "shared");
    put(&cache, COMMIT, "sub/other.pth", "alone");
    let removal = cache.removal(&at("hf:me/models/m.pth")).unwrap().unwrap();
    assert_eq!(removal.size_bytes, 0);
    removal.run().unwrap();
    assert!(blob("shared").exists() && found(&cache, "hf:me/models/m.pth").is_none());
    let removal = cache.removal(&at("hf:me/models/copy.pth")).unwrap().unwrap();
    assert_eq!(removal.size_bytes, 6);
    removal.run().unwrap();
    assert!(!blob("shared").exists() && blob("alone").exists());
    assert!(cache.removal(&at("hf:me/models/copy.pth")).unwrap().is_none());
    cache.removal(&at("hf:me/models/sub/other.pth")).unwrap().unwrap().run().unwrap();
    assert!(!cache.folder(&at("hf:me/models")).exists(), "an empty repository is removed");
}
