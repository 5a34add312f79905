//! An upper limit on the vector instructions that loops use, for tests and comparisons.

use std::sync::OnceLock;

/// The vector instructions that loops may use, if the CPU has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Plain loops alone.
    Plain,
    /// All but AVX-512.
    Avx2,
    All,
}

static LIMIT: OnceLock<Limit> = OnceLock::new();

/// Sets the limit for this process. It has no effect once a loop has run, because loops choose their instructions once.
pub fn limit(to: Limit) {
    let _ = LIMIT.set(to);
}

/// Returns the limit that was set, or no limit. Later calls of [`limit`] have no effect.
pub(super) fn chosen() -> Limit {
    *LIMIT.get_or_init(|| Limit::All)
}
