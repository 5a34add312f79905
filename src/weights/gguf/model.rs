//! A model in the terms of llama.cpp: the description that each family makes of its checkpoints before they are written as GGUF.

use super::value::GgufValue;
use crate::error::{Error, Result};
use crate::weights::Checkpoint;

/// A model as a GGUF file describes it.
pub struct GgufModel {
    /// The value of `general.architecture`.
    pub architecture: &'static str,
    /// The value of `general.basename`, by which readers distinguish models of one architecture. `None` if the architecture has only one kind of
    /// models.
    pub basename: Option<&'static str>,
    /// The model's sizes and constants. In the file, the architecture and a dot come before each key.
    pub sizes: Vec<(&'static str, GgufValue)>,
    /// The tensors, in the order of the file.
    pub tensors: Vec<GgufTensor>,
}

/// A tensor of a GGUF file, and the canonical tensors from which it is made.
pub struct GgufTensor {
    /// The name in the file.
    pub name: String,
    /// The canonical names. The elements of several tensors follow each other in the file.
    pub sources: Vec<String>,
    /// The shape in the file. The data are row-major: the last dimension is contiguous.
    pub shape: Vec<usize>,
    /// True if the file stores the last two dimensions of each source swapped.
    pub swapped: bool,
    /// The order of the elements, divided into parts of equal size: part i in the file is part `order[i]` of the source. Empty if the order does not
    /// change.
    pub order: Vec<usize>,
    /// The possible types of the elements.
    pub precision: Precision,
}

/// The possible types of a tensor's elements in files that llama.cpp reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Only F32: vectors, and matrices that llama.cpp combines with vectors.
    Single,
    /// The float type that the user chooses.
    Float,
    /// The float type or the block type that the user chooses.
    Blocks,
}

impl GgufTensor {
    /// Returns the tensor for one canonical tensor that keeps its shape. A tensor with one dimension is F32, a matrix may have blocks.
    pub fn kept(name: String, source: &str, shape: Vec<usize>) -> GgufTensor {
        let precision = if shape.len() > 1 { Precision::Blocks } else { Precision::Single };
        GgufTensor { name, sources: vec![source.to_string()], shape, swapped: false, order: vec![], precision }
    }
}

/// Returns the error for a tensor for which llama.cpp has no name.
pub fn unnamed(name: &str) -> Error {
    let e =
        Error::usage("the layout gguf has no name for this tensor: it holds plain models of RWKV-6, RWKV-7, ARWKV-7, QRWKV-6 and GLM-4")
            .at(format!("tensor {name}"));
    e.hint("leave out `layout`")
}

/// Returns the shape of a matrix that the model needs.
///
/// # Errors
///
/// `Model` if the tensor is missing or is no matrix.
pub fn matrix(input: &Checkpoint, name: &str) -> Result<[usize; 2]> {
    let at = |e: Error| e.at(format!("tensor {name}")).at(input.location());
    match input.shape(name).as_deref() {
        Some(&[rows, columns]) => Ok([rows, columns]),
        Some(found) => Err(at(Error::model(format!("expected a matrix, found the shape {found:?}")))),
        None => Err(at(Error::model("the tensor is missing, and the layout gguf needs it").hint("leave out `layout`"))),
    }
}

/// Returns a size as a metadata value.
///
/// # Errors
///
/// `Model` if the size has more than 32 bits.
pub fn size(n: usize) -> Result<GgufValue> {
    u32::try_from(n).map(GgufValue::U32).map_err(|_| Error::model(format!("the size {n} has more than the 32 bits of a GGUF file")))
}
