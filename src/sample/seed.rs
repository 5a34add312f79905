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

/// Reads a seed from text: any number of 64 bits, with or without a sign. `-1` means a random seed. Any other negative number means the seed with
/// the same 64 bits.
pub(super) fn parse(text: &str) -> Result<u64> {
    match text {
        RANDOM_SEED => Ok(random_seed()),
        text => match text.parse::<i64>() {
            Ok(signed) => Ok(signed as u64),
            Err(_) => texts::number(text, "a whole number from -2^63 to 2^64 - 1 (-1 means a random seed)"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_random() {
        assert!(random_seed() != random_seed() && random_seed() < 1 << 53);
        assert_eq!(parse("7").unwrap(), 7);
        assert!(parse("-1").unwrap() != parse("-1").unwrap());
        assert_eq!((parse("-2").unwrap(), parse("18446744073709551615").unwrap()), (u64::MAX - 1, u64::MAX));
        assert!(parse("18446744073709551616").is_err() && parse("-9223372036854775809").is_err() && parse("1.5").is_err());
    }
}
