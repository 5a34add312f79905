//! The random stream of a seed: one 64-bit number per token, computed with ChaCha8. A number depends only on its position, so a stream can resume
//! anywhere.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Returns the number at `position` in the random stream of `seed`. Positions count from 0. `shaders/sample/chacha.wgsl` computes the same numbers.
///
/// The ChaCha8 key is the seed in little-endian order, followed by 24 zero bytes. The number at position `n` consists of the keystream's 32-bit
/// words `2 n` (low half) and `2 n + 1` (high half).
pub fn number(seed: u64, position: u64) -> u64 {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut rng = ChaCha8Rng::from_seed(key);
    rng.set_word_pos(u128::from(position) * 2);
    rng.next_u64()
}
