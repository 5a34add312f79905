//! Tunes the sizes of kernels to an adapter: measures once and keeps the result in a file.
//!
//! The file also holds two choices: between sparse and dense products, and between rounded and float inputs of products. These choices change results
//! slightly. The sizes change only the speed. If the file is missing, damaged or made for another driver, the defaults are used until the next
//! measurement.

mod fastest;
mod measure;
mod rounded;
mod sparse;

use super::environment::CHECKED;
use super::gpu::{Adapter, AdapterKind, Device};
use super::wait::block_on;
use crate::error::Result;
use crate::tape::{Caps, Tuning};
pub use measure::measure_once;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// The results of measuring an adapter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct MeasuredAdapter {
    tuning: Tuning,
    /// `true` if products by cooperative matrices agree with the twins, or if the adapter has no cooperative matrices.
    cooperative_is_right: bool,
}

/// Opens an adapter, with the measured kernel sizes if the folder `cache` has them. If `cache` is `None`, no file is read or written. If
/// `batch_invariant` is true, steps of all sizes use the same kernels. Cooperative matrices are used only if their products agree with the twins.
///
/// # Errors
/// The errors of [`Device::open_async`].
pub async fn open_async(adapter: &Adapter, batch_invariant: bool, cache: Option<&Path>) -> Result<Device> {
    let mut device = Device::open_async(adapter, batch_invariant).await?;
    // Software adapters compile a kernel when the kernel first runs. They return no compiled data, so they have no file of kernels.
    if let Some(folder) = cache.filter(|_| adapter.kind != AdapterKind::Cpu) {
        device.keep_kernels(file(adapter, &device.caps, folder, "kernels", "bin"));
    }
    match cache.and_then(|folder| read(&file(adapter, &device.caps, folder, "tuning", "json"))) {
        Some(found) => {
            log::debug!("{}: measured before: {found:?}", adapter.name);
            device.caps.tuning = found.tuning;
            device.caps.cooperative = device.caps.cooperative.filter(|_| found.cooperative_is_right);
        }
        None => device = super::selftest::settle_async(device).await?,
    }
    Ok(device)
}

/// Calls [`open_async`] and blocks until it returns.
pub fn open(adapter: &Adapter, batch_invariant: bool, cache: Option<&Path>) -> Result<Device> {
    block_on(open_async(adapter, batch_invariant, cache))
}

fn read(path: &Path) -> Option<MeasuredAdapter> {
    let text = std::fs::read_to_string(path).ok()?;
    let found = serde_json::from_str(&text).ok().filter(|m: &MeasuredAdapter| m.tuning.is_sound());
    if found.is_none() {
        log::warn!("{} is damaged and is ignored", path.display());
    }
    found
}

/// The version of [`Tuning`]'s fields and candidates. A file of another version is not read, so the adapter is measured again.
const LAYOUT: &str = "6";

/// Returns the path of an adapter's file in `folder`, `KIND-HASH.EXTENSION`. The hash depends on the adapter, the driver, the version of wingbeat,
/// and the features in use: subgroups, cooperative matrices, the largest binding, and bounds checks.
fn file(adapter: &Adapter, caps: &Caps, folder: &Path, kind: &str, extension: &str) -> PathBuf {
    let allowed = format!("{:?} {:?} {} {:?}", caps.subgroups, caps.cooperative, caps.max_binding, std::env::var_os(CHECKED.name));
    let identity = [&adapter.name, &adapter.backend, &adapter.driver, &allowed, env!("CARGO_PKG_VERSION"), LAYOUT].join("\n");
    let hash: String = Sha256::digest(identity).iter().take(8).map(|b| format!("{b:02x}")).collect();
    folder.join(format!("{kind}-{hash}.{extension}"))
}
