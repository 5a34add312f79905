//! The id of an input line of `batch`. A result has the id of its line, so that lines and results of several runs match in any order.

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::front_end::short;

/// The id of a line: a string or a whole number.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Id(Value);

impl Id {
    /// Parses an id from JSON.
    ///
    /// # Errors
    /// `Input` if the value is neither a string nor a whole number that fits 64 bits.
    pub fn read(json: &str) -> Result<Id> {
        match serde_json::from_str(json) {
            Ok(id @ Value::String(_)) => Ok(Id(id)),
            Ok(id @ Value::Number(_)) if id.is_u64() || id.is_i64() => Ok(Id(id)),
            _ => Err(Error::input(format!("expected a string or a whole number, found {}", short(json, 40)))),
        }
    }

    pub fn value(&self) -> &Value {
        &self.0
    }

    /// Returns a short hash of the id, the first 16 bytes of its sha256, so that millions of ids take little memory. In practice, no two ids
    /// share a key.
    pub fn key(&self) -> u128 {
        let digest = Sha256::digest(self.to_string());
        u128::from_le_bytes(digest[..16].try_into().expect("a sha256 has 32 bytes"))
    }

    /// Returns the seed of a line that sets no seed. The seed depends only on the run's seed and the id. It has 53 bits, because a JSON number holds
    /// 53 bits exactly.
    pub fn seed(&self, run: u64) -> u64 {
        let digest = Sha256::digest(format!("{run} {self}"));
        u64::from_le_bytes(digest[..8].try_into().expect("a sha256 has 32 bytes")) >> 11
    }
}

/// Writes the id as JSON.
impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::Id;

    fn id(json: &str) -> Id {
        Id::read(json).unwrap()
    }

    #[test]
    fn an_id_is_a_string_or_a_whole_number() {
        for json in ["\"a\"", "7", "-7", "18446744073709551615"] {
            assert_eq!(id(json).to_string(), json);
        }
        for (json, shown) in [("1.5", "1.5"), ("[[1]]", "[[1]]"), ("1e99", "1e99"), ("null", "null")] {
            let said = Id::read(json).unwrap_err().message;
            assert_eq!(said, format!("expected a string or a whole number, found {shown}"));
        }
    }

    #[test]
    fn the_seed_of_an_id_never_changes() {
        assert_eq!(id("\"a\"").seed(1), 369_185_221_646_774);
        let others = [id("1").seed(1), id("\"1\"").seed(1), id("1").seed(2), id("\"a\"").seed(1)];
        assert!(others.iter().enumerate().all(|(i, a)| others[..i].iter().all(|b| a != b) && *a < 1 << 53));
    }
}
