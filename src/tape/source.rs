//! The source of a tape's weights: a checkpoint, or numbers that are computed for a test or a benchmark.

use super::Bytes;
use crate::error::Result;
use crate::tensor::{DType, View};

/// Named tensors in the official orientation.
pub trait Source: Send + Sync {
    /// Returns whether the source has the tensor.
    fn has(&self, name: &str) -> bool;

    /// Returns the element type of a tensor, or `None` if the source does not have it.
    fn dtype(&self, name: &str) -> Option<DType>;

    /// Calls `read` with a view of the tensor.
    ///
    /// # Errors
    /// If the tensor is missing, if its shape differs from `shape` in more than dimensions of 1, or if `read` fails.
    fn with(&self, name: &str, shape: &[usize], read: &mut dyn FnMut(&View<'_>) -> Result<()>) -> Result<()>;

    /// Returns the dense bytes of a tensor, or the codes of a quantised matrix, without a copy. Returns `None` if the source cannot share them.
    fn share(&self, _name: &str, _shape: &[usize]) -> Result<Option<Bytes>> {
        Ok(None)
    }
}
