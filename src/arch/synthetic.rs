//! Models without a file, for benchmarks and tests.

use super::{ARCHS, Blueprint};
use crate::error::{Error, Result};

/// Returns the hyper-parameters for a name of the form `ARCHITECTURE-SIZE`, such as `rwkv7-0.1b`.
///
/// # Errors
///
/// `Usage` if the architecture or the size is unknown.
pub fn named(name: &str) -> Result<Box<dyn Blueprint>> {
    let found = name.split_once('-').and_then(|(arch, size)| ARCHS.iter().find(|a| a.name() == arch)?.published(size));
    found.ok_or_else(|| {
        let known: Vec<_> = ARCHS.iter().map(|a| format!("{} with {}", a.name(), a.sizes().join(", "))).collect();
        Error::usage(format!("unknown synthetic model {name:?}, expected ARCHITECTURE-SIZE such as rwkv7-0.1b"))
            .field("synthetic")
            .hint(format!("architectures and their sizes: {}", known.join("; ")))
    })
}
