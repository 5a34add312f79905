//! API keys. A key identifies a caller: callers with different keys cannot see each other's states and cache entries.

use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use wingbeat::error::{Error, Result};

/// The maximum length of a key, in bytes.
const MAX_KEY: usize = 512;

/// API keys with optional names. The default has no keys.
#[derive(Clone, Default)]
pub struct Keys(Vec<Key>);

#[derive(Clone)]
struct Key {
    name: String,
    /// The SHA-256 of the key. The key itself is not kept.
    hash: [u8; 32],
}

/// Prints the number of keys, but no key.
impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

impl Keys {
    /// Reads a list of keys: one `KEY` or `NAME KEY` per line. Skips empty lines and lines that begin with `#`.
    ///
    /// # Errors
    /// `File` if a line has more than two words, a key is not 8 to 512 printable ASCII characters, or a name or key occurs twice. The error
    /// does not contain the key.
    pub fn read(text: &str) -> Result<Keys> {
        let mut keys = Keys::default();
        for (i, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let place = format!("line {}", i + 1);
            match words.as_slice() {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                [key] => keys.add(&format!("key-{}", i + 1), key).map_err(|e| e.at(place))?,
                [name, key] => keys.add(name, key).map_err(|e| e.at(place))?,
                _ => return Err(Error::file("expected a key, or a name and a key, found more words").at(place)),
            }
        }
        Ok(keys)
    }

    /// Adds a key with a name for the log.
    ///
    /// # Errors
    /// `File` if the key is not 8 to 512 printable ASCII characters, or if the name or the key is already in the list.
    pub fn add(&mut self, name: &str, key: &str) -> Result<()> {
        if !(8..=MAX_KEY).contains(&key.len()) || !key.bytes().all(|b| b.is_ascii_graphic()) {
            let text = format!("expected a key of 8 to {MAX_KEY} printable ASCII characters, found {} bytes", key.len());
            return Err(Error::file(text).hint("make a key with: openssl rand -hex 32"));
        }
        let hash = hash(key);
        if self.0.iter().any(|known| known.name == name || known.hash == hash) {
            return Err(Error::file("the name or the key occurs twice"));
        }
        self.0.push(Key { name: name.into(), hash });
        Ok(())
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the owner of this key, or `None` if the key is unknown. The time of the search does not depend on the key's characters: all hashes
    /// are compared, each in constant time.
    pub(super) fn find(&self, key: &str) -> Option<Owner> {
        let found = hash(key);
        let (mut at, mut is_known) = (0u32, Choice::from(0));
        for (i, known) in self.0.iter().enumerate() {
            let is_equal = known.hash.ct_eq(&found);
            at.conditional_assign(&(i as u32), is_equal);
            is_known |= is_equal;
        }
        let known = self.0.get(at as usize).filter(|_| bool::from(is_known))?;
        // The hash of the key is the namespace. So a caller keeps the same states if the key gets another name.
        let namespace = known.hash.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Owner { name: known.name.clone(), namespace })
    }
}

/// The owner of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub name: String,
    /// The namespace of the owner's states and cache entries.
    pub namespace: String,
}

fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_finds_its_owner() {
        let keys = Keys::read("# mine\nabcdefgh\n\n ada  12345678 \n").unwrap();
        assert_eq!((keys.find("12345678").unwrap().name.as_str(), keys.find("abcdefgh").unwrap().name.as_str()), ("ada", "key-2"));
        assert_ne!(keys.find("12345678").unwrap().namespace, keys.find("abcdefgh").unwrap().namespace);
        for wrong in ["", "1234567", "123456789", "ada", "ABCDEFGH"] {
            assert_eq!(keys.find(wrong), None, "{wrong}");
        }
        assert_eq!(Keys::default().find("12345678"), None);
        assert!(!format!("{keys:?}").contains("abcdefgh"));
    }

    #[test]
    fn wrong_lists_are_refused_without_printing_keys() {
        for (text, want) in [
            ("short", "line 1: expected a key of 8 to 512 printable ASCII characters, found 5 bytes"),
            ("a b abcdefgh", "line 1: expected a key, or a name and a key"),
            ("x abcdefgh\ny abcdefgh", "line 2: the name or the key occurs twice"),
            ("x abcdefgh\nx 12345678", "line 2: the name or the key occurs twice"),
        ] {
            let said = Keys::read(text).unwrap_err().to_string();
            assert!(said.starts_with(want) && !said.contains("abcdefgh"), "{said}");
        }
    }
}
