//! Writes a checkpoint as a folder: the weights in shards, an index of the shards, and small files.
//!
//! A manifest lists the length and the SHA-256 of every file. A program that downloads the folder can check each file and fetch a damaged file
//! again.

use super::write::{NewTensor, write_safetensors};
use super::{NewFile, Readers};
use crate::error::{Error, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// The name of the manifest.
pub const MANIFEST: &str = "wingbeat.manifest.json";

/// A small file that belongs to a model: its name and its content.
pub type SideFile = (String, Vec<u8>);

/// Checks that the folder `out` does not exist or is empty.
///
/// # Errors
///
/// `File` if `out` is a file, or a folder that is not empty or not readable.
pub fn check_new_folder(out: &Path) -> Result<()> {
    let refused = |found: &str| Err(Error::file(format!("expected a new or empty folder, found {found}")).at(out.display()));
    match std::fs::read_dir(out).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => refused("a folder with files"),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(_) if out.is_file() => refused("a file"),
        Err(e) => Err(Error::io(e, out)),
    }
}

/// Writes the folder `out`: the tensors `entries` in shards, an index if there are several shards, the files `files`, and the manifest last. A shard
/// has at most `max_bytes` of tensors, but a larger tensor has a shard of its own. `metadata` returns the metadata of a shard with these tensors.
/// Creates the folder if it does not exist. After an error, removes a folder that this call created. Calls `progress(bytes written so far, total
/// bytes)`.
///
/// # Errors
///
/// `File` if the folder exists and is not empty, or if a file cannot be written.
pub(super) fn write(
    out: &Path,
    entries: Vec<NewTensor<'_>>,
    metadata: &dyn Fn(&[NewTensor<'_>]) -> BTreeMap<String, String>,
    files: &[SideFile],
    max_bytes: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    check_new_folder(out)?;
    let is_new = !out.exists();
    if is_new {
        std::fs::create_dir(out).map_err(|e| Error::io(e, out))?;
    }
    let write_all = || {
        let mut names = write_shards(out, entries, metadata, max_bytes, progress)?;
        for (name, content) in files {
            write_small(&out.join(name), content)?;
            names.push(name.clone());
        }
        let listed = names.iter().map(|name| described(out, name)).collect::<Result<Vec<_>>>()?;
        write_small(&out.join(MANIFEST), &pretty(&json!({ "format": "wingbeat-shards", "version": 1, "files": listed })))
    };
    let written = write_all();
    if written.is_err() && is_new {
        // An error of the removal is ignored, because the first error is more useful.
        let _ = std::fs::remove_dir_all(out);
    }
    written
}

/// Returns the entry of a file in the manifest.
fn described(folder: &Path, name: &str) -> Result<Value> {
    let path = folder.join(name);
    let io = |e| Error::io(e, &path);
    let (mut file, mut hash, mut bytes, mut block) = (File::open(&path).map_err(io)?, Sha256::new(), 0, vec![0; 1 << 20]);
    loop {
        match file.read(&mut block).map_err(io)? {
            0 => break,
            n => {
                hash.update(&block[..n]);
                bytes += n as u64;
            }
        }
    }
    let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(json!({ "name": name, "bytes": bytes, "sha256": digest }))
}

/// Writes the shards and their index. Returns the names of the files.
fn write_shards(
    out: &Path,
    entries: Vec<NewTensor<'_>>,
    metadata: &dyn Fn(&[NewTensor<'_>]) -> BTreeMap<String, String>,
    max_bytes: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<String>> {
    let sizes: Vec<u64> = entries.iter().map(size_of).collect();
    let total: u64 = sizes.iter().sum();
    let mut shards: Vec<(u64, Vec<NewTensor<'_>>)> = Vec::new();
    for (entry, size) in entries.into_iter().zip(sizes) {
        match shards.last_mut().filter(|(bytes, _)| bytes + size <= max_bytes) {
            Some((bytes, shard)) => {
                *bytes += size;
                shard.push(entry);
            }
            None => shards.push((size, vec![entry])),
        }
    }
    let n_shards = shards.len();
    let (mut map, mut done, mut names) = (BTreeMap::new(), 0, Vec::new());
    for (i, (bytes, shard)) in shards.into_iter().enumerate() {
        let name = match n_shards {
            1 => "model.safetensors".to_string(),
            _ => format!("model-{:05}-of-{n_shards:05}.safetensors", i + 1),
        };
        map.extend(shard.iter().map(|entry| (entry.name.clone(), name.clone())));
        let metadata = metadata(&shard);
        write_safetensors(&out.join(&name), &metadata, shard, &mut |now, _| progress((done + now).min(total), total))?;
        done += bytes;
        names.push(name);
    }
    if n_shards > 1 {
        let index = "model.safetensors.index.json";
        write_small(&out.join(index), &pretty(&json!({ "metadata": { "total_size": total }, "weight_map": map })))?;
        names.push(index.into());
    }
    Ok(names)
}

/// Returns how many bytes the tensor of an entry takes. The writer checks sizes later. A wrong size here only puts a tensor into another shard.
fn size_of(entry: &NewTensor<'_>) -> u64 {
    let size = entry.dtype.size_bytes().unwrap_or(0) as u64;
    entry.shape.iter().fold(size, |bytes, &n| bytes.saturating_mul(n as u64))
}

fn write_small(path: &Path, content: &[u8]) -> Result<()> {
    let new = NewFile::create(path, Readers::Umask)?;
    new.file().write_all(content).map_err(|e| Error::io(e, path))?;
    new.finish()
}

/// Returns JSON on several lines.
pub(super) fn pretty(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    fn json_of(path: &Path) -> Value {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn a_large_model_is_written_in_shards() {
        let dir = tempfile::tempdir().unwrap();
        let entry = |name: &str| NewTensor {
            name: name.into(),
            dtype: DType::U8,
            shape: vec![40],
            data: Box::new(|out| out.write_all(&[7; 40]).map_err(|e| Error::file(e.to_string()))),
        };
        let mut last = (0, 0);
        let metadata = |shard: &[NewTensor<'_>]| BTreeMap::from([("n".to_string(), shard.len().to_string())]);
        let side = [("vocab.txt".to_string(), b"abc".to_vec())];
        write(dir.path(), ["a", "b", "c"].map(entry).into(), &metadata, &side, 100, &mut |done, total| last = (done, total)).unwrap();
        assert_eq!(last, (120, 120));
        let index = json_of(&dir.path().join("model.safetensors.index.json"));
        let [first, second] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
        assert_eq!(index, json!({ "metadata": { "total_size": 120 }, "weight_map": { "a": first, "b": first, "c": second } }));
        let manifest = json_of(&dir.path().join(MANIFEST));
        let names: Vec<&str> = manifest["files"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap()).collect();
        assert_eq!(names, [first, second, "model.safetensors.index.json", "vocab.txt"]);
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(manifest["files"][3], json!({ "name": "vocab.txt", "bytes": 3, "sha256": digest }));
        let bytes = std::fs::read(dir.path().join(second)).unwrap();
        assert_eq!(super::super::read_safetensors(&bytes).unwrap().1["n"], "1");
        assert!(
            write(dir.path(), Vec::new(), &metadata_of_none, &[], 1, &mut |_, _| ()).unwrap_err().to_string().contains("folder with files")
        );
    }

    fn metadata_of_none(_: &[NewTensor<'_>]) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}
