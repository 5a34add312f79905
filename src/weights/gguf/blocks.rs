//! Encodes tensors as blocks of a GGUF type while they are written.
//!
//! The formats of `quant` define the codes of a block. This module only divides a stream of numbers into blocks.

use crate::error::{Error, Result};
use crate::quant::{Axis, Coded, EncodedRows, FileBlocks, Format, RowEncoder};
use crate::tensor::{DType, View};
use half::f16;
use std::io::{self, Write};
use std::path::Path;

/// The number of weights that are encoded at once, before rounding up to whole rows. All threads of the host share the rows.
const CHUNK: usize = 1 << 18;

/// A GGUF type that this library writes.
#[derive(Clone, Copy)]
pub struct BlockType {
    /// The type.
    pub dtype: DType,
    format: &'static dyn Format,
    blocks: &'static dyn FileBlocks,
}

impl BlockType {
    /// Returns the GGUF type with the format's name, or `None` if this library does not write such a type.
    pub fn of(format: &'static dyn Format) -> Option<BlockType> {
        let blocks = format.file_blocks()?;
        let dtype = DType::ALL.into_iter().find(|dtype| dtype.name().eq_ignore_ascii_case(format.name()))?;
        Some(BlockType { dtype, format, blocks })
    }

    /// Returns the number of weights of a block.
    pub fn block_len(&self) -> usize {
        self.dtype.block().map_or(1, |(len, _)| len)
    }

    /// Writes a matrix. If the matrix is already stored with the same codes, writes exactly the same weights. `importance` has one number per
    /// column, as [`RowEncoder`] needs it.
    ///
    /// # Errors
    ///
    /// `Model` if a weight is not finite or too large for the format; the errors of `out`.
    pub fn write(&self, view: &View<'_>, importance: Option<&[f32]>, out: &mut dyn Write) -> Result<()> {
        let io = |e| Error::io(e, Path::new("output"));
        if let Some(bytes) = view.block_bytes().filter(|_| view.dtype() == self.dtype) {
            return bytes.chunks(1 << 16).try_for_each(|bytes| out.write_all(bytes).map_err(io));
        }
        if let Some(matrix) = view.matrix().filter(|matrix| self.has_own_codes(matrix)) {
            let scales: Vec<f16> = (0..matrix.coding.slices).flat_map(|slice| matrix.scales(slice)).collect();
            return out.write_all(&self.packed(matrix.codes(), &scales, matrix.rows * matrix.k)).map_err(io);
        }
        let width = view.shape().last().copied().unwrap_or(1);
        self.encode(width, importance, &mut |sink| super::super::write_view(view, DType::F32, sink), out)
    }

    /// Returns whether `matrix` has the codes and scales of this type, without padding.
    fn has_own_codes(&self, matrix: &Coded<'_>) -> bool {
        let coding = &matrix.coding;
        coding.format == self.format && coding.axis == Axis::Row && !coding.transposed && matrix.k.is_multiple_of(self.block_len())
    }

    /// Calls `write` with a writer of little-endian F32 numbers, and writes these numbers as blocks to `out`. The numbers must be whole rows.
    /// `width` is the length of a row, a multiple of the block length.
    ///
    /// # Errors
    ///
    /// The errors of [`BlockType::write`] and of `write`.
    pub fn encode(
        &self,
        width: usize,
        importance: Option<&[f32]>,
        write: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
        out: &mut dyn Write,
    ) -> Result<()> {
        let mut sink = BlockSink { blocks: self, width, importance, out, waiting: Vec::new(), failed: None };
        let written = write(&mut sink);
        match sink.failed.take() {
            Some(e) => Err(e),
            None => written.and_then(|()| sink.flush_blocks()),
        }
    }

    /// Returns `n` weights as blocks of the file.
    fn packed(&self, codes: &[u8], scales: &[f16], n: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.dtype.bytes_of(n).unwrap_or(0));
        self.blocks.pack(codes, scales, &mut bytes);
        bytes
    }
}

/// A writer that receives F32 numbers and writes blocks.
struct BlockSink<'a> {
    blocks: &'a BlockType,
    /// The number of weights in a row.
    width: usize,
    importance: Option<&'a [f32]>,
    out: &'a mut dyn Write,
    /// The bytes of numbers that are not encoded yet.
    waiting: Vec<u8>,
    /// The first error. `Write` can return only errors of input and output, so this field keeps the full error, for example of a number that does
    /// not fit.
    failed: Option<Error>,
}

impl BlockSink<'_> {
    /// Encodes and writes all numbers that wait.
    fn flush_blocks(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let mut numbers: Vec<f32> = self.waiting.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        self.waiting.clear();
        let mut encoded = EncodedRows::default();
        let encoder = RowEncoder { importance: self.importance, ..RowEncoder::new(self.blocks.format, Axis::Row) };
        encoder.encode(0, &mut numbers, self.width, &mut encoded)?;
        let bytes = self.blocks.packed(&encoded.codes, &encoded.scales, numbers.len());
        self.out.write_all(&bytes).map_err(|e| Error::io(e, Path::new("output")))
    }
}

impl Write for BlockSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let full = 4 * CHUNK.next_multiple_of(self.width);
        let n = bytes.len().min(full - self.waiting.len());
        self.waiting.extend_from_slice(&bytes[..n]);
        if self.waiting.len() == full {
            self.flush_blocks().map_err(|e| {
                let shown = io::Error::other(e.to_string());
                self.failed.get_or_insert(e);
                shown
            })?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::FORMATS;
    use crate::weights::testing::singles;

    #[test]
    fn written_blocks_are_taken_over_with_the_same_codes() {
        let mut names = Vec::new();
        for &format in FORMATS {
            let Some(blocks) = BlockType::of(format) else {
                assert!(format.file_blocks().is_none(), "{format:?} has the name of no type");
                continue;
            };
            let block_bytes = blocks.blocks.block_bytes();
            // More than one chunk, and magnitudes that differ between blocks.
            let n = CHUNK + 3 * 256;
            let numbers: Vec<f32> =
                (0..n).map(|i| ((i * 2_654_435_761 % 1000) as f32 - 500.0) * 1.5f32.powi((i / 256 % 9) as i32)).collect();
            let (bytes, mut written) = (singles(&numbers), Vec::new());
            blocks.write(&View::dense(DType::F32, &[n / 256, 256], &bytes).unwrap(), None, &mut written).unwrap();
            assert_eq!((Some(written.len()), blocks.dtype.block()), (blocks.dtype.bytes_of(n), Some((blocks.block_len(), block_bytes))));
            let (mut expected, mut found) = (EncodedRows::default(), EncodedRows::default());
            RowEncoder::new(format, Axis::Row).encode(0, &mut numbers.clone(), 256, &mut expected).unwrap();
            written.chunks(block_bytes).for_each(|block| blocks.blocks.repack(block, &mut found));
            // Items are compared as bits: two bytes may be the bits of a NaN.
            let bits = |rows: &EncodedRows| rows.scales.iter().map(|item| item.to_bits()).collect::<Vec<_>>();
            assert!(found.codes == expected.codes && bits(&found) == bits(&expected), "{format:?}");
            let again = View::dense(blocks.dtype, &[n / 256, 256], &written).unwrap();
            let mut copy = Vec::new();
            blocks.write(&again, None, &mut copy).unwrap();
            assert!(copy == written, "{format:?}");
            names.push(format.name());
        }
        assert_eq!(names.len(), 12, "{names:?}");
    }

    #[test]
    fn a_number_that_does_not_fit_is_an_error() {
        let blocks = BlockType::of(crate::quant::find("q8_0").unwrap()).unwrap();
        let bytes = singles(&vec![f32::INFINITY; 2 * CHUNK]);
        for n in [32, 2 * CHUNK] {
            let view = View::dense(DType::F32, &[n], &bytes).unwrap();
            let said = blocks.write(&view, None, &mut Vec::new()).unwrap_err().to_string();
            assert!(said.contains("the weight inf cannot be stored in the format q8_0"), "{said}");
        }
    }
}
