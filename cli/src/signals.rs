//! Handles signals. Ctrl-C, SIGTERM and SIGHUP end the program with exit code 130.
//!
//! Some subcommands can stop early: at the first signal they save their files and end, and a second Ctrl-C ends them at once. All other subcommands
//! end at the first signal. No temporary file remains.

#[cfg(unix)]
mod unix;

use signal_hook::consts::SIGINT;
use std::os::raw::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
#[cfg(unix)]
pub use unix::{EditorWait, catch_cut_files};
use wingbeat::low_level::weights::new_file::remove_unfinished;

const EXIT_CODE: c_int = 130;

/// The flag that asks the running subcommand to stop, and the thread that checks the flag. `None` if the subcommand cannot stop.
static STOP: Mutex<Option<(Arc<AtomicBool>, Thread)>> = Mutex::new(None);

/// A function of the running subcommand that is called before a signal ends the program at once.
type Last = Box<dyn FnOnce() + Send>;
static LAST: Mutex<Option<Last>> = Mutex::new(None);

/// True after SIGTERM or SIGHUP: the program must end.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Starts the thread that waits for signals. Must be called before the first file is written, so that a signal leaves no temporary file behind.
pub fn listen() {
    #[cfg(unix)]
    unix::listen();
    #[cfg(not(unix))]
    poll();
}

/// Makes later signals set `stop` and unpark the calling thread, instead of ending the program. If `stop` is already set, Ctrl-C ends the program at
/// once, unless SIGTERM or SIGHUP has come before.
pub fn stop_on_interrupt(stop: &Arc<AtomicBool>) {
    *STOP.lock().unwrap_or_else(PoisonError::into_inner) = Some((stop.clone(), std::thread::current()));
}

/// Returns a new flag for [`stop_on_interrupt`].
pub fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::default();
    stop_on_interrupt(&stop);
    stop
}

/// Registers `last`, for example to print results. If a signal ends the program at once, `last` is called first. `last` runs on the signal thread.
/// Other signals wait until `last` returns.
pub fn before_the_end(last: impl FnOnce() + Send + 'static) {
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(last));
}

/// Returns whether SIGTERM or SIGHUP asked the program to end. Ctrl-C does not count, because a chat can continue after Ctrl-C has stopped
/// an answer.
pub fn is_ending() -> bool {
    IS_ENDING.load(Ordering::SeqCst)
}

/// Handles a signal. Runs on the signal thread.
fn received(signal: c_int) {
    // Terminal and shell may both send SIGHUP, and SIGTERM may follow. So these signals never cut short a subcommand that can stop by itself.
    let is_first_end = signal != SIGINT && !IS_ENDING.swap(true, Ordering::SeqCst);
    let stop = STOP.lock().unwrap_or_else(PoisonError::into_inner);
    let ends_by_itself = stop.as_ref().is_some_and(|(stop, _)| !stop.swap(true, Ordering::SeqCst) || is_first_end || is_ending());
    stop.iter().for_each(|(_, thread)| thread.unpark());
    if !ends_by_itself {
        remove_unfinished();
        let last = LAST.lock().unwrap_or_else(PoisonError::into_inner).take();
        last.into_iter().for_each(|last| last());
        // `std::process::exit` would run the exit handlers of drivers, which free memory that other threads still use.
        signal_hook::low_level::exit(EXIT_CODE);
    }
}

/// Starts a thread that checks every 50 ms whether Ctrl-C was pressed.
#[cfg(not(unix))]
fn poll() {
    let interrupted = Arc::new(AtomicBool::new(false));
    let watch = interrupted.clone();
    let spawned = std::thread::Builder::new().name("signals".into()).spawn(move || {
        loop {
            std::thread::sleep(std::time::Duration::from_millis(50));
            if watch.swap(false, Ordering::SeqCst) {
                received(SIGINT);
            }
        }
    });
    if let Err(e) = spawned.map(drop).and_then(|()| signal_hook::flag::register(SIGINT, interrupted).map(drop)) {
        log::warn!("Ctrl-C ends the program at once and saves nothing: {e}");
    }
}

/// Does nothing here. On Unix, marks the thread that waits in the line editor, because a signal must wake this thread.
#[cfg(not(unix))]
pub struct EditorWait;

#[cfg(not(unix))]
impl EditorWait {
    pub fn begin() -> EditorWait {
        EditorWait
    }
}

/// Does nothing: a mapped file cannot be shortened on this system.
#[cfg(not(unix))]
pub fn catch_cut_files() {}
