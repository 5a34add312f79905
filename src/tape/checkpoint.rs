//! Implements [`Source`], a tape's source of weights, for [`Checkpoint`].

use super::{Bytes, Source};
use crate::error::Result;
use crate::files::Reading;
use crate::quant::Coded;
use crate::tensor::{DType, View};
use crate::weights::{Checkpoint, FetchedTensors};
use std::sync::Arc;

impl Source for Checkpoint {
    fn has(&self, name: &str) -> bool {
        self.shape(name).is_some()
    }

    /// Returns the element type of a tensor. A tensor that is multiplied by a scale when it is read counts as F32, because products may exceed
    /// the range of the stored type.
    fn dtype(&self, name: &str) -> Option<DType> {
        if self.is_scaled(name) { Some(DType::F32) } else { self.stored_dtype(name) }
    }

    fn with(&self, name: &str, shape: &[usize], read: &mut dyn FnMut(&View<'_>) -> Result<()>) -> Result<()> {
        self.check_uncut()?;
        read(&self.require(name, shape)?).map_err(|e| e.at(self.place_of(name)))
    }

    fn share(&self, name: &str, shape: &[usize]) -> Result<Option<Bytes>> {
        let view = self.require(name, shape)?;
        Ok(self.file_of(name).and_then(|owner| shared(&view, owner)))
    }

    fn check(&self, name: &str, shape: &[usize]) -> Result<()> {
        self.check_shape(name, shape)
    }

    fn release(&self, name: &str) {
        Checkpoint::release(self, name);
    }

    fn is_ranged(&self) -> bool {
        Checkpoint::is_ranged(self)
    }

    fn fetch<'a>(&'a self, names: &'a [&str]) -> Reading<'a, Option<Box<dyn Source>>> {
        Box::pin(async move {
            match self.is_ranged() {
                true => Ok(Some(Box::new(Checkpoint::fetch(self, names).await?) as Box<dyn Source>)),
                false => Ok(None),
            }
        })
    }

    fn elements<'a>(&'a self, wanted: &'a [(&str, &[usize], usize, usize)]) -> Reading<'a, Vec<Vec<f32>>> {
        Box::pin(async move {
            wanted.iter().try_for_each(|(name, shape, ..)| self.check_shape(name, shape))?;
            let wanted: Vec<_> = wanted.iter().map(|&(name, _, at, n)| (name, at, n)).collect();
            Checkpoint::elements(self, &wanted).await
        })
    }
}

/// Reads fetched tensors from memory, and all other tensors from the checkpoint.
impl Source for FetchedTensors {
    fn has(&self, name: &str) -> bool {
        self.checkpoint().has(name)
    }

    fn dtype(&self, name: &str) -> Option<DType> {
        self.checkpoint().dtype(name)
    }

    fn with(&self, name: &str, shape: &[usize], read: &mut dyn FnMut(&View<'_>) -> Result<()>) -> Result<()> {
        read(&self.require(name, shape)?).map_err(|e| e.at(self.checkpoint().place_of(name)))
    }

    fn share(&self, name: &str, shape: &[usize]) -> Result<Option<Bytes>> {
        let view = self.require(name, shape)?;
        Ok(self.memory_of(name).and_then(|memory| shared(&view, memory)))
    }
}

/// Returns the bytes of a view as a range of the memory `owner`. Returns `None` if the bytes are not plain elements or codes.
fn shared(view: &View<'_>, owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Option<Bytes> {
    let bytes = view.matrix().map(Coded::codes).or(view.dense_bytes())?;
    let start = bytes.as_ptr() as usize - (*owner).as_ref().as_ptr() as usize;
    Some(Bytes { owner, range: start..start + bytes.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::testing::{Gguf, gguf, halves, put, q8_0, singles};

    #[test]
    fn only_bytes_that_are_plain_numbers_are_shared() {
        let (x, shape) = (vec![2.0; 64], [2, 32]);
        let tensors: [(&str, DType, &[usize], &[u8]); 4] = [
            ("emb.weight", DType::F16, &shape, &halves(&x)),
            ("head.weight", DType::Q8_0, &shape, &q8_0(&x)),
            ("blocks.0.ffn.value.weight", DType::F32, &shape, &singles(&x)),
            ("blocks.1.ffn.value.weight", DType::F32, &shape, &singles(&x)),
        ];
        let dir = tempfile::tempdir().unwrap();
        let c = Checkpoint::open(&put(&dir, "m.gguf", &gguf("rwkv6", &[("rescale_every_n_layers", 1)], &tensors))).unwrap();
        let found = tensors.map(|(name, ..)| (c.dtype(name).unwrap(), c.share(name, &shape).unwrap().is_some()));
        assert_eq!(found, [(DType::F16, true), (DType::Q8_0, false), (DType::F32, true), (DType::F32, false)]);
        for (name, ..) in tensors {
            let mut found = Vec::new();
            c.with(name, &shape, &mut |view| view.to_f32().map(|x| found = x)).unwrap();
            assert_eq!(found, x, "{name}");
        }
        // A product of an f16 element and the scale may exceed the range of f16, so the tensor counts as F32.
        let mut g = Gguf::new("rwkv6");
        g.u32("rwkv6.rescale_every_n_layers", 1).tensor("blk.1.channel_mix_value.weight", 1, &shape, &halves(&x));
        let c = Checkpoint::open(&put(&dir, "half.gguf", &g.finish())).unwrap();
        assert_eq!(c.dtype("blocks.1.ffn.value.weight"), Some(DType::F32));
    }
}
