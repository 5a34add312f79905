//! Models without a file, for benchmarks and tests.

use super::{ARCHS, Blueprint};
use crate::error::{Error, Result};

/// Returns the hyper-parameters for a name of the form `ARCHITECTURE-SIZE`, such as `rwkv7-0.1b`, or for the name of a variant, such as
/// `rwkv7a-0.1b`.
///
/// # Errors
///
/// `Usage` if the name is unknown.
pub fn named(name: &str) -> Result<Box<dyn Blueprint>> {
    let variants = || ARCHS.iter().flat_map(|a| a.variants());
    let variant = variants().find(|(variant, _)| *variant == name).map(|(_, blueprint)| blueprint());
    let found = variant.or_else(|| name.split_once('-').and_then(|(arch, size)| ARCHS.iter().find(|a| a.name() == arch)?.published(size)));
    found.ok_or_else(|| {
        let sizes = ARCHS.iter().map(|a| format!("{} with {}", a.name(), a.sizes().join(", ")));
        let known: Vec<_> = sizes.chain(variants().map(|(name, _)| name.replacen('-', " with ", 1))).collect();
        Error::usage(format!("unknown synthetic model {name:?}, expected ARCHITECTURE-SIZE such as rwkv7-0.1b"))
            .field("synthetic")
            .hint(format!("architectures and their sizes: {}", known.join("; ")))
    })
}
