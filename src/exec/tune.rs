//! Which sizes of kernels suit an adapter: measured once, and kept in a file.
//!
//! Sizes change speed, never results: a file that is absent, broken or of another driver means the defaults until somebody
//! measures again.

#[cfg(not(target_arch = "wasm32"))]
mod measure;

use super::environment::CHECKED;
use super::gpu::{Adapter, Device};
use crate::error::Result;
use crate::tape::{Caps, Tuning};
#[cfg(not(target_arch = "wasm32"))]
pub use measure::measure_once;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// What was found out about an adapter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Measured {
    tuning: Tuning,
    /// Its cooperative matrices give what the twins give; true where it has none.
    cooperative_is_right: bool,
}

/// Opens an adapter with the kernels that prove right on it, in the sizes that were measured, if they were.
pub async fn open_async(adapter: &Adapter, batch_invariant: bool, cache: Option<&Path>) -> Result<Device> {
    let mut device = Device::open_async(adapter, batch_invariant).await?;
    match cache.and_then(|folder| read(&file(adapter, &device.caps, folder))) {
        Some(found) => {
            device.caps.tuning = found.tuning;
            device.caps.cooperative = device.caps.cooperative.filter(|_| found.cooperative_is_right);
        }
        // A browser offers nothing that would have to prove right first.
        #[cfg(target_arch = "wasm32")]
        None => device.caps.cooperative = None,
        #[cfg(not(target_arch = "wasm32"))]
        None => device = super::selftest::settle(device)?,
    }
    Ok(device)
}

/// As [`open_async`].
#[cfg(not(target_arch = "wasm32"))]
pub fn open(adapter: &Adapter, batch_invariant: bool, cache: Option<&Path>) -> Result<Device> {
    super::wait::block_on(open_async(adapter, batch_invariant, cache))
}

fn read(path: &Path) -> Option<Measured> {
    let text = std::fs::read_to_string(path).ok()?;
    let found = serde_json::from_str(&text).ok().filter(|m: &Measured| m.tuning.is_sound());
    if found.is_none() {
        log::warn!("{} is not what was written there, and is not used", path.display());
    }
    found
}

/// One file an adapter, driver, version of wingbeat, and what the environment allows.
fn file(adapter: &Adapter, caps: &Caps, folder: &Path) -> PathBuf {
    let allowed = format!("{:?} {:?} {} {:?}", caps.subgroups, caps.cooperative, caps.max_binding, std::env::var_os(CHECKED));
    let identity = [&adapter.name, &adapter.backend, &adapter.driver, &allowed, env!("CARGO_PKG_VERSION")].join("\n");
    let hash: String = Sha256::digest(identity).iter().take(8).map(|b| format!("{b:02x}")).collect();
    folder.join(format!("tuning-{hash}.json"))
}
