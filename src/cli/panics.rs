//! Turns a panic into one line on stderr, or into an error of the work that panicked.

use super::output::say;
use crate::error::{Error, Result};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};

thread_local! {
    /// True while a panic of this thread becomes an error.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
    /// The message of the last caught panic of this thread.
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Makes a panic print one line without a backtrace.
pub fn report() {
    set_hook(Box::new(|info| {
        let text = info.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        if IS_CAUGHT.get() {
            SAID.set(text);
        } else {
            say(format_args!("internal error: {text}; please report"));
        }
    }));
}

/// Does work that must not end the program. A panic becomes an error of kind `Input`, and nothing is printed.
///
/// All values that the work changes must stay usable after a panic.
pub fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let was = IS_CAUGHT.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(was);
    done.unwrap_or_else(|_| Err(Error::input(format!("internal error: {}", SAID.take())).hint("please report it, with the input")))
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
