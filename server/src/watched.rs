//! A connection whose end is noticed at any time.
//!
//! Hyper reads from a connection only when it can use the bytes. If a byte follows the body of a request, Hyper reads nothing more until the response
//! is complete, so it does not see that the client has left. The system, in contrast, reports the end of a connection even while bytes are unread.

use std::io::{ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// How often an unread connection is asked whether its client has closed it.
const TICK: Duration = Duration::from_millis(250);
/// How long a connection may send the rest of its response after its client has closed its end.
const REST: Duration = Duration::from_secs(1);

/// A connection that several owners share.
#[derive(Clone)]
pub struct Watched(Arc<TcpStream>);

impl Watched {
    pub fn new(stream: TcpStream) -> Watched {
        Watched(Arc::new(stream))
    }

    /// Waits until one second after the client has closed its end, even if earlier bytes are unread.
    pub async fn left(self) {
        // After an error, reading and writing fail, too, which ends the connection.
        while self.0.ready(Interest::READABLE).await.is_ok_and(|ready| !ready.is_read_closed()) {
            tokio::time::sleep(TICK).await;
        }
        tokio::time::sleep(REST).await;
    }
}

impl AsyncRead for Watched {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|n| buffer.advance(n))),
            }
        }
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(self: Pin<&mut Self>, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write_vectored(slices) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Does nothing: the system closes the connection when its last owner is dropped.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }
}
