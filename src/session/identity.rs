//! Which weights a state belongs to: a hash of names, shapes and samples of the tensors, the same for every file layout.

use crate::error::Result;
use crate::tape::{Source, Tape};
use sha2::{Digest, Sha256};

/// Tensors whose numbers enter the hash, and how many of each.
const BLOCKS: usize = 64;
const NUMBERS: usize = 256;

/// Hash of the header (every tensor that the model reads, with its shape) and of 64 blocks of numbers, in hex.
pub fn weights_hash(tape: &Tape, source: &dyn Source) -> Result<String> {
    let mut tensors: Vec<_> = tape.tensors().into_iter().filter(|(name, _, optional)| !optional || source.has(name)).collect();
    tensors.sort();
    let mut hash = Sha256::new();
    for (name, shape, _) in &tensors {
        hash.update(format!("{name}{shape:?}\n"));
    }
    // Keys are kept rotated: with another base they are of another model.
    if let Some(rotary) = tape.rotary {
        hash.update(format!("rotary {} {}\n", rotary.size, rotary.base));
    }
    for block in 0..BLOCKS.min(tensors.len()) {
        let (name, shape, _) = &tensors[block * tensors.len() / BLOCKS.min(tensors.len())];
        source.with(name, shape, &mut |view| {
            let n = view.len().min(NUMBERS);
            let mut numbers = vec![0.0; n];
            view.read_f32((view.len() - n) * (block % 7) / 7, &mut numbers)?;
            hash.update(bytemuck::cast_slice::<f32, u8>(&numbers));
            Ok(())
        })?;
    }
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}
