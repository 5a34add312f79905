//! Finds tensors whose file already stores them in the wanted format, so that they need no encoding.

use crate::error::Result;
use crate::quant::{Axis, Coded, Format, Scaling, WEIGHTS_PER_BLOCK, padded};
use crate::tape::{MatrixPart, MatrixSpec, Source};
use crate::tensor::DType;
use half::f16;

/// Returns how many bytes of a matrix the CPU executor reads from the mapped file, without a copy in memory.
pub fn mapped_bytes(matrix: &MatrixSpec, source: &dyn Source) -> Result<u64> {
    if source.is_ranged() {
        return Ok(0);
    }
    let of = |part: &MatrixPart| {
        let is_stored = matches!(StoredMatrix::of(part, matrix.axis(), source)?, StoredMatrix::Floats | StoredMatrix::Coded(_));
        let shared = if is_stored { source.share(&part.tensor, &part.shape())? } else { None };
        Ok(shared.map_or(0, |_| (part.rows * part.format.size_bytes(padded(part.k))) as u64))
    };
    matrix.parts.iter().map(of).sum()
}

/// How a file stores a matrix `[rows, k]`, compared with the format that the executor needs.
pub enum StoredMatrix {
    /// In another format, so that the weights must be encoded.
    Otherwise,
    /// In the same float type, without the padding of rows.
    Floats,
    /// In the blocks of the GGUF type with the format's name.
    Blocks,
    /// As codes of the same format, with the padding of rows. The field has the scales of all rows.
    Coded(Vec<f16>),
    /// As codes of the same format, but for the transposed matrix. The field has the scales in the order for the matrix `[rows, k]`.
    Transposed(Vec<f16>),
}

impl StoredMatrix {
    /// Determines how `source` stores the matrix `part`. The executor needs scales of blocks along `axis`.
    pub fn of(part: &MatrixPart, axis: Axis, source: &dyn Source) -> Result<StoredMatrix> {
        let mut found = StoredMatrix::Otherwise;
        if part.has_padded_heads() {
            return Ok(found);
        }
        match (source.dtype(&part.tensor), part.format.name()) {
            (Some(DType::F16), "f16") | (Some(DType::F32), "f32") if !part.transposed => found = StoredMatrix::Floats,
            (Some(DType::Coded(name)), own) if name == own => source.with(&part.tensor, &part.shape(), &mut |view| {
                found = view.matrix().map_or(StoredMatrix::Otherwise, |matrix| coded(part, axis, matrix));
                Ok(())
            })?,
            (Some(dtype), _) if has_blocks_of(part, part.format, dtype) => found = StoredMatrix::Blocks,
            _ => {}
        }
        Ok(found)
    }
}

/// Returns whether `format` can take the blocks of the matrix `part` from a file that stores `dtype`. The rows must be whole blocks, in the file's order.
pub fn has_blocks_of(part: &MatrixPart, format: &dyn Format, dtype: DType) -> bool {
    let is_same = format.file_blocks().is_some() && dtype.name().eq_ignore_ascii_case(format.name());
    is_same && !part.transposed && !part.has_padded_heads() && part.k.is_multiple_of(format.block())
}

fn coded(part: &MatrixPart, axis: Axis, matrix: &Coded<'_>) -> StoredMatrix {
    let (index, of) = part.slice.map_or((0, 1), |s| (s.index, s.of));
    let is_transposed = matrix.coding.transposed != part.transposed;
    let (k, own) = if is_transposed { (part.rows, axis.transposed()) } else { (part.k, axis) };
    let has_blocks = part.format.scaling() == Scaling::Blocks;
    if matrix.coding.slices != of
        || matrix.k != k
        || is_transposed && of > 1
        || has_blocks && (matrix.coding.axis != own || is_transposed && part.format.block() != WEIGHTS_PER_BLOCK)
    {
        return StoredMatrix::Otherwise;
    }
    match (matrix.scales(index), is_transposed) {
        (scales, false) => StoredMatrix::Coded(scales),
        (scales, true) if has_blocks => StoredMatrix::Transposed(transposed(&scales, part, axis)),
        (scales, true) => StoredMatrix::Transposed(scales),
    }
}

/// Reorders the block scales of a matrix that is stored transposed, in a format with [`WEIGHTS_PER_BLOCK`] weights per scale. Returns the scales in
/// the order for the matrix `part`.
fn transposed(scales: &[f16], part: &MatrixPart, axis: Axis) -> Vec<f16> {
    let (rows, k) = (part.rows, padded(part.k));
    // The number of scales per row of the stored matrix, and per row of the matrix `part`. Scales along columns include the padding.
    let (theirs, ours) = match axis {
        Axis::Row => (padded(rows), k.div_ceil(WEIGHTS_PER_BLOCK)),
        Axis::Column => (rows.div_ceil(WEIGHTS_PER_BLOCK), k),
    };
    let at = |i: usize| scales.get(i % ours * theirs + i / ours).copied().unwrap_or(f16::ZERO);
    (0..axis.n_items(rows, k, part.format)).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::product::{Product, Weights, products};
    use crate::quant::{EncodedRows, FORMATS, Scales};
    use crate::tensor::View;
    use crate::weights::testing::scale_places;

    #[test]
    fn repacked_blocks_have_the_weights_of_their_file() {
        let mut seen = 0;
        for format in FORMATS.iter().copied() {
            let Some(blocks) = format.file_blocks() else { continue };
            seen += 1;
            let dtype = DType::ALL.into_iter().find(|dtype| dtype.name().eq_ignore_ascii_case(format.name())).unwrap();
            let size = blocks.block_bytes();
            assert_eq!(dtype.block(), Some((format.block(), size)));
            // Some rows have more sub-blocks than loops expand at once.
            let (rows, k) = (3, 9 * 256);
            let n = rows * k / format.block();
            let mut bytes: Vec<u8> = (0..n * size).map(|i| (i * i * 31 % 251 + i % 5) as u8).collect();
            // Any finite scale: of both signs, zero, and subnormal.
            for (i, block) in bytes.chunks_exact_mut(size).enumerate() {
                let finite = |i: usize| f16::from_bits((i * 2689) as u16);
                for (j, at) in scale_places(dtype).into_iter().enumerate() {
                    let scale = finite(i * 2 + j);
                    block[at..at + 2].copy_from_slice(&if scale.is_finite() { scale } else { f16::ONE }.to_le_bytes());
                }
            }
            let expected = View::dense(dtype, &[rows, k], &bytes).unwrap().to_f32().unwrap();
            let mut repacked = EncodedRows::default();
            bytes.chunks_exact(size).for_each(|block| blocks.repack(block, &mut repacked));
            assert_eq!(repacked.codes.len(), format.size_bytes(rows * k));
            assert_eq!(repacked.scales.len(), rows * format.blocks().per_row(k));
            let scales = Scales::new(format, Axis::Row, &repacked.scales, rows);
            let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || *a == 0.0 && *b == 0.0;
            // Rows are decoded in two ways: a whole row, and the weights of a product.
            let weights = Weights { format, k, codes: &repacked.codes, is_striped: false, scales: &scales };
            let mut found = vec![0.0; rows * k];
            found.chunks_exact_mut(k).enumerate().for_each(|(i, row)| weights.row(i, row));
            assert!(found.iter().zip(&expected).all(same), "{dtype}");
            for column in (0..k).step_by(97) {
                let one: Vec<f32> = (0..k).map(|i| f32::from(u8::from(i == column))).collect();
                let sums = products(&[Product { weights, rows, x: vec![&one], rounded: false }]).remove(0);
                let found: Vec<f32> = sums.of(0).flatten().copied().collect();
                let own: Vec<f32> = expected.iter().skip(column).step_by(k).copied().collect();
                assert!(found.iter().zip(&own).all(same), "{dtype} {column}");
            }
            let mut packed = Vec::new();
            blocks.pack(&repacked.codes, &repacked.scales, &mut packed);
            assert!(packed == bytes, "{dtype}");
        }
        assert_eq!(seen, 12);
    }
}
