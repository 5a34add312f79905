//! Starts and ends a server.

use super::app::App;
use super::hosted::ServedModel;
use super::options::ServeOptions;
use super::{connections, routes};
use crate::error::{Error, Kind, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;

/// How often the server checks whether it should end.
const TICK: Duration = Duration::from_millis(50);
/// The time that clients have to take the last bytes of their responses.
const LAST: Duration = Duration::from_secs(5);

/// Runs a server until `options.stop` is set and the open requests are complete or cut. Calls `listening` with the address when the server accepts
/// connections. The models load after this call.
///
/// # Errors
/// `Usage` if an option is wrong, or if the address is unknown, in use or not allowed; `File` if the folder of states cannot be made; `Memory` if
/// no thread can be started; the errors of loading a model; `Device` if a device failed and could not be opened again.
pub fn run(options: ServeOptions, models: Vec<ServedModel>, listening: &mut dyn FnMut(SocketAddr)) -> Result<()> {
    super::guard::check_options(&options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("serve").build();
    let runtime = runtime.map_err(|e| Error::memory(format!("the server's threads could not be started: {e}")).caused_by(e))?;
    let result = runtime.block_on(serve(options, models, listening));
    // A thread that still loads a model must not delay the end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn serve(options: ServeOptions, models: Vec<ServedModel>, listening: &mut dyn FnMut(SocketAddr)) -> Result<()> {
    let listener = listen(&options).await?;
    let app = Arc::new(App::new(options, models)?);
    let address = listener.local_addr().map_err(|e| Error::io(e, "the server's address".as_ref()))?;
    listening(address);
    let loading = app.clone();
    tokio::task::spawn_blocking(move || load(&loading));
    connections::serve(listener, routes::router(&app), &app.options, stopped(&app), LAST).await;
    let fatal = app.fatal.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    fatal.map_or(Ok(()), Err)
}

/// Loads all models, one after the other. An error ends the server.
fn load(app: &Arc<App>) {
    if let Some(Err(e)) = app.models.iter().map(|model| model.load()).find(Result::is_err) {
        app.fail(e);
    }
}

/// Binds the address.
async fn listen(options: &ServeOptions) -> Result<TcpListener> {
    let named = format!("{}:{}", options.host, options.port);
    let at = |e: std::io::Error| Error { kind: Kind::Usage, ..Error::of_io(e) }.field("host");
    let all: Vec<SocketAddr> = tokio::net::lookup_host((options.host.as_str(), options.port)).await.map_err(at)?.collect();
    if options.keys.is_empty() && all.iter().any(|address| !address.ip().is_loopback()) {
        let text = format!("{named} can be reached from other machines, and the server has no API keys");
        return Err(Error::usage(text).field("host").hint("give a file of keys with `key_file`, or use the host 127.0.0.1"));
    }
    TcpListener::bind(all.as_slice()).await.map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrInUse => Error::usage(format!("the address {named} is in use by another program"))
            .field("port")
            .hint("choose another `port`; 0 selects a free port"),
        _ => Error { kind: Kind::Usage, ..Error::of_io(e) }.at(named),
    })
}

/// Returns when the server must close its connections: after `options.stop` is set and the open requests are complete or cut, or after a fatal error.
async fn stopped(app: &Arc<App>) {
    tokio::select! {
        () = asked_to_stop(app) => {}
        () = app.has_failed.notified() => {
            app.is_stopping.store(true, Ordering::SeqCst);
            return;
        }
    }
    app.is_stopping.store(true, Ordering::SeqCst);
    let end = tokio::time::Instant::now() + app.options.grace;
    while app.ledger.len() > 0 && tokio::time::Instant::now() < end {
        tokio::time::sleep(TICK).await;
    }
    // The requests that remain end with their texts so far, and their states are stored.
    app.models.iter().filter_map(|model| model.ready()).for_each(|engine| engine.interrupt());
    let end = tokio::time::Instant::now() + LAST;
    while app.ledger.len() > 0 && tokio::time::Instant::now() < end {
        tokio::time::sleep(TICK).await;
    }
}

async fn asked_to_stop(app: &App) {
    while !app.options.stop.load(Ordering::SeqCst) {
        tokio::time::sleep(TICK).await;
    }
}
