//! The caller's end of a request.

use super::{Completion, Event};
use crate::error::{Error, Result};
use async_channel::Receiver;
use futures_core::Stream;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Events of one request, in order: an iterator that waits for the next one, and a [`Stream`] for those who await. Ends behind the last
/// continuation's [`Event::Done`], or behind [`Event::Failed`]. Dropping it cancels the request and frees its slots within one step.
#[derive(Debug)]
pub struct Generation {
    events: Pin<Box<Receiver<Event>>>,
}

impl Generation {
    pub(super) fn new(events: Receiver<Event>) -> Generation {
        Generation { events: Box::pin(events) }
    }

    /// Waits for the end. Returns all continuations, by index.
    ///
    /// # Errors
    /// The request's own; `Device` if the engine ended before the request did.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn wait(self) -> Result<Vec<Completion>> {
        let mut all = Vec::new();
        for event in self {
            match event {
                Event::Done(completion) => all.push(*completion),
                Event::Failed(e) => return Err(e),
                _ => {}
            }
        }
        if all.is_empty() {
            return Err(Error::device("the engine ended before the request did"));
        }
        all.sort_by_key(|completion| completion.index);
        Ok(all)
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl Iterator for Generation {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.events.recv_blocking().ok()
    }
}

impl Stream for Generation {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.events.as_mut().poll_next(context)
    }
}
