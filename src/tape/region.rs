//! The layout of consecutive rows of a matrix on a device: the stored weights (codes), then the scales. Sizes count words of 16 bytes.

use super::cells::{self, WORD_BYTES};
use crate::quant::{Affine, Axis, Format, PAD, Scaling, WEIGHTS_PER_BLOCK};
use half::f16;
use rayon::prelude::*;

/// The order in which a device stores the codes of a matrix. A unit is eight codes of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeOrder {
    /// Groups of four rows, which a lane reads together. A word of 16 bytes holds unit i of several consecutive rows, as many as fit: four rows
    /// of 4-bit codes, two rows of 8-bit codes, one row of f16. Codes of 2, 3, 5 and 6 bits are in [`cells`].
    Quads,
    /// Row after row.
    Plain,
}

/// The layout of consecutive rows of a matrix. A device stores these rows together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Region {
    pub format: &'static dyn Format,
    pub axis: Axis,
    pub order: CodeOrder,
    pub rows: usize,
    /// The number of units in a row. A unit is [`PAD`] codes.
    pub units: usize,
}

/// The number of rows that a lane reads together.
const QUAD: usize = 4;

impl Region {
    fn unit_bytes(&self) -> usize {
        self.format.size_bytes(PAD)
    }

    /// Returns how many rows share one word of 16 bytes.
    fn rows_per_word(&self) -> usize {
        match self.order {
            CodeOrder::Quads => (WORD_BYTES / self.unit_bytes()).max(1),
            CodeOrder::Plain => 1,
        }
    }

    /// Returns how many words of 16 bytes the codes take.
    pub fn code_words(&self) -> usize {
        let rows = if self.order == CodeOrder::Quads { self.rows.next_multiple_of(QUAD) } else { self.rows };
        self.bytes_of_rows(rows).div_ceil(WORD_BYTES)
    }

    /// Returns how many bytes the codes of the first `n` rows take. With the order `Quads`, `n` must be a multiple of four, because the codes of
    /// up to four rows are interleaved.
    pub fn bytes_of_rows(&self, n: usize) -> usize {
        let units = if cells::planes(self.format).is_some() { self.units.next_multiple_of(cells::UNITS) } else { self.units };
        n * units * self.unit_bytes()
    }

    /// Returns how many words of 16 bytes the scales take. A word holds eight f16, or sixteen bytes. The scales are stored as follows:
    /// - Blocks along rows: `[rows / 8, blocks per row, items per block]` words. An item is 16 bits of a block's scales. A word has the items of
    ///   eight rows: eight f16, or the low bytes of eight items and then their high bytes.
    /// - Blocks along columns: `[blocks per column, units]` words. A word has the scales of eight columns.
    /// - Affine: `[2, rows / 8]` words for the scales and offsets of the rows, then `[2, units]` words for the scales and offsets of the columns.
    pub fn scale_words(&self) -> usize {
        let groups = self.rows.div_ceil(PAD);
        match (self.format.scaling(), self.axis) {
            (Scaling::None, _) => 0,
            (Scaling::Blocks, Axis::Row) => groups * self.format.blocks().per_row(self.units * PAD),
            (Scaling::Blocks, Axis::Column) => self.rows.div_ceil(WEIGHTS_PER_BLOCK) * self.units,
            (Scaling::Affine, _) => 2 * (groups + self.units),
        }
    }

    /// Returns how many words of 16 bytes codes and scales take together.
    pub fn words(&self) -> usize {
        self.code_words() + self.scale_words()
    }

    /// Returns the modules that fill the shader slots `weight`, `scale` and `matrix` in kernels that read the region from a storage buffer.
    pub fn modules(&self) -> Vec<(&'static str, String)> {
        let scale = match (self.format.scaling(), self.axis) {
            (Scaling::None, _) => "scale::none",
            (Scaling::Blocks, Axis::Row) => {
                let blocks = self.format.blocks();
                match (blocks.items > blocks.floats, blocks.has_minima) {
                    (true, _) => "scale::levels",
                    (false, true) => "scale::rows_minima",
                    (false, false) => "scale::rows",
                }
            }
            (Scaling::Blocks, Axis::Column) => "scale::columns",
            (Scaling::Affine, _) => "scale::affine",
        };
        let order = if self.order == CodeOrder::Quads { "matrix::rows" } else { "matrix::columns" };
        vec![("weight", format!("weight::{}", self.format.shader())), ("scale", scale.to_string()), ("matrix", order.to_string())]
    }

    /// Returns the codes in the order in which the device stores them. `codes` holds the codes row by row.
    pub fn place_codes(&self, codes: &[u8]) -> Vec<u8> {
        self.place_tile(codes, 0, self.units)
    }

    /// Returns the codes of the units `first .. first + n` of each row, laid out as a region of `n` units per row. A unit is [`PAD`] codes. `codes`
    /// holds the codes row by row. Units beyond the end of a row are zero.
    pub fn place_tile(&self, codes: &[u8], first: usize, n: usize) -> Vec<u8> {
        let (size, rows_per_word, planes) = (self.unit_bytes(), self.rows_per_word(), cells::planes(self.format));
        let region = Region { units: n, ..*self };
        let mut placed = vec![0; region.code_words() * WORD_BYTES];
        // A group of four rows shares no word with other groups, so threads can place several groups at the same time.
        let place = |(placed, codes): (&mut [u8], &[u8])| {
            for (row, codes) in codes.chunks_exact(self.units * size).enumerate() {
                let own = codes[(first * size).min(codes.len())..].chunks_exact(size).take(n);
                if let Some(planes) = planes {
                    own.enumerate().for_each(|(unit, bytes)| cells::place(planes, bytes, row, unit, n, placed));
                } else if rows_per_word == 1 {
                    placed[row * n * size..][..own.len() * size].copy_from_slice(&codes[first * size..][..own.len() * size]);
                } else {
                    let (group, member) = (row / rows_per_word * n, row % rows_per_word);
                    for (unit, code) in own.enumerate() {
                        placed[((group + unit) * rows_per_word + member) * size..][..size].copy_from_slice(code);
                    }
                }
            }
        };
        placed.par_chunks_mut(region.bytes_of_rows(QUAD)).zip(codes.par_chunks(QUAD * self.units * size)).for_each(place);
        placed
    }

    /// Returns the scales of blocks in the order in which the device stores them. `items` is `[rows, blocks per row, items per block]` if blocks run
    /// along rows, and `[blocks per column, columns]` if blocks run along columns.
    pub fn place_scales(&self, items: &[f16]) -> Vec<u8> {
        let mut placed = vec![0; self.scale_words() * WORD_BYTES];
        if self.axis == Axis::Column || items.is_empty() {
            placed[..2 * items.len()].copy_from_slice(&bytes(items));
            return placed;
        }
        let blocks = self.format.blocks();
        let per_row = blocks.per_row(self.units * PAD);
        for (row, items) in items.chunks_exact(per_row).enumerate() {
            let words = placed[row / PAD * per_row * WORD_BYTES..].chunks_exact_mut(WORD_BYTES);
            for (i, (word, item)) in words.zip(items).enumerate() {
                let is_float = i % blocks.items < blocks.floats;
                let [low, high] = if is_float { [2 * (row % PAD), 2 * (row % PAD) + 1] } else { [row % PAD, PAD + row % PAD] };
                [word[low], word[high]] = item.to_le_bytes();
            }
        }
        placed
    }

    /// Returns the affine scales and offsets of the region in the order in which the device stores them. `first` is the index of the region's first
    /// row in the matrix.
    pub fn place_affine(&self, affine: &Affine, first: usize) -> Vec<u8> {
        let stored = affine.stored(first, self.rows, self.units * PAD);
        let rows = self.rows.next_multiple_of(PAD);
        let mut placed = Vec::with_capacity(self.scale_words() * PAD);
        let (of_rows, of_columns) = stored.split_at(2 * self.rows);
        for half in of_rows.chunks_exact(self.rows) {
            placed.extend_from_slice(half);
            placed.resize(placed.len().next_multiple_of(rows), f16::ZERO);
        }
        placed.extend_from_slice(of_columns);
        bytes(&placed)
    }
}

fn bytes(halves: &[f16]) -> Vec<u8> {
    halves.iter().flat_map(|h| h.to_le_bytes()).collect()
}
