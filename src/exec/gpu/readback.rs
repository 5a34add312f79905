//! What comes back from a device.

use super::Device;
use crate::error::{Error, Result};
use wgpu::BufferUsages;

/// A buffer that the host can read. After an error it may stay mapped, and is good for nothing: take another.
pub struct Readback(wgpu::Buffer);

impl Readback {
    pub fn new(device: &Device, bytes: usize) -> Result<Readback> {
        Ok(Readback(device.buffer("readback", bytes, BufferUsages::MAP_READ | BufferUsages::COPY_DST)?))
    }

    pub fn holds(&self, bytes: usize) -> bool {
        self.0.size() >= bytes as u64
    }

    /// Copies `bytes` of a buffer, from `at` on, to the beginning of this one.
    pub fn copy(&self, encoder: &mut wgpu::CommandEncoder, from: &wgpu::Buffer, at: usize, bytes: usize) {
        encoder.copy_buffer_to_buffer(from, at as u64, &self.0, 0, bytes as u64);
    }

    /// Asks for what the commands that were just submitted have copied.
    pub fn ask(&self, bytes: usize) {
        self.0.slice(..bytes as u64).map_async(wgpu::MapMode::Read, |_| ());
    }

    /// Waits for what was asked for, and hands it over.
    pub fn read<T>(&self, device: &Device, bytes: usize, hand_over: impl FnOnce(&[u8]) -> T) -> Result<T> {
        device.wait()?;
        let view =
            self.0.slice(..bytes as u64).get_mapped_range().map_err(|e| Error::device(format!("cannot read back: {e}")).caused_by(e))?;
        let taken = hand_over(&view);
        drop(view);
        self.0.unmap();
        Ok(taken)
    }
}
