//! The end of a program that has no memory left: one line on stderr, with `--json` an object on stdout too, and exit code 4.
//!
//! Allocations whose size a file or a user decides are errors long before (`error::room`). The rest of them, small or in other crates, end
//! in this allocator. It stands in the program and not in the library: a library must not choose its caller's allocator.

use crate::error::{Kind, MEMORY_HINT, is_handled};
use crate::weights::new_file::remove_unfinished_at_once;
use signal_hook::low_level;
use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// The system's allocator. A failed allocation that nobody handles ends the program.
pub struct Allocator;

// SAFETY: every call goes to the system's allocator unchanged. A failure ends the process without unwinding, or is passed on.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        checked(unsafe { System.realloc(at, layout, size) }, size)
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

fn checked(at: *mut u8, size: usize) -> *mut u8 {
    if at.is_null() && !is_handled() {
        end(size);
    }
    at
}

/// Whether programs read our text.
static WANTS_JSON: AtomicBool = AtomicBool::new(false);

/// Makes the program's last words an object on stdout, too.
pub fn speak_json(wanted: bool) {
    WANTS_JSON.store(wanted, Ordering::Relaxed);
}

/// Allocates nothing.
#[cold]
fn end(size: usize) -> ! {
    let mut message = Line::default();
    let _ = write!(message, "out of memory: {size} bytes could not be allocated");
    end_with(message.text(), MEMORY_HINT)
}

/// Allocates nothing and waits for no lock, so a signal handler may call it. Neither text has a quote or a backslash in it.
fn end_with(message: &str, hint: &str) -> ! {
    let kind = Kind::Memory;
    if WANTS_JSON.load(Ordering::Relaxed) {
        let mut line = Line::default();
        let name = kind.name();
        let _ = writeln!(line, r#"{{"error":{{"kind":"{name}","message":"{message}","where":null,"hint":"{hint}"}}}}"#);
        say(1, line.text().as_bytes());
    }
    let mut line = Line::default();
    let _ = writeln!(line, "error: {message} ({hint})");
    say(2, line.text().as_bytes());
    remove_unfinished_at_once();
    low_level::exit(kind.exit_code().into())
}

/// A line on the stack.
struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Default for Line {
    fn default() -> Self {
        Line { bytes: [0; 512], len: 0 }
    }
}

impl Line {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let to = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(fmt::Error)?;
        to.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// Writes to a descriptor past all buffers and locks: another thread may hold them.
#[cfg(unix)]
fn say(descriptor: i32, bytes: &[u8]) {
    use std::io::Write;
    use std::mem::ManuallyDrop;
    use std::os::fd::FromRawFd;
    // SAFETY: the descriptor is borrowed and never closed; an unbuffered write is one system call.
    let mut to = ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(descriptor) });
    let _ = to.write(bytes);
}

/// Where descriptors are no numbers.
#[cfg(not(unix))]
fn say(descriptor: i32, bytes: &[u8]) {
    use std::io::Write;
    let _ = if descriptor == 1 { std::io::stdout().write_all(bytes) } else { std::io::stderr().write_all(bytes) };
}

/// Drivers and their compilers are C and C++, and end a process that may not take more memory with a signal. Where a limit is set
/// (`ulimit -v`), such an end gets a line and an exit code. Without a limit nothing changes.
#[cfg(any(target_os = "linux", target_os = "macos"))]
pub fn explain_crashes() {
    use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
    if getrlimit(Resource::RLIMIT_AS).map_or(RLIM_INFINITY, |(limit, _)| limit) == RLIM_INFINITY {
        return;
    }
    // On the stack that the standard library sets aside for overflows, where a thread has one.
    let action = SigAction::new(SigHandler::Handler(crashed), SaFlags::SA_ONSTACK, SigSet::empty());
    for signal in [Signal::SIGABRT, Signal::SIGSEGV] {
        // SAFETY: the handler allocates nothing, waits for no lock and does not return: writes, `unlink` and `_exit`, all allowed in a handler.
        if let Err(e) = unsafe { sigaction(signal, &action) } {
            log::warn!("a driver that runs out of memory will end the program without a message: {e}");
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
extern "C" fn crashed(_signal: i32) {
    let message = "the program crashed where its memory is limited; it is probably out of memory";
    end_with(message, "raise the limit, ulimit -v, or use --device cpu")
}

/// Where processes have no such limit.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub fn explain_crashes() {}
