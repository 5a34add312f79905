//! Models without a file, for benchmarks and tests.

use super::{ARCHS, Blueprint};
use crate::error::{Error, Result};

/// `rwkv7-0.1b` and the like.
pub fn named(name: &str) -> Result<Box<dyn Blueprint>> {
    let found = name.split_once('-').and_then(|(arch, size)| ARCHS.iter().find(|a| a.name() == arch)?.published(size));
    found.ok_or_else(|| {
        let known: Vec<_> = ARCHS.iter().map(|a| a.name()).collect();
        Error::usage(format!("no synthetic model {name:?}, expected {}- and one of 0.1b 0.4b 1.5b 2.9b 7.2b", known.join("- or ")))
    })
}
