//! What all architectures of llama.cpp have in common: how a name has its block, and how the metadata have a number.

use super::super::located::Located;
use super::header::Listed;
use crate::error::{Error, Result, short};
use crate::tensor::dense_strides;
use std::collections::BTreeMap;

/// As the file has it.
pub fn located(t: &Listed, name: String) -> Located {
    Located {
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

/// `blk.3.time_mix_key.weight` is (3, `time_mix_key`, `weight`). An index is written in one way only: 07 is none.
pub fn block_parts(name: &str) -> Option<(usize, &str, &str)> {
    let (index, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    let block: usize = index.parse().ok().filter(|b: &usize| b.to_string() == index)?;
    let (stem, end) = rest.split_once('.')?;
    ["weight", "bias"].contains(&end).then_some((block, stem, end))
}

/// A number of the architecture, from 1 on: 0 means none.
pub fn whole(metadata: &BTreeMap<String, String>, architecture: &str, key: &str) -> Result<Option<usize>> {
    let number = parsed(metadata, &format!("{architecture}.{key}"), "a whole number")?;
    Ok(number.filter(|n| *n != 0))
}

/// What the value of a key says, by its whole name.
pub fn parsed<T: std::str::FromStr>(metadata: &BTreeMap<String, String>, key: &str, what: &str) -> Result<Option<T>> {
    let Some(text) = metadata.get(key) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| Error::file(format!("expected {what}, found {}", short(text, 64))).at(key))
}
