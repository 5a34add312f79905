//! The hash of a file's content, which is also the name of the file in the cache.

use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::fmt::Write;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::front_end::short;

/// The hash that the hub announces for a file. For a large file, it is the SHA-256. For a small file, it is the SHA-1 that git computes for a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Etag(String);

impl Etag {
    /// Reads the header `etag` or `x-linked-etag`.
    ///
    /// # Errors
    /// `File` if the value has no hash of 40 or 64 hexadecimal digits.
    pub fn parse(header: &str) -> Result<Etag> {
        let text = header.strip_prefix("W/").unwrap_or(header).trim_matches('"');
        if matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
            return Ok(Etag(text.into()));
        }
        Err(Error::file(format!("expected a hash of 40 or 64 hexadecimal digits from the hub, found {:?}", short(header, 80))))
    }

    /// Returns the hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Starts the computation of the same kind of hash for a file of `size` bytes.
    pub fn hasher(&self, size: u64) -> Hasher {
        if self.0.len() == 64 {
            return Hasher::Sha256(Sha256::new());
        }
        let mut hasher = Sha1::new();
        hasher.update(format!("blob {size}\0"));
        Hasher::Git(hasher)
    }
}

impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A hash that is being computed.
pub enum Hasher {
    Sha256(Sha256),
    /// SHA-1 of git's header and the content.
    Git(Sha1),
}

impl Hasher {
    /// Adds the next bytes of the file.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Sha256(hasher) => hasher.update(bytes),
            Hasher::Git(hasher) => hasher.update(bytes),
        }
    }

    /// Returns the hash in hexadecimal digits.
    pub fn finish(self) -> String {
        match self {
            Hasher::Sha256(hasher) => hex(&hasher.finalize()),
            Hasher::Git(hasher) => hex(&hasher.finalize()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_git_and_sha256sum() {
        for (etag, content) in [
            ("\"ce013625030ba8dba906f756967f9e9ca394464a\"", "hello\n"),
            ("5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03", "hello\n"),
            ("W/\"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\"", ""),
        ] {
            let etag = Etag::parse(etag).unwrap();
            let mut hasher = etag.hasher(content.len() as u64);
            content.as_bytes().chunks(2).for_each(|part| hasher.update(part));
            assert_eq!(hasher.finish(), etag.as_str());
        }
    }

    #[test]
    fn only_hexadecimal_digits_become_a_file_name() {
        for wrong in ["", "\"\"", "../../../x", "abc", &"g".repeat(40), &"A".repeat(64), &"0".repeat(41), &format!("{}/..", "0".repeat(61))]
        {
            assert!(Etag::parse(wrong).is_err(), "{wrong}");
        }
    }
}
