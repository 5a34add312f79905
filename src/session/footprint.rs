//! What a model needs on each device, from its tape alone: before anything is allocated.

use crate::error::{Error, Result, size};
use crate::exec::Memory;
use crate::exec::strategy::Placed;
use crate::quant::Format;
use crate::tape::{CacheSpec, MatrixSpec, Room, Tape, VectorSpec};
use std::ops::Range;

/// Bytes of one of the L + 1 layers, on the device that has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LayerBytes {
    /// Matrices and vectors.
    pub weights: u64,
    /// Of these, what is looked up by row: streamed, it stays in host memory.
    pub table: u64,
    /// Of the weights, what the CPU reads from the file's map. The system takes that memory back where it is short of it.
    pub mapped: u64,
    /// States and caches of all slots.
    pub slots: u64,
}

/// What a session makes room for.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// The numbers of pages and blocks.
    pub room: Room,
    /// Tokens of a step, at the most.
    pub tokens: usize,
    /// Rows of logits of a step, at the most.
    pub outputs: usize,
}

/// A model's bytes by layer, with its matrices in certain formats.
#[derive(Debug, Clone)]
pub struct Footprint {
    /// L + 1; the embedding is part of the first, norm and head behind the blocks are the last.
    pub layers: Vec<LayerBytes>,
    /// Activations, and what depends on the context alone. Every segment has its own.
    pub scratch: u64,
}

/// Bytes of a matrix in the format that it has.
pub fn as_assigned(matrix: &MatrixSpec) -> u64 {
    matrix.size_bytes() as u64
}

/// Bytes of a matrix as if it had that format.
pub fn in_format(format: &'static dyn Format) -> impl Fn(&MatrixSpec) -> u64 {
    move |matrix| matrix.size_in(&|_| format) as u64
}

impl Footprint {
    /// Of a model's tape. `matrix_bytes`: [`as_assigned`], [`in_format`], or what a mixed plan makes of a matrix.
    pub fn of(tape: &Tape, sizes: &Sizes, matrix_bytes: &dyn Fn(&MatrixSpec) -> u64) -> Footprint {
        let vector_bytes = |v: &VectorSpec| (v.parts.len() * v.stride() * 4) as u64;
        let layer = |i: usize| {
            let own = tape.extent(&(i..i + 1));
            let matrices = tape.matrices[own.matrices.clone()].iter().map(matrix_bytes).sum::<u64>();
            let table = tape.matrices[own.matrices].iter().filter(|m| m.is_table()).map(matrix_bytes).sum();
            let vectors = tape.vectors[own.vectors].iter().map(vector_bytes).sum::<u64>();
            let states = tape.states[own.states].iter().map(|s| s.size_bytes(sizes.room.pages)).sum::<usize>();
            let cache_bytes = |c: &CacheSpec| sizes.room.blocks * tape.cache_format.size_bytes(c.block_len());
            let caches = tape.caches[own.caches].iter().map(cache_bytes).sum::<usize>();
            LayerBytes { weights: matrices + vectors, table, mapped: 0, slots: (states + caches) as u64 }
        };
        let layers = (0..tape.n_layers()).map(layer).collect();
        // Executors round the rows of a step up.
        let (tokens, outputs) = (sizes.tokens.max(1).next_power_of_two(), sizes.outputs.max(1).next_power_of_two());
        let vars = tape.vars.iter().map(|v| (v.planes * v.rows.count(tokens, outputs) * v.stride() * 4) as u64).sum::<u64>();
        let angles = tape.rotary.map_or(0, |r| (sizes.room.context * r.size * 4) as u64);
        Footprint { layers, scratch: vars + angles }
    }

    /// The same, of a model whose files hold matrices as the CPU reads them: so many bytes of each. Who tells may have to read their
    /// scales, so only those are asked for that lie on the CPU.
    pub fn with_mapped(mut self, tape: &Tape, placed: &[Placed], mapped: &dyn Fn(&MatrixSpec) -> Result<u64>) -> Result<Footprint> {
        for i in placed.iter().filter(|p| p.is_on_cpu()).flat_map(|p| p.layers.clone()) {
            let matrices = &tape.matrices[tape.extent(&(i..i + 1)).matrices];
            self.layers[i].mapped = matrices.iter().map(mapped).sum::<Result<u64>>()?;
        }
        Ok(self)
    }

    /// Weights of these layers.
    pub fn weights(&self, layers: Range<usize>) -> u64 {
        self.layers[layers].iter().map(|l| l.weights).sum()
    }

    /// States and caches of these layers.
    pub fn slots(&self, layers: Range<usize>) -> u64 {
        self.layers[layers].iter().map(|l| l.slots).sum()
    }

    /// Everything that a device holds which has these layers, the first `resident` of them all the time. While one of the others is
    /// computed the next is on its way, so there is room for two.
    pub fn on_device(&self, layers: Range<usize>, resident: usize) -> DeviceBytes {
        let streamed = layers.start + resident..layers.end;
        let largest = self.layers[streamed].iter().map(|l| l.weights - l.table).max().unwrap_or(0);
        DeviceBytes {
            weights: self.weights(layers.start..layers.start + resident) + 2 * largest,
            slots: self.slots(layers),
            scratch: self.scratch,
        }
    }
}

/// What a device holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceBytes {
    /// Bytes of weights.
    pub weights: u64,
    /// Bytes of slots.
    pub slots: u64,
    /// Bytes of working memory.
    pub scratch: u64,
}

impl DeviceBytes {
    /// Returns the sum of all bytes.
    pub fn total(&self) -> u64 {
        self.weights + self.slots + self.scratch
    }
}

/// What every device of a placement holds, in the order in which they come. `footprint`: of the whole model, as that segment keeps it. The
/// host also holds what is streamed.
pub fn by_device<'n>(placed: &[Placed], footprint: &dyn Fn(&Placed) -> &'n Footprint) -> Vec<(String, DeviceBytes)> {
    let mut devices: Vec<(String, DeviceBytes)> = Vec::new();
    let mut add = |device: &str, more: DeviceBytes| {
        // The first adapter has two names.
        let device = if device == "gpu" { "gpu:0" } else { device };
        let known = devices.iter_mut().find(|(id, _)| id == device);
        match known {
            Some((_, sum)) => {
                sum.weights += more.weights;
                sum.slots += more.slots;
                sum.scratch += more.scratch;
            }
            None => devices.push((device.into(), more)),
        }
    };
    for segment in placed {
        let footprint = footprint(segment);
        if segment.is_on_cpu() {
            // There is nothing to stream to.
            let mut own = footprint.on_device(segment.layers.clone(), segment.layers.len());
            own.weights -= footprint.layers[segment.layers.clone()].iter().map(|l| l.mapped).sum::<u64>();
            add("cpu", own);
            continue;
        }
        add(&segment.device, footprint.on_device(segment.layers.clone(), segment.resident));
        let streamed = footprint.weights(segment.layers.start + segment.resident..segment.layers.end);
        if streamed > 0 {
            add("cpu", DeviceBytes { weights: streamed, ..DeviceBytes::default() });
        }
    }
    devices
}

/// Whether each device has room for what it is to hold. `memory`: of a device by its id; what does not say how much is free is not
/// refused.
pub fn check(devices: &[(String, DeviceBytes)], memory: &dyn Fn(&str) -> Option<Memory>) -> Result<()> {
    for (device, bytes) in devices {
        let Some(free) = memory(device).and_then(|m| m.free) else { continue };
        if bytes.total() > free {
            let text = format!(
                "the model needs {} there ({} weights, {} state and caches, {} activations), {} are free",
                size(bytes.total()),
                size(bytes.weights),
                size(bytes.slots),
                size(bytes.scratch),
                size(free)
            );
            return Err(Error::memory(text).at(device));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
