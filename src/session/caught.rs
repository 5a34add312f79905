//! Turns a panic within the work of one request into an error, so that the other requests continue.

use crate::error::{Error, Result};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// True while this thread runs work whose panics become errors.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
    /// The text of the last panic of this thread. A panic hook stores the text by calling [`describe`]. Empty if no hook stored a text.
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The cause of an error that was a panic. A server answers such an error as its own fault, not as the client's.
#[derive(Debug)]
pub struct Panicked;

impl std::fmt::Display for Panicked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a panic")
    }
}

impl std::error::Error for Panicked {}

/// Runs `work`, a part of one request's work, and returns its result. If `work` panics, returns an error of kind `Input`.
///
/// A panic may leave values that `work` was changing in an invalid state. After a panic, the caller must drop all values that may be invalid.
pub fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let was = IS_CAUGHT.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(was);
    done.unwrap_or_else(|panic| {
        let mut text = SAID.take();
        if text.is_empty() {
            let payload = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            text = payload.unwrap_or("a panic without a message").split_whitespace().collect::<Vec<_>>().join(" ");
        }
        Err(Error::input(format!("internal error: {text}")).hint("please report this error, with the input").caused_by(Panicked))
    })
}

/// Sets the text of the current panic. A panic hook calls this function, because only the hook knows the place of the panic. Returns false if
/// the panic happened outside [`caught`].
pub fn describe(panic: &str) -> bool {
    let is_caught = IS_CAUGHT.get();
    if is_caught {
        SAID.set(panic.to_string());
    }
    is_caught
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_of_its_work() {
        assert_eq!(caught(|| Ok(7)).unwrap(), 7);
        assert_eq!(caught::<()>(|| Err(Error::input("x"))).unwrap_err().message, "x");
        let empty: Vec<u8> = Vec::new();
        let e = caught(|| Ok(empty[std::hint::black_box(3)])).unwrap_err();
        assert!(e.message.starts_with("internal error: "), "{e}");
        assert!(!IS_CAUGHT.get());
    }
}
