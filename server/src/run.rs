//! Starts and ends a server, and accepts connections within limits on their number, their headers and the time that a header takes.

use super::app::App;
use super::guard::{MAX_FIELDS, MAX_HEADER, check_options};
use super::hosted::ServedModel;
use super::options::ServeOptions;
use super::scratch;
use super::visitors::Visitors;
use super::watched::Watched;
use axum::Router;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_io_timeout::TimeoutStream;
use wingbeat::error::{Error, Kind, Result};

/// How often the server checks whether it should end.
const TICK: Duration = Duration::from_millis(50);
/// After the grace period, connections have this time to store states and to send the last bytes of their responses.
const LAST: Duration = Duration::from_secs(5);

/// The longest time that a client may leave a response unread. An unread response occupies slots.
const UNREAD: Duration = Duration::from_secs(60);

/// Runs a server until `options.stop` is set and the open requests are complete or cut. Calls `listening` with the address when the server accepts
/// connections. The models load after this call.
///
/// # Errors
/// `Usage` if an option is wrong, or if the address is unknown, in use or not allowed; `File` if the folder of states cannot be made; `Memory` if
/// no thread can be started; the errors of loading a model; `Device` if a device failed and could not be opened again.
pub fn run(options: ServeOptions, models: Vec<ServedModel>, listening: &mut dyn FnMut(SocketAddr)) -> Result<()> {
    check_options(&options)?;
    scratch::sweep();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("serve").build();
    let runtime = runtime.map_err(|e| Error::memory(format!("the server's threads could not be started: {e}")).caused_by(e))?;
    let result = runtime.block_on(serve(options, models, listening));
    // A thread that still loads a model must not delay the end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    scratch::sweep();
    result
}

async fn serve(options: ServeOptions, models: Vec<ServedModel>, listening: &mut dyn FnMut(SocketAddr)) -> Result<()> {
    let listener = listen(&options).await?;
    let app = Arc::new(App::new(options, models)?);
    let address = listener.local_addr().map_err(|e| Error::io(e, "the server's address".as_ref()))?;
    listening(address);
    let loading = app.clone();
    if app.options.keep_alive.is_none() {
        tokio::task::spawn_blocking(move || load(&loading));
    } else {
        tokio::spawn(loading.unload_idle());
    }
    accept(listener, super::routes::router(&app), &app.options, stopped(&app)).await;
    let fatal = app.fatal.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    fatal.map_or(Ok(()), Err)
}

/// Loads all models, one after the other. An error ends the server.
fn load(app: &Arc<App>) {
    if let Some(Err(e)) = app.roots().map(|model| model.load()).find(Result::is_err) {
        app.fail(e);
    }
}

/// Binds the address.
async fn listen(options: &ServeOptions) -> Result<TcpListener> {
    let named = format!("{}:{}", options.host, options.port);
    let at = |e: std::io::Error| Error::of_io(e).with_kind(Kind::Usage).field("host");
    let all: Vec<SocketAddr> = tokio::net::lookup_host((options.host.as_str(), options.port)).await.map_err(at)?.collect();
    if options.keys.is_empty() && all.iter().any(|address| !address.ip().is_loopback()) {
        let text = format!("{named} can be reached from other machines, and the server has no API keys");
        return Err(Error::usage(text).field("host").hint("give a file of keys with `key_file`, or use the host 127.0.0.1"));
    }
    TcpListener::bind(all.as_slice()).await.map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrInUse => Error::usage(format!("the address {named} is in use by another program"))
            .field("port")
            .hint("choose another `port`; 0 selects a free port"),
        _ => Error::of_io(e).with_kind(Kind::Usage).at(named),
    })
}

/// Serves connections until `stop` returns the time at which the last of them must end.
async fn accept(listener: TcpListener, router: Router, options: &ServeOptions, stop: impl Future<Output = Instant>) {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(options.read_timeout);
    // Hyper refuses a large header without an error object. So hyper's limits are above the limits of `guard::check_size`.
    http.max_buf_size(2 * MAX_HEADER).max_headers(2 * MAX_FIELDS);
    let graceful = GracefulShutdown::new();
    let visitors = Visitors::new(options.max_connections);
    let mut stop = std::pin::pin!(stop);
    let end = loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            end = &mut stop => break end,
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
        let permit = tokio::select! {
            permit = visitors.clone().enter() => permit,
            end = &mut stop => break end,
        };
        let (visitor, handlers) = (permit.visitor.clone(), TowerToHyperService::new(router.clone()));
        let handle = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(visitor.clone());
            if let Some(uri) = super::routes::meant(request.uri()) {
                *request.uri_mut() = uri;
            }
            handlers.call(request)
        });
        // Sends each packet at once: the packet of a token must not wait for the next token.
        let _ = stream.set_nodelay(true);
        let watched = Watched::new(stream);
        let mut stream = TimeoutStream::new(watched.clone());
        stream.set_write_timeout(Some(UNREAD));
        let connection = http.serve_connection(TokioIo::new(Box::pin(stream)), handle);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // After the client has left, dropping the connection cancels its requests.
            tokio::select! {
                // An error means that the client sent nonsense or left. Nobody can receive an answer.
                done = connection => done.unwrap_or_else(|e| log::debug!("connection: {e}")),
                () = watched.left() => {}
                () = permit.visitor.asked_to_leave() => {}
            }
        });
    };
    drop(listener);
    let _ = tokio::time::timeout_at(end, graceful.shutdown()).await;
}

/// Returns when the server must close its connections: after `options.stop` is set and the open requests are complete or cut, or after a fatal error. The
/// result is the time at which the last connection must end, at most [`LAST`] after the grace.
async fn stopped(app: &Arc<App>) -> Instant {
    tokio::select! {
        () = asked_to_stop(app) => {}
        () = app.has_failed.notified() => {
            app.is_stopping.store(true, Ordering::SeqCst);
            return Instant::now() + LAST;
        }
    }
    app.is_stopping.store(true, Ordering::SeqCst);
    let end = Instant::now() + app.options.grace;
    while app.ledger.len() > 0 && Instant::now() < end {
        tokio::time::sleep(TICK).await;
    }
    // The requests that remain end with their texts so far, and their states are stored.
    app.roots().filter_map(|model| model.ready()).for_each(|engine| engine.interrupt());
    let end = Instant::now() + LAST;
    while app.ledger.len() > 0 && Instant::now() < end {
        tokio::time::sleep(TICK).await;
    }
    end
}

async fn asked_to_stop(app: &App) {
    while !app.options.stop.load(Ordering::SeqCst) {
        tokio::time::sleep(TICK).await;
    }
}
