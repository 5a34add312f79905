//! Seeds of random streams.

use super::texts;
use crate::error::Result;
use std::hash::{BuildHasher, RandomState};

/// The text that requests a random seed, as in llama.cpp.
pub const RANDOM_SEED: &str = "-1";

/// Returns a seed that differs in every call. The seed is below 2^53, so a JSON reader that stores numbers as doubles reads it exactly.
///
/// Do not use the seed for secrets. In a browser the seed depends only on the clock, because the standard library has no source of random numbers
/// there.
pub fn random_seed() -> u64 {
    let time = web_time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos());
    RandomState::new().hash_one(time) >> 11
}

/// Reads a seed from text. `-1` means a random seed.
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
