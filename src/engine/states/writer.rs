//! The thread that writes the files of named states, so that the engine's thread does not wait for the disk.

use super::{Inner, Key, State, StateInfo};
use crate::error::{Error, Result};
use crate::exec::wait::{block_on, receive};
use crate::session::caught;
use async_channel::{Receiver, Sender};
use std::fs;
use std::sync::Arc;

/// The maximum number of states that wait to be written. A waiting state is in host memory.
const MAX_WAITING: usize = 8;

/// The handle of the thread that writes the files.
pub struct Writer {
    inner: Arc<Inner>,
    jobs: Sender<WriteJob>,
}

struct WriteJob {
    key: Key,
    /// The number of this write. `Held::writing` has the number of the latest write of each state.
    number: u64,
    state: Arc<State>,
    info: StateInfo,
    saved: Sender<Result<StateInfo>>,
}

impl Writer {
    /// Starts the thread. The thread ends when the writer is dropped and all files are written.
    ///
    /// # Errors
    /// `Memory` if the thread cannot be started.
    pub fn start(inner: Arc<Inner>, wake: Sender<()>) -> Result<Writer> {
        let (jobs, inbox) = async_channel::bounded(MAX_WAITING);
        let shared = inner.clone();
        let thread = std::thread::Builder::new().name("states".into()).spawn(move || run(&shared, &inbox, &wake));
        thread.map_err(|e| Error::memory(format!("the thread that writes states could not be started: {e}")).caused_by(e))?;
        Ok(Writer { inner, jobs })
    }

    /// Queues a state. Blocks while the queue is full. `saved` receives the result.
    pub fn write(&self, key: Key, state: Arc<State>, info: StateInfo, saved: Sender<Result<StateInfo>>) {
        let mut held = self.inner.lock();
        held.clock += 1;
        let number = held.clock;
        held.writing.insert(key.clone(), (state.clone(), number));
        drop(held);
        let job = WriteJob { key, number, state, info, saved };
        let sent = async { self.jobs.send(job).await.map_err(|_| Error::device("the thread that writes states has ended")) };
        block_on(sent).expect("the thread ends after the writer");
    }
}

fn run(inner: &Inner, inbox: &Receiver<WriteJob>, wake: &Sender<()>) {
    while let Ok(Some(WriteJob { key, number, state, info, saved })) = receive(inbox) {
        #[cfg(test)]
        drop(inner.gate.lock());
        let written = caught(|| write(inner, &key, &state));
        let mut held = inner.lock();
        if held.writing.get(&key).is_some_and(|(_, last)| *last == number) {
            held.writing.remove(&key);
        }
        let kept = written.and_then(|()| inner.hold(&mut held, key, state));
        drop(held);
        inner.written.notify_all();
        // The error is ignored, because the caller may have stopped waiting.
        let _ = saved.try_send(kept.map(|()| info));
        let _ = wake.try_send(());
    }
}

fn write(inner: &Inner, (namespace, name): &Key, state: &State) -> Result<()> {
    let Some(path) = inner.path(namespace, name) else { return Ok(()) };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|e| Error::io(e, folder))?;
    }
    state.save(&inner.model, &path)
}
