//! Stacks of weight matrices: their declaration, and three layouts on devices. A stack is a list of matrices, its *parts*. One dispatch can read
//! several consecutive parts if they have the same format.
//!
//! - *Pieces* hold padded rows. All rows of a piece have one format, and the piece fits a storage binding.
//! - *Blocks* hold groups of rows. Each block is cut along its width into at most eight tiles. A tile has at most 64 KiB, the largest uniform
//!   binding of WebGPU. Blocks are for software adapters, which read uniform buffers many times faster than storage buffers.
//! - *Column pieces* are for matrices whose inputs are mostly zeros. A column piece is `[inputs, outputs]`: the weights of one input channel are
//!   contiguous. The matrix is cut by output rows, so each column piece has all input channels.

mod kind;

pub use kind::MatrixKind;

use super::Heads;
use super::cells::{self, WORD_BYTES};
use super::region::{CodeOrder, Region};
use crate::quant::{self, Activations, Axis, Format, PAD, Scaling, WEIGHTS_PER_BLOCK, padded};
use std::sync::Arc;

/// The declaration of one matrix of a stack: `[rows, k]`, row-major.
#[derive(Debug, Clone)]
pub struct MatrixPart {
    /// The name of the matrix's tensor in the checkpoint.
    pub tensor: String,
    /// The number of outputs.
    pub rows: usize,
    /// The number of inputs.
    pub k: usize,
    /// `true` if the tensor in the checkpoint is `[k, rows]`, as RWKV's low-rank matrices are.
    pub transposed: bool,
    /// `true` if the checkpoint may lack the tensor. The matrix is zero if the tensor is missing.
    pub optional: bool,
    /// The place of the matrix in a tensor that holds several matrices. `None` if the tensor holds only this matrix.
    pub slice: Option<Slice>,
    /// The head sizes, if the rows of the matrix are the channels of padded heads. The checkpoint lacks the rows of the padding.
    pub row_heads: Option<Heads>,
    /// The head sizes, if the inputs of the matrix are the channels of padded heads. The checkpoint lacks the columns of the padding.
    pub input_heads: Option<Heads>,
    /// `true` if the activations that the matrix multiplies may exceed the range of f16.
    pub is_wide: bool,
    pub kind: MatrixKind,
    /// The format in which the executor stores the matrix. The format is chosen when the model is opened.
    pub format: &'static dyn Format,
    /// How much the squared error of a weight counts during encoding: one factor per input, with a mean of about 1, padded with zeros. `None` if all
    /// weights count alike.
    pub importance: Option<Arc<[f32]>>,
}

/// The place of matrix `index` in a tensor that holds `of` matrices. If `is_plane` is true, the tensor is `[of, …]`, one plane per matrix.
/// Otherwise the tensor has two dimensions: the rows of the first matrix, then the rows of the second, and so on.
#[derive(Debug, Clone, Copy)]
pub struct Slice {
    pub index: usize,
    pub of: usize,
    pub is_plane: bool,
}

impl MatrixPart {
    /// Returns the declaration of a matrix whose tensor is stored as the weight of PyTorch's `Linear`: `[rows, k]`, outputs by inputs.
    pub fn new(tensor: impl Into<String>, rows: usize, k: usize) -> Self {
        MatrixPart {
            tensor: tensor.into(),
            rows,
            k,
            transposed: false,
            optional: false,
            slice: None,
            row_heads: None,
            input_heads: None,
            is_wide: false,
            kind: MatrixKind::Plain,
            format: quant::FORMATS[0],
            importance: None,
        }
    }

    /// Returns the declaration of a low-rank matrix whose tensor is stored as `[k, rows]`, inputs by outputs, as in RWKV.
    pub fn in_out(tensor: impl Into<String>, rows: usize, k: usize) -> Self {
        MatrixPart { transposed: true, kind: MatrixKind::LowRank, ..Self::new(tensor, rows, k) }
    }

    /// Returns the same declaration with the role `kind`.
    pub fn of(self, kind: MatrixKind) -> Self {
        MatrixPart { kind, ..self }
    }

    /// Returns the same declaration for a matrix whose inputs may exceed the range of f16.
    pub fn wide(self) -> Self {
        MatrixPart { is_wide: true, ..self }
    }

    /// Returns the same declaration for a matrix that is plane `index` of a tensor `[of, …]`.
    pub fn plane(self, index: usize, of: usize) -> Self {
        MatrixPart { slice: Some(Slice { index, of, is_plane: true }), ..self }
    }

    /// Returns the same declaration for a matrix that is the rows `index * rows .. (index + 1) * rows` of a tensor with `of * rows` rows.
    pub fn slice(self, index: usize, of: usize) -> Self {
        MatrixPart { slice: Some(Slice { index, of, is_plane: false }), ..self }
    }

    /// Returns the same declaration for a matrix whose rows are the channels of padded heads. `None` means that the heads have no padding.
    ///
    /// # Panics
    /// If the matrix is stored transposed, or as a slice of a tensor.
    pub fn row_heads(self, row_heads: Option<Heads>) -> Self {
        assert!(!self.transposed && self.slice.is_none(), "{}: only whole matrices in PyTorch's order have padded heads", self.tensor);
        MatrixPart { row_heads, ..self }
    }

    /// Returns the same declaration for a matrix whose inputs are the channels of padded heads. `None` means that the heads have no padding.
    ///
    /// # Panics
    /// If the matrix is stored transposed, or as a slice of a tensor.
    pub fn input_heads(self, input_heads: Option<Heads>) -> Self {
        assert!(!self.transposed && self.slice.is_none(), "{}: only whole matrices in PyTorch's order have padded heads", self.tensor);
        MatrixPart { input_heads, ..self }
    }

    /// Returns whether the matrix has padded heads. Their padding adds rows or columns of zeros, which the checkpoint does not contain.
    pub fn has_padded_heads(&self) -> bool {
        self.row_heads.is_some() || self.input_heads.is_some()
    }

    /// Returns the number of inputs of the matrix in the checkpoint.
    pub fn stored_k(&self) -> usize {
        self.input_heads.map_or(self.k, |heads| heads.stored(self.k))
    }

    /// Returns the indices of the inputs that the checkpoint has, in order. The padding of heads is left out.
    pub fn stored_inputs(&self) -> impl Iterator<Item = usize> {
        let heads = self.input_heads;
        (0..self.k).filter(move |i| heads.is_none_or(|heads| heads.find(*i).is_some()))
    }

    /// Returns the shape of the tensor in the checkpoint.
    pub fn shape(&self) -> Vec<usize> {
        let (planes, stacked) = match self.slice {
            Some(Slice { of, is_plane: true, .. }) => (Some(of), 1),
            Some(Slice { of, is_plane: false, .. }) => (None, of),
            None => (None, 1),
        };
        let rows = self.row_heads.map_or(self.rows, |heads| heads.stored(self.rows)) * stacked;
        planes.into_iter().chain(if self.transposed { [self.k, rows] } else { [rows, self.stored_k()] }).collect()
    }

    /// Returns the index of the matrix's first row among all rows of its tensor. The rows of all planes of a tensor are counted together.
    pub fn first_row(&self) -> usize {
        self.slice.map_or(0, |s| s.index * self.rows)
    }

    /// Returns the declaration of the transposed matrix, `[k, rows]`, which has one row per input channel. It has no importance, because all weights
    /// of such a row have the same input and count alike.
    ///
    /// # Panics
    /// If the matrix is a slice of a tensor.
    pub fn transposed(&self) -> MatrixPart {
        assert!(self.slice.is_none(), "{}: a slice of a tensor is not stored by columns", self.tensor);
        MatrixPart { rows: self.k, k: self.rows, transposed: !self.transposed, importance: None, ..self.clone() }
    }

    /// Returns the number of units in a padded row. A unit is [`PAD`] weights.
    pub fn units(&self) -> usize {
        padded(self.k) / PAD
    }
}

/// The declaration of a stack of matrices.
pub struct MatrixSpec {
    /// The matrices of the stack. One dispatch can read several consecutive matrices if they have the same format.
    pub parts: Vec<MatrixPart>,
    /// `true` if the inputs that are multiplied with the stack are mostly zeros. An executor may then store the matrix column-major and read only
    /// the columns of non-zero inputs.
    pub has_sparse_input: bool,
    /// The number of parts that a token uses, if the parts are experts. The device then chooses the parts. `None` if all parts are used.
    pub n_used: Option<usize>,
}

/// The size of a window in bytes. A window is a uniform binding of 64 KiB, the largest size that every WebGPU device supports.
pub const WINDOW_BYTES: usize = 65536;
/// The number of windows that one dispatch binds for the tiles of a block. WebGPU guarantees 12 uniform bindings; parameters and vectors need some,
/// too.
pub const WINDOWS: usize = 8;
/// The alignment of a window in its buffer, in bytes. WebGPU allows devices to require this alignment for uniform bindings.
pub const WINDOW_ALIGN: usize = 256;

/// Consecutive rows of one matrix of a stack, cut along their width into tiles. A unit is [`PAD`] weights. Tile i holds the units `i * tile_units
/// .. (i + 1) * tile_units` of each row.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    pub part: usize,
    pub first_row: usize,
    pub rows: usize,
    pub tile_units: usize,
    pub n_tiles: usize,
    /// The index of the buffer that holds the block.
    pub buffer: usize,
    /// The offset of the first tile in the buffer, in bytes.
    pub at: usize,
    /// The distance from one tile to the next in bytes.
    pub tile_bytes: usize,
    /// The size of the scales in bytes. The buffer holds the scales after the tiles.
    pub scale_bytes: usize,
}

impl Block {
    /// Returns the offset of the scales in the buffer, in bytes.
    pub fn scales_at(&self) -> usize {
        self.at + self.n_tiles * self.tile_bytes
    }

    fn end(&self) -> usize {
        self.scales_at() + self.scale_bytes
    }

    /// Returns the size in bytes of a buffer that ends with this block. Padding makes room for a window that begins at any byte of the block.
    pub fn buffer_bytes(&self) -> usize {
        self.end() + WINDOW_BYTES
    }
}

/// A piece: consecutive rows of a stack, all in one format, that fit one storage binding.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixPiece {
    pub format: &'static dyn Format,
    pub segments: Vec<PieceSegment>,
    /// The size of the piece in words of 16 bytes.
    pub words: usize,
}

/// The rows of one matrix in a piece.
#[derive(Debug, Clone, PartialEq)]
pub struct PieceSegment {
    pub part: usize,
    pub first_row: usize,
    pub rows: usize,
    pub region: Region,
    /// The offset in the piece, in words of 16 bytes, of the stored weights (codes).
    pub codes: usize,
    /// The offset in the piece, in words of 16 bytes, of the scales.
    pub scales: usize,
}

impl MatrixPiece {
    /// Returns the size of the piece in bytes.
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
    /// Returns whether products with matrix `part` may round their inputs. Tables are never multiplied. With blocks along columns, each weight of a
    /// row has its own scale, so one factor cannot scale a sum of whole numbers.
    pub fn may_round(&self, part: &MatrixPart, activations: Activations) -> bool {
        !self.is_table() && self.axis() == Axis::Row && activations.are_rounded(part.format)
    }

    /// Returns the direction of the weights that share a scale. It is along columns if the inputs are mostly zeros and the format has such blocks,
    /// otherwise along rows. A device's storage order does not change it, so all devices compute with the same quantised weights.
    pub fn axis(&self) -> Axis {
        self.axis_in(&|part| part.format)
    }

    /// Returns the direction that the stack would have if every matrix `p` had the format `format(p)`. Small blocks are along rows only.
    fn axis_in(&self, format: &dyn Fn(&MatrixPart) -> &'static dyn Format) -> Axis {
        let has_columns = self.parts.iter().all(|part| format(part).block() == WEIGHTS_PER_BLOCK);
        if self.has_sparse_input && has_columns { Axis::Column } else { Axis::Row }
    }

    /// Returns whether the stack is an embedding: a table whose rows are looked up and never multiplied.
    pub fn is_table(&self) -> bool {
        self.parts.iter().any(|p| p.kind == MatrixKind::Embedding)
    }

    /// Returns the layout that `rows` rows of the matrix `part` have in a piece.
    pub fn region(&self, part: &MatrixPart, rows: usize) -> Region {
        Region { format: part.format, axis: self.axis(), order: CodeOrder::Quads, rows, units: part.units() }
    }

    /// Cuts the stack by rows into pieces of at most `limit` bytes. Rows that share scales or words of 16 bytes stay together, even beyond the
    /// limit. Only tests set limits that small.
    pub fn pieces(&self, limit: usize) -> Vec<MatrixPiece> {
        let mut pieces: Vec<MatrixPiece> = Vec::new();
        for (part, spec) in self.parts.iter().enumerate() {
            // The number of rows that share scales or words of 16 bytes.
            let together = if self.axis() == Axis::Column { WEIGHTS_PER_BLOCK } else { PAD };
            let words = |rows: usize| self.region(spec, rows).words();
            let mut first_row = 0;
            while first_row < spec.rows {
                let left = spec.rows - first_row;
                let used = pieces.last().filter(|p| p.format == spec.format).map_or(usize::MAX, |p| p.words);
                let fits = |rows: usize| used.saturating_add(words(rows)) <= limit / WORD_BYTES;
                // The number of rows that still fit the last piece: all remaining rows, or a multiple of `together`.
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

    /// Cuts the only matrix of the stack by output rows into column pieces of at most `limit` bytes. A column piece is `[k, units]`: for each of
    /// the k input channels, the weights of some output rows, in units of [`PAD`] rows. Rows that share scales stay together, even beyond the
    /// limit. Only tests set limits that small.
    ///
    /// # Panics
    /// If the stack does not have exactly one matrix.
    pub fn column_pieces(&self, limit: usize) -> Vec<MatrixPiece> {
        let [part] = self.parts.as_slice() else { panic!("a matrix by columns has one part, not {}", self.parts.len()) };
        // Rows that share scales stay together.
        let together = if part.format.scaling() == Scaling::Blocks { WEIGHTS_PER_BLOCK } else { PAD };
        let region =
            |rows: usize| Region { format: part.format, axis: Axis::Row, order: CodeOrder::Plain, rows: part.k, units: padded(rows) / PAD };
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

    /// Returns the blocks of all matrices of the stack, and the place of each block in the buffers. The blocks of a buffer have at most `limit`
    /// bytes together, unless a single block is larger.
    ///
    /// `group` is the number of rows of a workgroup, a multiple of [`WEIGHTS_PER_BLOCK`]. A block has a multiple of `group` rows, or a power of two
    /// of rows if fewer than `group` fit its tiles. The last block of a matrix has the rest.
    pub fn blocks(&self, limit: usize, group: usize) -> Vec<Block> {
        let mut blocks = Vec::new();
        let (mut buffer, mut at) = (0, 0);
        for (part, spec) in self.parts.iter().enumerate() {
            let tile_units = tile_units(spec);
            let n_tiles = spec.units().div_ceil(tile_units);
            // The scales of eight rows share words. A dispatch binds one window for the scales of a block, so they must fit it.
            let scale_bytes = self.region(spec, PAD).scale_words() * WORD_BYTES;
            let fit = (WINDOW_BYTES / (tile_units * spec.format.size_bytes(PAD))).max(1);
            let fit = if spec.format.scaling() == Scaling::Blocks { fit.min((WINDOW_BYTES / scale_bytes).max(1) * PAD) } else { fit };
            // The rows of a block: a multiple of `group`, or a power of two below `group`.
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

    /// Returns whether kernels can read the stack in blocks. The stack must not be an embedding, and each row must fit the tiles of one
    /// dispatch. The scales of a block must fit a uniform binding of 64 KiB, and so must the inputs of a token.
    pub fn fits_windows(&self) -> bool {
        let fits = |p: &MatrixPart| {
            let tile_bytes = tile_units(p) * p.format.size_bytes(PAD);
            tile_bytes <= WINDOW_BYTES && p.units() * PAD * 4 <= WINDOW_BYTES
        };
        // An affine block has scales for all its columns and for any number of rows, so half a window stays free for rows. Other scales may fill a
        // window.
        let scales_fit = |p: &MatrixPart| match p.format.scaling() {
            Scaling::Affine => self.region(p, WEIGHTS_PER_BLOCK).scale_words() * WORD_BYTES <= WINDOW_BYTES / 2,
            Scaling::Blocks => self.region(p, PAD).scale_words() * WORD_BYTES <= WINDOW_BYTES,
            Scaling::None => true,
        };
        // A kernel cannot choose among uniform bindings, so experts are in storage buffers.
        !self.is_table() && self.n_used.is_none() && self.parts.iter().all(|p| fits(p) && scales_fit(p))
    }

    /// Returns the size of the weights and scales in a file, in bytes. On a device they take about as much.
    pub fn size_bytes(&self) -> usize {
        self.size_in(&|part| part.format)
    }

    /// Returns how many bytes the stack would take in a file if every matrix `p` of the stack had the format `format(p)`.
    pub fn size_in(&self, format: &dyn Fn(&MatrixPart) -> &'static dyn Format) -> usize {
        let axis = self.axis_in(format);
        self.parts.iter().map(|p| part_bytes(p, format(p), axis, p.rows)).sum()
    }

    /// Returns how many bytes are read to compute one token: one row of an embedding, the experts of one token, or the whole stack.
    pub fn token_bytes(&self) -> usize {
        match self.n_used {
            Some(n_used) => self.size_bytes() / self.parts.len() * n_used,
            None if self.is_table() => self.row_bytes(),
            None => self.size_bytes(),
        }
    }

    /// Returns how many bytes a lookup in an embedding reads: one row of every matrix of the stack.
    pub fn row_bytes(&self) -> usize {
        self.parts.iter().map(|p| part_bytes(p, p.format, self.axis(), 1)).sum()
    }
}

/// Returns the number of units in a row of a tile.
fn tile_units(part: &MatrixPart) -> usize {
    let units = part.units().div_ceil(WINDOWS).max(1);
    if cells::planes(part.format).is_some() { units.next_multiple_of(cells::UNITS) } else { units }
}

fn part_bytes(part: &MatrixPart, format: &dyn Format, axis: Axis, rows: usize) -> usize {
    let k = padded(part.k);
    let halves = match format.scaling() {
        Scaling::None => 0,
        Scaling::Blocks => axis.n_items(rows, k, format),
        Scaling::Affine => 2 * (rows + k),
    };
    format.size_bytes(rows * k) + 2 * halves
}

/// Returns the first i for which `holds(i)` is false, at most `n`, by binary search. `holds` must be true up to some i, and false from then on.
fn partition(n: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, n);
    while low < high {
        let middle = (low + high) / 2;
        if holds(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests;
