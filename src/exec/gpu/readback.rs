//! Submitted work, and the bytes that come back from it. The only file where the host waits for a device while a model runs.

#[cfg(any(test, target_arch = "wasm32"))]
mod arrival;
mod split;

use super::Device;
use crate::error::{Error, Result};
use std::task::{Context, Poll};
use wgpu::BufferUsages;

pub use split::SplitReadback;

/// Work that was submitted to a device.
pub struct Submitted {
    #[cfg(not(target_arch = "wasm32"))]
    index: wgpu::SubmissionIndex,
    #[cfg(target_arch = "wasm32")]
    arrival: arrival::Arrival,
}

impl Submitted {
    /// Names a submission that nothing is read back from.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn new(_device: &Device, index: wgpu::SubmissionIndex) -> Submitted {
        Submitted { index }
    }

    #[cfg(target_arch = "wasm32")]
    pub fn new(device: &Device, _index: wgpu::SubmissionIndex) -> Submitted {
        let arrival = arrival::Arrival::default();
        let notify = arrival.clone();
        device.queue.on_submitted_work_done(move || notify.arrive());
        Submitted { arrival }
    }

    /// Returns `Ready` once the device is done. A browser wakes `context`; elsewhere nobody does, and the caller asks again or waits.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn poll(&self, device: &Device, _context: &mut Context<'_>) -> Poll<Result<()>> {
        device
            .is_done(self.index.clone())
            .map_or_else(|e| Poll::Ready(Err(e)), |done| if done { Poll::Ready(Ok(())) } else { Poll::Pending })
    }

    #[cfg(target_arch = "wasm32")]
    pub fn poll(&self, device: &Device, context: &mut Context<'_>) -> Poll<Result<()>> {
        device.faults.check()?;
        self.arrival.poll(context).map(Ok)
    }

    /// Blocks until the device is done.
    ///
    /// # Errors
    /// In a browser, where nothing can block, `Device` unless the device is done already.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn wait(&self, device: &Device) -> Result<()> {
        device.wait_for(self.index.clone())
    }

    #[cfg(target_arch = "wasm32")]
    pub fn wait(&self, device: &Device) -> Result<()> {
        match self.poll(device, &mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(done) => done,
            Poll::Pending => Err(crate::exec::cannot_block()),
        }
    }
}

/// A buffer that the host can read. After an error it may stay mapped: drop it and make another.
pub struct Readback {
    buffer: wgpu::Buffer,
    /// Bytes that were asked for, and the submission that copies them.
    asked: Option<(usize, Submitted)>,
}

impl Readback {
    pub fn new(device: &Device, bytes: usize) -> Result<Readback> {
        let buffer = device.buffer("readback", bytes, BufferUsages::MAP_READ | BufferUsages::COPY_DST)?;
        Ok(Readback { buffer, asked: None })
    }

    pub fn holds(&self, bytes: usize) -> bool {
        self.buffer.size() >= bytes as u64
    }

    /// Copies `bytes` of a buffer, from `at` on, to place `to` of this one.
    pub fn copy(&self, encoder: &mut wgpu::CommandEncoder, from: &wgpu::Buffer, at: usize, bytes: usize, to: usize) {
        encoder.copy_buffer_to_buffer(from, at as u64, &self.buffer, to as u64, bytes as u64);
    }

    /// Asks for the first `bytes`, which the commands of this submission copied.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn ask(&mut self, bytes: usize, index: wgpu::SubmissionIndex) {
        // A callback that captures something would be an allocation for every token.
        self.buffer.slice(..bytes as u64).map_async(wgpu::MapMode::Read, |_| ());
        self.asked = Some((bytes, Submitted { index }));
    }

    #[cfg(target_arch = "wasm32")]
    pub fn ask(&mut self, bytes: usize, _index: wgpu::SubmissionIndex) {
        let arrival = arrival::Arrival::default();
        let notify = arrival.clone();
        // What went wrong, `take` finds out.
        self.buffer.slice(..bytes as u64).map_async(wgpu::MapMode::Read, move |_| notify.arrive());
        self.asked = Some((bytes, Submitted { arrival }));
    }

    /// Returns `Ready` once [`take`](Self::take) has what was asked for, as [`Submitted::poll`].
    pub fn poll(&self, device: &Device, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.asked.as_ref().map_or(Poll::Ready(Ok(())), |(_, submitted)| submitted.poll(device, context))
    }

    /// Blocks until [`take`](Self::take) has what was asked for, as [`Submitted::wait`].
    pub fn wait(&self, device: &Device) -> Result<()> {
        self.asked.as_ref().map_or(Ok(()), |(_, submitted)| submitted.wait(device))
    }

    /// Hands over what was asked for, which must have arrived.
    ///
    /// # Errors
    /// `Device` if nothing was asked for, or nothing arrived.
    pub fn take<T>(&mut self, hand_over: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let (bytes, _) = self.asked.take().ok_or_else(|| Error::device("cannot read back: nothing was asked for"))?;
        let view = self.buffer.slice(..bytes as u64).get_mapped_range().map_err(|e| {
            // wgpu's text has a line for each cause; the last one says most.
            let why = e.to_string();
            Error::device(format!("nothing came back from the device: {}", why.trim().lines().last().unwrap_or_default().trim()))
                .caused_by(e)
        })?;
        let taken = hand_over(&view);
        drop(view);
        self.buffer.unmap();
        Ok(taken)
    }

    /// Drops what was asked for. The buffer can be copied to again.
    pub fn cancel(&mut self) {
        if self.asked.take().is_some() {
            self.buffer.unmap();
        }
    }
}
