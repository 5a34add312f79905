//! Seeds of random streams.

use super::texts;
use crate::error::Result;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Stands for a random seed, as in llama.cpp.
pub const RANDOM_SEED: &str = "-1";

/// Returns a seed that differs from call to call. It has 53 bits, so that readers of JSON that know only doubles get the same seed.
///
/// Not for secrets. In a browser, where the standard library has neither random keys nor a clock, bring your own seeds.
pub fn random_seed() -> u64 {
    let mut hash = RandomState::new().build_hasher();
    #[cfg(not(target_arch = "wasm32"))]
    hash.write_u128(std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_nanos()));
    hash.finish() >> 11
}

/// A seed as text; -1 draws one.
pub(super) fn parse(text: &str) -> Result<u64> {
    match text {
        RANDOM_SEED => Ok(random_seed()),
        text => texts::number(text, "a whole number from 0 to 2^64 - 1, or -1 for a random seed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_random() {
        assert!(random_seed() != random_seed() && random_seed() < 1 << 53);
        assert_eq!(parse("7").unwrap(), 7);
        assert!(parse("-1").unwrap() != parse("-1").unwrap() && parse("-2").is_err());
    }
}
