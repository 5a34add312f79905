//! How rows of one format lie on a device: their codes, then their scales, in words of 16 bytes.

use crate::quant::{Affine, Axis, Format, PAD, Scaling, WEIGHTS_PER_BLOCK};
use half::f16;

/// Bytes of what kernels load at once.
pub const WORD_BYTES: usize = 16;

/// How units of eight codes follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Rows by fours, which lanes read together: a word has the same unit of as many of them as it holds.
    Quads,
    /// Row after row.
    Plain,
}

/// Rows of a matrix that lie together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Region {
    pub format: &'static dyn Format,
    pub axis: Axis,
    pub order: Order,
    pub rows: usize,
    /// Units of [`PAD`] codes in a row.
    pub units: usize,
}

/// Rows that lanes read together.
const QUAD: usize = 4;

impl Region {
    fn unit_bytes(&self) -> usize {
        self.format.size_bytes(PAD)
    }

    /// Rows that share a word.
    fn sharers(&self) -> usize {
        match self.order {
            Order::Quads => (WORD_BYTES / self.unit_bytes()).max(1),
            Order::Plain => 1,
        }
    }

    /// Words of codes.
    pub fn code_words(&self) -> usize {
        let rows = if self.order == Order::Quads { self.rows.next_multiple_of(QUAD) } else { self.rows };
        (rows * self.units * self.unit_bytes()).div_ceil(WORD_BYTES)
    }

    /// Words of scales, eight halves each: `[rows / 8, blocks of columns]` of eight rows, or `[blocks of rows, units]` of eight columns;
    /// of whole rows and columns `[2 (scale, offset), rows / 8]` and `[2, units]`.
    pub fn scale_words(&self) -> usize {
        let groups = self.rows.div_ceil(PAD);
        match (self.format.scaling(), self.axis) {
            (Scaling::None, _) => 0,
            (Scaling::Blocks, Axis::Row) => groups * self.units.div_ceil(WEIGHTS_PER_BLOCK / PAD),
            (Scaling::Blocks, Axis::Column) => self.rows.div_ceil(WEIGHTS_PER_BLOCK) * self.units,
            (Scaling::Affine, _) => 2 * (groups + self.units),
        }
    }

    pub fn words(&self) -> usize {
        self.code_words() + self.scale_words()
    }

    /// Returns what fills the slots of kernels that read the region from a storage buffer.
    pub fn modules(&self) -> Vec<(&'static str, String)> {
        let scale = match (self.format.scaling(), self.axis) {
            (Scaling::None, _) => "scale::none",
            (Scaling::Blocks, Axis::Row) => "scale::rows",
            (Scaling::Blocks, Axis::Column) => "scale::columns",
            (Scaling::Affine, _) => "scale::affine",
        };
        let order = if self.order == Order::Quads { "matrix::rows" } else { "matrix::columns" };
        vec![("weight", format!("weight::{}", self.format.name())), ("scale", scale.to_string()), ("matrix", order.to_string())]
    }

    /// The codes of this region, from rows one after another, as a device reads them.
    pub fn place_codes(&self, codes: &[u8]) -> Vec<u8> {
        self.place_tile(codes, 0, self.units)
    }

    /// Units `first ..` of each row, `n` at the most, as a region of so many units.
    pub fn place_tile(&self, codes: &[u8], first: usize, n: usize) -> Vec<u8> {
        let (size, sharers) = (self.unit_bytes(), self.sharers());
        let mut placed = vec![0; Region { units: n, ..*self }.code_words() * WORD_BYTES];
        for (row, codes) in codes.chunks_exact(self.units * size).enumerate() {
            let own = codes[first * size..].chunks_exact(size).take(n);
            if sharers == 1 {
                placed[row * n * size..][..own.len() * size].copy_from_slice(&codes[first * size..][..own.len() * size]);
                continue;
            }
            let (group, member) = (row / sharers * n, row % sharers);
            for (unit, code) in own.enumerate() {
                placed[((group + unit) * sharers + member) * size..][..size].copy_from_slice(code);
            }
        }
        placed
    }

    /// The scales of this region, as a device reads them.
    pub fn place_scales(&self, scales: &[f16]) -> Vec<u8> {
        let mut placed = vec![f16::ZERO; self.scale_words() * PAD];
        match (self.format.scaling(), self.axis) {
            (Scaling::Blocks, Axis::Row) => {
                let blocks = self.units.div_ceil(WEIGHTS_PER_BLOCK / PAD);
                for (i, &scale) in scales.iter().enumerate() {
                    let (row, block) = (i / blocks, i % blocks);
                    placed[(row / PAD * blocks + block) * PAD + row % PAD] = scale;
                }
            }
            _ => placed[..scales.len()].copy_from_slice(scales),
        }
        bytes(&placed)
    }

    /// The same of rows `first ..` of a matrix with scales and offsets of its own.
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
