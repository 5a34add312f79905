//! Reads parts of an executor's memory, several in one submission.

use super::{GpuExecutor, PendingWork};
use crate::error::Result;
use crate::exec::gpu::readback::Readback;
use crate::exec::{Excerpt, Loaded};
use crate::tape::{TOKENS_PER_BLOCK, Tape};

/// A readback buffer of at least this many bytes is dropped after use.
const LARGE: usize = 8 << 20;

impl GpuExecutor {
    /// Submits `encoder` with copies of `excerpts` to buffers that the host can read.
    pub(super) fn read_excerpts(&mut self, mut encoder: wgpu::CommandEncoder, excerpts: &[Excerpt<'_>]) -> Result<PendingWork> {
        let tape = self.model.tape().clone();
        let bytes = excerpts.iter().map(|excerpt| size_bytes(excerpt, &tape)).sum();
        let mut readback = self.readback(bytes)?;
        let mut to = 0;
        for excerpt in excerpts {
            let mut copy = |from: &wgpu::Buffer, at: usize, bytes: usize| {
                readback.copy(&mut encoder, from, at, bytes, to);
                to += bytes;
            };
            match *excerpt {
                Excerpt::State(state, page) => {
                    let bytes = tape.state_spec(state).page_bytes();
                    copy(&self.states[state.0], page * bytes, bytes);
                }
                Excerpt::Cache(cache, blocks, n) => {
                    let bytes = tape.cache_format.size_bytes(tape.cache_spec(cache).block_len());
                    let blocks = blocks.iter().take(n.div_ceil(TOKENS_PER_BLOCK));
                    blocks.for_each(|&at| copy(&self.caches[cache.0], at as usize * bytes, bytes));
                }
                Excerpt::Var(var, rows) => {
                    let spec = tape.var_spec(var);
                    let (stride, plane) = (spec.stride() * 4, self.capacity.rows(spec.rows));
                    (0..spec.planes).for_each(|p| copy(&self.vars[var.0], p * plane * stride, rows * stride));
                }
            }
        }
        readback.ask(bytes, self.model.device.queue.submit([encoder.finish()]));
        Ok(PendingWork::Excerpts(readback, excerpts.iter().map(without_blocks).collect()))
    }

    /// Returns the values of each excerpt. The bytes must have arrived in `readback`.
    pub(super) fn take_excerpts(&mut self, mut readback: Readback, excerpts: &[Excerpt<'_>]) -> Result<Vec<Vec<f32>>> {
        let tape = self.model.tape();
        let sizes = excerpts.iter().map(|excerpt| size_bytes(excerpt, tape));
        let numbers = readback.take(sizes, |i, bytes| decode(&excerpts[i], tape, bytes))?;
        self.keep(readback);
        Ok(numbers)
    }

    /// Returns buffers to read back `bytes` bytes: the kept buffers if they are large enough, otherwise new buffers.
    pub(super) fn readback(&mut self, bytes: usize) -> Result<Readback> {
        match self.readback.take() {
            Some(kept) if kept.holds(bytes) => Ok(kept),
            _ => Readback::new(&self.model.device, bytes),
        }
    }

    /// Keeps a small readback for later, and drops a large readback.
    pub(super) fn keep(&mut self, readback: Readback) {
        self.readback = Some(readback).filter(|readback| !readback.holds(LARGE));
    }

    /// Submits `encoder` with a copy of the first `bytes` bytes of `from`. Blocks until the copy has arrived, and calls `read` with its bytes.
    pub(super) fn read_now(
        &mut self,
        mut encoder: wgpu::CommandEncoder,
        from: &wgpu::Buffer,
        bytes: usize,
        mut read: impl FnMut(&[u8]),
    ) -> Result<()> {
        let mut readback = self.readback(bytes)?;
        let device = &self.model.device;
        readback.copy(&mut encoder, from, 0, bytes, 0);
        readback.ask(bytes, device.queue.submit([encoder.finish()]));
        readback.submitted().map_or(Ok(()), |submitted| submitted.wait(device))?;
        readback.take([bytes], |_, bytes| read(bytes))?;
        self.readback = Some(readback);
        Ok(())
    }
}

/// Decodes f32 values in little-endian order.
pub(super) fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// Returns the excerpt with an empty list of blocks: only the copy needs the list.
fn without_blocks(excerpt: &Excerpt<'_>) -> Excerpt<'static> {
    match *excerpt {
        Excerpt::State(state, page) => Excerpt::State(state, page),
        Excerpt::Cache(cache, _, n) => Excerpt::Cache(cache, &[], n),
        Excerpt::Var(var, rows) => Excerpt::Var(var, rows),
    }
}

fn size_bytes(excerpt: &Excerpt<'_>, tape: &Tape) -> usize {
    match *excerpt {
        Excerpt::State(state, _) => tape.state_spec(state).page_bytes(),
        Excerpt::Cache(cache, _, n) => n.div_ceil(TOKENS_PER_BLOCK) * tape.cache_format.size_bytes(tape.cache_spec(cache).block_len()),
        Excerpt::Var(var, rows) => tape.var_spec(var).planes * rows * tape.var_spec(var).stride() * 4,
    }
}

/// Returns the values of an excerpt from its bytes on the device.
fn decode(excerpt: &Excerpt<'_>, tape: &Tape, bytes: &[u8]) -> Vec<f32> {
    match *excerpt {
        Excerpt::State(state, _) => tape.state_spec(state).decode(bytes),
        Excerpt::Var(..) => floats(bytes).collect(),
        Excerpt::Cache(cache, _, n) => {
            let spec = tape.cache_spec(cache);
            let (width, mut block, mut all) = (spec.width(), vec![0.0; spec.block_len()], Vec::with_capacity(n * spec.width()));
            for (i, bytes) in bytes.chunks_exact(tape.cache_format.size_bytes(spec.block_len())).enumerate() {
                tape.cache_format.decode(bytes, &mut block);
                let rows = 0..TOKENS_PER_BLOCK.min(n - i * TOKENS_PER_BLOCK);
                all.extend(rows.flat_map(|token| (0..width).map(move |i| (token, i))).map(|(token, i)| block[spec.offset(token, i)]));
            }
            all
        }
    }
}
