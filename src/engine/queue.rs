//! Counts the requests that wait for slots, and bounds their number: for all callers together, and for the callers of one namespace.

use crate::error::{Error, Kind, Result};
use std::collections::HashMap;

/// The bounds of a queue.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The maximum number of waiting requests of all callers together.
    pub all: usize,
    /// The maximum number of waiting requests of one namespace.
    pub per_namespace: usize,
}

/// Counts of waiting requests. A request waits from its submission until it gets slots or its reader leaves.
#[derive(Debug, Default)]
pub struct Queue {
    n_waiting: usize,
    /// The number of waiting requests of each namespace. Namespaces without waiting requests have no entry.
    of_namespace: HashMap<String, usize>,
}

impl Queue {
    /// Returns the number of waiting requests.
    pub fn len(&self) -> usize {
        self.n_waiting
    }

    /// Checks that one more request of a namespace may wait. Does not count `n_free` of the waiting requests, because the free slots will soon take
    /// these requests.
    ///
    /// # Errors
    /// `Busy` if one of the bounds is reached. The message says which bound.
    pub fn check(&self, namespace: &str, n_free: usize, bounds: Bounds) -> Result<()> {
        let waiting = self.n_waiting.saturating_sub(n_free);
        if waiting >= bounds.all {
            return Err(Error::new(Kind::Busy, format!("the queue is full: {waiting} requests are waiting")).hint("try again later"));
        }
        let own = self.of_namespace.get(namespace).map_or(0, |n| n.saturating_sub(n_free));
        if own >= bounds.per_namespace {
            let text = format!("the queue has no more room for this caller: {own} requests of the caller are waiting");
            return Err(Error::new(Kind::Busy, text).hint("try again when some of these requests have ended"));
        }
        Ok(())
    }

    /// Counts a request that begins to wait.
    pub fn enter(&mut self, namespace: &str) {
        self.n_waiting += 1;
        *self.of_namespace.entry(namespace.into()).or_default() += 1;
    }

    /// Counts a request that no longer waits.
    pub fn leave(&mut self, namespace: &str) {
        self.n_waiting = self.n_waiting.saturating_sub(1);
        let Some(n) = self.of_namespace.get_mut(namespace) else { return };
        *n -= 1;
        if *n == 0 {
            self.of_namespace.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_a_bound_within_the_queue() {
        let (mut queue, bounds) = (Queue::default(), Bounds { all: 5, per_namespace: 2 });
        let enter = |queue: &mut Queue, namespace: &str, n_free| {
            queue.check(namespace, n_free, bounds).map(|()| queue.enter(namespace)).map_err(|e| e.message)
        };
        let full = Err("the queue has no more room for this caller: 2 requests of the caller are waiting".into());
        assert_eq!(
            ["a", "a", "a", "b", "b", "b"].map(|namespace| enter(&mut queue, namespace, 0)),
            [Ok(()), Ok(()), full.clone(), Ok(()), Ok(()), full.clone()]
        );
        // Two free slots will soon take two of the requests.
        assert_eq!(["a", "a", "a"].map(|namespace| enter(&mut queue, namespace, 2)), [Ok(()), Ok(()), full]);
        assert_eq!(enter(&mut queue, "c", 0), Err("the queue is full: 6 requests are waiting".into()));
        queue.leave("b");
        queue.leave("b");
        assert_eq!((queue.len(), queue.of_namespace.len(), enter(&mut queue, "c", 0)), (4, 1, Ok(())));
    }
}
