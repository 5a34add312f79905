//! The caller's end of a request.

#[cfg(not(target_arch = "wasm32"))]
use super::Completion;
use super::Event;
use super::outbox::Reader;
use crate::error::Error;
#[cfg(not(target_arch = "wasm32"))]
use crate::error::Result;
use futures_core::Stream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Events of one request, in order. `for event in generation` blocks until the next one; as a [`Stream`] it is awaited. It ends after the
/// last continuation's [`Event::Done`], or after [`Event::Failed`]. Dropping it cancels the request and frees its slots within one step.
#[derive(Debug)]
pub struct Generation {
    events: Reader,
    /// Continuations that have not ended.
    n_left: usize,
}

impl Generation {
    pub(super) fn new(events: Reader, n: usize) -> Generation {
        Generation { events, n_left: n }
    }

    /// Blocks until the next event. `None` after the last one.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn recv(&mut self) -> Option<Event> {
        let event = self.events.recv();
        self.seen(event)
    }

    /// Waits for the end. Returns all continuations, by index.
    ///
    /// # Errors
    /// The request's own; `Device` if the engine ended before the request did.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn wait(mut self) -> Result<Vec<Completion>> {
        let mut all = Vec::new();
        while let Some(event) = self.recv() {
            match event {
                Event::Done(completion) => all.push(*completion),
                Event::Failed(e) => return Err(e),
                _ => {}
            }
        }
        all.sort_by_key(|completion| completion.index);
        Ok(all)
    }

    /// Counts the continuations that ended. An engine that ends before them is an error.
    fn seen(&mut self, event: Option<Event>) -> Option<Event> {
        match &event {
            Some(Event::Done(_)) => self.n_left = self.n_left.saturating_sub(1),
            Some(Event::Failed(_)) => self.n_left = 0,
            None if self.n_left > 0 => {
                self.n_left = 0;
                return Some(Event::Failed(Error::device("the engine ended before the request did")));
            }
            _ => {}
        }
        event
    }
}

/// Blocks until each next event.
#[cfg(not(target_arch = "wasm32"))]
#[derive(Debug)]
pub struct Events(Generation);

#[cfg(not(target_arch = "wasm32"))]
impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.0.recv()
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl IntoIterator for Generation {
    type Item = Event;
    type IntoIter = Events;

    fn into_iter(self) -> Events {
        Events(self)
    }
}

impl Stream for Generation {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let event = ready!(self.events.poll_next(context));
        Poll::Ready(self.seen(event))
    }
}
