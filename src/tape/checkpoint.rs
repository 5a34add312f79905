//! A checkpoint as a source of weights.

use super::{Bytes, Source};
use crate::error::Result;
use crate::tensor::{DType, View};
use crate::weights::Checkpoint;
use std::sync::Arc;

impl Source for Checkpoint {
    fn has(&self, name: &str) -> bool {
        self.tensor(name).is_some()
    }

    fn dtype(&self, name: &str) -> Option<DType> {
        self.tensor(name).map(|v| v.dtype())
    }

    fn with(&self, name: &str, shape: &[usize], read: &mut dyn FnMut(&View<'_>) -> Result<()>) -> Result<()> {
        self.check_uncut()?;
        read(&self.require(name, shape)?).map_err(|e| e.at(name))
    }

    fn share(&self, name: &str, shape: &[usize]) -> Result<Option<Bytes>> {
        let Some(bytes) = self.require(name, shape)?.dense_bytes() else { return Ok(None) };
        let start = bytes.as_ptr() as usize - self.as_ref().as_ptr() as usize;
        Ok(Some(Bytes { owner: Arc::new(self.clone()), range: start..start + bytes.len() }))
    }
}
