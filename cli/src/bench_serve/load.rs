//! Sends requests from many clients at the same time.

use super::client::Server;
use super::requests::Requests;
use super::statistics::AnswerTimes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use wingbeat::error::Result;

/// The longest time between two calls that show the progress.
const TICK: Duration = Duration::from_millis(200);
/// The pause of a client after a request that failed.
const PAUSE: Duration = Duration::from_millis(100);

/// How many requests a client sends.
#[derive(Debug, Clone, Copy)]
pub enum Amount {
    Requests(usize),
    /// As many requests as begin within this time, at least one.
    Time(Duration),
}

/// The results of the requests of a run so far, or of a complete run.
#[derive(Debug, Default)]
pub struct LoadResults {
    pub answers: Vec<AnswerTimes>,
    /// The errors of the requests that failed.
    pub failures: Vec<String>,
    /// The time since the first request. In a complete run, the time until the last answer.
    pub took: Duration,
}

/// The server under load, and the requests that it receives.
pub struct ServerLoad {
    pub server: Server,
    pub requests: Requests,
    /// The number of requests so far. Each request has a different prompt.
    next: AtomicU64,
}

impl ServerLoad {
    pub fn new(server: Server, requests: Requests) -> ServerLoad {
        ServerLoad { server, requests, next: AtomicU64::new(0) }
    }

    /// Sends one request whose answer has at most `max_tokens` tokens.
    ///
    /// # Errors
    /// The errors of [`Server::complete`].
    pub async fn send(&self, max_tokens: usize) -> Result<AnswerTimes> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        self.server.complete(self.requests.body(index, max_tokens)).await
    }

    /// Sends requests from `clients` clients. Each client sends its next request when its last answer is complete. Calls `show` after each
    /// answer and every 200 ms.
    pub async fn run(
        self: &Arc<ServerLoad>,
        clients: usize,
        amount: Amount,
        max_tokens: usize,
        show: &mut dyn FnMut(&LoadResults),
    ) -> LoadResults {
        let started = Instant::now();
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let mut all = JoinSet::new();
        for _ in 0..clients {
            let (load, sender) = (self.clone(), sender.clone());
            all.spawn(async move {
                let mut n = 0;
                while match amount {
                    Amount::Requests(most) => n < most,
                    Amount::Time(time) => n == 0 || started.elapsed() < time,
                } {
                    n += 1;
                    let result = load.send(max_tokens).await;
                    let has_failed = result.is_err();
                    if sender.send((result, started.elapsed())).is_err() {
                        return;
                    }
                    if has_failed {
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            });
        }
        drop(sender);
        let (mut run, mut ended) = (LoadResults::default(), Duration::ZERO);
        loop {
            match tokio::time::timeout(TICK, receiver.recv()).await {
                Ok(None) => break,
                Ok(Some((result, at))) => {
                    ended = ended.max(at);
                    match result {
                        Ok(answer) => run.answers.push(answer),
                        Err(e) => run.failures.push(e.message),
                    }
                }
                Err(_) => {}
            }
            run.took = started.elapsed();
            show(&run);
        }
        run.took = ended;
        run
    }
}
