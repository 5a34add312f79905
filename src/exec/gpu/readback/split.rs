//! One readback through several buffers, for more bytes than one buffer should hold.

use super::Readback;
use crate::error::{Result, room};
use crate::exec::gpu::Device;
use std::task::{Context, Poll};

/// The largest buffer of a [`SplitReadback`], in bytes.
const PART_BYTES: usize = 64 << 20;

/// Buffers that the host can read, used as one buffer. Each buffer but the last holds `part_bytes` bytes.
pub struct SplitReadback {
    parts: Vec<Readback>,
    part_bytes: usize,
    bytes: usize,
}

impl SplitReadback {
    /// Makes buffers for `bytes` bytes. A buffer has at most 64 MiB, and at most the bytes that the device allows. `make` makes one buffer.
    pub fn new(device: &Device, bytes: usize, make: impl FnMut(usize) -> Result<Readback>) -> Result<SplitReadback> {
        let allowed = usize::try_from(device.device.limits().max_buffer_size).unwrap_or(usize::MAX);
        Self::with_part_bytes(bytes, PART_BYTES.min(allowed / 16 * 16), make)
    }

    /// Makes buffers for `bytes` bytes, of at most `part_bytes` bytes each. `part_bytes` must be a multiple of 16.
    fn with_part_bytes(bytes: usize, part_bytes: usize, make: impl FnMut(usize) -> Result<Readback>) -> Result<SplitReadback> {
        let parts = (0..bytes).step_by(part_bytes).map(|at| part_bytes.min(bytes - at)).map(make).collect::<Result<_>>()?;
        Ok(SplitReadback { parts, part_bytes, bytes })
    }

    /// Encodes a copy of `bytes` bytes, from byte `at` of `from` to byte `to` of this readback.
    pub fn copy(&self, encoder: &mut wgpu::CommandEncoder, from: &wgpu::Buffer, mut at: usize, bytes: usize, mut to: usize) {
        let end = to + bytes;
        while to < end {
            let (part, offset) = (to / self.part_bytes, to % self.part_bytes);
            let n = (self.part_bytes - offset).min(end - to);
            self.parts[part].copy(encoder, from, at, n, offset);
            (at, to) = (at + n, to + n);
        }
    }

    /// Requests all bytes. The commands of the submission `index` must copy these bytes to the buffers.
    pub fn ask(&mut self, index: &wgpu::SubmissionIndex) {
        let mut rest = self.bytes;
        for part in &mut self.parts {
            let bytes = rest.min(self.part_bytes);
            part.ask(bytes, index.clone());
            rest -= bytes;
        }
    }

    /// Returns `Ready` once all bytes have arrived. Wakes the task of `context` as [`Readback::poll`] does.
    pub fn poll(&self, device: &Device, context: &mut Context<'_>) -> Poll<Result<()>> {
        for part in &self.parts {
            match part.poll(device, context) {
                Poll::Ready(Ok(())) => {}
                other => return other,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Blocks until all bytes have arrived. Fails as [`Readback::wait`] does.
    pub fn wait(&self, device: &Device) -> Result<()> {
        self.parts.iter().try_for_each(|part| part.wait(device))
    }

    /// Cuts the bytes, which must have arrived, into pieces of these sizes in bytes. Returns the result of `decode(index, piece)` for each
    /// piece.
    ///
    /// # Errors
    /// `Device` if no bytes arrived. `Memory` if the host has no room for a piece that is in several buffers.
    pub fn take<T>(&mut self, sizes: impl IntoIterator<Item = usize>, mut decode: impl FnMut(usize, &[u8]) -> T) -> Result<Vec<T>> {
        let mut sizes = sizes.into_iter().enumerate().peekable();
        // The beginning of a piece whose end is in a later buffer.
        let mut begun: Vec<u8> = Vec::new();
        let mut taken = Vec::new();
        for part in &mut self.parts {
            part.take(|mut view| {
                while let Some(&(i, size)) = sizes.peek() {
                    if size - begun.len() > view.len() {
                        if begun.is_empty() {
                            begun = room(size, "a copy of device memory")?;
                        }
                        begun.extend_from_slice(view);
                        break;
                    }
                    let (piece, rest) = view.split_at(size - begun.len());
                    if begun.is_empty() {
                        taken.push(decode(i, piece));
                    } else {
                        begun.extend_from_slice(piece);
                        taken.push(decode(i, &begun));
                        begun = Vec::new();
                    }
                    view = rest;
                    sizes.next();
                }
                Ok(())
            })??;
        }
        taken.extend(sizes.map(|(i, _)| decode(i, &[])));
        Ok(taken)
    }

    /// Drops the request, so that the buffers can be used for other copies.
    pub fn cancel(&mut self) {
        self.parts.iter_mut().for_each(Readback::cancel);
    }

    /// Returns the only part if this readback has exactly one part. Otherwise returns `None`.
    pub fn into_single(mut self) -> Option<Readback> {
        self.parts.pop().filter(|_| self.parts.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::{Caps, Class};
    use wgpu::BufferUsages;

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
            let mut readback =
                SplitReadback::with_part_bytes(sizes.iter().sum(), part_bytes, |bytes| Readback::new(&device, bytes)).unwrap();
            assert_eq!(readback.parts.len(), n_buffers);
            let (mut encoder, mut to) = (device.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default()), 0);
            for piece in &want {
                let at = piece.first().map_or(0, |&first| first.into());
                readback.copy(&mut encoder, &from, at, piece.len(), to);
                to += piece.len();
            }
            readback.ask(&device.queue.submit([encoder.finish()]));
            readback.wait(&device).unwrap();
            assert_eq!(readback.take(sizes, |i, bytes| (i, bytes.to_vec())).unwrap(), want.iter().cloned().enumerate().collect::<Vec<_>>());
            assert_eq!(readback.into_single().is_some(), n_buffers == 1);
        }
    }
}
