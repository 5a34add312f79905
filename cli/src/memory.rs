//! Ends the program if the memory is exhausted: one line on stderr, with `--json` also an object on stdout, and exit code 4.
//!
//! Large allocations, whose size depends on a file or a user, return errors instead (`error::try_alloc`). This allocator handles the failure of all
//! other allocations. It belongs to the program, because a library must not choose its caller's allocator.

use signal_hook::low_level;
use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use wingbeat::error::Kind;
use wingbeat::low_level::front_end::{MEMORY_HINT, is_handled};
use wingbeat::low_level::weights::new_file::remove_unfinished_at_once;

/// The system's allocator, with one change: after `end_when_exhausted`, a failed allocation that no caller handles ends the program.
pub struct Allocator;

// SAFETY: every call goes to the system's allocator unchanged. A failed allocation ends the process without unwinding, or returns null to a
// caller that handles the failure.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, and `System` has the same contract.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, and `System` has the same contract.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, and `System` has the same contract.
        checked(unsafe { System.realloc(at, layout, size) }, size)
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, and `System` has the same contract.
        unsafe { System.dealloc(at, layout) }
    }
}

fn checked(at: *mut u8, size: usize) -> *mut u8 {
    if at.is_null() && IS_PROGRAM.load(Ordering::Relaxed) && !is_handled() {
        end(size);
    }
    at
}

/// True if this process is the program. In Python, the same library is also loaded without the program.
static IS_PROGRAM: AtomicBool = AtomicBool::new(false);

/// Marks this process as the program. From now on, a failed allocation ends the process, unless the caller handles the failure.
pub fn end_when_exhausted() {
    IS_PROGRAM.store(true, Ordering::Relaxed);
}

/// True if errors are printed as JSON, too.
static WANTS_JSON: AtomicBool = AtomicBool::new(false);

/// Sets whether the error that ends the program is also printed as a JSON object on stdout.
pub fn speak_json(wanted: bool) {
    WANTS_JSON.store(wanted, Ordering::Relaxed);
}

/// Ends the program after a failed allocation of `size` bytes. Allocates nothing.
#[cold]
fn end(size: usize) -> ! {
    let mut message = StackLine::default();
    let _ = write!(message, "out of memory: {size} bytes could not be allocated");
    end_with(message.text(), MEMORY_HINT)
}

/// Prints an error and ends the program. Allocates nothing and, on Unix, waits for no lock, so a signal handler may call this function. `message`
/// and `hint` must not contain a quote or a backslash, because they are copied into JSON unchanged.
fn end_with(message: &str, hint: &str) -> ! {
    static IS_ENDING: AtomicBool = AtomicBool::new(false);
    let kind = Kind::Memory;
    if IS_ENDING.swap(true, Ordering::SeqCst) {
        // Usually another thread prints the error and ends the program within this second. If this thread itself was printing and failed again, no
        // other thread ends the program, so this thread ends it.
        std::thread::sleep(std::time::Duration::from_secs(1));
        low_level::exit(kind.exit_code().into());
    }
    if WANTS_JSON.load(Ordering::Relaxed) {
        let mut line = StackLine::default();
        let name = kind.name();
        let _ = writeln!(line, r#"{{"error":{{"kind":"{name}","message":"{message}","where":null,"hint":"{hint}"}}}}"#);
        say(1, line.text().as_bytes());
    }
    let mut line = StackLine::default();
    let _ = writeln!(line, "error: {message} ({hint})");
    say(2, line.text().as_bytes());
    remove_unfinished_at_once();
    low_level::exit(kind.exit_code().into())
}

/// A line of text on the stack, at most 512 bytes. Longer text is cut.
struct StackLine {
    bytes: [u8; 512],
    len: usize,
}

impl Default for StackLine {
    fn default() -> Self {
        StackLine { bytes: [0; 512], len: 0 }
    }
}

impl StackLine {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl Write for StackLine {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let to = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(fmt::Error)?;
        to.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// Writes to the file descriptor `descriptor`. Uses no buffer and no lock, because another thread may hold the lock.
#[cfg(unix)]
fn say(descriptor: i32, bytes: &[u8]) {
    use std::io::Write;
    use std::mem::ManuallyDrop;
    use std::os::fd::FromRawFd;
    // SAFETY: the file descriptor is borrowed and never closed. An unbuffered write is one system call.
    let mut to = ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(descriptor) });
    let _ = to.write(bytes);
}

/// Writes to standard output if `descriptor` is 1, else to standard error.
#[cfg(not(unix))]
fn say(descriptor: i32, bytes: &[u8]) {
    use std::io::Write;
    let _ = if descriptor == 1 { std::io::stdout().write_all(bytes) } else { std::io::stderr().write_all(bytes) };
}

/// Makes the system's allocator return each large block to the system when it is freed. Otherwise glibc raises this limit
/// to the size of each freed large block, and a server keeps the memory of its largest requests.
pub fn return_large_blocks() {
    /// The minimum size of a large block: 1 MiB.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    const LARGE: i32 = 1 << 20;
    // SAFETY: the call sets a number of the allocator, under the allocator's own lock.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    let _ = unsafe { nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, LARGE) };
}

/// Installs a crash handler if the process has a memory limit (`ulimit -v`). The handler prints an error and sets the exit code. Drivers and
/// their compilers are written in C and C++, and crash with a signal if memory runs out. Without a memory limit, this function does nothing.
#[cfg(any(target_os = "linux", target_os = "macos"))]
pub fn explain_crashes() {
    use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
    if getrlimit(Resource::RLIMIT_AS).map_or(RLIM_INFINITY, |(limit, _)| limit) == RLIM_INFINITY {
        return;
    }
    // The handler runs on the stack that the standard library reserves for stack overflows, if the thread has such a stack.
    let action = SigAction::new(SigHandler::Handler(crashed), SaFlags::SA_ONSTACK, SigSet::empty());
    for signal in [Signal::SIGABRT, Signal::SIGSEGV] {
        // SAFETY: the handler allocates nothing, waits for no lock and does not return. It calls only `write`, `unlink` and `_exit`, which
        // a handler may call.
        if let Err(e) = unsafe { sigaction(signal, &action) } {
            log::warn!("a driver that runs out of memory will end the program without a message: {e}");
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
extern "C" fn crashed(_signal: i32) {
    let message = "the program crashed under a memory limit; it is probably out of memory";
    end_with(message, "raise the limit, ulimit -v, or use --device cpu")
}

/// Does nothing: this system has no memory limit like `ulimit -v`.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub fn explain_crashes() {}
