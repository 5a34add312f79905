//! Accepts connections, within limits on their number, their headers and the time that a header takes.

use super::ServeOptions;
use super::guard::{MAX_FIELDS, MAX_HEADER};
use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;

/// The longest time that a client may leave a response unread. An unread response occupies slots.
const UNREAD: Duration = Duration::from_secs(60);

/// Serves connections until `stop` is complete. Then waits for open requests, at most for the time `last`.
pub async fn serve(listener: TcpListener, router: Router, options: &ServeOptions, stop: impl Future<Output = ()>, last: Duration) {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(options.read_timeout);
    // Hyper refuses a large header without an error object. So hyper's limits are above the limits of `guard::check_size`.
    http.max_buf_size(2 * MAX_HEADER).max_headers(2 * MAX_FIELDS);
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(options.max_connections));
    let mut stop = std::pin::pin!(stop);
    loop {
        let place = tokio::select! {
            place = places.clone().acquire_owned() => place,
            () = &mut stop => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(e) => {
                // The usual cause is too many open files. Connections that end close files, so the next try may succeed.
                log::warn!("a connection could not be accepted: {e}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Sends each packet at once: the packet of a token must not wait for the next token.
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(UNREAD));
        let connection = http.serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router.clone()));
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // An error means that the client sent nonsense or left. Nobody can receive an answer.
            if let Err(e) = connection.await {
                log::debug!("connection: {e}");
            }
            drop(place);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(last, graceful.shutdown()).await;
}
