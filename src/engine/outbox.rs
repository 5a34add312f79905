//! The queue of a request's events, from the engine to its reader. The queue counts its bytes, so that the engine can pause a request with a slow
//! reader.

use super::Event;
use crate::error::{Error, Result};
use crate::exec::wait::receive;
use async_channel::{Receiver, Sender};
use futures_core::Stream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

/// Returns the two ends of a new queue. The engine pauses the request when the queue holds `max_bytes` of events. `wake` receives a message when the
/// reader has emptied the queue to half of `max_bytes`, and when the reader is dropped.
pub fn queue(max_bytes: usize, wake: Sender<()>) -> (Outbox, Reader) {
    let (sender, receiver) = async_channel::unbounded();
    let bytes = Arc::new(AtomicUsize::new(0));
    let max_bytes = max_bytes.max(1);
    (Outbox { sender, bytes: bytes.clone(), max_bytes }, Reader { receiver: Box::pin(receiver), bytes, max_bytes, wake })
}

/// The engine's end of a queue.
#[derive(Debug, Clone)]
pub struct Outbox {
    sender: Sender<Result<Event>>,
    /// The size, in bytes, of the events that the reader has not taken yet.
    bytes: Arc<AtomicUsize>,
    max_bytes: usize,
}

impl Outbox {
    /// Adds an event, even if the queue is full: the engine pauses the request before its next step. Drops the event if the reader is gone.
    pub fn send(&self, event: Event) {
        // The bytes are counted before the event is sent, because the reader may take the event at once.
        self.bytes.fetch_add(event.n_bytes(), Ordering::SeqCst);
        let _ = self.sender.try_send(Ok(event));
    }

    /// Ends the request with an error.
    pub fn fail(&self, e: Error) {
        let _ = self.sender.try_send(Err(e));
    }

    /// Returns whether the reader was dropped.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Returns whether the request should pause. `is_paused` is true if the request is paused now. A request pauses when its queue is full, and
    /// resumes when its queue is at most half full.
    pub fn should_pause(&self, is_paused: bool) -> bool {
        let bytes = self.bytes.load(Ordering::SeqCst);
        if is_paused { bytes > self.max_bytes / 2 } else { bytes >= self.max_bytes }
    }
}

/// The reader's end of a queue.
#[derive(Debug)]
pub struct Reader {
    receiver: Pin<Box<Receiver<Result<Event>>>>,
    bytes: Arc<AtomicUsize>,
    max_bytes: usize,
    wake: Sender<()>,
}

impl Reader {
    /// Blocks until the next event. Returns `None` after the last event.
    ///
    /// # Errors
    /// In a browser, returns an error and ends the request if the next event is not there yet.
    pub fn recv(&mut self) -> Option<Result<Event>> {
        match receive(&self.receiver) {
            Ok(event) => event.map(|event| self.taken(event)),
            Err(e) => {
                self.receiver.close();
                Some(Err(e))
            }
        }
    }

    /// Polls for the next event. The result is `None` after the last event.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Event>>> {
        let event = ready!(self.receiver.as_mut().poll_next(context));
        Poll::Ready(event.map(|event| self.taken(event)))
    }

    fn taken(&self, event: Result<Event>) -> Result<Event> {
        let n = event.as_ref().map_or(0, Event::n_bytes);
        let before = self.bytes.fetch_sub(n, Ordering::SeqCst);
        if n > 0 && (before - n..before).contains(&(self.max_bytes / 2)) {
            // The channel has room for one message, and one message is enough to wake the engine.
            let _ = self.wake.try_send(());
        }
        event
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.receiver.close();
        let _ = self.wake.try_send(());
    }
}
