//! Blocking forms of the async functions that list adapters, open devices and load models. In a browser they return an error if the work is not done at once.

use super::Progress;
use super::choose::{DeviceChoice, DeviceDecision, choose_async};
use super::cpu::CpuModel;
use super::gpu::{Adapter, Backend, Device, GpuModel};
use super::wait::block_on;
use crate::error::Result;
use crate::tape::{Section, Source};
use std::sync::Arc;

/// Calls [`choose_async`] and blocks until it returns.
pub fn choose(device: &DeviceChoice, backend: Backend) -> Result<DeviceDecision> {
    block_on(choose_async(device, backend))
}

impl GpuModel {
    /// Calls [`load_async`](Self::load_async) and blocks until it returns.
    pub fn load(device: Arc<Device>, section: impl Into<Section>, source: &dyn Source, progress: Progress<'_>) -> Result<Arc<GpuModel>> {
        block_on(Self::load_async(device, section, source, progress))
    }
}

impl CpuModel {
    /// Calls [`load_async`](Self::load_async) and blocks until it returns.
    pub fn load(section: impl Into<Section>, source: &dyn Source, progress: Progress<'_>) -> Result<Arc<CpuModel>> {
        block_on(Self::load_async(section, source, progress))
    }
}

impl Device {
    /// Calls [`open_async`](Self::open_async) and blocks until it returns.
    pub fn open(adapter: &Adapter, batch_invariant: bool) -> Result<Device> {
        block_on(Self::open_async(adapter, batch_invariant))
    }
}
