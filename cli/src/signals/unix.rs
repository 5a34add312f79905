//! Catches signals on Unix and wakes the line editor when the program must end.

use super::{EXIT_CODE, is_ending, received};
use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
use nix::sys::signal::Signal;
use signal_hook::consts::{SIGBUS, SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::{flag, low_level};
use std::os::raw::c_int;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time between two attempts to wake the line editor.
const PATIENCE: Duration = Duration::from_millis(20);

pub fn listen() {
    // With any handler for SIGXFSZ, a write beyond the file size limit (`ulimit -f`) fails with an error, as on a full disk.
    if let Err(e) = flag::register(SIGXFSZ, Arc::default()) {
        log::warn!("a write beyond the limit on file sizes will end the program without a message: {e}");
    }
    // Under `nohup`, SIGHUP is ignored from the start, and stays ignored.
    let wanted: Vec<c_int> = if is_ignored(SIGHUP) { vec![SIGINT, SIGTERM] } else { vec![SIGINT, SIGTERM, SIGHUP] };
    let listening = Signals::new(&wanted).and_then(|mut signals| {
        let listen = move || {
            for signal in signals.forever() {
                received(signal);
                if is_ending() {
                    wake_editor();
                }
            }
        };
        std::thread::Builder::new().name("signals".into()).stack_size(256 << 10).spawn(listen).map(drop)
    });
    if let Err(e) = listening {
        log::warn!("signals end the program at once and save nothing: {e}");
        for signal in wanted {
            let _ = flag::register_conditional_shutdown(signal, EXIT_CODE, Arc::new(AtomicBool::new(true)));
        }
    }
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: without a new action, `sigaction` only writes the current action to `present`, which outlives the call. All zeros are a valid
    // `sigaction`.
    unsafe {
        let mut present: nix::libc::sigaction = std::mem::zeroed();
        nix::libc::sigaction(signal, std::ptr::null(), &mut present) == 0 && present.sa_sigaction == nix::libc::SIG_IGN
    }
}

/// The thread that waits in the line editor. Stored as a number, because `Pthread` is a pointer on some systems.
static WAITING: Mutex<Option<usize>> = Mutex::new(None);

fn waiting() -> MutexGuard<'static, Option<usize>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While this value exists, its thread is marked as waiting in the line editor. If the program must end, the marked thread receives SIGINT.
/// The editor then restores the terminal and returns.
pub struct EditorWait;

impl EditorWait {
    pub fn begin() -> EditorWait {
        *waiting() = Some(pthread_self() as usize);
        EditorWait
    }
}

impl Drop for EditorWait {
    fn drop(&mut self) {
        *waiting() = None;
    }
}

/// Wakes the line editor again and again until the process ends, because the editor misses a signal that arrives just before it waits. No
/// further signals are handled.
fn wake_editor() -> ! {
    loop {
        // The marked thread still runs: it cannot remove its mark while this lock is held.
        if let Some(thread) = *waiting() {
            let _ = pthread_kill(thread as Pthread, Signal::SIGINT);
        }
        std::thread::sleep(PATIENCE);
    }
}

/// Installs a handler that ends the process with a message if a mapped file becomes shorter. A read beyond the file's end raises SIGBUS,
/// after which the program cannot continue.
pub fn catch_cut_files() {
    use std::io::Write;
    use std::mem::ManuallyDrop;
    use std::os::fd::FromRawFd;

    const MESSAGE: &[u8] = b"error: the model file became shorter while in use (restore the file and start again)\n";
    let end = || {
        // SAFETY: file descriptor 2 is borrowed and never closed. An unbuffered write is one system call.
        let mut stderr = ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(2) });
        let _ = stderr.write(MESSAGE);
        low_level::exit(1);
    };
    // SAFETY: the handler allocates nothing, takes no lock and does not return. It calls only `write` and `_exit`, which a handler may
    // call.
    if let Err(e) = unsafe { low_level::register(SIGBUS, end) } {
        log::warn!("a model file that is cut while in use will end the program without a message: {e}");
    }
}
