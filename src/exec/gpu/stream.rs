//! Streams layers from host memory. In each step, the layers pass through two sets of buffers on the device: while one layer is computed
//! from one set, the next layer is written to the other set.

use super::Device;
use super::upload::HostBuffer;
use crate::error::{Error, Result};
use std::sync::{Mutex, MutexGuard, PoisonError};
use wgpu::BufferUsages;

/// A buffer in one of the two sets through which layers are streamed. The buffer is as large as the largest piece that passes through it.
struct StreamBuffer {
    usage: BufferUsages,
    bytes: usize,
}

/// Layers in host memory, in the layout that the kernels read, and the two sets of buffers on the device.
pub struct Stream {
    /// For each layer, the pieces of its weights. A piece is the index of its buffer in the set, and its bytes.
    layers: Vec<Vec<(usize, Vec<u8>)>>,
    sets: Vec<Vec<wgpu::Buffer>>,
    /// Locked while a step uses the two sets of buffers, which several sessions share.
    alone: Mutex<()>,
}

impl Stream {
    /// Creates the sets of buffers for `layers`, which are the pieces of the matrices of each layer. Also returns the buffer that each piece is
    /// bound to, in the order of the pieces.
    pub fn new(device: &Device, layers: Vec<Vec<HostBuffer>>) -> Result<(Stream, Vec<wgpu::Buffer>)> {
        // Even layers use the first set, odd layers the second.
        let mut places = [Vec::new(), Vec::new()];
        let placed: Vec<Vec<usize>> = layers.iter().enumerate().map(|(i, layer)| assign_buffers(&mut places[i % 2], layer)).collect();
        let buffer = |p: &StreamBuffer| device.buffer("streamed weights", p.bytes, p.usage);
        let sets = places.iter().map(|set| set.iter().map(buffer).collect()).collect::<Result<Vec<Vec<_>>>>()?;
        let (mut bound, mut kept) = (Vec::new(), Vec::new());
        for (i, (layer, at)) in layers.into_iter().zip(placed).enumerate() {
            bound.extend(at.iter().map(|&at| sets[i % 2][at].clone()));
            kept.push(at.into_iter().zip(layer.into_iter().map(|piece| piece.bytes)).collect());
        }
        Ok((Stream { layers: kept, sets, alone: Mutex::default() }, bound))
    }

    /// Returns the number of bytes of both sets of buffers.
    pub fn device_bytes(&self) -> u64 {
        self.sets.iter().flatten().map(wgpu::Buffer::size).sum()
    }

    /// Waits until no other step uses the two sets of buffers, and reserves both sets for one step. Drop the returned [`StreamTurn`] once all
    /// work of the step is submitted.
    pub fn turn(&self) -> Result<StreamTurn<'_>> {
        let failed = |_: PoisonError<_>| Error::device("another thread panicked while it played a step");
        Ok(StreamTurn { stream: self, _alone: self.alone.lock().map_err(failed)?, readers: [None, None] })
    }
}

/// Assigns a buffer to each piece of a layer, largest piece first, so that large pieces of different layers share a buffer. Adds missing
/// buffers to `places`. Returns the index of each piece's buffer.
fn assign_buffers(places: &mut Vec<StreamBuffer>, layer: &[HostBuffer]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..layer.len()).collect();
    order.sort_by_key(|&piece| std::cmp::Reverse(layer[piece].bytes.len()));
    let mut taken = vec![false; places.len()];
    let mut at = vec![0; layer.len()];
    for piece in order {
        let HostBuffer { usage, bytes } = &layer[piece];
        let free = (0..places.len()).find(|&i| !taken[i] && places[i].usage == *usage);
        let i = free.unwrap_or_else(|| {
            places.push(StreamBuffer { usage: *usage, bytes: 0 });
            taken.push(false);
            places.len() - 1
        });
        places[i].bytes = places[i].bytes.max(bytes.len());
        taken[i] = true;
        at[piece] = i;
    }
    at
}

/// The exclusive use of the stream's two sets of buffers by one step.
pub struct StreamTurn<'a> {
    stream: &'a Stream,
    _alone: MutexGuard<'a, ()>,
    /// For each set, the last submission of this step that reads the set.
    readers: [Option<wgpu::SubmissionIndex>; 2],
}

impl StreamTurn<'_> {
    /// Writes a layer's weights to its set, for the next submission. First waits for the last submission that reads the set. Without the wait, the
    /// queue would keep the order, but wgpu's staging memory would have no bound.
    pub fn write(&mut self, device: &Device, layer: usize) -> Result<()> {
        if let Some(reader) = self.readers[layer % 2].take() {
            device.wait_for(reader)?;
        }
        for (place, bytes) in &self.stream.layers[layer] {
            device.queue.write_buffer(&self.stream.sets[layer % 2][*place], 0, bytes);
        }
        device.faults.check()
    }

    /// Records the submission that reads a layer.
    pub fn submitted(&mut self, layer: usize, reader: wgpu::SubmissionIndex) {
        self.readers[layer % 2] = Some(reader);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pieces_of_different_layers_share_a_place() {
        let kept = |usage, n: usize| HostBuffer { usage, bytes: vec![0; n] };
        let (storage, uniform) = (BufferUsages::STORAGE, BufferUsages::UNIFORM);
        let mut places = Vec::new();
        let first = assign_buffers(&mut places, &[kept(storage, 10), kept(storage, 40), kept(uniform, 70)]);
        let second = assign_buffers(&mut places, &[kept(storage, 50)]);
        assert_eq!(second[0], first[1], "the largest of both");
        let mut all = first;
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2], "each piece of a layer has its own");
        let mut sizes: Vec<usize> = places.iter().map(|p| p.bytes).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [10, 50, 70]);
    }
}
