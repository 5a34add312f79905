//! Computes from a model's tape (its recorded program) how much memory the model needs on each device, before anything is allocated.

use crate::error::{Error, Result, size};
use crate::exec::Memory;
use crate::exec::strategy::{PlacedExperts, PlacedLayers};
use crate::quant::Format;
use crate::tape::{CacheSpec, Capacity, MatrixSpec, Tape, VectorSpec};
use std::ops::Range;

/// The memory of one layer, in bytes. The final norm and the head together count as a layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LayerBytes {
    /// Bytes of matrices and vectors.
    pub weights: u64,
    /// Bytes of the layer's tables (embedding, DeepEmbed), included in `weights`. If one layer with a table is streamed, the tables of all layers on
    /// that device stay in host memory.
    pub table: u64,
    /// Bytes of the experts' matrices, included in `weights`. They may be on another device than the rest of the layer.
    pub experts: u64,
    /// Bytes of the experts that a token does not use, included in `experts`.
    pub idle: u64,
    /// Bytes that the CPU executor reads from the memory-mapped checkpoint file, included in `weights`. The operating system can reclaim this memory.
    pub mapped: u64,
    /// Bytes of `mapped` that belong to experts.
    pub mapped_experts: u64,
    /// Bytes of the recurrent states and KV caches of all slots.
    pub slots: u64,
}

/// The sizes that determine the memory of a session.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// The numbers of pages (recurrent states) and blocks (KV cache), and the context.
    pub room: Capacity,
    /// The largest number of tokens that one step reads.
    pub tokens: usize,
    /// The largest number of rows of logits that one step returns.
    pub outputs: usize,
}

/// The memory that a model needs, by layer, for given formats of its matrices.
#[derive(Debug, Clone)]
pub struct Footprint {
    /// The model's layers. The first includes the embedding. The last entry is the final norm and the head.
    pub layers: Vec<LayerBytes>,
    /// Bytes of activations and of the table of rotary angles. Each group of consecutive layers on one device needs these bytes once.
    pub scratch: u64,
}

/// Returns the bytes of a matrix in its current format.
pub fn as_assigned(matrix: &MatrixSpec) -> u64 {
    matrix.size_bytes() as u64
}

/// Returns a function that returns the bytes of a matrix in `format`.
pub fn in_format(format: &'static dyn Format) -> impl Fn(&MatrixSpec) -> u64 {
    move |matrix| matrix.size_in(&|_| format) as u64
}

impl Footprint {
    /// Computes the memory that the model of a tape needs, by layer. `matrix_bytes` returns the bytes of a matrix: [`as_assigned`],
    /// [`in_format`], or another function.
    pub fn of(tape: &Tape, sizes: &Sizes, matrix_bytes: &dyn Fn(&MatrixSpec) -> u64) -> Footprint {
        let vector_bytes = |v: &VectorSpec| (v.parts.len() * v.stride() * 4) as u64;
        let layer = |i: usize| {
            let own = tape.extent(&(i..i + 1));
            let bytes_of = |is_counted: &dyn Fn(&MatrixSpec) -> bool| -> u64 {
                tape.matrices[own.matrices.clone()].iter().filter(|m| is_counted(m)).map(matrix_bytes).sum()
            };
            let (matrices, table) = (bytes_of(&|_| true), bytes_of(&MatrixSpec::is_table));
            let experts = bytes_of(&|m| m.n_used.is_some());
            let idle = tape.matrices[own.matrices].iter().map(|m| idle_bytes(m, matrix_bytes(m))).sum();
            let vectors = tape.vectors[own.vectors].iter().map(vector_bytes).sum::<u64>();
            let states = tape.states[own.states].iter().map(|s| s.size_bytes(sizes.room.pages)).sum::<usize>();
            let cache_bytes = |c: &CacheSpec| sizes.room.blocks * tape.cache_format.size_bytes(c.block_len());
            let caches = tape.caches[own.caches].iter().map(cache_bytes).sum::<usize>();
            LayerBytes { weights: matrices + vectors, table, experts, idle, slots: (states + caches) as u64, ..LayerBytes::default() }
        };
        let layers = (0..tape.n_layers()).map(layer).collect();
        // Executors round the rows of a step up to powers of two.
        let (tokens, outputs) = (sizes.tokens.max(1).next_power_of_two(), sizes.outputs.max(1).next_power_of_two());
        let vars = tape.vars.iter().map(|v| (v.planes * v.rows.count(tokens, outputs) * v.stride() * 4) as u64).sum::<u64>();
        let angles = tape.rotary.map_or(0, |r| (sizes.room.context * r.size * 4) as u64);
        Footprint { layers, scratch: vars + angles }
    }

    /// Sets [`LayerBytes::mapped`] and [`LayerBytes::mapped_experts`] of the layers and experts on the CPU. `mapped(matrix)` returns how many bytes
    /// of a matrix are read from the memory-mapped checkpoint file. `mapped` is not called for other matrices, because it may have to read scales
    /// from the file. Returns the errors of `mapped`.
    pub fn with_mapped(mut self, tape: &Tape, placed: &[PlacedLayers], mapped: &dyn Fn(&MatrixSpec) -> Result<u64>) -> Result<Footprint> {
        for part in placed {
            let away = part.experts.as_ref().and_then(|e| tape.experts_from(&part.layers, e.layers)).unwrap_or(usize::MAX);
            let away_on_cpu = part.experts.as_ref().is_some_and(PlacedExperts::is_on_cpu);
            for i in part.layers.clone() {
                let matrices = &tape.matrices[tape.extent(&(i..i + 1)).matrices];
                let (experts, others): (Vec<_>, Vec<_>) = matrices.iter().partition(|m| m.n_used.is_some());
                let sum = |matrices: Vec<&MatrixSpec>| matrices.into_iter().map(mapped).sum::<Result<u64>>();
                let experts_on_cpu = if i < away { part.is_on_cpu() } else { away_on_cpu };
                let layer = &mut self.layers[i];
                layer.mapped_experts = if experts_on_cpu { sum(experts)? } else { 0 };
                layer.mapped = layer.mapped_experts + if part.is_on_cpu() { sum(others)? } else { 0 };
            }
        }
        Ok(self)
    }

    /// Returns the bytes of the weights of `layers`.
    pub fn weights(&self, layers: Range<usize>) -> u64 {
        self.layers[layers].iter().map(|l| l.weights).sum()
    }

    /// Returns the bytes of recurrent states and KV caches of `layers`.
    pub fn slots(&self, layers: Range<usize>) -> u64 {
        self.layers[layers].iter().map(|l| l.slots).sum()
    }

    /// Returns the bytes of the experts in `layers`: all bytes, the mapped bytes and the idle bytes. Counts only the last `n` layers that have
    /// experts.
    pub fn experts(&self, layers: Range<usize>, n: usize) -> ExpertBytes {
        let mut sum = ExpertBytes::default();
        for layer in self.layers[layers].iter().rev().filter(|l| l.experts > 0).take(n) {
            sum.weights += layer.experts;
            sum.mapped += layer.mapped_experts;
            sum.idle += layer.idle;
        }
        sum
    }

    /// Returns the bytes that a device needs for `layers` if the first `resident` layers stay in device memory. The remaining layers are streamed
    /// through buffers for two layers: the device computes one layer while the next layer is uploaded.
    pub fn on_device(&self, layers: Range<usize>, resident: usize) -> DeviceBytes {
        let (own, streamed) = self.layers[layers.clone()].split_at(resident.min(layers.len()));
        let largest = streamed.iter().map(|l| l.weights - l.table).max().unwrap_or(0);
        // If a layer with a table is streamed, all tables stay in host memory.
        let in_host = streamed.iter().any(|l| l.table > 0);
        let tables = if in_host { own.iter().map(|l| l.table).sum() } else { 0 };
        DeviceBytes {
            weights: own.iter().map(|l| l.weights).sum::<u64>() - tables + 2 * largest,
            slots: self.slots(layers),
            scratch: self.scratch,
            mapped: 0,
        }
    }
}

/// Returns how many of a matrix's `bytes` belong to experts that a token does not use.
fn idle_bytes(matrix: &MatrixSpec, bytes: u64) -> u64 {
    matrix.n_used.map_or(0, |n_used| bytes - bytes / matrix.parts.len() as u64 * n_used as u64)
}

/// The bytes of experts on a device of their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExpertBytes {
    /// Bytes of all experts.
    pub weights: u64,
    /// Bytes that are read from the memory-mapped checkpoint file, included in `weights`.
    pub mapped: u64,
    /// Bytes of the experts that a token does not use, included in `weights`.
    pub idle: u64,
}

/// The memory that a model needs on one device, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceBytes {
    /// Bytes of matrices and vectors.
    pub weights: u64,
    /// Bytes of the recurrent states and KV caches of all slots.
    pub slots: u64,
    /// Bytes of activations and of the table of rotary angles.
    pub scratch: u64,
    /// Bytes that are read from the memory-mapped checkpoint file. Not included in `weights`.
    pub mapped: u64,
}

impl DeviceBytes {
    /// Returns the sum of all bytes except the mapped bytes.
    pub fn total(&self) -> u64 {
        self.weights + self.slots + self.scratch
    }
}

/// Returns the id of a strategy's device. `gpu` and `gpu:0` are the same adapter.
pub fn adapter_id(device: &str) -> &str {
    if device == "gpu" { "gpu:0" } else { device }
}

/// Returns the bytes that a placement needs on each device, in the order in which devices first occur. `footprint(entry)` returns the footprint of
/// the whole model in the weight formats of this entry of `placed`. The weights of streamed layers count as memory of `cpu`. Weights that the CPU
/// executor reads from a memory-mapped file do not count.
pub fn by_device<'n>(placed: &[PlacedLayers], footprint: &dyn Fn(&PlacedLayers) -> &'n Footprint) -> Vec<(String, DeviceBytes)> {
    let mut devices: Vec<(String, DeviceBytes)> = Vec::new();
    let mut add = |device: &str, more: DeviceBytes| {
        let device = adapter_id(device);
        let known = devices.iter_mut().find(|(id, _)| id == device);
        match known {
            Some((_, sum)) => {
                sum.weights += more.weights;
                sum.slots += more.slots;
                sum.scratch += more.scratch;
                sum.mapped += more.mapped;
            }
            None => devices.push((device.into(), more)),
        }
    };
    for segment in placed {
        let footprint = footprint(segment);
        let away = segment.experts.as_ref().map_or_else(ExpertBytes::default, |e| footprint.experts(segment.layers.clone(), e.layers));
        let resident = if segment.is_on_cpu() { segment.layers.len() } else { segment.resident };
        let mut own = footprint.on_device(segment.layers.clone(), resident);
        own.weights -= away.weights;
        if segment.is_on_cpu() {
            own.mapped = footprint.layers[segment.layers.clone()].iter().map(|l| l.mapped).sum::<u64>() - away.mapped;
            own.weights -= own.mapped;
        }
        add(&segment.device, own);
        if let Some(experts) = segment.experts.as_ref().filter(|_| away.weights > 0) {
            let ExpertBytes { weights, mapped, .. } = away;
            add(&experts.device, DeviceBytes { weights: weights - mapped, mapped, slots: 0, scratch: footprint.scratch });
        }
        if segment.is_on_cpu() {
            continue;
        }
        let (own, streamed) = footprint.layers[segment.layers.clone()].split_at(segment.resident.min(segment.layers.len()));
        let in_host = streamed.iter().any(|l| l.table > 0);
        let tables = own.iter().map(|l| if in_host { l.table } else { 0 });
        let in_host = streamed.iter().map(|l| l.weights).chain(tables).sum();
        if in_host > 0 {
            add("cpu", DeviceBytes { weights: in_host, ..DeviceBytes::default() });
        }
    }
    devices
}

/// Returns how many parameters compute one token: one row of each embedding table, the experts of one token, and all other weights.
pub fn token_params(tape: &Tape) -> u64 {
    let of_matrix = |matrix: &MatrixSpec| {
        let all: usize = matrix.parts.iter().map(|part| part.rows * part.k).sum();
        match matrix.n_used {
            Some(n_used) => all / matrix.parts.len() * n_used,
            None if matrix.is_table() => matrix.parts.iter().map(|part| part.k).sum(),
            None => all,
        }
    };
    let vectors = tape.vectors.iter().flat_map(|spec| spec.parts.iter().map(|part| spec.len(part)));
    (tape.matrices.iter().map(of_matrix).sum::<usize>() + vectors.sum::<usize>()) as u64
}

/// Checks that each device has room for its bytes. `memory` returns the memory of a device by its id. A device that does not report its
/// free memory passes.
///
/// # Errors
/// `Memory` if a device has too little free memory. The error names the device.
pub fn check(devices: &[(String, DeviceBytes)], memory: &dyn Fn(&str) -> Option<Memory>) -> Result<()> {
    for (device, bytes) in devices {
        let Some(free) = memory(device).and_then(|m| m.free) else { continue };
        if bytes.total() > free {
            let text = format!(
                "the model needs {} ({} weights, {} state and caches, {} activations), but this device has {} free",
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
