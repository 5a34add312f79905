//! Sources of a tape's weights: a checkpoint, or weights that are computed for a test or a benchmark.

use super::Bytes;
use crate::error::Result;
use crate::tensor::{DType, View};

/// A source of named tensors. Rows and columns have the same meaning as in the official checkpoints.
pub trait Source: Send + Sync {
    /// Returns whether the source has a tensor of this name.
    fn has(&self, name: &str) -> bool;

    /// Returns the element type of a tensor, or `None` if the source does not have the tensor.
    fn dtype(&self, name: &str) -> Option<DType>;

    /// Calls `read` with a view of the tensor.
    ///
    /// # Errors
    /// Returns an error if the tensor is missing, if its shape differs from `shape`, or if `read` fails. Dimensions of size 1 are left out of both
    /// shapes before the comparison.
    fn with(&self, name: &str, shape: &[usize], read: &mut dyn FnMut(&View<'_>) -> Result<()>) -> Result<()>;

    /// Returns the bytes of a tensor without a copy: the elements of a dense tensor, or the codes of a quantised matrix. Returns `None` if the
    /// source cannot share the bytes.
    fn share(&self, _name: &str, _shape: &[usize]) -> Result<Option<Bytes>> {
        Ok(None)
    }
}
