//! Streams layers from host memory. In each step, the layers pass through two sets of buffers on the device: while one layer is computed
//! from one set, the next layer is written to the other set.

use super::Device;
use super::upload::HostBuffer;
use crate::error::{Error, Result};
use std::sync::{Mutex, MutexGuard, PoisonError};
use wgpu::BufferUsages;

/// A buffer of one of the two sets through which layers are streamed. The buffer is as large as the largest piece that passes through it.
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

/// For each matrix of a layer, the pieces of the matrix. A piece is the index of its buffer in the set, and its bytes.
type LayerPieces = Vec<Vec<(usize, Vec<u8>)>>;

/// The buffers that each matrix of a layer is bound to.
pub type BoundBuffers = Vec<Vec<wgpu::Buffer>>;

impl Stream {
    /// Creates the sets of buffers for `layers`, indexed `[layer][matrix][piece]`. Also returns the buffers that each layer is bound to.
    pub fn new(device: &Device, layers: Vec<Vec<Vec<HostBuffer>>>) -> Result<(Stream, Vec<BoundBuffers>)> {
        // Even layers use the first set, odd layers the second.
        let mut places = [Vec::new(), Vec::new()];
        let mut placed: Vec<LayerPieces> = Vec::new();
        for (i, layer) in layers.into_iter().enumerate() {
            placed.push(place(&mut places[i % 2], layer));
        }
        let buffer = |p: &StreamBuffer| device.buffer("streamed weights", p.bytes, p.usage);
        let sets = places.iter().map(|set| set.iter().map(buffer).collect()).collect::<Result<Vec<Vec<_>>>>()?;
        let mut bound = Vec::new();
        for (layer, matrices) in placed.iter().enumerate() {
            let set = &sets[layer % 2];
            bound.push(matrices.iter().map(|pieces| pieces.iter().map(|(at, _)| set[*at].clone()).collect()).collect());
        }
        let layers = placed.into_iter().map(|matrices| matrices.into_iter().flatten().collect()).collect();
        Ok((Stream { layers, sets, alone: Mutex::default() }, bound))
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
/// buffers to `places`.
fn place(places: &mut Vec<StreamBuffer>, layer: Vec<Vec<HostBuffer>>) -> LayerPieces {
    let mut order: Vec<(usize, usize)> =
        layer.iter().enumerate().flat_map(|(m, pieces)| (0..pieces.len()).map(move |piece| (m, piece))).collect();
    order.sort_by_key(|&(m, piece)| std::cmp::Reverse(layer[m][piece].bytes.len()));
    let mut taken = vec![false; places.len()];
    let mut at: Vec<Vec<usize>> = layer.iter().map(|pieces| vec![0; pieces.len()]).collect();
    for (m, piece) in order {
        let HostBuffer { usage, bytes } = &layer[m][piece];
        let free = (0..places.len()).find(|&i| !taken[i] && places[i].usage == *usage);
        let i = free.unwrap_or_else(|| {
            places.push(StreamBuffer { usage: *usage, bytes: 0 });
            taken.push(false);
            places.len() - 1
        });
        places[i].bytes = places[i].bytes.max(bytes.len());
        taken[i] = true;
        at[m][piece] = i;
    }
    let with_bytes = |(pieces, at): (Vec<HostBuffer>, Vec<usize>)| at.into_iter().zip(pieces.into_iter().map(|kept| kept.bytes)).collect();
    layer.into_iter().zip(at).map(with_bytes).collect()
}

/// The exclusive use of the stream's two sets of buffers by one step.
pub struct StreamTurn<'a> {
    stream: &'a Stream,
    _alone: MutexGuard<'a, ()>,
    /// For each set, the last submission of this step that reads the set.
    readers: [Option<wgpu::SubmissionIndex>; 2],
}

impl StreamTurn<'_> {
    /// Writes a layer's weights to its set, for the next submission. First waits for the last submission that reads the set. The queue
    /// alone would keep the order, but would not bound the staging memory.
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
        let layer = vec![vec![kept(storage, 10), kept(storage, 40)], vec![kept(uniform, 70)]];
        let at = |placed: LayerPieces| -> Vec<Vec<(usize, usize)>> {
            placed.into_iter().map(|m| m.into_iter().map(|(at, bytes)| (at, bytes.len())).collect()).collect()
        };
        let first = at(place(&mut places, layer));
        let second = at(place(&mut places, vec![vec![kept(storage, 50)]]));
        assert_eq!(second[0][0].0, first[0][1].0, "the largest of both");
        let mut all: Vec<usize> = first.iter().flatten().map(|(at, _)| *at).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2], "each piece of a layer has its own");
        let mut sizes: Vec<usize> = places.iter().map(|p| p.bytes).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [10, 50, 70]);
    }
}
