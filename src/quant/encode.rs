//! Encodes rows of weights as codes and scales. Formats with scales use all threads of the host.

use super::{Affine, Axis, Format, Scaling, WEIGHTS_PER_BLOCK};
use crate::error::{Error, Result};
use half::f16;
use rayon::prelude::*;

/// The codes and scales of encoded rows.
#[derive(Default)]
pub struct EncodedRows {
    /// The codes, `[rows, k]`, row-major.
    pub codes: Vec<u8>,
    /// The items that store the scales of blocks, in the layout of [`Axis`]. The list is empty if the format does not scale blocks.
    pub scales: Vec<f16>,
}

/// How the rows of a matrix are encoded.
pub struct RowEncoder<'a> {
    pub format: &'a dyn Format,
    pub axis: Axis,
    /// The scales and offsets of the whole matrix, for formats with [`Scaling::Affine`].
    pub affine: Option<&'a Affine>,
    /// A factor per column, for the squared errors of the column's weights in the search for scales. Only for blocks along rows: the weights of a block
    /// along a column share one input, so one factor would change nothing.
    pub importance: Option<&'a [f32]>,
}

impl<'a> RowEncoder<'a> {
    /// Returns the encoder for a format in which all columns count alike. A format with [`Scaling::Affine`] also needs [`affine`](Self::affine).
    pub fn new(format: &'a dyn Format, axis: Axis) -> Self {
        RowEncoder { format, axis, affine: None, importance: None }
    }

    /// Encodes consecutive rows of a matrix into `out`. `rows` has `k` weights per row and begins with row `first` of the matrix. If the format has
    /// scales, the weights in `rows` may be overwritten: their offsets are subtracted, and they are divided by their scales.
    ///
    /// `k` is a multiple of [`super::PAD`]. With [`Axis::Column`], `first` is a multiple of [`WEIGHTS_PER_BLOCK`].
    ///
    /// # Errors
    ///
    /// `Model` if a weight is not finite or too large for the format.
    ///
    /// # Panics
    ///
    /// Panics if the format's scaling is [`Scaling::Affine`] and `affine` is `None`.
    pub fn encode(&self, first: usize, rows: &mut [f32], k: usize, out: &mut EncodedRows) -> Result<()> {
        let (format, axis) = (self.format, self.axis);
        out.codes.clear();
        out.scales.clear();
        if let (Some(blocks), Axis::Row) = (format.file_blocks(), axis) {
            let encoded = rows.par_chunks(k).map(|row| {
                let mut own = EncodedRows::default();
                blocks.encode_row(row, self.importance, &mut own).map(|()| own)
            });
            for row in encoded.collect::<Result<Vec<_>>>()? {
                out.codes.extend(row.codes);
                out.scales.extend(row.scales);
            }
            return Ok(());
        }
        let scaled = match (format.scaling(), axis) {
            (Scaling::None, _) => return format.encode(rows, &mut out.codes),
            (Scaling::Affine, _) => {
                let affine = self.affine.expect("surveyed before");
                rows.par_chunks_mut(k).enumerate().for_each(|(i, row)| affine.normalise(first + i, row));
                Ok(vec![])
            }
            (Scaling::Blocks, Axis::Row) => {
                let len = format.block();
                let own = |block: usize| self.importance.map(|importance| &importance[block * len..k.min((block + 1) * len)]);
                let divided = |(i, block): (usize, &mut [f32])| divide(format, block, own(i));
                let one = |row: &mut [f32]| row.chunks_mut(len).enumerate().map(divided).collect::<Result<Vec<_>>>();
                rows.par_chunks_mut(k).map(one).collect::<Result<Vec<_>>>()
            }
            (Scaling::Blocks, Axis::Column) => {
                rows.par_chunks_mut(WEIGHTS_PER_BLOCK * k).map(|rows| divide_columns(format, rows, k)).collect()
            }
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
}

/// Divides the weights of a block by the block's scale and returns the scale. The scale is rounded to f16 before the division.
fn divide(format: &dyn Format, block: &mut [f32], importance: Option<&[f32]>) -> Result<f16> {
    let scale = scale(format, block, importance)?;
    let inverse = inverse(scale);
    block.iter_mut().for_each(|x| *x *= inverse);
    Ok(scale)
}

/// Divides each column of `rows` by the column's scale. `rows` has at most [`WEIGHTS_PER_BLOCK`] rows of `k` columns. Returns the `k` scales.
fn divide_columns(format: &dyn Format, rows: &mut [f32], k: usize) -> Result<Vec<f16>> {
    let mut column = Vec::with_capacity(WEIGHTS_PER_BLOCK);
    let one = |j: usize| {
        column.clear();
        column.extend(rows[j..].iter().step_by(k));
        scale(format, &column, None)
    };
    let scales = (0..k).map(one).collect::<Result<Vec<_>>>()?;
    let inverses: Vec<f32> = scales.iter().map(|&s| inverse(s)).collect();
    for row in rows.chunks_mut(k) {
        row.iter_mut().zip(&inverses).for_each(|(x, inverse)| *x *= inverse);
    }
    Ok(scales)
}

/// Returns the scale of a block.
///
/// # Errors
///
/// `Model` if a weight is not finite, or if the scale is too large for f16.
fn scale(format: &dyn Format, numbers: &[f32], importance: Option<&[f32]>) -> Result<f16> {
    if let Some(x) = numbers.iter().find(|x| !x.is_finite()) {
        return Err(Error::model(format!("the weight {x} cannot be stored in the format {}", format.name())).hint("leave out `quant`"));
    }
    let scale = f16::from_f32(format.scale(numbers, importance));
    match scale.is_finite() {
        true => Ok(scale),
        false => {
            let most = numbers.iter().fold(0f32, |most, x| most.max(x.abs()));
            Err(Error::model(format!("the weight {most} is too large for the scales of the format {}", format.name()))
                .hint("leave out `quant`"))
        }
    }
}

/// Returns 1 / scale, or 0 if the scale is 0: a block whose weights are too small for any f16 scale is stored as zeros.
fn inverse(scale: f16) -> f32 {
    if scale == f16::ZERO { 0.0 } else { 1.0 / scale.to_f32() }
}
