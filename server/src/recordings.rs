//! Recordings: answers that survive their connection. The server reads such an answer to its end and keeps its events. A client that reconnects
//! continues after the last event that it has seen.

use super::budget::Claim;
use super::failure::Answer;
use axum::http::StatusCode;
use futures_util::Stream;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use wingbeat::error::Error;
use wingbeat::low_level::front_end::short;

/// The time for which a complete recording is kept.
const KEPT: Duration = Duration::from_secs(600);
/// An answer that nobody has read for this time is stopped.
const PATIENCE: Duration = Duration::from_secs(300);
/// The most recordings of one key.
const MOST: usize = 64;
/// The most bytes of one recording. A longer recording loses its oldest events.
const MAX_BYTES: usize = 8 << 20;
/// The most bytes of all complete recordings of one key. If they have more bytes, the recordings that ended first are removed.
const MAX_KEPT_BYTES: usize = 32 << 20;

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEvent {
    pub name: Option<String>,
    pub data: String,
}

/// All recordings, by the namespace of their key and their id.
#[derive(Default)]
pub struct Recordings(Mutex<HashMap<(String, String), Arc<Recording>>>);

/// The events of one answer so far.
pub struct Recording {
    buffered: Mutex<BufferedEvents>,
    /// Wakes the readers.
    changed: Notify,
    /// Counts the bytes of the events against the memory of requests.
    claim: Claim,
}

struct BufferedEvents {
    events: VecDeque<StreamEvent>,
    /// The number of events that were dropped from the beginning of `events`.
    n_dropped: usize,
    n_bytes: usize,
    /// The time at which the answer ended. `None` while the answer is being generated.
    ended: Option<Instant>,
    n_readers: usize,
    /// The time at which the last reader left.
    left: Instant,
    is_stopped: bool,
}

/// Counts as a reader of a recording until dropped.
struct ReaderGuard(Arc<Recording>);

impl Recordings {
    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), Arc<Recording>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the recording of an answer with this id, and removes expired recordings. `claim` counts the bytes of the events.
    pub fn begin(&self, namespace: &str, id: &str, claim: Claim) -> Arc<Recording> {
        self.sweep();
        let mut all = self.lock();
        loop {
            let own = || all.iter().filter(|(key, _)| key.0 == namespace);
            let ended = own().filter_map(|(key, recording)| Some((recording.lock().ended?, key.clone())));
            let n_bytes: usize =
                own().filter(|(_, recording)| recording.lock().ended.is_some()).map(|(_, recording)| recording.lock().n_bytes).sum();
            if own().count() < MOST && n_bytes <= MAX_KEPT_BYTES {
                break;
            }
            // Running answers stay: they hold slots, so there are few.
            let Some((_, first)) = ended.min() else { break };
            all.remove(&first);
        }
        let buffered = BufferedEvents {
            events: VecDeque::new(),
            n_dropped: 0,
            n_bytes: 0,
            ended: None,
            n_readers: 0,
            left: Instant::now(),
            is_stopped: false,
        };
        let recording = Arc::new(Recording { buffered: Mutex::new(buffered), changed: Notify::new(), claim });
        all.insert((namespace.into(), id.into()), recording.clone());
        recording
    }

    /// Removes expired recordings.
    fn sweep(&self) {
        self.lock().retain(|_, recording| !recording.is_over());
    }

    /// Waits until a recording that has just ended need not be kept any longer, and removes it.
    pub async fn forget(&self) {
        tokio::time::sleep(KEPT + Duration::from_secs(1)).await;
        self.sweep();
    }

    /// Returns the recording with this id. Returns `None` if the key has no such recording, or if the recording has expired.
    pub fn get(&self, namespace: &str, id: &str) -> Option<Arc<Recording>> {
        self.sweep();
        self.lock().get(&(namespace.into(), id.into())).cloned()
    }

    /// Removes a recording and stops its answer. Returns false if the key has no such recording.
    pub fn stop(&self, namespace: &str, id: &str) -> bool {
        let removed = self.lock().remove(&(namespace.into(), id.into()));
        if let Some(recording) = &removed {
            recording.lock().is_stopped = true;
            recording.changed.notify_waiters();
        }
        removed.is_some()
    }
}

impl Recording {
    fn lock(&self) -> MutexGuard<'_, BufferedEvents> {
        self.buffered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.lock().ended.is_some_and(|ended| ended.elapsed() > KEPT)
    }

    /// Appends an event. Drops the oldest events if the memory is full. Returns false if the answer must stop because nobody reads it, or because a caller
    /// has stopped it.
    pub fn push(&self, event: StreamEvent) -> bool {
        let mut buffered = self.lock();
        buffered.n_bytes += n_bytes(&event);
        buffered.events.push_back(event);
        while buffered.n_bytes > MAX_BYTES || self.claim.set(buffered.n_bytes).is_err() {
            // The newest event stays, whatever its size.
            let n = (buffered.events.len() / 2).min(buffered.events.len() - 1);
            if n == 0 {
                break;
            }
            buffered.n_bytes -= buffered.events.drain(..n).map(|event| n_bytes(&event)).sum::<usize>();
            buffered.n_dropped += n;
        }
        let is_abandoned = buffered.n_readers == 0 && buffered.left.elapsed() > PATIENCE;
        let goes_on = !is_abandoned && !buffered.is_stopped;
        drop(buffered);
        self.changed.notify_waiters();
        goes_on
    }

    /// Records the end of the answer: no further event follows.
    pub fn end(&self) {
        self.lock().ended.get_or_insert_with(Instant::now);
        self.changed.notify_waiters();
    }

    /// Waits until a caller stops the answer.
    pub async fn stopped(&self) {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if self.lock().is_stopped {
                return;
            }
            changed.await;
        }
    }

    /// Returns the events after the first `n`, each with its number. Events count from 1.
    pub fn read(self: Arc<Self>, n: usize) -> impl Stream<Item = (usize, StreamEvent)> + use<> {
        self.lock().n_readers += 1;
        let guard = ReaderGuard(self);
        futures_util::stream::unfold((guard, n), |(guard, n)| async move {
            let (at, event) = guard.0.event(n).await?;
            Some(((at + 1, event), (guard, at + 1)))
        })
    }

    /// Waits for event number `n`, and returns it with its number. Counts from 0, unlike [`read`](Self::read). If the event was dropped, returns the
    /// first event that is kept. Returns `None` if the answer ended before this event.
    async fn event(&self, n: usize) -> Option<(usize, StreamEvent)> {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            {
                let buffered = self.lock();
                let at = n.max(buffered.n_dropped);
                if let Some(event) = buffered.events.get(at - buffered.n_dropped) {
                    return Some((at, event.clone()));
                }
                if buffered.ended.is_some() || buffered.is_stopped {
                    return None;
                }
            }
            changed.await;
        }
    }
}

/// Returns about how many bytes of memory an event takes.
fn n_bytes(event: &StreamEvent) -> usize {
    event.data.len() + size_of::<StreamEvent>()
}

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        let mut buffered = self.0.lock();
        buffered.n_readers -= 1;
        buffered.left = Instant::now();
    }
}

/// Returns the number of the last event that a client has seen: the header `last-event-id`, or else `after` in the query.
///
/// # Errors
/// 400 if the value is not a number.
pub fn last_seen(headers: &axum::http::HeaderMap, query: &str) -> Answer<usize> {
    let of_header = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("?").to_owned());
    let of_query = || url::form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "after").map(|(_, value)| value.into_owned());
    let Some(text) = of_header.or_else(of_query) else { return Ok(0) };
    let found = || super::failure::Failure::field("after", format!("expected the number of an event, found {:?}", short(&text, 40)));
    text.trim().parse().map_err(|_| found())
}

/// Returns the failure for a recording that is unknown or has expired.
pub fn unknown(id: &str) -> super::failure::Failure {
    let e = Error::input(format!("unknown or expired answer {:?}", short(id, 100)));
    let e = e.hint("only answers to requests with `stream` and `resumable` are kept, for 10 minutes after their end");
    super::failure::Failure::new(StatusCode::NOT_FOUND, "answer_not_found", e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use futures_util::StreamExt;

    fn event(text: &str) -> StreamEvent {
        StreamEvent { name: None, data: text.into() }
    }

    #[tokio::test]
    async fn a_reader_that_comes_back_misses_nothing() {
        let (all, budget) = (Recordings::default(), Budget::new(1 << 20, 1));
        let recording = all.begin("a", "x", budget.claim("a"));
        assert!(recording.push(event("1")) && recording.push(event("2")));
        let mut first = std::pin::pin!(recording.clone().read(0));
        assert_eq!(first.next().await, Some((1, event("1"))));
        assert!(all.get("b", "x").is_none() && all.get("a", "y").is_none());
        let again = all.get("a", "x").unwrap().read(1);
        let reader = tokio::spawn(again.collect::<Vec<_>>());
        assert!(recording.push(event("3")));
        recording.end();
        assert_eq!(reader.await.unwrap(), [(2, event("2")), (3, event("3"))]);
        assert_eq!(first.collect::<Vec<_>>().await.len(), 2);
        assert!(recording.claim.n_bytes() > 0);
    }

    #[tokio::test]
    async fn an_answer_stops_when_it_must() {
        let (all, budget) = (Recordings::default(), Budget::new(1000, 1));
        let recording = all.begin("a", "x", budget.claim("a"));
        let stopped = tokio::spawn({
            let recording = recording.clone();
            async move { recording.stopped().await }
        });
        assert!(all.stop("a", "x") && !all.stop("a", "x"));
        stopped.await.unwrap();
        assert!(!recording.push(event("1")));
        assert_eq!(recording.read(5).count().await, 0);
        // If memory is short, the oldest events are dropped. A reader then continues with the oldest event that is kept.
        let other = budget.claim("a");
        other.set(400).unwrap();
        let full = all.begin("a", "y", budget.claim("a"));
        assert!((0..20).all(|i| full.push(event(&format!("{i} {}", "a".repeat(100))))));
        full.end();
        let left: Vec<usize> = full.clone().read(0).map(|(number, _)| number).collect().await;
        assert!(left.len() < 10 && left.last() == Some(&20) && left.windows(2).all(|pair| pair[1] == pair[0] + 1), "{left:?}");
    }

    #[test]
    fn complete_recordings_make_room() {
        let (all, budget) = (Recordings::default(), Budget::new(1 << 20, 1));
        let first = all.begin("a", "0", budget.claim("a"));
        for i in 1..MOST {
            all.begin("a", &i.to_string(), budget.claim("a")).end();
        }
        all.begin("a", "new", budget.claim("a"));
        assert!(all.get("a", "0").is_some() && all.get("a", "1").is_none() && all.get("a", "2").is_some());
        first.end();
        first.lock().ended = Instant::now().checked_sub(KEPT + Duration::from_secs(1));
        assert!(first.lock().ended.is_none() || all.get("a", "0").is_none());
    }
}
