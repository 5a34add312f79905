//! Blocks a thread until a future is done. Not compiled for browsers, where no thread may block.

use std::future::Future;

/// Blocks until a future is done. The future may wait for adapters, devices and channels only, because no async runtime with timers or network runs
/// here.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    pollster::block_on(future)
}
