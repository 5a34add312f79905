//! Waits for submitted work and reads its results. While a model runs, the host waits for the device only here, and in `stream.rs` if layers
//! are streamed.

use super::Device;
use crate::error::{Error, Result, try_alloc};
use crate::exec::wait::{Arrival, MAY_BLOCK, would_block};
use std::task::{Context, Poll, Waker};
use wgpu::BufferUsages;

/// Work that was submitted to a device.
pub struct SubmittedWork {
    index: wgpu::SubmissionIndex,
    /// In a browser, one arrival per mapped buffer: the work is done once all have arrived. Elsewhere this list is empty, because the device can be
    /// asked.
    arrivals: Vec<Arrival>,
}

impl SubmittedWork {
    /// Wraps a submission whose results stay on the device.
    pub fn new(device: &Device, index: wgpu::SubmissionIndex) -> SubmittedWork {
        let mut arrivals = Vec::new();
        if !MAY_BLOCK {
            let arrival = Arrival::default();
            let notify = arrival.clone();
            device.queue.on_submitted_work_done(move || notify.arrive());
            arrivals.push(arrival);
        }
        SubmittedWork { index, arrivals }
    }

    /// Returns `Ready` once the device has done the work. In a browser, the task of `context` is then woken. Elsewhere no task is woken:
    /// poll again, or call `wait`.
    pub fn poll(&self, device: &Device, context: &mut Context<'_>) -> Poll<Result<()>> {
        let is_done = match MAY_BLOCK {
            true => device.is_done(self.index.clone()),
            false => device.faults.check().map(|()| self.arrivals.iter().all(|arrival| arrival.poll(context).is_ready())),
        };
        if matches!(is_done, Ok(false)) { Poll::Pending } else { Poll::Ready(is_done.map(drop)) }
    }

    /// Blocks until the device has done the work.
    ///
    /// # Errors
    /// `Device` if the device failed. In a browser no thread may block, so `wait` also returns this error if the work is not done yet.
    pub fn wait(&self, device: &Device) -> Result<()> {
        if MAY_BLOCK {
            return device.wait_for(self.index.clone());
        }
        match self.poll(device, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => done,
            Poll::Pending => Err(would_block().hint("call a `begin` method, await `ready`, then call the `finish` method")),
        }
    }
}

/// The largest buffer of a [`Readback`], in bytes.
const PART_BYTES: usize = 64 << 20;

/// Buffers that the host can read, used as one buffer. After an error the buffers may stay mapped: drop the readback and create another one.
pub struct Readback {
    /// Each buffer but the last holds `part_bytes` bytes.
    parts: Vec<wgpu::Buffer>,
    part_bytes: usize,
    /// The number of requested bytes, and the submission that copies these bytes. `None` if no bytes are requested.
    asked: Option<(usize, SubmittedWork)>,
}

impl Readback {
    /// Creates buffers for at least `bytes` bytes. A buffer has at most 64 MiB, and at most the bytes that the device allows.
    pub fn new(device: &Device, bytes: usize) -> Result<Readback> {
        let allowed = usize::try_from(device.device.limits().max_buffer_size).unwrap_or(usize::MAX);
        Self::in_parts(device, bytes, PART_BYTES.min(allowed / 16 * 16))
    }

    /// Creates buffers of at most `part_bytes` bytes. `part_bytes` must be a multiple of 16.
    fn in_parts(device: &Device, bytes: usize, part_bytes: usize) -> Result<Readback> {
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        let part = |at: usize| device.buffer("readback", part_bytes.min(bytes - at), usage);
        let parts = (0..bytes).step_by(part_bytes).map(part).collect::<Result<_>>()?;
        Ok(Readback { parts, part_bytes, asked: None })
    }

    /// Returns whether the buffers have room for `bytes` bytes.
    pub fn holds(&self, bytes: usize) -> bool {
        self.parts.iter().map(wgpu::Buffer::size).sum::<u64>() >= bytes as u64
    }

    /// Encodes a copy of `bytes` bytes, from byte `at` of `from` to byte `to` of this readback.
    pub fn copy(&self, encoder: &mut wgpu::CommandEncoder, from: &wgpu::Buffer, mut at: usize, bytes: usize, mut to: usize) {
        let end = to + bytes;
        while to < end {
            let (part, offset) = (to / self.part_bytes, to % self.part_bytes);
            let n = (self.part_bytes - offset).min(end - to);
            encoder.copy_buffer_to_buffer(from, at as u64, &self.parts[part], offset as u64, n as u64);
            (at, to) = (at + n, to + n);
        }
    }

    /// Returns the first `bytes` bytes, as one slice per buffer.
    fn slices(&self, bytes: usize) -> impl Iterator<Item = wgpu::BufferSlice<'_>> {
        let starts = (0..bytes).step_by(self.part_bytes);
        self.parts.iter().zip(starts).map(move |(part, at)| part.slice(..self.part_bytes.min(bytes - at) as u64))
    }

    /// Requests the first `bytes` bytes. The commands of the submission `index` must copy these bytes to the buffers.
    pub fn ask(&mut self, bytes: usize, index: wgpu::SubmissionIndex) {
        let arrive = |slice: wgpu::BufferSlice<'_>| {
            let arrival = Arrival::default();
            let notify = arrival.clone();
            // The callback ignores errors: `take` returns them.
            slice.map_async(wgpu::MapMode::Read, move |_| notify.arrive());
            arrival
        };
        let arrivals = if MAY_BLOCK {
            // This callback captures nothing, because a callback with captures would allocate memory for every token.
            self.slices(bytes).for_each(|slice| slice.map_async(wgpu::MapMode::Read, |_| ()));
            Vec::new()
        } else {
            self.slices(bytes).map(arrive).collect()
        };
        self.asked = Some((bytes, SubmittedWork { index, arrivals }));
    }

    /// Returns the submission that copies the requested bytes, or `None` if no bytes are requested.
    pub fn submitted(&self) -> Option<&SubmittedWork> {
        self.asked.as_ref().map(|(_, submitted)| submitted)
    }

    /// Cuts the requested bytes into pieces with the lengths `sizes`. The bytes must have arrived. Returns the result of `decode(index, piece)` for
    /// each piece.
    ///
    /// # Errors
    /// `Device` if no bytes were requested, or if no bytes arrived. `Memory` if the host has no room for a piece that is in several buffers.
    pub fn take<T>(&mut self, sizes: impl IntoIterator<Item = usize>, mut decode: impl FnMut(usize, &[u8]) -> T) -> Result<Vec<T>> {
        let (bytes, _) = self.asked.take().ok_or_else(|| Error::device("cannot read back: no bytes were requested"))?;
        let mut sizes = sizes.into_iter().enumerate().peekable();
        // The beginning of a piece whose end is in a later buffer.
        let mut begun: Vec<u8> = Vec::new();
        let mut taken = Vec::new();
        for slice in self.slices(bytes) {
            let mapped = slice.get_mapped_range().map_err(|e| {
                // wgpu's text has one line per cause. The last line is the most specific, so the message contains only this line.
                let why = e.to_string();
                let why = why.trim().lines().last().unwrap_or_default().trim();
                Error::device(format!("cannot read the results back from the device: {why}")).caused_by(e)
            })?;
            let mut view: &[u8] = &mapped;
            while let Some(&(i, size)) = sizes.peek() {
                if size - begun.len() > view.len() {
                    if begun.is_empty() {
                        begun = try_alloc(size, "a copy of device memory")?;
                    }
                    begun.extend_from_slice(view);
                    break;
                }
                let (piece, rest) = view.split_at(size - begun.len());
                if begun.is_empty() {
                    taken.push(decode(i, piece));
                } else {
                    begun.extend_from_slice(piece);
                    taken.push(decode(i, &std::mem::take(&mut begun)));
                }
                view = rest;
                sizes.next();
            }
            drop(mapped);
            slice.buffer().unmap();
        }
        taken.extend(sizes.map(|(i, _)| decode(i, &[])));
        Ok(taken)
    }

    /// Drops the request, so that the buffers can be used for another copy.
    pub fn cancel(&mut self) {
        if let Some((bytes, _)) = self.asked.take() {
            self.slices(bytes).for_each(|slice| slice.buffer().unmap());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::{Caps, Class};

    #[test]
    fn pieces_are_the_same_through_any_number_of_buffers() {
        let (device, queue) = wgpu::Device::noop(&wgpu::DeviceDescriptor::default());
        let device = Device::adopt(device, queue, Caps::plain(Class::Groups, 1 << 20), false);
        let numbers: Vec<u8> = (0..160).collect();
        let from = device.buffer("from", numbers.len(), BufferUsages::COPY_SRC | BufferUsages::COPY_DST).unwrap();
        device.queue.write_buffer(&from, 0, &numbers);
        // Pieces in one, two and four buffers. Empty pieces are at the beginning, between two buffers and at the end.
        let sizes = [0, 12, 8, 4, 8, 0, 56, 16, 0];
        let want: Vec<Vec<u8>> = [0..0, 100..112, 0..8, 8..12, 152..160, 0..0, 20..76, 80..96, 0..0].map(|r| numbers[r].to_vec()).to_vec();
        for (part_bytes, n_buffers) in [(16, 7), (48, 3), (112, 1)] {
            let bytes = sizes.iter().sum();
            let mut readback = Readback::in_parts(&device, bytes, part_bytes).unwrap();
            assert_eq!(readback.parts.len(), n_buffers);
            let (mut encoder, mut to) = (device.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default()), 0);
            for piece in &want {
                let at = piece.first().map_or(0, |&first| first.into());
                readback.copy(&mut encoder, &from, at, piece.len(), to);
                to += piece.len();
            }
            readback.ask(bytes, device.queue.submit([encoder.finish()]));
            readback.submitted().unwrap().wait(&device).unwrap();
            assert_eq!(readback.take(sizes, |i, bytes| (i, bytes.to_vec())).unwrap(), want.iter().cloned().enumerate().collect::<Vec<_>>());
        }
    }
}
