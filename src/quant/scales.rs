//! The scales of a matrix. Scales convert the unscaled values of codes to weights.

use super::block_scales::{BlockLayout, Expanded, MOST, WEIGHTS_PER_BLOCK};
use super::{Format, PAD};
use half::f16;
use half::slice::HalfFloatSliceExt;
use std::ops::Range;

/// The kind of scales that a format uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scaling {
    /// No scales: the value of a code is the weight.
    None,
    /// Scales per block of weights. Along rows, [`Format::blocks`] describes them. Along columns, a block has one f16 scale.
    Blocks,
    /// One scale and one offset per row and per column of the matrix.
    Affine,
}

/// The direction of the blocks of weights that share a scale: along a row or along a column. It determines the layout of the scales.
///
/// The value matrix of an RWKV's ffn has blocks along columns on every device, if a format has one scale per 64 weights: GPUs read this matrix by
/// columns, to skip inputs that are zero, and its weights must be the same on the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// A block has consecutive weights of one row. The scales are `[rows, blocks per row, items per block]`.
    Row,
    /// A block has consecutive weights of one column, for matrices that are read by columns. The scales are `[blocks per column, columns]`.
    Column,
}

impl Axis {
    /// Returns the number of 16-bit items that store the scales of a matrix `[rows, k]` in a format with [`Scaling::Blocks`]. Blocks along columns have
    /// [`WEIGHTS_PER_BLOCK`] weights and one scale.
    pub fn n_items(self, rows: usize, k: usize, format: &dyn Format) -> usize {
        match self {
            Axis::Row => rows * format.blocks().per_row(k),
            Axis::Column => rows.div_ceil(WEIGHTS_PER_BLOCK) * k,
        }
    }

    /// Returns the items of the rows `first .. first + rows` of a matrix with `k` columns, or an empty list if `items` is empty. With
    /// [`Axis::Column`], `first` must be a multiple of [`WEIGHTS_PER_BLOCK`], or one block must contain all these rows.
    pub fn of_rows<'a, T>(self, items: &'a [T], first: usize, rows: usize, k: usize, format: &dyn Format) -> &'a [T] {
        if items.is_empty() {
            return items;
        }
        let before = if self == Axis::Row { first } else { first / WEIGHTS_PER_BLOCK * WEIGHTS_PER_BLOCK };
        &items[self.n_items(before, k, format)..][..self.n_items(rows, k, format)]
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
    /// One factor per sub-block of values. The first value begins a sub-block.
    Blocks(Subs<'a>),
    /// One factor per value.
    Each(&'a [f32]),
}

/// The factors and minima of consecutive sub-blocks of a row.
#[derive(Debug, Clone, Copy)]
pub struct Subs<'a> {
    pub factors: &'a [f32],
    /// One minimum per sub-block, which is subtracted from the product of value and factor. Empty if the format has no minima.
    pub minima: &'a [f32],
    /// The number of values per sub-block, a multiple of 16.
    pub len: usize,
}

/// The factors by which the decoded values of several consecutive rows are multiplied.
#[derive(Debug, Clone, Copy)]
pub enum RowFactors<'a> {
    One,
    /// The items of the scales of all blocks of the rows, the number of items per row, and their layout.
    Blocks(&'a [f16], usize, BlockLayout),
    /// One factor per column. All rows have the same factors.
    Each(&'a [f32]),
}

impl<'a> Factors<'a> {
    /// Returns the factors for the values that follow the first `u` units.
    pub(super) fn after_units(self, u: usize) -> Factors<'a> {
        match self {
            Factors::One => Factors::One,
            // The caller has decoded whole vectors, so fewer than 16 values remain. Sub-blocks begin at multiples of 16, so these values share one
            // sub-block, whose factor comes first.
            Factors::Blocks(Subs { factors, minima, len }) => {
                let first = u * PAD / len;
                Factors::Blocks(Subs { factors: &factors[first..], minima: minima.get(first..).unwrap_or_default(), len })
            }
            Factors::Each(scales) => Factors::Each(&scales[u * PAD..]),
        }
    }
}

/// The scales of a matrix in host memory.
#[derive(Debug, Clone, Default)]
pub enum Scales {
    #[default]
    None,
    /// The scales of blocks of rows as they are stored, `[rows, blocks per row, items per block]`. Loops expand them.
    Rows(Vec<f16>, BlockLayout),
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
            (Scaling::Blocks, Axis::Row) => Scales::Rows(halves.to_vec(), format.blocks()),
            (Scaling::Blocks, Axis::Column) => Scales::Columns(numbers(halves)),
            (Scaling::Affine, _) => {
                let (of_rows, of_columns) = halves.split_at(2 * rows);
                let ((rx, mx), (ry, my)) = (of_rows.split_at(rows), of_columns.split_at(of_columns.len() / 2));
                Scales::Affine { rx: numbers(rx), mx: numbers(mx), ry: numbers(ry), my: numbers(my) }
            }
        }
    }

    /// Returns how many bytes the scales take.
    pub fn size_bytes(&self) -> usize {
        match self {
            Scales::None => 0,
            Scales::Rows(items, _) => 2 * items.len(),
            Scales::Columns(scales) => 4 * scales.len(),
            Scales::Affine { rx, mx, ry, my } => 4 * (rx.len() + mx.len() + ry.len() + my.len()),
        }
    }

    /// Converts the unscaled values in `row` to weights, with the scales and offsets of row `i`.
    pub fn apply(&self, i: usize, row: &mut [f32]) {
        match self {
            Scales::None => {}
            Scales::Rows(items, blocks) => {
                let own = &items[i * blocks.per_row(row.len())..];
                let mut expanded = Expanded::default();
                let (together, items) = (MOST * blocks.sub, MOST * blocks.sub / blocks.len * blocks.items);
                for (row, own) in row.chunks_mut(together).zip(own.chunks(items)) {
                    (blocks.expand)(own, row.len().div_ceil(blocks.sub), &mut expanded);
                    for (i, sub) in row.chunks_mut(blocks.sub).enumerate() {
                        sub.iter_mut().for_each(|x| *x = *x * expanded.factors[i] - expanded.minima[i]);
                    }
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
            Scales::Rows(items, blocks) => {
                let per_row = blocks.per_row(k);
                Some(RowFactors::Blocks(&items[i * per_row..], per_row, *blocks))
            }
            Scales::Columns(scales) => Some(RowFactors::Each(&scales[i / WEIGHTS_PER_BLOCK * k..][..k])),
            Scales::Affine { .. } => None,
        }
    }

    /// Returns the factors of `columns` in row `i` of a matrix `[rows, k]`. The columns begin with a block and have at most [`MOST`] sub-blocks.
    /// `expanded` is memory for the factors. Returns [`Factors::One`] for affine scales, which [`apply_affine`](Self::apply_affine) applies after decoding.
    pub(super) fn factors<'a>(&'a self, i: usize, k: usize, columns: Range<usize>, expanded: &'a mut Expanded) -> Factors<'a> {
        match self {
            Scales::None | Scales::Affine { .. } => Factors::One,
            Scales::Rows(items, blocks) => {
                let own = &items[i * blocks.per_row(k)..][columns.start / blocks.len * blocks.items..];
                let n = columns.len().div_ceil(blocks.sub);
                (blocks.expand)(own, n, expanded);
                let minima = if blocks.has_minima { &expanded.minima[..n] } else { &[] };
                Factors::Blocks(Subs { factors: &expanded.factors[..n], minima, len: blocks.sub })
            }
            Scales::Columns(scales) => Factors::Each(&scales[i / WEIGHTS_PER_BLOCK * k..][columns.start..k]),
        }
    }
}
