//! The handle through which a caller receives the events of a request.

use super::outbox::Reader;
use super::thread::EngineThread;
use super::{Completion, Event};
use crate::error::{Error, Result};
use crate::sample::Sampling;
use futures_core::Stream;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The events of one request, in order. `for event in generation` blocks until the next event. As a [`Stream`], a generation yields the same events
/// without blocking. The last item is the last continuation's [`Event::Done`], or the error with which the request failed. So a reader can tell a
/// complete text from a lost device. Dropping a generation cancels its request and frees the slots within one step.
#[derive(Debug)]
pub struct Generation {
    pub(super) events: Reader,
    /// The number of continuations that are not complete.
    pub(super) n_left: usize,
    pub(super) n_tokens: usize,
    pub(super) sampling: Sampling,
    /// Must be the last field, because fields are dropped in order: the thread can end only after the drop of `events` has cancelled the request.
    pub(super) _thread: Arc<EngineThread>,
}

impl Generation {
    /// Returns the number of input tokens: the tokens of the prompt or, if the request asks for vectors, classes or scores, of all texts together.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Returns the sampler settings with which the request runs: the settings that the request sets, and the model's defaults for all others.
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// Blocks until the next event. Returns `None` after the last event.
    pub fn recv(&mut self) -> Option<Result<Event>> {
        let event = self.events.recv();
        self.seen(event)
    }

    /// Blocks until all continuations are complete. Returns the continuations in the order of their indices.
    ///
    /// # Errors
    /// The error with which the request failed. `Device` if the engine ended before the request was complete.
    pub fn wait(mut self) -> Result<Vec<Completion>> {
        let mut all = Vec::new();
        while let Some(event) = self.recv() {
            if let Event::Done(completion) = event? {
                all.push(*completion);
            }
        }
        all.sort_by_key(|completion| completion.index);
        Ok(all)
    }

    /// Blocks until all vectors have arrived, for a request for vectors or classes. Returns the vectors in the order of the texts.
    ///
    /// # Errors
    /// The errors of [`wait`](Self::wait).
    pub fn vectors(self) -> Result<Vec<Vec<f32>>> {
        self.collect(|event| if let Event::Vector { index, vector } = event { Some((index, vector)) } else { None })
    }

    /// Blocks until all scores have arrived, for a request for scores. Returns the logits in the order of the documents.
    ///
    /// # Errors
    /// The errors of [`wait`](Self::wait).
    pub fn scores(self) -> Result<Vec<f32>> {
        self.collect(|event| if let Event::Score { index, logit } = event { Some((index, logit)) } else { None })
    }

    fn collect<T>(self, take: impl Fn(Event) -> Option<(usize, T)>) -> Result<Vec<T>> {
        let mut all = BTreeMap::new();
        for event in self {
            all.extend(take(event?));
        }
        Ok(all.into_values().collect())
    }

    /// Counts complete continuations. Returns `event`, or an error if the engine ended before all continuations were complete.
    fn seen(&mut self, event: Option<Result<Event>>) -> Option<Result<Event>> {
        match &event {
            Some(Ok(Event::Done(_))) => self.n_left = self.n_left.saturating_sub(1),
            Some(Err(_)) => self.n_left = 0,
            None if self.n_left > 0 => {
                self.n_left = 0;
                return Some(Err(Error::device("the engine ended before the request was complete")));
            }
            _ => {}
        }
        event
    }
}

/// An iterator over events. `next` blocks until the next event.
#[derive(Debug)]
pub struct Events(Generation);

impl Iterator for Events {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Result<Event>> {
        self.0.recv()
    }
}

impl IntoIterator for Generation {
    type Item = Result<Event>;
    type IntoIter = Events;

    fn into_iter(self) -> Events {
        Events(self)
    }
}

impl Stream for Generation {
    type Item = Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Event>>> {
        let event = ready!(self.events.poll_next(context));
        Poll::Ready(self.seen(event))
    }
}
