//! The header of a GGUF file: metadata, then the names, shapes, types and offsets of tensors. Every value is checked before it is used.
//!
//! This module knows the container, not the models in it. Numbers are little-endian. Strings and arrays begin with their length:
//!
//! ```text
//! "GGUF"  version u32  n_tensors u64  n_keys u64
//! n_keys times     key string  type u32  value
//! n_tensors times  name string  n_dims u32  dims u64[n_dims], contiguous dimension first  type u32  offset u64
//! padding to the alignment, then the data (offsets count from the start of the data)
//! ```

use super::super::located::check_shape;
use super::reader::{AGAIN, DAMAGED, GgufReader};
use super::types::dtype_of;
use crate::error::{Error, Result, short};
use crate::tensor::DType;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The maximum number of metadata keys, and of tensors. A model of a hundred layers has 3000 tensors.
const MAX_ENTRIES: u64 = 100_000;
/// The data of each tensor begin at a multiple of this number of bytes, unless the metadata set another number.
pub const DEFAULT_ALIGNMENT: usize = 32;

/// The metadata keys, each with a reader at the type of its value.
type MetadataKeys<'a> = BTreeMap<&'a str, GgufReader<'a>>;

/// The header of a GGUF file, read up to the list of tensors.
pub struct Header<'a> {
    /// The metadata values that are numbers or short texts, by key. A number is formatted as text.
    pub metadata: BTreeMap<String, String>,
    /// All metadata keys, including the keys of arrays and long texts.
    keys: MetadataKeys<'a>,
    n_tensors: u64,
    /// A reader that is positioned at the first entry of the tensor list.
    reader: GgufReader<'a>,
    /// The number of bytes of the file.
    size: u64,
}

/// A tensor as the file lists it.
pub struct ListedTensor<'a> {
    pub name: &'a str,
    pub dtype: DType,
    /// The shape, row-major: the last dimension is contiguous. A row consists of whole blocks of the type.
    pub shape: Vec<usize>,
    /// The byte range of the tensor, counted from the start of the file.
    pub bytes: Range<usize>,
}

impl<'a> Header<'a> {
    /// Reads the header of a file up to the list of tensors. `file` has all bytes of the file, or at least its header. `size` is the number of bytes
    /// of the file.
    ///
    /// # Errors
    ///
    /// `File` if the header is truncated, damaged, hostile, big-endian or of an unsupported version.
    pub fn read(file: &'a [u8], size: u64) -> Result<Header<'a>> {
        let mut reader = GgufReader { file, at: 0 };
        if reader.take(4)? != b"GGUF" {
            return Err(Error::file("expected a GGUF file: its first four bytes must be `GGUF`"));
        }
        match reader.u32()? {
            2 | 3 => {}
            swapped if swapped & 0xffff == 0 && swapped != 0 => {
                return Err(Error::file("big-endian GGUF files are not supported").hint("download the little-endian file"));
            }
            other => {
                let text = format!("expected a GGUF file of version 2 or 3, found version {other}");
                return Err(
                    Error::file(text).hint("use the original .pth or .safetensors file, or convert the original file to GGUF again")
                );
            }
        }
        let (n_tensors, n_keys) = (reader.u64()?, reader.u64()?);
        for (what, n) in [("tensors", n_tensors), ("keys of metadata", n_keys)] {
            if n > MAX_ENTRIES {
                return Err(Error::file(format!("expected a GGUF file of at most {MAX_ENTRIES} {what}, found {n} {what}")).hint(DAMAGED));
            }
        }
        let (metadata, keys) = metadata(&mut reader, n_keys)?;
        Ok(Header { metadata, keys, n_tensors, reader, size })
    }

    /// Returns whether the metadata have a key, whatever the type of its value.
    pub fn has(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }

    /// Returns the texts of an array in the metadata, or `None` if the key is missing.
    ///
    /// # Errors
    ///
    /// `File` if the value is not an array of texts, has too many items, or has a text that is not UTF-8.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>> {
        self.keys.get(key).map(|reader| { *reader }.texts().map_err(|e| e.at(key))).transpose()
    }

    /// Returns an array of 32-bit integers in the metadata, or `None` if the key is missing.
    ///
    /// # Errors
    ///
    /// `File` if the value is not an array of 32-bit integers, or has too many items.
    pub fn whole_numbers(&self, key: &str) -> Result<Option<Vec<i32>>> {
        self.keys.get(key).map(|reader| { *reader }.whole_numbers().map_err(|e| e.at(key))).transpose()
    }

    /// Returns an array of 32-bit floats in the metadata, or `None` if the key is missing.
    ///
    /// # Errors
    ///
    /// `File` if the value is not an array of 32-bit floats, or has too many items.
    pub fn floats(&self, key: &str) -> Result<Option<Vec<f32>>> {
        self.keys.get(key).map(|reader| { *reader }.floats().map_err(|e| e.at(key))).transpose()
    }

    /// Returns the keys that begin with `prefix`, each with the bytes of its type and its value.
    pub fn raw_values(&self, prefix: &str) -> Result<Vec<(&'a str, &'a [u8])>> {
        let raw = |(&key, reader): (&&'a str, &GgufReader<'a>)| {
            let mut end = *reader;
            let kind = end.u32()?;
            end.value(kind)?;
            Ok((key, &reader.file[reader.at..end.at]))
        };
        self.keys.iter().filter(|(key, _)| key.starts_with(prefix)).map(raw).collect()
    }

    /// Returns the tensors in the order of the file.
    ///
    /// # Errors
    ///
    /// `File` if a tensor has an unsupported type, an impossible shape or bytes outside of the file. Also `File` if two tensors have the same name
    /// or overlap.
    pub fn tensors(&self) -> Result<Vec<ListedTensor<'a>>> {
        let alignment = self.alignment()?;
        let mut reader = self.reader;
        let mut names = BTreeSet::new();
        let mut tensors = Vec::new();
        for i in 0..self.n_tensors {
            let name = reader.name().map_err(|e| e.at(format!("name of tensor {i}")))?;
            let at = |e: Error| e.at(format!("tensor {name}"));
            if !names.insert(name) {
                return Err(at(Error::file("two tensors have this name").hint(DAMAGED)));
            }
            tensors.push((name, Info::read(&mut reader).map_err(at)?));
        }
        let data = reader.at.checked_next_multiple_of(alignment).unwrap_or(usize::MAX);
        let place = |(name, info): (&'a str, Info)| {
            let bytes = info.range(data, alignment, self.size).map_err(|e| e.at(format!("tensor {name}")))?;
            Ok(ListedTensor { name, dtype: info.dtype, shape: info.shape, bytes })
        };
        let tensors = tensors.into_iter().map(place).collect::<Result<Vec<_>>>()?;
        let mut by_place: Vec<_> = tensors.iter().collect();
        by_place.sort_by_key(|t| t.bytes.start);
        match by_place.windows(2).find(|pair| pair[1].bytes.start < pair[0].bytes.end) {
            Some(pair) => Err(Error::file(format!("the tensor shares bytes of the file with the tensor {}", pair[0].name))
                .hint(DAMAGED)
                .at(format!("tensor {}", pair[1].name))),
            None => Ok(tensors),
        }
    }

    fn alignment(&self) -> Result<usize> {
        let key = "general.alignment";
        let Some(text) = self.metadata.get(key) else { return Ok(DEFAULT_ALIGNMENT) };
        // The GGUF format requires an alignment of at least 8. With a smaller alignment, elements could not be read in place.
        let good = text.parse().ok().filter(|n: &usize| n.is_power_of_two() && *n >= 8);
        good.ok_or_else(|| {
            Error::file(format!("expected an alignment that is a power of two of at least 8, found {}", short(text, 64))).at(key)
        })
    }
}

/// Reads `n_keys` keys with their values. Returns the values that are numbers or short texts, and all keys.
fn metadata<'a>(reader: &mut GgufReader<'a>, n_keys: u64) -> Result<(BTreeMap<String, String>, MetadataKeys<'a>)> {
    let mut keys = BTreeMap::new();
    let mut metadata = BTreeMap::new();
    for i in 0..n_keys {
        let key = reader.name().map_err(|e| e.at(format!("key {i} of the metadata")))?;
        let at = |e: Error| e.at(format!("metadata key {key}"));
        if keys.insert(key, *reader).is_some() {
            return Err(at(Error::file("two metadata values have this key").hint(DAMAGED)));
        }
        let kind = reader.u32().map_err(at)?;
        if let Some(text) = reader.value(kind).map_err(at)? {
            metadata.insert(key.to_string(), text);
        }
    }
    Ok((metadata, keys))
}

/// An entry of the tensor list, without its name.
struct Info {
    dtype: DType,
    shape: Vec<usize>,
    size_bytes: usize,
    offset: u64,
}

impl Info {
    fn read(reader: &mut GgufReader) -> Result<Info> {
        let n_dims = reader.u32()?;
        if !(1..=4).contains(&n_dims) {
            return Err(Error::file(format!("expected a tensor of 1 to 4 dimensions, found {n_dims} dimensions")).hint(DAMAGED));
        }
        let dims = (0..n_dims).map(|_| reader.u64()).collect::<Result<Vec<_>>>()?;
        let dtype = dtype_of(reader.u32()?)?;
        let offset = reader.u64()?;
        if dims.contains(&0) {
            return Err(Error::file(format!("expected a shape of sizes of at least 1, found the shape {dims:?}")).hint(DAMAGED));
        }
        let shape: Vec<usize> = dims.iter().rev().map(|&d| usize::try_from(d).unwrap_or(usize::MAX)).collect();
        check_shape(&shape)?;
        let (block_len, _) = dtype.block().expect("GGUF has no other types");
        let row = shape[shape.len() - 1];
        if !row.is_multiple_of(block_len) {
            return Err(Error::file(format!(
                "expected rows of whole {dtype} blocks, a multiple of {block_len} numbers; found rows of {row} numbers"
            )));
        }
        let size_bytes = dtype.bytes_of(shape.iter().product()).expect("check_shape bounds shapes for 8 bytes per number");
        Ok(Info { dtype, shape, size_bytes, offset })
    }

    /// Returns the byte range of the tensor in the file. `data` is the byte of the file at which the data of all tensors begin.
    fn range(&self, data: usize, alignment: usize, file_bytes: u64) -> Result<Range<usize>> {
        if !self.offset.is_multiple_of(alignment as u64) {
            return Err(Error::file(format!(
                "expected a tensor offset that is a multiple of {alignment} bytes, found {} bytes",
                self.offset
            ))
            .hint(DAMAGED));
        }
        let start = usize::try_from(self.offset).ok().and_then(|offset| offset.checked_add(data));
        let range = start.and_then(|start| Some(start..start.checked_add(self.size_bytes)?)).filter(|r| r.end as u64 <= file_bytes);
        let text = || {
            format!(
                "expected {} bytes at offset {} of the data, but the file of {file_bytes} bytes ends before",
                self.size_bytes, self.offset
            )
        };
        range.ok_or_else(|| Error::file(text()).hint(AGAIN))
    }
}
