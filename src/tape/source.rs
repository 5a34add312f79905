//! Where a tape's weights come from: a checkpoint, or numbers made for a test or a benchmark.

use super::Bytes;
use crate::error::Result;
use crate::tensor::{DType, View};

/// Named tensors in the official orientation.
pub trait Source: Send + Sync {
    fn has(&self, name: &str) -> bool;

    /// Element type of a tensor that is there.
    fn dtype(&self, name: &str) -> Option<DType>;

    /// Lends a tensor; its shape, unit dimensions aside, must be `shape`.
    fn with(&self, name: &str, shape: &[usize], read: &mut dyn FnMut(&View<'_>) -> Result<()>) -> Result<()>;

    /// The tensor's dense bytes, or the codes of its matrix in few bits, where they can be kept without a copy.
    fn share(&self, _name: &str, _shape: &[usize]) -> Result<Option<Bytes>> {
        Ok(None)
    }
}
