//! The thread of an engine. Dropping the last handle waits until the thread has ended.
//!
//! The thread frees the session's device memory when it ends. If the program ended before, the driver's exit handlers would free memory that the
//! driver still uses on this thread, and the process would die by SIGSEGV.

use crate::error::{Error, Result};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest wait for the end of the thread. The thread may write the prefix cache to files. Only a driver that hangs takes longer than this.
const PATIENCE: Duration = Duration::from_secs(60);

/// The thread of an engine. All handles of the engine and all generations share this value. When it is dropped, no request is left, so the thread
/// ends after its current step.
#[derive(Debug, Default)]
pub struct EngineThread(Mutex<Option<Started>>);

#[derive(Debug)]
struct Started {
    handle: JoinHandle<()>,
    /// Disconnected when the thread's work is done.
    ended: Receiver<()>,
}

impl EngineThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// `Memory` if the system cannot start the thread.
    pub fn start(&self, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let (working, ended) = channel();
        let work = move || {
            work();
            drop(working);
        };
        let handle = std::thread::Builder::new().name("engine".into()).spawn(work);
        let handle = handle.map_err(|e| Error::memory(format!("cannot start the engine's thread: {e}")).caused_by(e))?;
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(Started { handle, ended });
        Ok(())
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        let Some(Started { handle, ended }) = self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take() else { return };
        // A request's constraint may own the last handle, and the engine's thread may drop it. A thread cannot wait for itself.
        if handle.thread().id() == std::thread::current().id() {
            return;
        }
        match ended.recv_timeout(PATIENCE) {
            Err(RecvTimeoutError::Timeout) => {
                log::warn!("the engine's thread still runs after {} s; the driver may hang", PATIENCE.as_secs())
            }
            // The thread's own destructors may still run, among them the driver's.
            Ok(()) | Err(RecvTimeoutError::Disconnected) => drop(handle.join()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn the_last_handle_waits_for_the_thread() {
        let (thread, is_done) = (Arc::new(EngineThread::default()), Arc::new(AtomicBool::new(false)));
        let (other, done) = (thread.clone(), is_done.clone());
        let (go, may_end) = channel();
        let work = move || {
            let _: std::result::Result<(), _> = may_end.recv();
            std::thread::sleep(Duration::from_millis(30));
            done.store(true, Ordering::SeqCst);
        };
        thread.start(work).unwrap();
        drop(other);
        assert!(!is_done.load(Ordering::SeqCst));
        drop(go);
        drop(thread);
        assert!(is_done.load(Ordering::SeqCst));
    }
}
