//! Allocates memory whose size depends on a file or a user. A failed allocation becomes an error of kind `Memory` and does not end the
//! process.

use super::{Error, Result, size};
use std::cell::Cell;

/// The hint of errors about too little host memory.
pub const HINT: &str = "close other programs, or choose a smaller model, a smaller context or a shorter text";

thread_local! {
    /// True while this thread handles a failed allocation itself, so that the program's allocator must not end the program.
    static HANDLES_FAILURE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread handles failed allocations itself. The program's allocator asks before it reports a failed allocation.
pub fn is_handled() -> bool {
    HANDLES_FAILURE.try_with(Cell::get).unwrap_or(false)
}

/// Runs `allocate` and returns its result. `allocate` must handle a failed allocation itself, as `try_reserve` does, because the program's allocator
/// does not end the program in the meantime.
fn handling<T>(allocate: impl FnOnce() -> T) -> T {
    let before = HANDLES_FAILURE.replace(true);
    let done = allocate();
    HANDLES_FAILURE.set(before);
    done
}

fn refused<T>(n: usize, what: &str) -> Error {
    let bytes = (n as u64).saturating_mul(size_of::<T>() as u64);
    Error::memory(format!("out of memory: {} for {what} could not be allocated", size(bytes))).hint(HINT)
}

/// Returns an empty vector with room for `n` values. `what` names the values in the error's message, such as `a tensor`.
///
/// # Errors
/// `Memory` if the host has no room for `n` values.
pub(crate) fn try_alloc<T>(n: usize, what: &str) -> Result<Vec<T>> {
    let mut values = Vec::new();
    handling(|| values.try_reserve_exact(n)).map_err(|_| refused::<T>(n, what))?;
    Ok(values)
}

/// Returns a vector of `n` copies of `value`. `what` names the values in the error's message, as in [`try_alloc`]. If `value` is zero, the operating
/// system provides each memory page only when it is first written.
///
/// # Errors
/// `Memory` if the host has no room for `n` values.
pub(crate) fn filled<T: Clone>(value: T, n: usize, what: &str) -> Result<Vec<T>> {
    drop(try_alloc::<T>(n, what)?);
    Ok(vec![value; n])
}

/// Returns all bytes of `from`, which may have at most `limit` bytes.
///
/// # Errors
/// `Input` if `from` has more than `limit` bytes, `File` if `from` cannot be read, `Memory` if the host has no room for the bytes.
pub fn read_at_most(from: impl std::io::Read, limit: u64) -> Result<Vec<u8>> {
    let (mut bytes, mut from) = (Vec::new(), from.take(limit.saturating_add(1)));
    let done = handling(|| std::io::Read::read_to_end(&mut from, &mut bytes));
    done.map_err(|e| match e.kind() {
        std::io::ErrorKind::OutOfMemory => refused::<u8>(bytes.len().saturating_mul(2), "the text"),
        _ => Error::of_io(e),
    })?;
    if bytes.len() as u64 > limit {
        return Err(Error::input(format!("expected a text of at most {}, found a longer one", size(limit))).hint("cut the text into parts"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn an_allocation_beyond_the_memory_is_an_error() {
        for n in [usize::MAX, isize::MAX as usize, 1 << 60] {
            let e = try_alloc::<u64>(n, "a tensor").unwrap_err();
            assert!(e.kind == Kind::Memory && e.message.contains("for a tensor could not be allocated"), "{e}");
            assert_eq!(filled(0f32, n, "a tensor").unwrap_err().kind, Kind::Memory);
        }
        assert_eq!(filled(7u8, 3, "a tensor").unwrap(), [7; 3]);
        assert!(try_alloc::<u32>(100, "ids").unwrap().capacity() >= 100 && !HANDLES_FAILURE.get());
    }

    #[test]
    fn a_text_without_end_is_refused() {
        assert_eq!(read_at_most(&b"abc"[..], 3).unwrap(), b"abc");
        let e = read_at_most(std::io::repeat(0), 1 << 20).unwrap_err();
        assert_eq!((e.kind, e.message.as_str()), (Kind::Input, "expected a text of at most 1.00 MiB, found a longer one"));
    }
}
