//! How a stack of matrices is laid out on a device.
//!
//! *Pieces*: rows of padded width, cut so that each fits one storage binding. *Blocks*: for adapters that read uniform buffers
//! many times faster than storage buffers (CPUs that play GPU), rows in groups, each cut along its width into up to eight tiles
//! of 64 KiB, the largest uniform binding of WebGPU. *Columns*: for inputs that are mostly zeros, `[k, rows]` with the weights of
//! one input channel contiguous, cut by output rows so that each piece holds every channel.

use crate::quant::{Format, PAD, padded};

/// One matrix of a stack: `[rows, k]`, k contiguous.
#[derive(Debug, Clone)]
pub struct Part {
    pub tensor: String,
    pub rows: usize,
    pub k: usize,
    /// The file's tensor is `[k, rows]` (the low-rank pairs of RWKV are).
    pub transposed: bool,
    /// Zeros where the file has no such tensor.
    pub optional: bool,
    /// The file's tensor holds several such matrices, and this is one of them.
    pub slice: Option<Slice>,
    /// What it multiplies may leave the range of f16.
    pub is_wide: bool,
}

/// One matrix among `of` in a tensor: a dimension more in front, or their rows under one another.
#[derive(Debug, Clone, Copy)]
pub struct Slice {
    pub index: usize,
    pub of: usize,
    pub is_plane: bool,
}

impl Part {
    /// `W [rows, k]`, as PyTorch's Linear stores it.
    pub fn new(tensor: impl Into<String>, rows: usize, k: usize) -> Self {
        Part { tensor: tensor.into(), rows, k, transposed: false, optional: false, slice: None, is_wide: false }
    }

    /// `M [k, rows]`, in x out.
    pub fn in_out(tensor: impl Into<String>, rows: usize, k: usize) -> Self {
        Part { transposed: true, ..Self::new(tensor, rows, k) }
    }

    /// Says that its input may leave the range of f16.
    pub fn wide(self) -> Self {
        Part { is_wide: true, ..self }
    }

    /// Plane `index` of the file's tensor `[of, …]`.
    pub fn plane(self, index: usize, of: usize) -> Self {
        Part { slice: Some(Slice { index, of, is_plane: true }), ..self }
    }

    /// Rows `index * rows ..` of the file's matrix of `of` times as many.
    pub fn slice(self, index: usize, of: usize) -> Self {
        Part { slice: Some(Slice { index, of, is_plane: false }), ..self }
    }

    /// Shape of the tensor in the file.
    pub fn shape(&self) -> Vec<usize> {
        let (planes, stacked) = match self.slice {
            Some(Slice { of, is_plane: true, .. }) => (Some(of), 1),
            Some(Slice { of, is_plane: false, .. }) => (None, of),
            None => (None, 1),
        };
        let rows = self.rows * stacked;
        planes.into_iter().chain(if self.transposed { [self.k, rows] } else { [rows, self.k] }).collect()
    }

    /// First of its rows among all that the tensor has.
    pub fn first_row(&self) -> usize {
        self.slice.map_or(0, |s| s.index * self.rows)
    }

    /// The same matrix `[k, rows]`: a row an input channel.
    pub fn turned(&self) -> Part {
        assert!(self.slice.is_none(), "{}: a slice of a tensor is not stored by columns", self.tensor);
        Part { rows: self.k, k: self.rows, transposed: !self.transposed, ..self.clone() }
    }

    /// Units of [`PAD`] elements in a row.
    pub fn units(&self) -> usize {
        padded(self.k) / PAD
    }
}

pub struct MatrixSpec {
    pub parts: Vec<Part>,
    /// Chosen when the model is opened; all parts share it.
    pub format: &'static dyn Format,
    /// Looked up by row, never multiplied.
    pub is_table: bool,
    /// Most of what it multiplies is zero, so an executor may store it by columns and read only some.
    pub has_sparse_input: bool,
}

/// Bytes of a uniform binding.
pub const WINDOW_BYTES: usize = 65536;
/// Tiles that one dispatch binds.
pub const WINDOWS: usize = 8;
/// A uniform binding begins at a multiple of so many bytes.
pub const WINDOW_ALIGN: usize = 256;

/// Rows of one part, cut into tiles: tile i holds units `i * tile_units ..` of each row, row after row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub part: usize,
    pub first_row: usize,
    pub rows: usize,
    pub tile_units: usize,
    pub n_tiles: usize,
    /// Which buffer, and the first byte of the first tile.
    pub buffer: usize,
    pub at: usize,
    /// Bytes from one tile to the next.
    pub tile_bytes: usize,
}

impl Block {
    /// Rearranges encoded rows (`rows` times `units` units of `unit_bytes`) into tiles.
    pub fn tiles(&self, encoded: &[u8], units: usize, unit_bytes: usize) -> Vec<u8> {
        let mut tiles = vec![0; self.n_tiles * self.tile_bytes];
        for (tile, out) in tiles.chunks_exact_mut(self.tile_bytes).enumerate() {
            let first = tile * self.tile_units;
            let n = self.tile_units.min(units - first);
            for row in 0..self.rows {
                let from = (row * units + first) * unit_bytes;
                let to = row * self.tile_units * unit_bytes;
                out[to..to + n * unit_bytes].copy_from_slice(&encoded[from..from + n * unit_bytes]);
            }
        }
        tiles
    }
}

/// Rows that one binding holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub segments: Vec<PieceSegment>,
    /// Units of [`PAD`] elements.
    pub units: usize,
}

/// Consecutive rows of one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PieceSegment {
    pub part: usize,
    pub first_row: usize,
    pub rows: usize,
    /// First unit within the piece.
    pub unit: usize,
}

impl MatrixSpec {
    /// Cuts the stack by rows so that no piece is larger than `limit` bytes. A single row always fits: rows are at most some
    /// hundred kilobytes, limits at least some megabytes (a test's override is the exception, and gets one row a piece).
    pub fn pieces(&self, limit: usize) -> Vec<Piece> {
        let unit_bytes = self.format.size_bytes(PAD);
        let limit_units = (limit / unit_bytes).max(1);
        let mut pieces = vec![Piece { segments: Vec::new(), units: 0 }];
        for (part, spec) in self.parts.iter().enumerate() {
            let mut first_row = 0;
            while first_row < spec.rows {
                let last = pieces.last_mut().expect("there is always a piece");
                let room = (limit_units.saturating_sub(last.units)) / spec.units().max(1);
                if room == 0 && last.units > 0 {
                    pieces.push(Piece { segments: Vec::new(), units: 0 });
                    continue;
                }
                let rows = room.max(1).min(spec.rows - first_row);
                last.segments.push(PieceSegment { part, first_row, rows, unit: last.units });
                last.units += rows * spec.units();
                first_row += rows;
            }
        }
        pieces
    }

    /// Cuts the only part by output rows, in whole units, so that no piece is larger than `limit` bytes; each holds these rows'
    /// weights of every input channel, `[k, units]`. One unit always fits: a channel is some bytes of it, and there are some
    /// ten thousand (a test's override is the exception).
    pub fn column_pieces(&self, limit: usize) -> Vec<Piece> {
        let [part] = self.parts.as_slice() else { panic!("a matrix by columns has one part, not {}", self.parts.len()) };
        let units = padded(part.rows) / PAD;
        let room = (limit / (part.k.max(1) * self.format.size_bytes(PAD))).clamp(1, units.max(1));
        let piece = |first: usize| {
            let (first_row, n) = (first * PAD, room.min(units - first));
            let rows = (n * PAD).min(part.rows - first_row);
            Piece { segments: vec![PieceSegment { part: 0, first_row, rows, unit: 0 }], units: n * part.k }
        };
        (0..units).step_by(room).map(piece).collect()
    }

    /// Cuts every part into blocks; a buffer holds at most `limit` bytes (but at least one block). `group` rows belong
    /// together where that many fit.
    pub fn blocks(&self, limit: usize, group: usize) -> Vec<Block> {
        let unit_bytes = self.format.size_bytes(PAD);
        let mut blocks = Vec::new();
        let (mut buffer, mut at) = (0, 0);
        for (part, spec) in self.parts.iter().enumerate() {
            let tile_units = spec.units().div_ceil(WINDOWS).max(1);
            let n_tiles = spec.units().div_ceil(tile_units);
            let fit = (WINDOW_BYTES / (tile_units * unit_bytes)).max(1);
            let step = if fit >= group { fit / group * group } else { fit };
            for first_row in (0..spec.rows).step_by(step) {
                let rows = step.min(spec.rows - first_row);
                let tile_bytes = (rows * tile_units * unit_bytes).next_multiple_of(WINDOW_ALIGN);
                if at > 0 && at + n_tiles * tile_bytes > limit {
                    (buffer, at) = (buffer + 1, 0);
                }
                blocks.push(Block { part, first_row, rows, tile_units, n_tiles, buffer, at, tile_bytes });
                at += n_tiles * tile_bytes;
            }
        }
        blocks
    }

    /// Whether every row fits the tiles of one dispatch and its activations one uniform binding.
    pub fn fits_windows(&self) -> bool {
        let unit_bytes = self.format.size_bytes(PAD);
        !self.is_table
            && self.parts.iter().all(|p| p.units().div_ceil(WINDOWS) * unit_bytes <= WINDOW_BYTES && p.units() * PAD * 4 <= WINDOW_BYTES)
    }

    /// Bytes on a device.
    pub fn size_bytes(&self) -> usize {
        self.parts.iter().map(|p| p.rows * self.format.size_bytes(padded(p.k))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant;

    #[test]
    fn pieces_cover_every_row_once_and_fit() {
        let format = quant::find("f16").unwrap();
        let spec = MatrixSpec {
            parts: vec![Part::new("a", 10, 16), Part::new("b", 3, 5), Part::new("c", 7, 32)],
            format,
            is_table: false,
            has_sparse_input: false,
        };
        for limit in [1, 16, 32, 64, 100, 128, 1 << 20] {
            let pieces = spec.pieces(limit);
            let mut seen = [0, 0, 0];
            for piece in &pieces {
                let mut unit = 0;
                for s in &piece.segments {
                    assert_eq!((s.first_row, s.unit), (seen[s.part], unit));
                    seen[s.part] += s.rows;
                    unit += s.rows * spec.parts[s.part].units();
                }
                assert_eq!(unit, piece.units);
                let rows: usize = piece.segments.iter().map(|s| s.rows).sum();
                assert!(format.size_bytes(piece.units * PAD) <= limit || rows == 1, "{limit} {piece:?}");
            }
            assert_eq!(seen, [10, 3, 7]);
        }
        assert_eq!(spec.pieces(1 << 20).len(), 1);
        assert_eq!(spec.size_bytes(), 2 * (160 + 24 + 224));
    }

    #[test]
    fn columns_cover_every_row_once_and_fit() {
        let format = quant::find("f16").unwrap();
        for (rows, k) in [(1, 1), (8, 3), (20, 7), (300, 64)] {
            let spec = MatrixSpec { parts: vec![Part::new("a", rows, k)], format, is_table: false, has_sparse_input: true };
            for limit in [1, 100, 2048, 1 << 20] {
                let mut seen = 0;
                for piece in spec.column_pieces(limit) {
                    let [s] = piece.segments.as_slice() else { panic!("{piece:?}") };
                    assert_eq!((s.part, s.unit, s.first_row), (0, 0, seen));
                    assert_eq!(piece.units, s.rows.div_ceil(PAD) * k);
                    assert!(format.size_bytes(piece.units * PAD) <= limit || s.rows <= PAD, "{limit} {piece:?}");
                    seen += s.rows;
                }
                assert_eq!(seen, rows);
            }
        }
    }
}
