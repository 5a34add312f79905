//! Waits for futures and channels. In a browser no thread may block, because the awaited work runs on the same thread. There, the blocking functions
//! of this module return a result that is ready, and otherwise an error. Functions that block call this module, so that they also compile for the
//! browser.

mod arrival;
#[cfg(target_arch = "wasm32")]
mod task;

pub(crate) use arrival::Arrival;

use crate::error::{Error, Result};
use async_channel::Receiver;
use std::any::type_name;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// True if a thread may block.
pub(crate) const MAY_BLOCK: bool = cfg!(not(target_arch = "wasm32"));

/// In a browser, returns after it has run its other tasks, such as timers of the page and messages to a worker. Elsewhere, returns at once: threads do
/// not wait for each other's tasks.
pub(crate) async fn let_others_run() {
    #[cfg(target_arch = "wasm32")]
    task::next().await;
}

/// Blocks until a future is done. The future may wait for adapters, devices and channels only, because no async runtime with timers or network runs
/// here.
///
/// # Errors
/// The errors of the future. `Device` in a browser, if the future is not done at once. The hint names the async function of the future.
pub fn block_on<T, F: Future<Output = Result<T>>>(future: F) -> Result<T> {
    if MAY_BLOCK {
        return pollster::block_on(future);
    }
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => Err(would_block().hint(format!("await `{}` instead", async_name(type_name::<F>())))),
    }
}

/// Blocks until the next message of a channel. Returns `None` if the channel is closed and empty.
///
/// # Errors
/// `Device` in a browser, if the channel is open and has no message.
pub(crate) fn receive<T>(channel: &Receiver<T>) -> Result<Option<T>> {
    #[cfg(not(target_arch = "wasm32"))]
    return Ok(channel.recv_blocking().ok());
    #[cfg(target_arch = "wasm32")]
    match channel.try_recv() {
        Ok(message) => Ok(Some(message)),
        Err(async_channel::TryRecvError::Closed) => Ok(None),
        Err(async_channel::TryRecvError::Empty) => Err(would_block().hint("poll the stream instead")),
    }
}

/// Returns the error of a call that would have to block in a browser.
pub(crate) fn would_block() -> Error {
    Error::device("this call would block until other work is done, and a browser must not block")
}

/// Returns the name of an async function, `Model::load_async`, from the name of its future's type.
fn async_name(type_name: &str) -> String {
    let path = type_name.split("::{{").next().unwrap_or_default().split('<').next().unwrap_or_default();
    let parts: Vec<&str> = path.rsplit("::").take(2).collect();
    parts.into_iter().rev().collect::<Vec<_>>().join("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_names_the_async_function() {
        struct Model;
        impl Model {
            async fn load_async(&self) -> Result<()> {
                Ok(())
            }
        }
        fn name<F>(_: &F) -> String {
            async_name(type_name::<F>())
        }
        assert_eq!(name(&Model.load_async()), "Model::load_async");
        assert_eq!(async_name("wingbeat::exec::choose::choose_async::{{closure}}"), "choose::choose_async");
        block_on(Model.load_async()).unwrap();
    }
}
