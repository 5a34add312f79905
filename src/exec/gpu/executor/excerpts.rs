//! Reads parts of an executor's memory, several in one submission.

use super::GpuExecutor;
use crate::error::Result;
use crate::exec::gpu::pending::{PendingExcerpt, PendingWork};
use crate::exec::gpu::readback::{Readback, SplitReadback};
use crate::exec::{Excerpt, Loaded};
use crate::tape::TOKENS_PER_BLOCK;

/// A readback buffer of at least this many bytes is dropped after use.
const LARGE: usize = 8 << 20;

impl GpuExecutor {
    /// Submits copies of these excerpts (parts of the executor's memory) to buffers that the host can read.
    pub(super) fn read_excerpts(&mut self, excerpts: &[Excerpt<'_>]) -> Result<PendingWork> {
        let tape = self.model.tape().clone();
        let pending: Vec<PendingExcerpt> = excerpts.iter().map(|excerpt| PendingExcerpt::of(excerpt, &tape)).collect();
        let bytes = pending.iter().map(|excerpt| excerpt.bytes).sum();
        let device = self.model.device.clone();
        let mut readback = SplitReadback::new(&device, bytes, |bytes| self.readback(bytes))?;
        let (mut encoder, mut to) = (self.encoder(), 0);
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
                    blocks
                        .iter()
                        .take(n.div_ceil(TOKENS_PER_BLOCK))
                        .for_each(|&at| copy(&self.caches[cache.0], at as usize * bytes, bytes));
                }
                Excerpt::Var(var, rows) => {
                    let spec = tape.var_spec(var);
                    let (stride, plane) = (spec.stride() * 4, self.capacity.rows(spec.rows));
                    (0..spec.planes).for_each(|p| copy(&self.vars[var.0], p * plane * stride, rows * stride));
                }
            }
        }
        readback.ask(&device.queue.submit([encoder.finish()]));
        Ok(PendingWork::Excerpts(readback, pending))
    }

    /// Returns the values of each excerpt. The bytes must have arrived in `readback`.
    pub(super) fn take_excerpts(&mut self, mut readback: SplitReadback, pending: &[PendingExcerpt]) -> Result<Vec<Vec<f32>>> {
        let tape = self.model.tape();
        let numbers = readback.take(pending.iter().map(|excerpt| excerpt.bytes), |i, bytes| pending[i].decode(tape, bytes))?;
        self.keep(readback.into_single());
        Ok(numbers)
    }

    /// Returns a buffer to read back `bytes` bytes: the kept buffer if that buffer is large enough, otherwise a new buffer.
    pub(super) fn readback(&mut self, bytes: usize) -> Result<Readback> {
        match self.readback.take() {
            Some(kept) if kept.holds(bytes) => Ok(kept),
            _ => Readback::new(&self.model.device, bytes),
        }
    }

    /// Keeps a small buffer for the next readback, and drops a large buffer.
    pub(super) fn keep(&mut self, readback: Option<Readback>) {
        self.readback = readback.filter(|readback| !readback.holds(LARGE));
    }

    /// Submits `encoder` with a copy of the first `bytes` bytes of `from`. Blocks until the copied values are in `out`, decoded as f32.
    pub(super) fn read_now(
        &mut self,
        mut encoder: wgpu::CommandEncoder,
        from: &wgpu::Buffer,
        bytes: usize,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        let mut readback = self.readback(bytes)?;
        let device = &self.model.device;
        readback.copy(&mut encoder, from, 0, bytes, 0);
        readback.ask(bytes, device.queue.submit([encoder.finish()]));
        readback.wait(device)?;
        readback.take(|view| floats(view, out))?;
        self.readback = Some(readback);
        Ok(())
    }
}

/// Replaces the content of `out` by the f32 values that `bytes` holds in little-endian order.
pub(super) fn floats(bytes: &[u8], out: &mut Vec<f32>) {
    out.clear();
    out.extend(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
}
