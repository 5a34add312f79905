//! The index of a checkpoint that has several files (shards). The index maps each tensor to its shard.
//!
//! An index may name only files of its own folder, so that a downloaded index cannot make wingbeat read other files. Index and shards must agree
//! about every tensor, or they come from different downloads.

use super::located::LocatedTensor;
use crate::error::{Error, Result, short, with_place};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io::Read;
use std::path::Path;

/// The maximum size of an index, in bytes. An index of a hundred thousand tensors has 10 MB.
const MAX_INDEX_BYTES: u64 = 64 << 20;
/// The largest number of shards. Each shard stays open, and most systems allow 1024 open files. The largest published models have about 200 shards.
const MAX_SHARDS: usize = 512;

/// A parsed index.
#[derive(Debug)]
pub(super) struct Index {
    /// The file names of the shards, sorted.
    pub shards: Vec<String>,
    /// Maps each tensor, by its name in the file, to the index of its shard in `shards`.
    shard_of: BTreeMap<String, usize>,
}

impl Index {
    /// Reads and parses an index.
    ///
    /// # Errors
    ///
    /// `File` if the file is not an index, is too large, or names a shard by anything but a plain file name.
    pub fn read(path: &Path) -> Result<Index> {
        Self::parse(&read_small(path, MAX_INDEX_BYTES)?).map_err(|e| e.at(path.display()))
    }

    fn parse(json: &[u8]) -> Result<Index> {
        let raw: Raw = serde_json::from_slice(json).map_err(|e| {
            let message = format!("expected an index that lists the files of a checkpoint: {}", with_place(&e));
            Error::file(message)
                .hint("give the path of the checkpoint or of its folder; if this file is the index, download the file again")
                .caused_by(e)
        })?;
        let names: BTreeSet<&str> = raw.weight_map.0.iter().map(|(_, shard)| shard.as_str()).collect();
        if names.is_empty() {
            return Err(Error::file("the index of shards has an empty weight_map: expected a file name for each tensor"));
        }
        if names.len() > MAX_SHARDS {
            return Err(Error::file(format!("expected an index of at most {MAX_SHARDS} shards, found {} shards", names.len())));
        }
        if let Some(name) = names.iter().find(|name| !is_plain(name)) {
            return Err(Error::file(format!("the shard path {:?} is not a plain file name", short(name, 80)))
                .hint("put the shards beside the index, and write file names without folders into the index"));
        }
        let shards: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let mut shard_of = BTreeMap::new();
        for (tensor, shard) in raw.weight_map.0 {
            let at = shards.binary_search(&shard).expect("shards are the sorted names of this map");
            if shard_of.insert(tensor.clone(), at).is_some() {
                return Err(Error::file("the index of shards lists this tensor twice in weight_map").at(format!("tensor {tensor}")));
            }
        }
        Ok(Index { shards, shard_of })
    }

    /// Checks that every shard holds exactly the tensors that the index assigns to it.
    ///
    /// # Errors
    ///
    /// `File` for the first tensor that is missing, duplicate, not in the index, or in another shard than the index says.
    pub fn check(&self, tensors: &[LocatedTensor]) -> Result<()> {
        let refuse = |tensor: &str, message: String| {
            Err(Error::file(message).at(format!("tensor {tensor}")).hint("download the index and all shards of one revision again"))
        };
        let mut found: HashMap<&str, usize> = HashMap::with_capacity(tensors.len());
        for t in tensors {
            if let Some(other) = found.insert(&t.name, t.file) {
                return refuse(&t.name, format!("two shards have this tensor: {} and {}", self.shards[other], self.shards[t.file]));
            }
        }
        for t in tensors {
            match self.shard_of.get(&t.name) {
                Some(shard) if *shard == t.file => {}
                Some(shard) => {
                    return refuse(
                        &t.name,
                        format!("the index places this tensor in {}, but {} has it", self.shards[*shard], self.shards[t.file]),
                    );
                }
                None => return refuse(&t.name, format!("{} has this tensor, but the index does not list it", self.shards[t.file])),
            }
        }
        match self.shard_of.iter().find(|(tensor, _)| !found.contains_key(tensor.as_str())) {
            Some((tensor, shard)) => {
                refuse(tensor, format!("the index places this tensor in {}, but no shard has it", self.shards[*shard]))
            }
            None => Ok(()),
        }
    }
}

/// Returns true if the file begins like JSON. A safetensors file may also begin with `{`: its first 8 bytes are the length of its header,
/// little-endian. But its header is short, so some of these bytes are 0, unlike in JSON.
pub(super) fn is_json(file: &[u8]) -> bool {
    file.trim_ascii_start().starts_with(b"{") && !file.iter().take(8).any(|&b| b == 0)
}

/// Reads a whole small file. Removes a byte order mark at its beginning.
///
/// # Errors
///
/// `File` if the file cannot be read or has more than `max_bytes`.
pub(crate) fn read_small(path: &Path, max_bytes: u64) -> Result<Vec<u8>> {
    let io = |e| Error::io(e, path);
    let mut bytes = Vec::new();
    crate::files::open(path).map_err(io)?.take(max_bytes + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > max_bytes {
        return Err(Error::file(format!("expected a file of at most {max_bytes} bytes, found a larger file")).at(path.display()));
    }
    Ok(crate::files::without_mark(bytes))
}

/// Returns true if the name is one path component on every system. A drive letter or a backslash is part of a path on Windows.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && name.len() <= 255 && !name.contains(|c: char| "/\\:".contains(c) || c.is_control())
}

#[derive(Deserialize)]
struct Raw {
    weight_map: Pairs,
}

/// All pairs of a JSON object of strings, including duplicate keys.
struct Pairs(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of file names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        from.deserialize_map(PairsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(json: &str) -> String {
        let text = Index::parse(json.as_bytes()).unwrap_err().to_string();
        assert!(!text.contains('\n') && text.len() < 500, "{text}");
        text
    }

    #[test]
    fn shards_in_order() {
        let json = br#"{"metadata":{"total_size":9},"weight_map":{"b":"s-2","a":"s-1","c":"s-2"}}"#;
        let index = Index::parse(json).unwrap();
        assert_eq!(index.shards, ["s-1", "s-2"]);
        assert_eq!(index.shard_of["c"], 1);
    }

    #[test]
    fn other_json_is_refused() {
        for json in ["", "{", "[]", "{}", r#"{"weight_map":[]}"#, r#"{"weight_map":"x"}"#, r#"{"weight_map":null}"#, "\u{0}{}"] {
            assert!(refusal(json).contains("expected an index that lists the files of a checkpoint"), "{json}");
        }
        assert!(refusal(r#"{"weight_map":{"a":1}}"#).contains("instead of a string"));
        assert!(refusal(r#"{"weight_map":{"a":["x"]}}"#).contains("instead of a string"));
        assert!(refusal(r#"{"weight_map":{}}"#).contains("empty"));
        assert!(refusal(r#"{"weight_map":{"a":"x","a":"y"}}"#).contains("tensor a: the index of shards lists this tensor twice"));
        assert!(refusal(r#"{"weight_map":{"a":"x"},"weight_map":{"a":"y"}}"#).contains("twice"));
        assert!(refusal(&format!(r#"{{"x":{}"#, "[".repeat(100_000))).contains("expected an index that lists the files of a checkpoint"));
        let many: Vec<String> = (0..5000).map(|i| format!(r#""{i}":"s-{i}""#)).collect();
        assert!(refusal(&format!(r#"{{"weight_map":{{{}}}}}"#, many.join(","))).contains("at most 512 shards, found 5000"));
    }

    #[test]
    fn a_shard_is_a_plain_name() {
        let long = "x".repeat(300);
        for path in ["../x", "..", ".", "", "/etc/passwd", "sub/x", r"..\\x", "C:x", r"C:\\x", r"\\\\host\\x", r"x\u0000y", &long] {
            assert!(refusal(&format!(r#"{{"weight_map":{{"a":"{path}"}}}}"#)).contains("the shard path"), "{path}");
        }
        for name in ["model-00001-of-00002.safetensors", "..x", "a b"] {
            Index::parse(format!(r#"{{"weight_map":{{"a":"{name}"}}}}"#).as_bytes()).unwrap();
        }
    }

    #[test]
    fn json_and_safetensors_are_distinguished() {
        assert!(is_json(b"{}") && is_json(b"\n {\"weight_map\":{}}"));
        assert!(!is_json(b"{\0\0\0\0\0\0\0{\"a\":") && !is_json(b"PK\x03\x04"));
    }
}
