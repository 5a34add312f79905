//! How a stack of matrices is cut for a device.
//!
//! *Pieces*: rows of padded width, as many of one format as fit a storage binding. *Blocks*: for adapters that read uniform buffers
//! many times faster than storage buffers (CPUs that play GPU), rows in groups, each cut along its width into up to eight tiles
//! of 64 KiB, the largest uniform binding of WebGPU. *Columns*: for inputs that are mostly zeros, `[k, rows]` with the weights of
//! one input channel contiguous, cut by output rows so that each piece holds every channel.

use super::region::{Order, Region, WORD_BYTES};
use crate::quant::{self, Axis, Format, PAD, Scaling, WEIGHTS_PER_BLOCK, padded};

/// One matrix of a stack: `[rows, k]`, k contiguous.
#[derive(Debug, Clone)]
pub struct MatrixPart {
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
    pub kind: Kind,
    /// Chosen when the model is opened.
    pub format: &'static dyn Format,
}

/// What a matrix is to its model, by which its format is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Projections of the time mix or the attention, receptance, keys or gates of the ffn.
    Plain,
    /// The matrix that ends an ffn.
    Value,
    /// One of a low-rank pair.
    LowRank,
    /// Looked up by row, never multiplied.
    Embedding,
    Head,
}

/// One matrix among `of` in a tensor: a dimension more in front, or their rows under one another.
#[derive(Debug, Clone, Copy)]
pub struct Slice {
    pub index: usize,
    pub of: usize,
    pub is_plane: bool,
}

impl MatrixPart {
    /// `W [rows, k]`, as PyTorch's Linear stores it.
    pub fn new(tensor: impl Into<String>, rows: usize, k: usize) -> Self {
        MatrixPart {
            tensor: tensor.into(),
            rows,
            k,
            transposed: false,
            optional: false,
            slice: None,
            is_wide: false,
            kind: Kind::Plain,
            format: quant::FORMATS[0],
        }
    }

    /// `M [k, rows]`, in x out, as the low-rank pairs of RWKV lie.
    pub fn in_out(tensor: impl Into<String>, rows: usize, k: usize) -> Self {
        MatrixPart { transposed: true, kind: Kind::LowRank, ..Self::new(tensor, rows, k) }
    }

    pub fn of(self, kind: Kind) -> Self {
        MatrixPart { kind, ..self }
    }

    /// Says that its input may leave the range of f16.
    pub fn wide(self) -> Self {
        MatrixPart { is_wide: true, ..self }
    }

    /// Plane `index` of the file's tensor `[of, …]`.
    pub fn plane(self, index: usize, of: usize) -> Self {
        MatrixPart { slice: Some(Slice { index, of, is_plane: true }), ..self }
    }

    /// Rows `index * rows ..` of the file's matrix of `of` times as many.
    pub fn slice(self, index: usize, of: usize) -> Self {
        MatrixPart { slice: Some(Slice { index, of, is_plane: false }), ..self }
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
    pub fn transposed(&self) -> MatrixPart {
        assert!(self.slice.is_none(), "{}: a slice of a tensor is not stored by columns", self.tensor);
        MatrixPart { rows: self.k, k: self.rows, transposed: !self.transposed, ..self.clone() }
    }

    /// Units of [`PAD`] elements in a row.
    pub fn units(&self) -> usize {
        padded(self.k) / PAD
    }
}

pub struct MatrixSpec {
    /// Those of one format that follow one another are read by one dispatch.
    pub parts: Vec<MatrixPart>,
    /// Most of what it multiplies is zero, so an executor may store it by columns and read only some.
    pub has_sparse_input: bool,
}

/// Bytes of a uniform binding.
pub const WINDOW_BYTES: usize = 65536;
/// Tiles that one dispatch binds.
pub const WINDOWS: usize = 8;
/// A uniform binding begins at a multiple of so many bytes.
pub const WINDOW_ALIGN: usize = 256;

/// Rows of one part, cut into tiles: tile i holds units `i * tile_units ..` of each row.
#[derive(Debug, Clone, PartialEq)]
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
    /// Bytes of the scales, which follow the tiles.
    pub scale_bytes: usize,
}

impl Block {
    /// First byte of the scales.
    pub fn scales_at(&self) -> usize {
        self.at + self.n_tiles * self.tile_bytes
    }

    fn end(&self) -> usize {
        self.scales_at() + self.scale_bytes
    }

    /// Bytes that a buffer must have which ends with this block.
    pub fn buffer_bytes(&self) -> usize {
        self.end() + WINDOW_BYTES
    }
}

/// Rows that one binding holds, of one format.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixPiece {
    pub format: &'static dyn Format,
    pub segments: Vec<PieceSegment>,
    /// Of 16 bytes.
    pub words: usize,
}

/// Consecutive rows of one part.
#[derive(Debug, Clone, PartialEq)]
pub struct PieceSegment {
    pub part: usize,
    pub first_row: usize,
    pub rows: usize,
    pub region: Region,
    /// First words of its codes and of its scales within the piece.
    pub codes: usize,
    pub scales: usize,
}

impl MatrixPiece {
    pub fn size_bytes(&self) -> usize {
        self.words * WORD_BYTES
    }

    fn new(format: &'static dyn Format) -> MatrixPiece {
        MatrixPiece { format, segments: Vec::new(), words: 0 }
    }

    fn push(&mut self, part: usize, first_row: usize, rows: usize, region: Region) {
        let (codes, scales) = (self.words, self.words + region.code_words());
        self.segments.push(PieceSegment { part, first_row, rows, region, codes, scales });
        self.words = scales + region.scale_words();
    }
}

impl MatrixSpec {
    /// How scales lie. A matrix that may be read by columns has its scales along them, however it is stored: its numbers are the same
    /// everywhere.
    pub fn axis(&self) -> Axis {
        if self.has_sparse_input { Axis::Column } else { Axis::Row }
    }

    /// Looked up by row, never multiplied.
    pub fn is_table(&self) -> bool {
        self.parts.iter().any(|p| p.kind == Kind::Embedding)
    }

    /// So many rows of a part.
    pub fn region(&self, part: &MatrixPart, rows: usize) -> Region {
        Region { format: part.format, axis: self.axis(), order: Order::Quads, rows, units: part.units() }
    }

    /// Cuts the stack by rows so that no piece is larger than `limit` bytes. A few rows always fit: they are at most some
    /// hundred kilobytes, limits at least some megabytes (a test's override is the exception, and gets those rows a piece).
    pub fn pieces(&self, limit: usize) -> Vec<MatrixPiece> {
        let mut pieces: Vec<MatrixPiece> = Vec::new();
        for (part, spec) in self.parts.iter().enumerate() {
            // Rows that may not be parted: they share words, or scales.
            let together = if self.axis() == Axis::Column { WEIGHTS_PER_BLOCK } else { PAD };
            let words = |rows: usize| self.region(spec, rows).words();
            let mut first_row = 0;
            while first_row < spec.rows {
                let left = spec.rows - first_row;
                let used = pieces.last().filter(|p| p.format == spec.format).map_or(usize::MAX, |p| p.words);
                let fits = |rows: usize| used.saturating_add(words(rows)) <= limit / WORD_BYTES;
                // All of them, or as many as there is room for.
                let room = if fits(left) { left } else { partition(left / together, |n| fits((n + 1) * together)) * together };
                if room == 0 && used > 0 {
                    pieces.push(MatrixPiece::new(spec.format));
                    continue;
                }
                let rows = room.max(together).min(left);
                pieces.last_mut().expect("there is one by now").push(part, first_row, rows, self.region(spec, rows));
                first_row += rows;
            }
        }
        if pieces.is_empty() {
            pieces.push(MatrixPiece::new(quant::FORMATS[0]));
        }
        pieces
    }

    /// Cuts the only part by output rows, in whole units, so that no piece is larger than `limit` bytes; each holds these rows'
    /// weights of every input channel, `[k, units]`. One block of rows always fits: a channel is some bytes of it, and there are some
    /// ten thousand (a test's override is the exception).
    pub fn column_pieces(&self, limit: usize) -> Vec<MatrixPiece> {
        let [part] = self.parts.as_slice() else { panic!("a matrix by columns has one part, not {}", self.parts.len()) };
        // Rows that share scales stay together.
        let together = if part.format.scaling() == Scaling::Blocks { WEIGHTS_PER_BLOCK } else { PAD };
        let region =
            |rows: usize| Region { format: part.format, axis: Axis::Row, order: Order::Plain, rows: part.k, units: padded(rows) / PAD };
        let fits = |n: usize| region(n * together).words() * WORD_BYTES <= limit;
        let step = partition(part.rows.div_ceil(together), |n| fits(n + 1)).max(1) * together;
        let piece = |first_row: usize| {
            let rows = step.min(part.rows - first_row);
            let mut piece = MatrixPiece::new(part.format);
            piece.push(0, first_row, rows, region(rows));
            piece
        };
        (0..part.rows).step_by(step).map(piece).collect()
    }

    /// Cuts every part into blocks; a buffer holds at most `limit` bytes (but at least one block). `group` rows, a multiple of
    /// [`WEIGHTS_PER_BLOCK`], belong together where that many fit.
    pub fn blocks(&self, limit: usize, group: usize) -> Vec<Block> {
        let mut blocks = Vec::new();
        let (mut buffer, mut at) = (0, 0);
        for (part, spec) in self.parts.iter().enumerate() {
            let tile_units = spec.units().div_ceil(WINDOWS).max(1);
            let n_tiles = spec.units().div_ceil(tile_units);
            let fit = (WINDOW_BYTES / (tile_units * spec.format.size_bytes(PAD))).max(1);
            // Either whole blocks of rows, or a part of one.
            let step = if fit >= group { fit / group * group } else { 1 << fit.ilog2() };
            for first_row in (0..spec.rows).step_by(step) {
                let rows = step.min(spec.rows - first_row);
                let region = self.region(spec, rows);
                let tile_bytes = (Region { units: tile_units, ..region }.code_words() * WORD_BYTES).next_multiple_of(WINDOW_ALIGN);
                let scale_bytes = (region.scale_words() * WORD_BYTES).next_multiple_of(WINDOW_ALIGN);
                let mut block = Block { part, first_row, rows, tile_units, n_tiles, buffer, at, tile_bytes, scale_bytes };
                if at > 0 && block.end() > limit {
                    buffer += 1;
                    (block.buffer, block.at) = (buffer, 0);
                }
                at = block.end();
                blocks.push(block);
            }
        }
        blocks
    }

    /// Whether every row fits the tiles of one dispatch, the scales of a block one uniform binding, and its activations another.
    pub fn fits_windows(&self) -> bool {
        let fits = |p: &MatrixPart| {
            let tile_bytes = p.units().div_ceil(WINDOWS) * p.format.size_bytes(PAD);
            tile_bytes <= WINDOW_BYTES && p.units() * PAD * 4 <= WINDOW_BYTES
        };
        // A scale is an 8th of a byte a code at the most, and only those of whole columns do not become fewer with the rows.
        let scales_fit = |p: &MatrixPart| {
            p.format.scaling() != Scaling::Affine || self.region(p, WEIGHTS_PER_BLOCK).scale_words() * WORD_BYTES <= WINDOW_BYTES / 2
        };
        !self.is_table() && self.parts.iter().all(|p| fits(p) && scales_fit(p))
    }

    /// Bytes in a file, and about as many on a device.
    pub fn size_bytes(&self) -> usize {
        self.size_in(&|part| part.format)
    }

    /// The same as if parts had other formats.
    pub fn size_in(&self, format: &dyn Fn(&MatrixPart) -> &'static dyn Format) -> usize {
        self.parts.iter().map(|p| self.part_bytes(p, format(p), p.rows)).sum()
    }

    /// Bytes of one row of every part, as a lookup reads it.
    pub fn row_bytes(&self) -> usize {
        self.parts.iter().map(|p| self.part_bytes(p, p.format, 1)).sum()
    }

    fn part_bytes(&self, part: &MatrixPart, format: &dyn Format, rows: usize) -> usize {
        let k = padded(part.k);
        let halves = match format.scaling() {
            Scaling::None => 0,
            Scaling::Blocks => self.axis().n_scales(rows, k),
            Scaling::Affine => 2 * (rows + k),
        };
        format.size_bytes(rows * k) + 2 * halves
    }
}

/// How many of 0, 1, 2, … below `n` hold, of which the first ones do.
fn partition(n: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, n);
    while low < high {
        let middle = (low + high) / 2;
        if holds(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(format: &'static dyn Format, parts: &[(usize, usize)], has_sparse_input: bool) -> MatrixSpec {
        let part = |&(rows, k): &(usize, usize)| MatrixPart { format, ..MatrixPart::new("w", rows, k) };
        MatrixSpec { parts: parts.iter().map(part).collect(), has_sparse_input }
    }

    #[test]
    fn pieces_cover_every_row_once_and_fit() {
        for &format in quant::FORMATS {
            for is_sparse in [false, true] {
                let spec = stack(format, &[(10, 16), (300, 5), (7, 32)], is_sparse);
                for limit in [1, 64, 100, 1000, 5000, 1 << 20] {
                    let mut seen = [0, 0, 0];
                    for piece in &spec.pieces(limit) {
                        let mut words = 0;
                        for s in &piece.segments {
                            assert_eq!((s.first_row, s.codes), (seen[s.part], words));
                            seen[s.part] += s.rows;
                            words += s.region.words();
                            assert!(s.region.rows == s.rows && (s.first_row % if is_sparse { WEIGHTS_PER_BLOCK } else { PAD } == 0));
                        }
                        assert_eq!(words, piece.words);
                        let rows: usize = piece.segments.iter().map(|s| s.rows).sum();
                        assert!(piece.size_bytes() <= limit || rows <= WEIGHTS_PER_BLOCK, "{limit} {piece:?}");
                    }
                    assert_eq!(seen, [10, 300, 7], "{format:?} {limit}");
                }
                assert_eq!(spec.pieces(1 << 20).len(), 1);
            }
        }
        assert_eq!(stack(quant::FORMATS[0], &[(10, 16), (3, 5), (7, 32)], false).size_bytes(), 2 * (160 + 24 + 224));
    }

    #[test]
    fn parts_of_several_formats_are_pieces_apart() {
        let mut spec = stack(quant::find("i8").unwrap(), &[(10, 16), (3, 5), (7, 32)], false);
        spec.parts[1].format = quant::find("f16").unwrap();
        let formats: Vec<_> = spec.pieces(1 << 20).iter().map(|p| p.format.name()).collect();
        assert_eq!(formats, ["i8", "f16", "i8"]);
    }

    #[test]
    fn columns_cover_every_row_once_and_fit() {
        for &format in quant::FORMATS {
            for (rows, k) in [(1, 1), (8, 3), (20, 7), (300, 64)] {
                let spec = stack(format, &[(rows, k)], true);
                for limit in [1, 100, 2048, 1 << 20] {
                    let mut seen = 0;
                    for piece in spec.column_pieces(limit) {
                        let [s] = piece.segments.as_slice() else { panic!("{piece:?}") };
                        assert_eq!((s.part, s.codes, s.first_row), (0, 0, seen));
                        assert_eq!((s.region.units, s.region.rows), (s.rows.div_ceil(PAD), k));
                        assert!(piece.size_bytes() <= limit || s.rows <= WEIGHTS_PER_BLOCK, "{limit} {piece:?}");
                        seen += s.rows;
                    }
                    assert_eq!(seen, rows);
                }
            }
        }
    }
}
