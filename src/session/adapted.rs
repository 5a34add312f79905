//! Weights with a LoRA adapter merged into them while they are read.

use crate::error::Result;
use crate::tape::{Bytes, Source};
use crate::tensor::{DType, View};
use crate::weights::Lora;
use std::borrow::Borrow;

/// A source of weights with a LoRA adapter merged into its tensors. Tensors that the adapter changes are f32.
pub struct Adapted<S, L> {
    pub source: S,
    pub lora: L,
}

impl<S: Borrow<dyn Source> + Send + Sync, L: Borrow<Lora> + Send + Sync> Source for Adapted<S, L> {
    fn has(&self, name: &str) -> bool {
        self.source.borrow().has(name)
    }

    fn dtype(&self, name: &str) -> Option<DType> {
        let changes = self.lora.borrow().changes(name);
        self.source.borrow().dtype(name).map(|dtype| if changes { DType::F32 } else { dtype })
    }

    fn with(&self, name: &str, shape: &[usize], read: &mut dyn FnMut(&View<'_>) -> Result<()>) -> Result<()> {
        self.source.borrow().with(name, shape, &mut |view| match self.lora.borrow().applied(name, view)? {
            Some(bytes) => read(&View::dense(DType::F32, shape, &bytes)?),
            None => read(view),
        })
    }

    fn release(&self, name: &str) {
        self.source.borrow().release(name);
    }

    fn share(&self, name: &str, shape: &[usize]) -> Result<Option<Bytes>> {
        if self.lora.borrow().changes(name) { Ok(None) } else { self.source.borrow().share(name, shape) }
    }
}
