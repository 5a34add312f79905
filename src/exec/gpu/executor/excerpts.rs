//! Excerpts of an executor's memory on their way to the host, several in one submission.

use super::GpuExecutor;
use crate::error::Result;
use crate::exec::gpu::pending::{Pending, PendingExcerpt};
use crate::exec::gpu::readback::Readback;
use crate::exec::{Excerpt, Loaded};
use crate::tape::{TOKENS_PER_BLOCK, Tape};

impl GpuExecutor {
    /// Submits copies of these excerpts to the host.
    pub(super) fn read_excerpts(&mut self, excerpts: &[Excerpt<'_>]) -> Result<Pending> {
        let tape = self.model.tape().clone();
        let pending: Vec<PendingExcerpt> = excerpts.iter().map(|excerpt| PendingExcerpt::of(excerpt, &tape)).collect();
        let bytes = pending.iter().map(|excerpt| excerpt.bytes).sum();
        let mut readback = self.readback(bytes)?;
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
        readback.ask(bytes, self.model.device.queue.submit([encoder.finish()]));
        Ok(Pending::Excerpts(readback, pending))
    }
}

/// The numbers of each excerpt.
pub fn decoded(readback: &mut Readback, pending: &[PendingExcerpt], tape: &Tape) -> Result<Vec<Vec<f32>>> {
    readback.take(|view| {
        let mut rest = view;
        let own = pending.iter().map(|excerpt| {
            let (bytes, behind) = rest.split_at(excerpt.bytes);
            rest = behind;
            excerpt.decode(tape, bytes)
        });
        own.collect()
    })
}
