//! The open connections. If a new connection finds no place, the oldest idle connection without a key closes. So idle connections cannot keep a caller
//! with a key out.

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// How long a new connection waits for the place of a connection that was asked to leave.
const PATIENCE: Duration = Duration::from_millis(200);

/// The connections that are open, from the oldest to the newest.
pub struct Visitors {
    places: Arc<Semaphore>,
    all: Mutex<Vec<Arc<Visitor>>>,
}

/// An open connection.
#[derive(Default)]
pub struct Visitor {
    /// True after a request has shown a key that the server knows.
    has_key: AtomicBool,
    /// The number of requests whose responses are not complete.
    n_requests: AtomicUsize,
    is_asked_to_leave: AtomicBool,
    leave: Notify,
}

/// The permit of a connection to be open. Dropping it frees the place for another connection.
pub struct ConnectionPermit {
    pub visitor: Arc<Visitor>,
    visitors: Arc<Visitors>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Visitors {
    pub fn new(most: usize) -> Arc<Visitors> {
        Arc::new(Visitors { places: Arc::new(Semaphore::new(most)), all: Mutex::default() })
    }

    /// Waits for a place. If all places are taken, asks an idle connection without a key to leave.
    pub async fn enter(self: Arc<Visitors>) -> ConnectionPermit {
        let permit = match self.places.clone().try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => loop {
                self.make_room();
                // A connection that is asked to leave may be busy by then, so another connection is asked after `PATIENCE`. No code closes the semaphore.
                match tokio::time::timeout(PATIENCE, self.places.clone().acquire_owned()).await {
                    Ok(permit) => break permit.ok(),
                    Err(_) => continue,
                }
            },
        };
        let visitor = Arc::new(Visitor::default());
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(visitor.clone());
        ConnectionPermit { visitor, visitors: self, _permit: permit }
    }

    fn make_room(&self) {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(visitor) = all.iter().find(|visitor| visitor.may_be_asked()) {
            visitor.is_asked_to_leave.store(true, Ordering::SeqCst);
            visitor.leave.notify_one();
        }
    }
}

impl Visitor {
    fn may_be_asked(&self) -> bool {
        let is_free = !self.has_key.load(Ordering::SeqCst) && !self.is_asked_to_leave.load(Ordering::SeqCst);
        is_free && self.n_requests.load(Ordering::SeqCst) == 0
    }

    /// Waits until the connection should close because another connection needs its place.
    pub async fn asked_to_leave(&self) {
        self.leave.notified().await;
    }

    /// Records that a request had a valid key, so that the connection is never asked to close.
    pub fn show_key(&self) {
        self.has_key.store(true, Ordering::SeqCst);
    }

    /// Counts an open request until the result is dropped. Until then, the connection is not asked to close.
    pub fn begin(self: &Arc<Visitor>) -> OpenRequest {
        self.n_requests.fetch_add(1, Ordering::SeqCst);
        OpenRequest(self.clone())
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut all = self.visitors.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|visitor| !Arc::ptr_eq(visitor, &self.visitor));
    }
}

/// A request whose response is not complete.
pub struct OpenRequest(Arc<Visitor>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.n_requests.fetch_sub(1, Ordering::SeqCst);
    }
}

impl OpenRequest {
    /// Keeps the request open until the body of its response was sent or dropped.
    pub fn until_sent(self, response: Response) -> Response {
        response.map(|body| Body::new(OpenBody { body, _open: self }))
    }
}

struct OpenBody {
    body: Body,
    _open: OpenRequest,
}

impl HttpBody for OpenBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn the_oldest_idle_connection_without_a_key_makes_room() {
        let visitors = Visitors::new(4);
        let mut places = Vec::new();
        for _ in 0..4 {
            places.push(visitors.clone().enter().await);
        }
        // The first connection has shown a key, and the second waits for a response.
        places[0].visitor.show_key();
        let open = places[1].visitor.begin();
        let (third, fourth) = (places[2].visitor.clone(), places[3].visitor.clone());
        let entering = tokio::spawn(visitors.clone().enter());
        third.asked_to_leave().await;
        assert!(!entering.is_finished(), "the place is still taken");
        places.remove(2);
        let fifth = entering.await.unwrap();
        let entering = tokio::spawn(visitors.clone().enter());
        fourth.asked_to_leave().await;
        drop(places.pop());
        drop(entering.await.unwrap());
        // When all other connections have shown a key, none may be asked to leave until the response on the second connection is complete.
        fifth.visitor.show_key();
        let sixth = visitors.clone().enter().await;
        sixth.visitor.show_key();
        let entering = tokio::spawn(visitors.clone().enter());
        let early = tokio::time::timeout(Duration::from_millis(50), places[1].visitor.asked_to_leave()).await;
        assert!(early.is_err() && !entering.is_finished());
        drop((open, sixth));
        entering.await.unwrap();
    }
}
