//! Waits for submitted work and reads its results. While a model runs, the host waits for the device only here, and in `stream.rs` if layers
//! are streamed.

#[cfg(any(test, target_arch = "wasm32"))]
mod arrival;
mod split;

use super::Device;
use crate::error::{Error, Result};
use std::task::{Context, Poll};
use wgpu::BufferUsages;

pub use split::SplitReadback;

/// Work that was submitted to a device.
pub struct SubmittedWork {
    #[cfg(not(target_arch = "wasm32"))]
    index: wgpu::SubmissionIndex,
    #[cfg(target_arch = "wasm32")]
    arrival: arrival::Arrival,
}

impl SubmittedWork {
    /// Wraps a submission whose results stay on the device.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn new(_device: &Device, index: wgpu::SubmissionIndex) -> SubmittedWork {
        SubmittedWork { index }
    }

    #[cfg(target_arch = "wasm32")]
    pub fn new(device: &Device, _index: wgpu::SubmissionIndex) -> SubmittedWork {
        let arrival = arrival::Arrival::default();
        let notify = arrival.clone();
        device.queue.on_submitted_work_done(move || notify.arrive());
        SubmittedWork { arrival }
    }

    /// Returns `Ready` once the device has done the work. In a browser, the task of `context` is then woken. Elsewhere no task is woken:
    /// poll again, or call `wait`.
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

    /// Blocks until the device has done the work.
    ///
    /// # Errors
    /// `Device` if the device failed. In a browser no thread may block, so `wait` also returns this error if the work is not done yet.
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

/// A buffer that the host can read. After an error the buffer may stay mapped: drop the readback and create another readback.
pub struct Readback {
    buffer: wgpu::Buffer,
    /// The number of requested bytes, and the submission that copies these bytes. `None` if no bytes are requested.
    asked: Option<(usize, SubmittedWork)>,
}

impl Readback {
    /// Creates a buffer for at least `bytes` bytes.
    pub fn new(device: &Device, bytes: usize) -> Result<Readback> {
        let buffer = device.buffer("readback", bytes, BufferUsages::MAP_READ | BufferUsages::COPY_DST)?;
        Ok(Readback { buffer, asked: None })
    }

    /// Returns whether the buffer has room for `bytes` bytes.
    pub fn holds(&self, bytes: usize) -> bool {
        self.buffer.size() >= bytes as u64
    }

    /// Encodes a copy of `bytes` bytes, from byte `at` of `from` to byte `to` of this buffer.
    pub fn copy(&self, encoder: &mut wgpu::CommandEncoder, from: &wgpu::Buffer, at: usize, bytes: usize, to: usize) {
        encoder.copy_buffer_to_buffer(from, at as u64, &self.buffer, to as u64, bytes as u64);
    }

    /// Requests the first `bytes` bytes of the buffer. The commands of the submission `index` must copy these bytes to the buffer.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn ask(&mut self, bytes: usize, index: wgpu::SubmissionIndex) {
        // A callback with captures would allocate memory for every token.
        self.buffer.slice(..bytes as u64).map_async(wgpu::MapMode::Read, |_| ());
        self.asked = Some((bytes, SubmittedWork { index }));
    }

    #[cfg(target_arch = "wasm32")]
    pub fn ask(&mut self, bytes: usize, _index: wgpu::SubmissionIndex) {
        let arrival = arrival::Arrival::default();
        let notify = arrival.clone();
        // The callback ignores errors: `take` returns them.
        self.buffer.slice(..bytes as u64).map_async(wgpu::MapMode::Read, move |_| notify.arrive());
        self.asked = Some((bytes, SubmittedWork { arrival }));
    }

    /// Returns `Ready` once [`take`](Self::take) would return the bytes. Wakes the task of `context` as [`SubmittedWork::poll`] does.
    pub fn poll(&self, device: &Device, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.asked.as_ref().map_or(Poll::Ready(Ok(())), |(_, submitted)| submitted.poll(device, context))
    }

    /// Blocks until [`take`](Self::take) would return the bytes. Fails as [`SubmittedWork::wait`] does.
    pub fn wait(&self, device: &Device) -> Result<()> {
        self.asked.as_ref().map_or(Ok(()), |(_, submitted)| submitted.wait(device))
    }

    /// Calls `hand_over` with the requested bytes, which must have arrived. Returns the result of `hand_over`.
    ///
    /// # Errors
    /// `Device` if no bytes were requested, or if no bytes arrived.
    pub fn take<T>(&mut self, hand_over: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let (bytes, _) = self.asked.take().ok_or_else(|| Error::device("cannot read back: no bytes were requested"))?;
        let view = self.buffer.slice(..bytes as u64).get_mapped_range().map_err(|e| {
            // wgpu's text has one line per cause. The last line is the most specific.
            let why = e.to_string();
            Error::device(format!("cannot read the results back from the device: {}", why.trim().lines().last().unwrap_or_default().trim()))
                .caused_by(e)
        })?;
        let taken = hand_over(&view);
        drop(view);
        self.buffer.unmap();
        Ok(taken)
    }

    /// Drops the request, so that the buffer can be used for another copy.
    pub fn cancel(&mut self) {
        if self.asked.take().is_some() {
            self.buffer.unmap();
        }
    }
}
