//! How long a server may take. A hostile server could keep a connection open for ever with one byte per minute, or with headers that never end.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;
use ureq::Agent;
use wingbeat::low_level::front_end::size;

/// How long a server may take, and how many bytes it must send in that time.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The longest time without a byte, and the longest time until all headers of an answer are there.
    pub silence: Duration,
    /// The longest time for a list of files.
    pub list: Duration,
    /// The time over which the rate of a download is averaged.
    pub window: Duration,
    /// The number of a file's bytes that must arrive in each window. Even a modem is faster.
    pub least_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        let seconds = Duration::from_secs;
        Limits { silence: seconds(60), list: seconds(600), window: seconds(60), least_bytes: 60_000 }
    }
}

/// A reader of a file's bytes that ends if the bytes arrive too slowly. A separate thread watches the rate, because a read does not return while
/// the server sends trailers.
pub struct Watched {
    reader: Box<dyn Read>,
    count: Arc<Count>,
    limits: Limits,
    /// Ends the thread when it is dropped.
    _alive: Sender<()>,
}

#[derive(Default)]
struct Count {
    bytes: AtomicU64,
    is_slow: AtomicBool,
}

impl Watched {
    /// Watches `reader`, which is an answer to the only request of `agent`: a slow answer shuts the agent down.
    ///
    /// # Errors
    /// The system's error if the watching thread cannot be started.
    pub fn new(reader: Box<dyn Read>, agent: Agent, limits: Limits) -> io::Result<Watched> {
        let (alive, end) = mpsc::channel();
        let count = Arc::new(Count::default());
        let watched = count.clone();
        thread::Builder::new().name("download rate".into()).spawn(move || {
            let mut before = 0;
            while end.recv_timeout(limits.window) == Err(RecvTimeoutError::Timeout) {
                let bytes = watched.bytes.load(Ordering::Relaxed);
                if bytes - before < limits.least_bytes {
                    watched.is_slow.store(true, Ordering::SeqCst);
                    return agent.shutdown();
                }
                before = bytes;
            }
        })?;
        Ok(Watched { reader, count, limits, _alive: alive })
    }

    /// Returns the reason if the thread has ended a slow answer, or `None` if the answer was fast enough.
    pub fn too_slow(&self) -> Option<String> {
        let Limits { window, least_bytes, .. } = self.limits;
        let is_slow = self.count.is_slow.load(Ordering::SeqCst);
        is_slow.then(|| format!("less than {} arrived in {} s", size(least_bytes), window.as_secs_f64()))
    }
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(buffer)?;
        self.count.bytes.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}
