//! Catches panics in code of other crates, which reads grammars and templates.

use crate::error::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs work of one request. Returns a panic as an error of kind `Input`, so that the other requests continue.
///
/// After a panic, the caller must drop the values that the work changes, unless these values stay usable.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("a panic without a message").split_whitespace().collect::<Vec<_>>().join(" ");
        Err(Error::input(format!("internal error: {text}")).hint("please report it, with the input"))
    })
}
