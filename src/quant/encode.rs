//! Rows of numbers to codes and scales, on all of the host's threads.

use super::{Affine, Axis, Format, Scaling, WEIGHTS_PER_BLOCK};
use crate::error::{Error, Result};
use half::f16;
use rayon::prelude::*;

/// Rows in a format.
#[derive(Default)]
pub struct Encoded {
    /// `[rows, k]`, row after row.
    pub codes: Vec<u8>,
    /// As [`Axis`] says; none where scales belong to the whole matrix.
    pub scales: Vec<f16>,
}

/// Encodes rows `first ..` of `k` elements, a multiple of [`super::PAD`]; where blocks lie along columns, `first` is a multiple of
/// [`WEIGHTS_PER_BLOCK`]. `affine`: of the whole matrix, for formats that have such.
pub fn encode_rows(
    format: &dyn Format,
    axis: Axis,
    affine: Option<&Affine>,
    first: usize,
    rows: &mut [f32],
    k: usize,
    out: &mut Encoded,
) -> Result<()> {
    out.codes.clear();
    out.scales.clear();
    let scaled = match (format.scaling(), axis) {
        (Scaling::None, _) => return format.encode(rows, &mut out.codes),
        (Scaling::Affine, _) => {
            let affine = affine.expect("surveyed before");
            rows.par_chunks_mut(k).enumerate().for_each(|(i, row)| affine.normalise(first + i, row));
            Ok(vec![])
        }
        (Scaling::Blocks, Axis::Row) => {
            let one = |row: &mut [f32]| row.chunks_mut(WEIGHTS_PER_BLOCK).map(|block| divide(format, block)).collect::<Result<Vec<_>>>();
            rows.par_chunks_mut(k).map(one).collect::<Result<Vec<_>>>()
        }
        (Scaling::Blocks, Axis::Column) => rows.par_chunks_mut(WEIGHTS_PER_BLOCK * k).map(|rows| divide_columns(format, rows, k)).collect(),
    };
    out.scales = scaled?.concat();
    let codes: Result<Vec<Vec<u8>>> = rows
        .par_chunks(k)
        .map(|row| {
            let mut codes = Vec::with_capacity(format.size_bytes(k));
            format.encode(row, &mut codes).map(|()| codes)
        })
        .collect();
    codes?.iter().for_each(|row| out.codes.extend_from_slice(row));
    Ok(())
}

/// Divides numbers by the scale that suits them, as it is stored.
fn divide(format: &dyn Format, block: &mut [f32]) -> Result<f16> {
    let scale = scale(format, block)?;
    let inverse = inverse(scale);
    block.iter_mut().for_each(|x| *x *= inverse);
    Ok(scale)
}

/// The same for every column of some rows.
fn divide_columns(format: &dyn Format, rows: &mut [f32], k: usize) -> Result<Vec<f16>> {
    let mut column = Vec::with_capacity(WEIGHTS_PER_BLOCK);
    let one = |j: usize| {
        column.clear();
        column.extend(rows[j..].iter().step_by(k));
        scale(format, &column)
    };
    let scales = (0..k).map(one).collect::<Result<Vec<_>>>()?;
    let inverses: Vec<f32> = scales.iter().map(|&s| inverse(s)).collect();
    for row in rows.chunks_mut(k) {
        row.iter_mut().zip(&inverses).for_each(|(x, inverse)| *x *= inverse);
    }
    Ok(scales)
}

fn scale(format: &dyn Format, numbers: &[f32]) -> Result<f16> {
    if let Some(x) = numbers.iter().find(|x| !x.is_finite()) {
        return Err(Error::model(format!("{x} has no place in {}", format.name())).hint("leave out `quant`"));
    }
    let scale = f16::from_f32(format.scale(numbers));
    match scale.is_finite() {
        true => Ok(scale),
        false => {
            let most = numbers.iter().fold(0f32, |most, x| most.max(x.abs()));
            Err(Error::model(format!("{most} is too large for the scales of {}", format.name())).hint("leave out `quant`"))
        }
    }
}

/// Numbers too small for any scale become zero.
fn inverse(scale: f16) -> f32 {
    if scale == f16::ZERO { 0.0 } else { 1.0 / scale.to_f32() }
}
