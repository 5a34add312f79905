//! Sources of a tape's weights: a checkpoint, or weights that are computed for a test or a benchmark.

use super::Bytes;
use crate::error::Result;
use crate::files::Reading;
use crate::tensor::{DType, View};
use std::future::ready;

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

    /// Checks that the source has a tensor of this shape, without reading it.
    ///
    /// # Errors
    /// The errors of [`with`](Self::with).
    fn check(&self, name: &str, shape: &[usize]) -> Result<()> {
        self.with(name, shape, &mut |_| Ok(()))
    }

    /// Returns whether tensors must be [fetched](Self::fetch) before they can be read.
    fn is_ranged(&self) -> bool {
        false
    }

    /// Fetches tensors into memory. Returns a source that has them, or `None` if this source can read all tensors without fetching. Names that the
    /// source lacks are left out.
    ///
    /// # Errors
    /// `File` if the tensors cannot be read.
    fn fetch<'a>(&'a self, _names: &'a [&str]) -> Reading<'a, Option<Box<dyn Source>>> {
        Box::pin(ready(Ok(None)))
    }

    /// Reads some elements of each tensor. An item is a name, a shape, the index of the first element, and the number of elements.
    ///
    /// # Errors
    /// The errors of [`with`](Self::with) and [`fetch`](Self::fetch).
    fn elements<'a>(&'a self, wanted: &'a [(&str, &[usize], usize, usize)]) -> Reading<'a, Vec<Vec<f32>>> {
        let read = |&(name, shape, at, n): &(&str, &[usize], usize, usize)| {
            let mut numbers = vec![0.0; n];
            self.with(name, shape, &mut |view| view.read_f32(at, &mut numbers))?;
            Ok(numbers)
        };
        Box::pin(ready(wanted.iter().map(read).collect()))
    }

    /// Notes that the caller has copied a tensor. A source that can read the tensor's bytes again may then remove them from memory.
    fn release(&self, _name: &str) {}

    /// Returns the bytes of a tensor without a copy: the elements of a dense tensor, or the codes of a quantised matrix. Returns `None` if the source
    /// cannot share the bytes.
    ///
    /// # Errors
    /// Returns an error if the tensor is missing, or if its shape differs from `shape`.
    fn share(&self, _name: &str, _shape: &[usize]) -> Result<Option<Bytes>> {
        Ok(None)
    }
}
