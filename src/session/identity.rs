//! Identifies the weights that a state belongs to. The identity is a hash of every tensor's name and shape, and of some weights. The hash does
//! not depend on the type of the checkpoint file.

use crate::error::Result;
use crate::tape::{Source, Tape};
use sha2::{Digest, Sha256};

/// The largest number of blocks of weights that enter the hash. A block is a range of consecutive weights of one tensor. Each block is from a
/// different tensor.
const BLOCKS: usize = 64;
/// The largest number of weights in a block.
const NUMBERS: usize = 256;

/// Returns the SHA-256, in hexadecimal digits, of every tensor's name and shape and of some weights from up to 64 tensors. `adapter` is the hash of
/// the LoRA adapter in the weights. It is hashed, too, because an adapter may leave all of these weights unchanged.
pub async fn weights_hash(tape: &Tape, source: &dyn Source, adapter: Option<&str>) -> Result<String> {
    let mut tensors: Vec<_> = tape.tensors().into_iter().filter(|(name, _, optional)| !optional || source.has(name)).collect();
    tensors.sort();
    let mut hash = Sha256::new();
    for (name, shape, _) in &tensors {
        hash.update(format!("{name}{shape:?}\n"));
    }
    if let Some(adapter) = adapter {
        hash.update(format!("adapter {adapter}\n"));
    }
    // The KV cache holds rotated keys, so a state is valid only for the same base of rotary positions.
    if let Some(rotary) = tape.rotary {
        hash.update(format!("rotary {} {}\n", rotary.size, rotary.base));
    }
    let block = |block: usize| {
        let (name, shape, _) = &tensors[block * tensors.len() / BLOCKS.min(tensors.len())];
        let len = shape.iter().product::<usize>();
        let n = len.min(NUMBERS);
        (*name, shape.as_slice(), (len - n) * (block % 7) / 7, n)
    };
    let blocks: Vec<_> = (0..BLOCKS.min(tensors.len())).map(block).collect();
    for numbers in source.elements(&blocks).await? {
        hash.update(bytemuck::cast_slice::<f32, u8>(&numbers));
    }
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}
