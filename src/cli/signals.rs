//! Signals: Ctrl-C stops after the token in flight, a second one at once; a model file cut while it is mapped ends the
//! process with a line that says so.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Sets `stop` at the first Ctrl-C and exits with 130 at the second.
pub fn stop_on_interrupt(stop: &Arc<AtomicBool>) {
    use signal_hook::{consts::SIGINT, flag};
    let armed = flag::register_conditional_shutdown(SIGINT, 130, stop.clone()).and_then(|_| flag::register(SIGINT, stop.clone()));
    if let Err(e) = armed {
        log::warn!("Ctrl-C will end the program at once: {e}");
    }
}

/// Reading a mapped file beyond its end raises SIGBUS; there is nothing to return to.
#[cfg(unix)]
pub fn catch_cut_files() {
    use signal_hook::{consts::SIGBUS, low_level};
    use std::io::Write;
    use std::mem::ManuallyDrop;
    use std::os::fd::FromRawFd;

    const MESSAGE: &[u8] = b"error: the model file became shorter while in use (restore the file and start again)\n";
    let end = || {
        // SAFETY: descriptor 2 is borrowed and never closed; an unbuffered write is one system call.
        let mut stderr = ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(2) });
        let _ = stderr.write(MESSAGE);
        low_level::exit(1);
    };
    // SAFETY: the action allocates nothing, takes no lock and does not return: a write and `_exit`, both allowed in a handler.
    if let Err(e) = unsafe { low_level::register(SIGBUS, end) } {
        log::warn!("a model file that is cut while in use will end the program without a message: {e}");
    }
}

/// Where mapped files cannot be cut.
#[cfg(not(unix))]
pub fn catch_cut_files() {}
