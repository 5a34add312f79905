//! The mapped files of one checkpoint, all in one format, with a list of their tensors.
//!
//! This module does not know the meaning of the tensors' names.

use super::index::{Index, is_json};
use super::locate::{self, FileKind};
use super::located::{LocatedTensor, check_name};
use super::map::Map;
use super::{coded, gguf, kinds, pth, safetensors};
use crate::error::{Error, Result};
use crate::files;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The largest number of tensors in one file. A model of a hundred layers has 3000 tensors.
const MAX_TENSORS: usize = 100_000;

/// The files of a checkpoint: one file, or all shards of an index.
pub(super) struct CheckpointFiles {
    /// The files. `LocatedTensor::file` is an index into this list.
    pub maps: Vec<Arc<Map>>,
    pub kind: FileKind,
    pub tensors: Vec<LocatedTensor>,
    pub metadata: BTreeMap<String, String>,
    /// The path of the file or of the index. `None` if the bytes are part of the program.
    pub path: Option<PathBuf>,
}

impl CheckpointFiles {
    /// Opens a file, or an index with its shards.
    ///
    /// # Errors
    ///
    /// `File` if a file is missing, in another format, damaged or hostile, or if index and shards disagree. `Model` if a GGUF file has an
    /// unsupported architecture.
    pub fn open(path: &Path) -> Result<CheckpointFiles> {
        let map = Map::open(path)?;
        let at = |e: Error| e.at(path.display());
        if is_json(map.bytes()) {
            return kinds::other_json(map.bytes()).map_or_else(|| Self::sharded(path), |e| Err(at(e)));
        }
        let kind = locate::sniff(map.bytes()).map_err(at)?;
        Self::one(map, kind).map_err(at)
    }

    /// Lists the tensors of the file `map`, which is a whole checkpoint in the format `kind`.
    pub fn one(map: Map, kind: FileKind) -> Result<CheckpointFiles> {
        let (tensors, metadata) = list(&map, kind)?;
        let path = map.path().map(Path::to_path_buf);
        Ok(CheckpointFiles { maps: vec![Arc::new(map)], kind, tensors, metadata, path })
    }

    /// Opens all shards of the index at `path`.
    fn sharded(path: &Path) -> Result<CheckpointFiles> {
        let index = Index::read(path)?;
        let n = index.shards.len();
        let missing: Vec<&str> =
            index.shards.iter().map(String::as_str).filter(|name| !files::is_file(&path.with_file_name(name))).collect();
        if let Some(first) = missing.first() {
            let message = format!("{} of {n} shards of the index are missing; the first missing file is {first}", missing.len());
            return Err(Error::file(message).at(path.display()).hint("download the missing shards into the folder of the index"));
        }
        let (mut maps, mut tensors, mut metadata, mut first_kind) = (Vec::new(), Vec::new(), BTreeMap::new(), None);
        for (file, name) in index.shards.iter().enumerate() {
            let shard = path.with_file_name(name);
            let at = |e: Error| e.at(shard.display());
            let map = Map::open(&shard)?;
            let kind = locate::sniff(map.bytes()).map_err(at)?;
            let expected = *first_kind.get_or_insert(kind);
            if kind != expected {
                let text = format!("expected a {} shard like the first shard, found {}", expected.name(), kind.name());
                return Err(at(Error::file(text)));
            }
            let (mut found, values) = list(&map, kind).map_err(at)?;
            found.iter_mut().for_each(|t| t.file = file);
            tensors.append(&mut found);
            for (key, value) in values {
                metadata.entry(key).or_insert(value);
            }
            maps.push(Arc::new(map));
        }
        index.check(&tensors).map_err(|e| e.at(path.display()))?;
        let kind = first_kind.expect("an index has at least one shard");
        Ok(CheckpointFiles { maps, kind, tensors, metadata, path: Some(path.to_path_buf()) })
    }
}

/// Returns a file's tensors, under their names in the file, and the file's metadata.
fn list(map: &Map, kind: FileKind) -> Result<(Vec<LocatedTensor>, BTreeMap<String, String>)> {
    let (mut tensors, mut metadata) = match kind {
        FileKind::Safetensors => safetensors::parse(map.bytes(), map.len())?,
        FileKind::Pth => pth::parse(map.image())?,
        FileKind::Gguf => gguf::parse(map.bytes(), map.len())?,
    };
    if tensors.is_empty() {
        return Err(Error::file("the file has no tensors").hint("give the path of the checkpoint"));
    }
    if tensors.len() > MAX_TENSORS {
        return Err(Error::file(format!("expected a checkpoint of at most {MAX_TENSORS} tensors, found {} tensors", tensors.len())));
    }
    tensors.iter().try_for_each(|t| check_name(&t.name))?;
    if kind == FileKind::Safetensors {
        coded::recognise(&mut tensors, &mut metadata)?;
    }
    Ok((tensors, metadata))
}
