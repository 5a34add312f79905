//! Models without a file, for benchmarks and tests.

use super::{ARCHS, Blueprint};
use crate::error::{Error, Result};

/// `rwkv7-0.1b` and the like.
pub fn named(name: &str) -> Result<Box<dyn Blueprint>> {
    let found = name.split_once('-').and_then(|(arch, size)| ARCHS.iter().find(|a| a.name() == arch)?.published(size));
    found.ok_or_else(|| {
        let known: Vec<_> = ARCHS.iter().map(|a| format!("{}-{}", a.name(), a.sizes().join("|"))).collect();
        Error::usage(format!("no synthetic model {name:?}, expected {}", known.join(" or "))).field("synthetic")
    })
}
