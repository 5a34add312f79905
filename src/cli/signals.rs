//! Handles signals. Ctrl-C, SIGTERM and SIGHUP end the program with exit code 130.
//!
//! A verb that can stop does so at the first signal and saves its files. All other verbs end at once; a second Ctrl-C ends every verb at
//! once. No temporary file remains. Two more signals become errors: a write beyond the limit on file sizes, and a mapped file that gets
//! shorter.

#[cfg(unix)]
mod unix;

use crate::weights::new_file::remove_unfinished;
use signal_hook::consts::SIGINT;
use std::os::raw::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
#[cfg(unix)]
pub use unix::{Waiting, catch_cut_files};

const EXIT_CODE: c_int = 130;

/// The stop flag of the running verb, if the verb can stop.
static STOP: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);

/// The work of a verb before a signal ends the program at once.
type Last = Box<dyn FnOnce() + Send>;
static LAST: Mutex<Option<Last>> = Mutex::new(None);

/// True after SIGTERM or SIGHUP.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Starts a thread that waits for signals. Must be called before the first file is written.
pub fn listen() {
    #[cfg(unix)]
    unix::listen();
    #[cfg(not(unix))]
    poll();
}

/// Sets `stop` at the first signal from now on. The second Ctrl-C ends the program at once, unless `stop` was reset.
pub fn stop_on_interrupt(stop: &Arc<AtomicBool>) {
    *STOP.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop.clone());
}

/// Runs `last` on the signal thread before a signal ends the program at once, to print results that the verb holds. Other signals wait until
/// `last` has returned.
pub fn before_the_end(last: impl FnOnce() + Send + 'static) {
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(last));
}

/// Returns whether the program must end, not only the present answer.
pub fn is_ending() -> bool {
    IS_ENDING.load(Ordering::SeqCst)
}

/// Handles a signal on the signal thread.
fn received(signal: c_int) {
    // The terminal and the shell may both send SIGHUP, and SIGTERM may follow: only Ctrl-C counts.
    let is_first_end = signal != SIGINT && !IS_ENDING.swap(true, Ordering::SeqCst);
    let stop = STOP.lock().unwrap_or_else(PoisonError::into_inner);
    let ends_by_itself = stop.as_ref().is_some_and(|stop| !stop.swap(true, Ordering::SeqCst) || is_first_end || is_ending());
    if !ends_by_itself {
        remove_unfinished();
        let last = LAST.lock().unwrap_or_else(PoisonError::into_inner).take();
        last.into_iter().for_each(|last| last());
        // Not `std::process::exit`: other threads still use what the exit handlers of drivers would free.
        signal_hook::low_level::exit(EXIT_CODE);
    }
}

/// Looks for Ctrl-C every 50 ms.
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

/// A mark that this thread waits in the line editor. Only terminals of Unix are closed with a signal.
#[cfg(not(unix))]
pub struct Waiting;

#[cfg(not(unix))]
impl Waiting {
    pub fn begin() -> Waiting {
        Waiting
    }
}

/// Does nothing: mapped files cannot be shortened here.
#[cfg(not(unix))]
pub fn catch_cut_files() {}
