//! The scales of a matrix. Scales convert the unscaled values of codes to weights.

use super::{Format, PAD};
use half::f16;
use half::slice::HalfFloatSliceExt;

/// The number of consecutive weights that share one scale.
pub const WEIGHTS_PER_BLOCK: usize = 64;

/// The kind of scales that a format uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scaling {
    /// No scales: the value of a code is the weight.
    None,
    /// One f16 scale per block of weights. [`Format::block`] has the length of a block along rows.
    Blocks,
    /// One scale and one offset per row and per column of the matrix.
    Affine,
}

/// The direction of the blocks of weights that share a scale: along a row or along a column. It determines the layout of the scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// A block has consecutive weights of one row. The scales are `[rows, blocks per row]`.
    Row,
    /// A block has consecutive weights of one column, for matrices that are read by columns. The scales are `[blocks per column, columns]`.
    Column,
}

impl Axis {
    /// Returns the number of scales of a matrix `[rows, k]`. `block` is the length of a block along rows; along columns it is [`WEIGHTS_PER_BLOCK`].
    pub fn n_scales(self, rows: usize, k: usize, block: usize) -> usize {
        match self {
            Axis::Row => rows * k.div_ceil(block),
            Axis::Column => rows.div_ceil(WEIGHTS_PER_BLOCK) * k,
        }
    }

    /// Returns the scales of the rows `first .. first + rows` of a matrix with `k` columns, or an empty list if `scales` is empty. With
    /// [`Axis::Column`], `first` must be a multiple of [`WEIGHTS_PER_BLOCK`], or one block must contain all these rows.
    pub fn of_rows<T>(self, scales: &[T], first: usize, rows: usize, k: usize, block: usize) -> &[T] {
        if scales.is_empty() {
            return scales;
        }
        let before = if self == Axis::Row { first } else { first / WEIGHTS_PER_BLOCK * WEIGHTS_PER_BLOCK };
        &scales[self.n_scales(before, k, block)..][..self.n_scales(rows, k, block)]
    }

    /// Returns the direction that the blocks have in the transposed matrix: `Column` for `Row`, and `Row` for `Column`.
    pub fn transposed(self) -> Axis {
        match self {
            Axis::Row => Axis::Column,
            Axis::Column => Axis::Row,
        }
    }
}

/// The factors by which decoded values are multiplied.
#[derive(Debug, Clone, Copy)]
pub enum Factors<'a> {
    One,
    /// One factor per block of values, and the length of a block. The first value begins a block.
    Blocks(&'a [f32], usize),
    /// One factor per value.
    Each(&'a [f32]),
}

/// The factors by which the decoded values of several consecutive rows are multiplied.
#[derive(Debug, Clone, Copy)]
pub enum RowFactors<'a> {
    One,
    /// One factor per block of values of a row, the number of factors per row, and the length of a block.
    Blocks(&'a [f32], usize, usize),
    /// One factor per column. All rows have the same factors.
    Each(&'a [f32]),
}

impl<'a> Factors<'a> {
    /// Returns the factors for the values that follow the first `u` units.
    pub(super) fn after_units(self, u: usize) -> Factors<'a> {
        match self {
            Factors::One => Factors::One,
            // The caller has decoded whole vectors, so fewer than 16 values remain. Blocks begin at multiples of 16, so these values share one
            // block, whose factor comes first.
            Factors::Blocks(scales, block) => Factors::Blocks(&scales[u * PAD / block..], block),
            Factors::Each(scales) => Factors::Each(&scales[u * PAD..]),
        }
    }
}

/// The scales of a matrix in host memory, as f32.
#[derive(Debug, Clone, Default)]
pub enum Scales {
    #[default]
    None,
    /// One scale per block of a row, `[rows, blocks per row]`, and the length of a block.
    Rows(Vec<f32>, usize),
    /// One scale per block of a column, `[blocks per column, columns]`.
    Columns(Vec<f32>),
    /// The scales rx and offsets mx of rows, the scales ry and offsets my of columns. rx and ry are already divided by 16, because the format
    /// divides rx · ry by 256.
    Affine { rx: Vec<f32>, mx: Vec<f32>, ry: Vec<f32>, my: Vec<f32> },
}

impl Scales {
    /// Converts the stored scales of a matrix of `rows` rows in `format` to f32. `halves` holds the stored f16 scales. [`Axis`] describes their layout
    /// or, for affine scales, [`super::Affine::stored`].
    pub fn new(format: &dyn Format, axis: Axis, halves: &[f16], rows: usize) -> Scales {
        let numbers = |halves: &[f16]| halves.to_f32_vec();
        match (format.scaling(), axis) {
            (Scaling::None, _) => Scales::None,
            (Scaling::Blocks, Axis::Row) => Scales::Rows(numbers(halves), format.block()),
            (Scaling::Blocks, Axis::Column) => Scales::Columns(numbers(halves)),
            (Scaling::Affine, _) => {
                let (of_rows, of_columns) = halves.split_at(2 * rows);
                let ((rx, mx), (ry, my)) = (of_rows.split_at(rows), of_columns.split_at(of_columns.len() / 2));
                Scales::Affine { rx: numbers(rx), mx: numbers(mx), ry: numbers(ry), my: numbers(my) }
            }
        }
    }

    /// Converts the unscaled values in `row` to weights, with the scales and offsets of row `i`.
    pub fn apply(&self, i: usize, row: &mut [f32]) {
        match self {
            Scales::None => {}
            Scales::Rows(scales, block) => {
                let n = row.len().div_ceil(*block);
                for (block, scale) in row.chunks_mut(*block).zip(&scales[i * n..]) {
                    block.iter_mut().for_each(|x| *x *= scale);
                }
            }
            Scales::Columns(scales) => {
                let scales = &scales[i / WEIGHTS_PER_BLOCK * row.len()..];
                row.iter_mut().zip(scales).for_each(|(x, scale)| *x *= scale);
            }
            Scales::Affine { .. } => self.apply_affine(i, 0, row),
        }
    }

    /// Converts the unscaled values in a part of row `i` to weights, if the scales are affine. The part begins at column `first`.
    pub(super) fn apply_affine(&self, i: usize, first: usize, part: &mut [f32]) {
        if let Scales::Affine { rx, mx, ry, my } = self {
            let columns = ry[first..].iter().zip(&my[first..]);
            part.iter_mut().zip(columns).for_each(|(x, (ry, my))| *x = *x * (rx[i] * ry) + (mx[i] + my));
        }
    }

    /// Returns the factors of row `i` and the rows after it, in a matrix `[rows, k]`. With scales along columns, these factors are valid only for
    /// rows in the same block as row `i`. Returns `None` for affine scales.
    pub(super) fn factors_of_rows(&self, i: usize, k: usize) -> Option<RowFactors<'_>> {
        match self {
            Scales::None => Some(RowFactors::One),
            Scales::Rows(scales, block) => {
                let per_row = k.div_ceil(*block);
                Some(RowFactors::Blocks(&scales[i * per_row..], per_row, *block))
            }
            Scales::Columns(scales) => Some(RowFactors::Each(&scales[i / WEIGHTS_PER_BLOCK * k..][..k])),
            Scales::Affine { .. } => None,
        }
    }

    /// Returns the factors of the columns from `first` on, for row `i` of a matrix `[rows, k]`. `first` is a multiple of [`WEIGHTS_PER_BLOCK`].
    /// Returns [`Factors::One`] for affine scales, which [`apply_affine`](Self::apply_affine) applies after decoding.
    pub(super) fn factors(&self, i: usize, k: usize, first: usize) -> Factors<'_> {
        match self {
            Scales::None | Scales::Affine { .. } => Factors::One,
            Scales::Rows(scales, block) => {
                let n = k.div_ceil(*block);
                Factors::Blocks(&scales[i * n..][first / block..n], *block)
            }
            Scales::Columns(scales) => Factors::Each(&scales[i / WEIGHTS_PER_BLOCK * k..][first..k]),
        }
    }
}
