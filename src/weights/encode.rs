//! Encodes a view's elements as little-endian bytes of a chosen type, in small blocks.
//!
//! If the view already stores elements of the chosen type in row-major order without gaps, the bytes are copied unchanged.

use crate::error::{Error, Result};
use crate::tensor::{DType, View};
use half::{bf16, f16, slice::HalfFloatSliceExt};
use std::io::Write;

const BLOCK_BYTES: usize = 64 << 10;

/// Encodes a view as `dtype` into `out`, row-major, in blocks of at most 64 KiB.
///
/// # Errors
///
/// `Model` if `dtype` cannot be written, or if a finite element does not fit `dtype`. The message names the element's value and its index.
/// `File` if writing fails.
pub fn write_view(view: &View, dtype: DType, out: &mut dyn Write) -> Result<()> {
    let io = |e: std::io::Error| Error::io(e, std::path::Path::new("output"));
    if let Some(bytes) = view.dense_bytes().filter(|_| view.dtype() == dtype) {
        return bytes.chunks(BLOCK_BYTES).try_for_each(|block| out.write_all(block).map_err(io));
    }
    if !dtype.is_writable() {
        return Err(Error::model(format!("expected F32, F16 or BF16 as the number type to write, found {dtype}")));
    }
    let block_len = BLOCK_BYTES / 4;
    let mut numbers = vec![0f32; block_len.min(view.len())];
    let mut bytes = Vec::with_capacity(numbers.len() * 4);
    let mut start = 0;
    while start < view.len() {
        let n = block_len.min(view.len() - start);
        view.read_f32(start, &mut numbers[..n])?;
        write_numbers(&numbers[..n], start, dtype, &mut bytes, out)?;
        start += n;
    }
    Ok(())
}

/// Writes the elements `numbers` as `dtype`, a floating-point type. `start` is the index of the first element in its tensor, for errors. `bytes`
/// is a buffer whose content is replaced.
pub(super) fn write_numbers(numbers: &[f32], start: usize, dtype: DType, bytes: &mut Vec<u8>, out: &mut dyn Write) -> Result<()> {
    bytes.clear();
    encode(numbers, dtype, bytes).map_err(|(i, x)| {
        Error::model(format!("the number {x} (element {}) is too large for {dtype}", start + i)).hint("write the number type F32 or BF16")
    })?;
    out.write_all(bytes).map_err(|e| Error::io(e, std::path::Path::new("output")))
}

/// Appends `numbers` as `dtype`. The error is the index and the value of the first finite element that does not fit.
fn encode(numbers: &[f32], dtype: DType, bytes: &mut Vec<u8>) -> std::result::Result<(), (usize, f32)> {
    let misfit = |infinite: &dyn Fn(usize) -> bool| {
        let found = numbers.iter().enumerate().find(|(i, x)| x.is_finite() && infinite(*i));
        found.map_or(Ok(()), |(i, x)| Err((i, *x)))
    };
    match dtype {
        DType::F16 => {
            let mut halves = vec![f16::ZERO; numbers.len()];
            halves.convert_from_f32_slice(numbers);
            bytes.extend(halves.iter().flat_map(|h| h.to_le_bytes()));
            misfit(&|i| halves[i].is_infinite())
        }
        DType::BF16 => {
            let mut halves = vec![bf16::ZERO; numbers.len()];
            halves.convert_from_f32_slice(numbers);
            bytes.extend(halves.iter().flat_map(|h| h.to_le_bytes()));
            misfit(&|i| halves[i].is_infinite())
        }
        _ => {
            bytes.extend(numbers.iter().flat_map(|x| x.to_le_bytes()));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{halves, singles};
    use super::*;

    fn written(view: &View, dtype: DType) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        write_view(view, dtype, &mut out)?;
        Ok(out)
    }

    #[test]
    fn types_change_and_blocks_join() {
        let numbers: Vec<f32> = (0..40_000).map(|i| (i % 2048) as f32).collect();
        let (wide, narrow) = (singles(&numbers), halves(&numbers));
        let view = View::dense(DType::F32, &[40_000], &wide).unwrap();
        assert_eq!(written(&view, DType::F32).unwrap(), wide);
        assert_eq!(written(&view, DType::F16).unwrap(), narrow);
        let back = View::dense(DType::F16, &[40_000], &narrow).unwrap();
        assert_eq!(written(&back, DType::F32).unwrap(), wide);
        let small = View::dense(DType::F32, &[2, 3], &wide[..24]).unwrap().transposed();
        assert_eq!(written(&small, DType::BF16).unwrap().len(), 12);
        assert_eq!(written(&small, DType::F32).unwrap(), singles(&[0., 3., 1., 4., 2., 5.]));
    }

    #[test]
    fn a_number_that_does_not_fit_is_named() {
        let bytes = singles(&[1.0, f32::INFINITY, f32::NAN, -70_000.0]);
        let view = View::dense(DType::F32, &[4], &bytes).unwrap();
        let message = written(&view, DType::F16).unwrap_err().to_string();
        assert!(message.contains("-70000 (element 3) is too large for F16"), "{message}");
        assert_eq!(written(&view, DType::BF16).unwrap().len(), 8);
        let max = singles(&[f32::MAX]);
        assert!(written(&View::dense(DType::F32, &[1], &max).unwrap(), DType::BF16).is_err());
        assert!(written(&view, DType::I64).is_err());
        let block = View::dense(DType::Q8_0, &[32], &[0; 34]).unwrap();
        assert!(written(&block, DType::Q8_0).unwrap_err().to_string().contains("found Q8_0"));
        assert_eq!(written(&block, DType::F16).unwrap(), [0; 64]);
        let ints = View::dense(DType::I64, &[2], &bytes).unwrap();
        assert_eq!(written(&ints, DType::I64).unwrap(), bytes);
        assert!(written(&ints, DType::F32).is_err());
    }
}
