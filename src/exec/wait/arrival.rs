//! Connects a browser's callback to a future: the callback wakes the waiting task.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// An event that happens once, and the task that waits for it.
#[derive(Clone, Default)]
pub struct Arrival(Arc<Mutex<ArrivalState>>);

#[derive(Default)]
struct ArrivalState {
    has_arrived: bool,
    waker: Option<Waker>,
}

impl Arrival {
    /// Records the event and wakes the waiting task.
    pub fn arrive(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.has_arrived = true;
        let waker = state.waker.take();
        // The woken task may poll at once, and polling takes the lock. So the lock is released first.
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Returns `Ready` once the event has happened. Until then, stores the task of `context` in place of an earlier task.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.has_arrived {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::Wake;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn the_waiting_task_is_woken_once_and_then_ready() {
        let (arrival, count) = (Arrival::default(), Arc::new(Count(AtomicUsize::new(0))));
        let waker = Waker::from(count.clone());
        let mut context = Context::from_waker(&waker);
        assert_eq!(arrival.poll(&mut context), Poll::Pending);
        assert_eq!(arrival.poll(&mut context), Poll::Pending);
        arrival.clone().arrive();
        assert_eq!((count.0.load(Relaxed), arrival.poll(&mut context)), (1, Poll::Ready(())));
        arrival.arrive();
        assert_eq!(count.0.load(Relaxed), 1);
    }
}
