//! Gives the matrices of a tape the importance of their columns, from a calibration.

use crate::error::{Error, Result};
use crate::quant::padded;
use crate::tape::{MatrixKind, MatrixPart, MatrixSpec};
use crate::weights::{Calibration, Checkpoint, gguf_names, shared_name};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The smallest importance of a column, as a fraction of the mean over all columns. An input that a short text never sets may matter in another text.
const LEAST: f64 = 1e-3;

/// The names that a model's tensors have in importance matrices, by canonical name. They are the names in GGUF files. Tensors without such a name are
/// left out, and keep their own.
pub fn file_names(checkpoint: Option<&Checkpoint>) -> BTreeMap<String, String> {
    checkpoint.map(gguf_names).unwrap_or_default()
}

/// Returns the name that the tensor of a matrix has in importance matrices.
pub fn file_name<'a>(names: &'a BTreeMap<String, String>, part: &'a MatrixPart) -> &'a str {
    names.get(&part.tensor).unwrap_or(&part.tensor)
}

/// Sets the importance of all matrices whose inputs are in the calibration. `names` are the result of [`file_names`]. Matrices that the calibration lacks,
/// and tables whose rows are looked up, have no importance. Returns the first 16 hexadecimal digits of a hash of the numbers.
///
/// # Errors
/// `Input` if the calibration has none of the matrices, or if a matrix has another number of columns.
pub fn assign(matrices: &mut [MatrixSpec], names: &BTreeMap<String, String>, calibration: &Calibration) -> Result<String> {
    let (mut hash, mut n) = (Sha256::new(), 0);
    for part in matrices.iter_mut().flat_map(|matrix| &mut matrix.parts).filter(|part| part.kind != MatrixKind::Embedding) {
        let name = file_name(names, part);
        let Some(squares) = calibration.mean_squares(name).or_else(|| calibration.mean_squares(&shared_name(name)?)) else { continue };
        n += 1;
        let k = part.stored_k();
        // A tensor with several planes has one matrix per plane.
        let (index, planes) = part.slice.filter(|slice| slice.is_plane).map_or((0, 1), |slice| (slice.index, slice.of));
        if squares.len() != planes * k {
            let text = format!("expected {} columns of this matrix, as the model has; found {}", planes * k, squares.len());
            return Err(wrong(text).at(format!("matrix {name}")).hint("the file belongs to another model: make it with this one"));
        }
        part.importance = importance(&squares[index * k..][..k], part);
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

/// Returns the importance of the columns that the checkpoint has, without the padding of heads.
pub fn stored(part: &MatrixPart) -> Option<Arc<[f32]>> {
    let importance = part.importance.as_ref()?;
    Some(part.stored_inputs().map(|i| importance[i]).collect())
}
