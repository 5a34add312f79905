//! Lists the quantised tensors of a model.

use crate::quant::{Float, Format, Scaling};
use crate::tape::{MatrixPart, MatrixSpec};

/// A tensor that is stored in a quantised format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuantisedTensor {
    /// The name in the checkpoint.
    pub tensor: String,
    /// The name of the format.
    pub format: &'static str,
    /// The bytes of codes and scales.
    pub bytes: u64,
    /// The bytes that the tensor takes as f16.
    pub float_bytes: u64,
}

/// Returns the quantised tensors in the order in which they first occur. A tensor with several matrices counts once.
pub fn quantised_tensors(matrices: &[MatrixSpec]) -> Vec<QuantisedTensor> {
    let mut found: Vec<QuantisedTensor> = Vec::new();
    for spec in matrices {
        for part in spec.parts.iter().filter(|part| part.format.scaling() != Scaling::None) {
            let size = |format: &'static dyn Format| {
                let one = MatrixSpec {
                    parts: vec![MatrixPart { format, ..part.clone() }],
                    has_sparse_input: spec.has_sparse_input,
                    n_used: None,
                };
                one.size_bytes() as u64
            };
            let (bytes, float_bytes) = (size(part.format), size(Float::F16.format()));
            match found.iter_mut().find(|found| found.tensor == part.tensor) {
                Some(known) => (known.bytes, known.float_bytes) = (known.bytes + bytes, known.float_bytes + float_bytes),
                None => found.push(QuantisedTensor { tensor: part.tensor.clone(), format: part.format.name(), bytes, float_bytes }),
            }
        }
    }
    found
}
