//! Functions for names and metadata values. All GGUF architectures share these functions.

use super::super::located::LocatedTensor;
use super::header::ListedTensor;
use crate::error::{Error, Result, short};
use crate::tensor::dense_strides;
use std::collections::BTreeMap;

/// Returns the tensor `t` of the file under the name `name`. Shape and orientation stay as in the file.
pub fn located(t: &ListedTensor, name: String) -> LocatedTensor {
    LocatedTensor {
        name,
        dtype: t.dtype,
        shape: t.shape.clone(),
        strides: dense_strides(&t.shape),
        bytes: t.bytes.clone(),
        scale: 1.0,
        file: 0,
        coding: None,
    }
}

/// Splits `blk.3.time_mix_key.weight` into (3, `time_mix_key`, `weight`). Returns `None` for names of other forms, such as an index with a
/// leading zero (`blk.07.…`).
pub fn block_parts(name: &str) -> Option<(usize, &str, &str)> {
    let (index, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    let block: usize = index.parse().ok().filter(|b: &usize| b.to_string() == index)?;
    let (stem, end) = rest.split_once('.')?;
    ["weight", "bias"].contains(&end).then_some((block, stem, end))
}

/// Returns the whole number under the key `ARCHITECTURE.KEY`, or `None` if the key is missing or its value is 0.
pub fn whole(metadata: &BTreeMap<String, String>, architecture: &str, key: &str) -> Result<Option<usize>> {
    let number = parsed(metadata, &format!("{architecture}.{key}"), "a whole number")?;
    Ok(number.filter(|n| *n != 0))
}

/// Parses the value of a key, or returns `None` if the key is missing. `what` names the type in the error.
///
/// # Errors
///
/// `File` if the value does not parse.
pub fn parsed<T: std::str::FromStr>(metadata: &BTreeMap<String, String>, key: &str, what: &str) -> Result<Option<T>> {
    let Some(text) = metadata.get(key) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| Error::file(format!("expected {what} as metadata value, found {}", short(text, 64))).at(key))
}
