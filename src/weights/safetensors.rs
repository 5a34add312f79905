//! The safetensors header: names, types, shapes and byte ranges. Every value is checked before it is used.
//!
//! This module knows no models: it reads both checkpoints and saved states.

use super::located::{LocatedTensor, check_shape};
use crate::error::{Error, Result, in_words};
use crate::tensor::{DType, dense_strides};
use ::safetensors::tensor::{Metadata, TensorInfo};
use ::safetensors::{Dtype, SafeTensorError, SafeTensors};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The maximum size of a header, in bytes. A header of a hundred thousand tensors is smaller.
pub(super) const MAX_HEADER_BYTES: u64 = 32 << 20;
const AGAIN: &str = "the download may be incomplete: download the file again";
/// The hint for a truncated state file. States are saved and not downloaded, so the hint for downloads does not fit.
const STATE: &str = "the state file is incomplete: save the state again";
const DAMAGED: &str = "the file is damaged: download the file again";
/// A metadata key that only state files have.
const STATE_KEY: &[u8] = b"\"weights_hash\"";

/// Returns how many bytes at the beginning of a file are needed to read its header. `head` has the first bytes of the file.
pub(super) fn header_bytes(head: &[u8]) -> u64 {
    let length = head.first_chunk::<8>().map_or(0, |length| u64::from_le_bytes(*length));
    // a header above the limit is not read, because `parse` refuses it
    8 + if length > MAX_HEADER_BYTES { 0 } else { length }
}

/// Returns a file's tensors, in the order of their data, and the file's metadata. `file` has all bytes of the file, or its header. `size` is the
/// number of bytes of the file.
///
/// # Errors
///
/// `File` if the file is truncated, or if its header is damaged or hostile.
pub(super) fn parse(file: &[u8], size: u64) -> Result<(Vec<LocatedTensor>, BTreeMap<String, String>)> {
    let Some((length, rest)) = file.split_first_chunk::<8>() else {
        return Err(Error::file(format!("expected a safetensors file of at least 8 bytes, found {} bytes", file.len())).hint(AGAIN));
    };
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER_BYTES {
        return Err(Error::file(format!(
            "expected a safetensors header of at most {MAX_HEADER_BYTES} bytes, but the first 8 bytes of the file announce {length} bytes"
        ))
        .hint(DAMAGED));
    }
    if length > rest.len() as u64 {
        return Err(Error::file(format!(
            "the file ends early: expected a safetensors header of {length} bytes, found {} bytes",
            rest.len()
        ))
        .hint(AGAIN));
    }
    let read = if size == file.len() as u64 { SafeTensors::read_metadata(file) } else { read_header(&rest[..length as usize], size) };
    let (length, header) = read.map_err(|e| {
        let is_state = rest[..length as usize].windows(STATE_KEY.len()).any(|key| key == STATE_KEY);
        explain(e, &rest[..length as usize], size, if is_state { STATE } else { AGAIN })
    })?;
    let mut tensors = Vec::new();
    for name in header.offset_keys() {
        let info = header.info(&name).expect("offset_keys lists the header's names");
        let at = |e: Error| e.at(format!("tensor {name}"));
        let dtype = dtype_of(info.dtype).map_err(at)?;
        check_shape(&info.shape).map_err(at)?;
        let (start, end) = info.data_offsets;
        let bytes = 8 + length + start..8 + length + end;
        tensors.push(LocatedTensor {
            dtype,
            strides: dense_strides(&info.shape),
            shape: info.shape.clone(),
            bytes,
            name,
            scale: 1.0,
            file: 0,
            coding: None,
        });
    }
    let metadata = header.metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
    Ok((tensors, metadata))
}

/// Parses and checks a header as `SafeTensors::read_metadata` does. That function needs the whole file; this function needs only the header.
fn read_header(header: &[u8], file_bytes: u64) -> std::result::Result<(usize, Metadata), SafeTensorError> {
    let metadata: Metadata = serde_json::from_slice(header).map_err(SafeTensorError::InvalidHeaderDeserialization)?;
    let mut end = 0;
    for name in metadata.offset_keys() {
        let info = metadata.info(&name).expect("offset_keys lists the header's names");
        if info.data_offsets.0 != end || info.data_offsets.1 < end {
            return Err(SafeTensorError::InvalidOffset(name));
        }
        let bits =
            info.shape.iter().try_fold(info.dtype.bitsize(), |bits, &n| bits.checked_mul(n)).ok_or(SafeTensorError::ValidationOverflow)?;
        if (info.data_offsets.1 - end).checked_mul(8) != Some(bits) {
            return Err(SafeTensorError::TensorInvalidInfo);
        }
        end = info.data_offsets.1;
    }
    match 8 + header.len() as u64 + end as u64 == file_bytes {
        true => Ok((header.len(), metadata)),
        false => Err(SafeTensorError::MetadataIncompleteBuffer),
    }
}

/// Converts a type of the crate `safetensors`. Returns an error if the type is unsupported.
fn dtype_of(dtype: Dtype) -> Result<DType> {
    Ok(match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        Dtype::I16 => DType::I16,
        Dtype::I8 => DType::I8,
        Dtype::U8 => DType::U8,
        Dtype::BOOL => DType::Bool,
        other => return Err(Error::file(format!("unsupported number type {other}, expected F32, F16 or BF16"))),
    })
}

/// Returns the error for a header that the crate `safetensors` refused. `incomplete` is the hint for a truncated file.
fn explain(error: SafeTensorError, header: &[u8], file_bytes: u64, incomplete: &str) -> Error {
    use SafeTensorError as E;
    match error {
        E::InvalidHeader(e) => Error::file("the safetensors header is not UTF-8 text").hint(DAMAGED).caused_by(e),
        E::InvalidHeaderDeserialization(e) | E::JsonError(e) => {
            // The column counts from the beginning of the JSON, so the error gives a byte of the header and not of the file.
            let said = e.to_string();
            let unknown = said.strip_prefix("unknown variant `").and_then(|rest| rest.split('`').next());
            let message = match unknown {
                Some(dtype) => format!("unknown number type {dtype} of a tensor, expected F32, F16 or BF16"),
                None => format!("the safetensors header is malformed: {}", in_words(&e)),
            };
            Error::file(message).at(format!("byte {} of the header", e.column())).hint(DAMAGED).caused_by(e)
        }
        E::InvalidOffset(name) => {
            Error::file("the tensor does not begin where the previous tensor ends").at(format!("tensor {name}")).hint(DAMAGED)
        }
        E::MetadataIncompleteBuffer => {
            let described =
                serde_json::from_slice::<Metadata>(header).ok().map(|m| (8 + header.len() as u64).saturating_add(m.data_len() as u64));
            let described = described.map_or_else(|| "another size".into(), |bytes| format!("{bytes} bytes"));
            Error::file(format!("the file has {file_bytes} bytes, but its safetensors header describes {described}")).hint(incomplete)
        }
        E::TensorInvalidInfo => wrong_size(header)
            .unwrap_or_else(|| Error::file("the safetensors header gives a tensor more or fewer bytes than its shape and number type need"))
            .hint(DAMAGED),
        E::ValidationOverflow => Error::file("the safetensors header gives a tensor a shape that is too large").hint(DAMAGED),
        other => Error::file(format!("invalid safetensors file: {other}")).hint(DAMAGED).caused_by(other),
    }
}

/// Returns the error for a tensor in a header whose bytes do not match its shape and number type. Returns `None` if there is no such tensor.
fn wrong_size(header: &[u8]) -> Option<Error> {
    let tensors: BTreeMap<String, &RawValue> = serde_json::from_slice(header).ok()?;
    tensors.into_iter().find_map(|(name, text)| {
        // The entry `__metadata__` is no tensor.
        let info: TensorInfo = serde_json::from_str(text.get()).ok()?;
        let found = info.data_offsets.1.checked_sub(info.data_offsets.0)?;
        let needed = info.shape.iter().try_fold(info.dtype.bitsize(), |bits, &n| bits.checked_mul(n))?.div_ceil(8);
        let text = format!("a tensor of type {} and shape {:?} needs {needed} bytes, found {found} bytes", info.dtype, info.shape);
        (found != needed).then(|| Error::file(text).at(format!("tensor {name}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: usize) -> Vec<u8> {
        let mut out = (header.len() as u64).to_le_bytes().to_vec();
        out.extend(header.as_bytes());
        out.resize(out.len() + data, 0);
        out
    }

    fn whole(file: &[u8]) -> Result<(Vec<LocatedTensor>, BTreeMap<String, String>)> {
        parse(file, file.len() as u64)
    }

    fn refusal(header: &str, data: usize) -> String {
        whole(&file(header, data)).unwrap_err().to_string()
    }

    #[test]
    fn a_header_is_read() {
        let header = r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"I64","shape":[],"data_offsets":[4,12]},"a":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]}}"#;
        let (tensors, metadata) = whole(&file(header, 12)).unwrap();
        assert_eq!(metadata["format"], "pt");
        assert_eq!((tensors[0].name.as_str(), tensors[0].dtype, tensors[0].shape.as_slice()), ("a", DType::F16, &[1, 2][..]));
        assert_eq!((tensors[1].dtype, tensors[1].bytes.len()), (DType::I64, 8));
    }

    #[test]
    fn hostile_headers_are_refused() {
        let one = |dtype: &str, shape: &str, from: u64, to: u64| {
            format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{from},{to}]}}}}"#)
        };
        assert!(whole(&[0xff; 64]).unwrap_err().to_string().contains("18446744073709551615"));
        assert!(refusal(&one("F32", "[1]", 0, 4), 3).contains("download"));
        assert!(refusal(&one("F32", "[1]", 0, 4), 5).contains("has 67 bytes, but its safetensors header describes 66 bytes"));
        let state = one("F32", "[1]", 0, 4).replacen('{', r#"{"__metadata__":{"weights_hash":"x"},"#, 1);
        assert!(refusal(&state, 3).ends_with("(the state file is incomplete: save the state again)"));
        assert!(refusal(&one("F32", "[2]", 0, 4), 4).contains("tensor a: a tensor of type F32 and shape [2] needs 8 bytes, found 4 bytes"));
        assert!(refusal(&one("F32", "[1]", 4, 8), 8).contains("tensor a: the tensor does not begin"));
        assert!(refusal(&one("Q4", "[1]", 0, 4), 4).contains("Q4"));
        assert!(refusal(&one("F8_E4M3", "[4]", 0, 4), 4).contains("F8_E4M3"));
        assert!(refusal(&one("F32", "[4294967296,4294967296,4]", 0, 4), 4).contains("shape that is too large"));
        assert!(refusal(&one("F32", "[0,4294967296,4294967296]", 0, 0), 0).contains("too large for this machine"));
        assert!(refusal(&one("U8", "[1,1,1,1,1,1,1,1,1]", 0, 1), 1).contains("dimensions"));
        assert!(refusal(&"[".repeat(100_000), 0).contains("malformed"));
        let overlap = r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}"#;
        assert!(refusal(overlap, 6).contains("where the previous tensor ends"));
        let twice = r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#;
        assert!(whole(&file(twice, 8)).is_err());
    }
}
