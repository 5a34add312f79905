//! Sampling on the device: the buffers and the dispatches of `shaders/sample/`.
//!
//! Three dispatches sample a token for each slot. `keys` computes a key for each id: the logit in fixed point, with penalties and biases. `tally`
//! adds up the probabilities of ids in bins. `keys` and `tally` use many workgroups per slot. `draw` finds the token, with one workgroup per slot.
//! The dispatches sample the same tokens as `sample::Sampler`, and prepare the cursor for the next step. So one submission can hold many steps, each
//! followed by sampling. The host reads the ids afterwards, and the host's samplers accept these ids.

use super::device::Device;
use super::op::{Op, ready};
use crate::error::{Error, Result};
use crate::exec::MAX_AHEAD;
use crate::sample::{Row, SEEN, Sampler};
use crate::tape::{Binding, Dispatch, VarSpec};
use std::ops::Range;
use wgpu::BufferUsages;

/// The number of u32 words in a slot's header in the buffer of ids. The words are the low and the high half of the number of draws, the
/// step, and an unused word.
const HEADER: usize = 4;
/// The number of lanes in a workgroup of the kernels. A lane processes the logits of four consecutive ids at a time.
const LANES: usize = 256;
/// The number of u32 words of a slot in the buffer `tallies`: the largest key, the complement of the smallest key, and the sums of 512 bins. First
/// come the low halves of all sums, then the high halves.
const TALLY: usize = 2 + 2 * 512;
/// The largest number of ids in a vocabulary. The kernel searches two levels of 512 ranges, and a range of the second level has four ids.
const MAX_VOCAB: usize = 4 * 512 * 512;

/// The sizes that determine the buffers of [`Draws`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrawSizes {
    pub n_vocab: usize,
    /// The number of floats in a row of logits, a multiple of four.
    pub stride: usize,
    /// The number of slots. `logits` has one row per slot.
    pub n_slots: usize,
    /// The number of steps whose ids are kept.
    pub n_steps: usize,
}

impl DrawSizes {
    /// Returns the sizes for the variable `logits`, with room for [`MAX_AHEAD`] steps.
    pub fn of(logits: &VarSpec, n_slots: usize) -> DrawSizes {
        DrawSizes { n_vocab: logits.columns[0], stride: logits.stride(), n_slots, n_steps: MAX_AHEAD }
    }

    /// Returns the size in bytes of the largest buffer, which holds counts and biases.
    pub fn largest_binding(&self) -> usize {
        4 * 4 * self.quads() * 2 * self.n_slots
    }

    /// Returns whether the kernels support these sizes.
    pub fn is_possible(&self) -> bool {
        (1..=MAX_VOCAB).contains(&self.n_vocab) && self.n_vocab <= self.stride && self.stride.is_multiple_of(4)
    }

    /// Returns the number of quads. A quad is a group of four consecutive ids.
    fn quads(&self) -> usize {
        self.n_vocab.div_ceil(4)
    }

    /// Returns the dispatches that sample one token per slot. [`Draws`] resolves their bindings by name.
    pub fn dispatches(&self) -> [Dispatch; 3] {
        let (n_slots, blocks) = (self.n_slots as u32, self.quads().div_ceil(LANES) as u32);
        let dispatch = |shader, bindings: &[&'static str], grid| Dispatch {
            shader,
            modules: Vec::new(),
            constants: Vec::new(),
            params: vec![
                ("n_vocab", self.n_vocab.into()),
                ("quads", self.quads().into()),
                ("stride", (self.stride / 4).into()),
                ("n_steps", self.n_steps.into()),
                ("n_slots", self.n_slots.into()),
            ],
            bindings: bindings.iter().map(|&name| (name, Binding::Nothing)).collect(),
            grid,
        };
        let all = ["logits", "settings", "memory", "keys", "exempt", "drawn", "tallies"];
        [
            dispatch("sample/keys", &["logits", "settings", "memory", "keys", "tallies"], [blocks, n_slots, 1]),
            dispatch("sample/tally", &["settings", "keys", "tallies"], [blocks, n_slots, 1]),
            dispatch("sample/draw", &all, [n_slots, 1, 1]),
        ]
    }

    /// Returns the byte range of the ids of one step in [`Draws::ids`], one id per slot. `step` counts from [`Draws::begin`].
    pub fn ids_at(&self, step: usize) -> Range<u64> {
        let at = 4 * (HEADER * self.n_slots + step % self.n_steps * self.n_slots) as u64;
        at..at + 4 * self.n_slots as u64
    }
}

/// Samples on the device for the slots of one executor.
pub struct Draws {
    sizes: DrawSizes,
    /// Settings of the samplers: one [`Row`] per slot.
    settings: wgpu::Buffer,
    /// A row of token counts, then a row of biases, for each slot: `[slot, 2, n]`. n is `n_vocab` rounded up to a multiple of 4.
    memory: wgpu::Buffer,
    /// One bit per id, set if the token does not count in penalties.
    exempt: wgpu::Buffer,
    /// One header per slot, `[slot, HEADER]`, then the sampled ids, `[n_steps, slot]`.
    drawn: wgpu::Buffer,
    /// The results of `keys` and `tally` that the later dispatches read: [`TALLY`] words per slot.
    tallies: wgpu::Buffer,
    /// The dispatches of one step, in order.
    ops: Vec<Op>,
    /// Scratch for one row of counts or biases. All elements are zero between calls.
    plane: Vec<u32>,
}

impl Draws {
    /// Creates the buffers and the pipelines. `logits` is `[n_slots, stride]`. Slot `i` samples from output `i` of the step; each run must
    /// have one output. `cursor` is the buffer that describes the step; it must have the usage `STORAGE`.
    ///
    /// # Errors
    /// `Device` if the kernel does not support these sizes; `Memory` if the device has no room.
    pub fn new(device: &Device, sizes: DrawSizes, logits: wgpu::BindingResource<'_>, cursor: &wgpu::Buffer) -> Result<Draws> {
        if !sizes.is_possible() {
            let text = format!("cannot sample on the device: {} logits in rows of {} are not supported", sizes.n_vocab, sizes.stride);
            return Err(Error::device(text));
        }
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_DST | BufferUsages::COPY_SRC;
        let buffer = |label: &str, words: usize| {
            device.check_binding(label, words * 4, "use fewer texts at once")?;
            device.buffer(label, words * 4, usage)
        };
        let row = 4 * sizes.quads();
        let settings = buffer("settings", sizes.n_slots * size_of::<Row>() / 4)?;
        let memory = buffer("penalties", sizes.n_slots * 2 * row)?;
        let keys = buffer("keys", sizes.n_slots * row)?;
        let exempt = buffer("exempt", sizes.n_vocab.div_ceil(32))?;
        let drawn = buffer("drawn", (HEADER + sizes.n_steps) * sizes.n_slots)?;
        let tallies = buffer("tallies", sizes.n_slots * TALLY)?;
        let resolve = |name: &str, _| match name {
            "logits" => logits.clone(),
            "settings" => settings.as_entire_binding(),
            "memory" => memory.as_entire_binding(),
            "keys" => keys.as_entire_binding(),
            "exempt" => exempt.as_entire_binding(),
            "tallies" => tallies.as_entire_binding(),
            _ => drawn.as_entire_binding(),
        };
        let dispatches = sizes.dispatches();
        let ops = ready(device, &dispatches.each_ref(), cursor, &resolve)?;
        Ok(Draws { sizes, settings, memory, exempt, drawn, tallies, ops, plane: vec![0; row] })
    }

    /// Returns the sizes that were passed to [`Draws::new`].
    pub fn sizes(&self) -> &DrawSizes {
        &self.sizes
    }

    /// Copies the settings, counts, biases and numbers of draws of `samplers` to the first slots, and counts steps from 0 again. `exempt` has one bit
    /// per id, 1 if a token does not count in penalties. Call `begin` before the steps are submitted. The steps may be encoded before `begin`.
    pub fn begin(&mut self, device: &Device, samplers: &[&Sampler], exempt: &[u32]) -> Result<()> {
        if samplers.len() > self.sizes.n_slots {
            return Err(Error::device(format!("{} samplers do not fit {} slots", samplers.len(), self.sizes.n_slots)));
        }
        let plane_bytes = self.plane.len() as u64 * 4;
        let mut encoder = device.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.clear_buffer(&self.memory, 0, Some(2 * plane_bytes * samplers.len() as u64));
        encoder.clear_buffer(&self.exempt, 0, None);
        encoder.clear_buffer(&self.tallies, 0, None);
        // Submits the clears now. wgpu puts the writes below at the beginning of the next submission, where the clears would erase them.
        device.queue.submit([encoder.finish()]);

        let n_exempt = exempt.len().min(self.sizes.n_vocab.div_ceil(32));
        device.queue.write_buffer(&self.exempt, 0, bytemuck::cast_slice(&exempt[..n_exempt]));
        let rows: Vec<Row> = samplers.iter().map(|s| *s.row()).collect();
        device.queue.write_buffer(&self.settings, 0, bytemuck::cast_slice(&rows));
        let headers: Vec<[u32; HEADER]> = samplers.iter().map(|s| [s.draws() as u32, (s.draws() >> 32) as u32, 0, 0]).collect();
        device.queue.write_buffer(&self.drawn, 0, bytemuck::cast_slice(&headers));
        for (slot, sampler) in samplers.iter().enumerate() {
            let at = 2 * slot as u64 * plane_bytes;
            self.write_plane(device, at, sampler.counts().iter().map(|&(id, count)| (id, count | SEEN)));
            self.write_plane(device, at + plane_bytes, sampler.biases().iter().map(|&(id, bias)| (id, bias as u32)));
        }
        device.faults.check()
    }

    /// Writes a row of counts or biases at byte `at` of `memory`. `values` are pairs (id, value). The elements of all other ids must be 0
    /// in the buffer before the call.
    fn write_plane(&mut self, device: &Device, at: u64, values: impl Iterator<Item = (u32, u32)> + Clone) {
        let mut end = 0;
        for (id, value) in values.clone().filter(|(id, _)| (*id as usize) < self.sizes.n_vocab) {
            self.plane[id as usize] = value;
            end = end.max(id as usize + 1);
        }
        if end > 0 {
            device.queue.write_buffer(&self.memory, at, bytemuck::cast_slice(&self.plane[..end]));
            self.plane[..end].fill(0);
        }
    }

    /// Encodes sampling for the first `n` slots. A slot is skipped if its index is at least the step's number of outputs.
    pub fn encode(&self, pass: &mut wgpu::ComputePass<'_>, n: usize) {
        let (n, blocks) = (n as u32, self.sizes.quads().div_ceil(LANES) as u32);
        for (op, grid) in self.ops.iter().zip([[blocks, n, 1], [blocks, n, 1], [n, 1, 1]]) {
            op.encode_grid(pass, grid);
        }
    }

    /// Returns the buffer of ids. [`DrawSizes::ids_at`] describes its layout.
    pub fn ids(&self) -> &wgpu::Buffer {
        &self.drawn
    }

    /// Returns the buffer with the counts and the biases of every slot, `[slot, 2, 4 ceil(n_vocab / 4)]`. A count of a seen id has the bit
    /// [`SEEN`] set.
    pub fn memory(&self) -> &wgpu::Buffer {
        &self.memory
    }
}
