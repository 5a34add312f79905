//! Blocks a thread until a future is done. A browser cannot.

use std::future::Future;

/// For futures that only wait for adapters, devices and channels.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    pollster::block_on(future)
}
