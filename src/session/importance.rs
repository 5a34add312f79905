//! Gives the matrices of a tape the importance of their columns, from a calibration.

use crate::error::{Error, Result};
use crate::quant::padded;
use crate::tape::{MatrixKind, MatrixPart, MatrixSpec};
use crate::weights::{Calibration, Checkpoint, GgufPlace, gguf_places, shared_name};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The smallest importance of a column, as a fraction of the mean over all columns. An input that a short text never sets may matter in another text.
const LEAST: f64 = 1e-3;

/// For each tensor, by canonical name: its place in importance matrices (the imatrix files of llama.cpp), which is also its place in GGUF files. A
/// tensor that is not listed has its own name there.
pub type FilePlaces = BTreeMap<String, GgufPlace>;

/// Returns the places of a checkpoint's tensors in importance matrices.
pub fn file_places(checkpoint: Option<&Checkpoint>) -> FilePlaces {
    checkpoint.map(gguf_places).unwrap_or_default()
}

/// The place of a matrix in importance matrices: number `index` among the `of` matrices in the tensor `tensor`.
#[derive(Clone, Copy)]
pub struct FilePlace<'a> {
    pub tensor: &'a str,
    pub index: usize,
    pub of: usize,
}

/// Returns the place of a matrix in importance matrices. A tensor with several planes has one matrix per plane, and a stack one per expert or head.
pub fn file_place<'a>(places: &'a FilePlaces, part: &'a MatrixPart) -> FilePlace<'a> {
    let (index, of) = part.slice.filter(|slice| slice.is_plane).map_or((0, 1), |slice| (slice.index, slice.of));
    match places.get(&part.tensor) {
        Some(GgufPlace { tensor, index, of }) if *of > 1 => FilePlace { tensor, index: *index, of: *of },
        Some(GgufPlace { tensor, .. }) => FilePlace { tensor, index, of },
        None => FilePlace { tensor: &part.tensor, index, of },
    }
}

/// Sets the importance of all matrices whose inputs are in the calibration. `places` are the result of [`file_places`]. Matrices that the calibration
/// lacks, experts that no token has used, and tables whose rows are looked up have no importance. Returns the first 16 hexadecimal digits of a hash
/// of the numbers.
///
/// # Errors
/// `Input` if the calibration has none of the matrices, or if a matrix has another number of columns.
pub fn assign(matrices: &mut [MatrixSpec], places: &FilePlaces, calibration: &Calibration) -> Result<String> {
    let (mut hash, mut n) = (Sha256::new(), 0);
    for part in matrices.iter_mut().flat_map(|matrix| &mut matrix.parts).filter(|part| part.kind != MatrixKind::Embedding) {
        let FilePlace { tensor, index, of } = file_place(places, part);
        let found = |name: &str| calibration.sums_of(name).filter(|sums| sums.has_inputs());
        let Some(sums) = found(tensor).or_else(|| found(&shared_name(tensor)?)) else { continue };
        n += 1;
        let k = part.stored_k();
        if sums.squares.len() != of * k {
            let text = format!("expected {} columns of this matrix, as the model has; found {}", of * k, sums.squares.len());
            return Err(wrong(text).at(format!("matrix {tensor}")).hint("the file belongs to another model: make it with this one"));
        }
        let squares = sums.means(index * k..(index + 1) * k);
        part.importance = importance(&squares, part);
        hash.update(format!("{} {index}\n", part.tensor));
        hash.update(bytemuck::cast_slice::<f32, u8>(&squares));
    }
    if n == 0 {
        let first = calibration.names().next().unwrap_or_default();
        let text = format!("expected the importance of this model's matrices, found only others, such as {first}");
        return Err(wrong(text).hint("the file belongs to another model: make it with this one"));
    }
    Ok(hash.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect())
}

/// Returns the error for a calibration that does not fit the model.
fn wrong(text: String) -> Error {
    Error::input(text).field("calibrate")
}

/// Returns the importance of the inputs of a matrix from their mean squares, or `None` if all are zero.
fn importance(squares: &[f32], part: &MatrixPart) -> Option<Arc<[f32]>> {
    let mean = squares.iter().map(|x| f64::from(*x)).sum::<f64>() / squares.len() as f64;
    if mean == 0.0 {
        return None;
    }
    let own: Vec<f32> = squares.iter().map(|x| (f64::from(*x) / mean).max(LEAST) as f32).collect();
    let mut all = vec![0.0; padded(part.k)];
    match part.input_heads {
        Some(heads) => heads.pad(&own, &mut all[..part.k]),
        None => all[..part.k].copy_from_slice(&own),
    }
    Some(all.into())
}

/// Returns the importance of the inputs that the matrix has in the checkpoint, without the inputs that pad heads. `None` if the part has no
/// importance.
pub fn stored(part: &MatrixPart) -> Option<Arc<[f32]>> {
    let importance = part.importance.as_ref()?;
    Some(part.stored_inputs().map(|i| importance[i]).collect())
}
