//! Finds the checkpoint of a folder. An index and its shards count as one checkpoint, and so do several files with standard names of
//! `transformers`.
//!
//! This module reads only file names and indexes, and opens no weights.

use super::index::Index;
use crate::error::{Error, Result};
use crate::files;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The file extensions of checkpoints, in the order in which they are tried.
pub const EXTENSIONS: [&str; 4] = ["safetensors", "st", "pth", "gguf"];

/// The names under which `transformers` saves a model, in the order in which `transformers` looks for them. If a folder has several such
/// files, they hold the same weights in different formats.
const STANDARD: [&str; 4] = ["model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"];
const INDEX: &str = ".index.json";

/// Returns the path of the only checkpoint in a folder: the path of the file or, if the checkpoint has several shards, of the index.
///
/// # Errors
///
/// `File` if the folder holds no checkpoint, several checkpoints, or shards without their index.
pub(super) fn checkpoint_in(folder: &Path) -> Result<PathBuf> {
    let (mut found, mut claimed) = (BTreeSet::new(), BTreeSet::new());
    for path in files::list(folder).map_err(|e| Error::io(e, folder))? {
        let name = file_name(&path);
        if !files::is_file(&path) {
            continue;
        }
        if name.ends_with(INDEX) {
            // If the index is damaged, its error is reported later, when the index is opened.
            let shards = Index::read(&path).map(|index| index.shards).unwrap_or_default();
            claimed.extend(shards.into_iter().filter(|shard| !shard.ends_with(INDEX)));
        }
        let known = path.extension().is_some_and(|e| EXTENSIONS.iter().any(|k| e.eq_ignore_ascii_case(k)));
        // Other .bin files are no checkpoints: for example, the arguments of a training run.
        if known || name.ends_with(INDEX) || STANDARD.contains(&name.as_str()) || Shard::of(&name).is_some() {
            found.insert(name);
        }
    }
    // A shard also belongs to the index that its name implies. If that index is unreadable, the user then sees the error of the index.
    let by_name: Vec<String> = found.iter().filter(|name| Shard::of(name).is_some_and(|s| found.contains(&s.index()))).cloned().collect();
    claimed.extend(by_name);
    let found: Vec<String> = found.difference(&claimed).cloned().collect();
    // Files that training programs and publishers put beside a model count only if no other file is found.
    let models: Vec<String> = found.iter().filter(|name| !is_beside_a_model(name)).cloned().collect();
    let found = if models.is_empty() { found } else { models };
    if found.len() > 1 && found.iter().all(|name| STANDARD.contains(&name.as_str())) {
        let first = STANDARD.into_iter().find(|name| found.iter().any(|f| f == name)).expect("all found names are standard");
        log::info!("{}: found {}; {first} is read", folder.display(), found.join(", "));
        return Ok(folder.join(first));
    }
    if let [only] = &found[..] {
        return whole(&folder.join(only));
    }
    if let Some(shard) = found.first().and_then(|name| Shard::of(name)).filter(|s| found.iter().all(|name| s.is_sibling(name))) {
        return Err(shard.orphan().at(folder.display()));
    }
    let refuse = |message: String, hint: &str| Err(Error::file(message).at(folder.display()).hint(hint));
    if found.is_empty() {
        let message = format!("the folder has no checkpoint (.{} or {})", EXTENSIONS.join(", ."), STANDARD[3]);
        return refuse(message, "give the path of a checkpoint file");
    }
    let some: Vec<_> = found.iter().take(8).map(String::as_str).collect();
    let more = if found.len() > some.len() { ", …" } else { "" };
    let message = format!("expected one checkpoint in this folder, found {}: {}{more}", found.len(), some.join(", "));
    refuse(message, "give the path of one checkpoint")
}

/// Returns whether a file with this name does not count as a model. Such files are the state of a training, an adapter, and the same weights in the
/// layout of Mistral's own programs.
fn is_beside_a_model(name: &str) -> bool {
    ["rng_state", "optimizer", "scheduler", "adapter_model.", "consolidated."].iter().any(|beginning| name.starts_with(beginning))
}

/// Returns `path` itself or, if the file is one of several shards, the path of their index.
///
/// # Errors
///
/// `File` if the index of a shard is missing.
pub(super) fn whole(path: &Path) -> Result<PathBuf> {
    let name = file_name(path);
    let Some(shard) = Shard::of(&name) else { return Ok(path.to_path_buf()) };
    let index = path.with_file_name(shard.index());
    match files::is_file(&index) {
        true => Ok(index),
        false if shard.is_only => Ok(path.to_path_buf()),
        false => Err(shard.orphan().at(path.display())),
    }
}

/// Returns the path of the `config.json` in the folder of `path`. Returns `None` if this file does not exist. Also returns `None` if `path` is
/// neither an index, nor a shard, nor a standard name of `transformers`.
pub(super) fn config_of(path: &Path) -> Option<PathBuf> {
    let name = file_name(path);
    let described = STANDARD.contains(&name.as_str()) || name.ends_with(INDEX) || Shard::of(&name).is_some();
    config_beside(path).filter(|_| described)
}

/// Returns the path of the `config.json` in the folder of `path`, or `None` if this file does not exist.
pub(super) fn config_beside(path: &Path) -> Option<PathBuf> {
    Some(path.with_file_name("config.json")).filter(|config| files::is_file(config))
}

/// Returns the model's name: the folder's name if `path` is an index or if [`config_of`] finds a `config.json`, else the file's stem.
pub(super) fn model_name(path: &Path) -> String {
    let name = file_name(path);
    if name.ends_with(INDEX) || config_of(path).is_some() {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if let Some(name) = files::absolute(folder).as_deref().and_then(Path::file_name) {
            return name.to_string_lossy().into_owned();
        }
    }
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(OsStr::new("")).to_string_lossy().into_owned()
}

/// The parts of a shard's file name, such as `model-00001-of-00003.safetensors`.
struct Shard<'a> {
    stem: &'a str,
    /// The number of shards, five digits.
    of: &'a str,
    extension: &'a str,
    /// True if the checkpoint has only one shard. A single shard needs no index.
    is_only: bool,
}

impl<'a> Shard<'a> {
    fn of(name: &'a str) -> Option<Shard<'a>> {
        let (rest, extension) = name.rsplit_once('.').filter(|(_, e)| ["safetensors", "bin"].contains(e))?;
        let (rest, of) = rest.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let digits = |s: &str| s.len() == 5 && s.bytes().all(|b| b.is_ascii_digit());
        (digits(number) && digits(of)).then(|| Shard { stem, of, extension, is_only: of == "00001" })
    }

    fn index(&self) -> String {
        format!("{}.{}{INDEX}", self.stem, self.extension)
    }

    fn is_sibling(&self, name: &str) -> bool {
        Shard::of(name).is_some_and(|o| (o.stem, o.of, o.extension) == (self.stem, self.of, self.extension))
    }

    fn orphan(&self) -> Error {
        let n = self.of.trim_start_matches('0');
        Error::file(format!("the folder has shards of a checkpoint, but their index {} is missing ({n} shards)", self.index()))
            .hint("download the index file into the same folder")
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::put;
    use super::*;

    fn chosen(files: &[(&str, &str)]) -> String {
        let dir = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| drop(put(&dir, name, text.as_bytes())));
        match checkpoint_in(dir.path()) {
            Ok(path) => file_name(&path),
            Err(e) => e.to_string(),
        }
    }

    const MAP: &str = r#"{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}"#;
    const SHARDS: [(&str, &str); 2] = [("model-00001-of-00002.safetensors", "x"), ("model-00002-of-00002.safetensors", "x")];

    #[test]
    fn an_index_and_its_shards_are_one() {
        let index = ("model.safetensors.index.json", MAP);
        assert_eq!(chosen(&[SHARDS[0], SHARDS[1], index, ("config.json", "{}")]), index.0);
        assert!(chosen(&SHARDS).contains("the folder has shards of a checkpoint, but their index model.safetensors.index.json is missing"));
        let both = chosen(&[SHARDS[0], SHARDS[1], index, ("old.pth", "x")]);
        assert!(both.contains("found 2: model.safetensors.index.json, old.pth"), "{both}");
        let other = chosen(&[("weights.safetensors.index.json", r#"{"weight_map":{"a":"one.st"}}"#), ("one.st", "x")]);
        assert_eq!(other, "weights.safetensors.index.json");
    }

    #[test]
    fn the_first_of_the_standard_names_is_read() {
        assert_eq!(chosen(&[("pytorch_model.bin", "x"), ("training_args.bin", "x")]), "pytorch_model.bin");
        assert_eq!(chosen(&[("pytorch_model.bin", "x"), ("model.safetensors", "x")]), "model.safetensors");
        let all = [SHARDS[0], SHARDS[1], (STANDARD[1], MAP), ("pytorch_model.bin", "x")];
        assert_eq!(chosen(&all), "model.safetensors.index.json");
        assert!(chosen(&[("pytorch_model.bin", "x"), ("mine.safetensors", "x")]).contains("found 2"));
        assert_eq!(chosen(&[("model-00001-of-00001.safetensors", "x")]), "model-00001-of-00001.safetensors");
    }

    #[test]
    fn what_training_leaves_beside_a_model_does_not_count() {
        let beside = ["rng_state.pth", "rng_state_0.pth", "adapter_model.safetensors", "consolidated.safetensors"].map(|name| (name, "x"));
        for model in ["model.safetensors", "mine.pth"] {
            assert_eq!(chosen(&[&beside[..], &[(model, "x")]].concat()), model);
        }
        assert_eq!(chosen(&[beside[2]]), "adapter_model.safetensors");
        assert!(chosen(&beside[..2]).contains("found 2"));
    }

    #[test]
    fn a_shard_finds_its_index() {
        let dir = tempfile::tempdir().unwrap();
        let shard = put(&dir, SHARDS[1].0, b"x");
        assert!(whole(&shard).unwrap_err().to_string().contains("00002-of-00002.safetensors: the folder has shards"));
        let index = put(&dir, STANDARD[1], MAP.as_bytes());
        assert_eq!(whole(&shard).unwrap(), index);
        assert_eq!(whole(&dir.path().join("model-1-of-2.safetensors")).unwrap(), dir.path().join("model-1-of-2.safetensors"));
        assert_eq!(model_name(&index), std::fs::canonicalize(dir.path()).unwrap().file_name().unwrap().to_string_lossy());
        assert_eq!(model_name(&dir.path().join("m-1.5B.pth")), "m-1.5B");
        assert_eq!(config_of(&index), None);
        put(&dir, "config.json", b"{}");
        assert!(config_of(&index).is_some() && config_of(&dir.path().join("m.pth")).is_none());
    }
}
