//! Work that an executor began and has not finished, and the meaning of the bytes that are read back.

use super::Device;
use super::readback::{Readback, SplitReadback, SubmittedWork};
use crate::error::Result;
use crate::exec::Excerpt;
use crate::tape::{Cache, State, TOKENS_PER_BLOCK, Tape};
use std::task::{Context, Poll};

/// Work that a `begin` method started and no `finish` method has finished yet.
pub enum PendingWork {
    /// A step whose results stay on the device.
    Step(SubmittedWork),
    /// The readback of a step's logits, `[rows, stride]`, and the number of rows.
    Logits(Readback, usize),
    /// Several steps with sampling. The readback of the ids is in [`Ahead`](super::ahead::Ahead).
    Ahead,
    /// The readback of excerpts, and the excerpts in the order of their bytes.
    Excerpts(SplitReadback, Vec<PendingExcerpt>),
}

impl PendingWork {
    /// Returns `Ready` once the work is done. `ahead` is the readback of sampled ids, or `None` if the executor does not sample.
    pub fn poll(&self, device: &Device, ahead: Option<&Readback>, context: &mut Context<'_>) -> Poll<Result<()>> {
        match self {
            PendingWork::Step(submitted) => submitted.poll(device, context),
            PendingWork::Logits(readback, _) => readback.poll(device, context),
            PendingWork::Excerpts(readback, _) => readback.poll(device, context),
            PendingWork::Ahead => ahead.map_or(Poll::Ready(Ok(())), |readback| readback.poll(device, context)),
        }
    }

    /// Blocks until the work is done.
    pub fn wait(&self, device: &Device, ahead: Option<&Readback>) -> Result<()> {
        match self {
            PendingWork::Step(submitted) => submitted.wait(device),
            PendingWork::Logits(readback, _) => readback.wait(device),
            PendingWork::Excerpts(readback, _) => readback.wait(device),
            PendingWork::Ahead => ahead.map_or(Ok(()), |readback| readback.wait(device)),
        }
    }
}

/// An excerpt (a part of an executor's memory) that is being read back.
pub struct PendingExcerpt {
    kind: ExcerptKind,
    pub bytes: usize,
}

enum ExcerptKind {
    State(State),
    /// A cache, and the number n of tokens whose keys or values are read: the first n tokens of a slot.
    Cache(Cache, usize),
    Var,
}

impl PendingExcerpt {
    /// Describes an excerpt: its kind and its number of bytes.
    pub fn of(excerpt: &Excerpt<'_>, tape: &Tape) -> PendingExcerpt {
        match *excerpt {
            Excerpt::State(state, _) => PendingExcerpt { kind: ExcerptKind::State(state), bytes: tape.state_spec(state).page_bytes() },
            Excerpt::Cache(cache, _, n) => {
                let block = tape.cache_format.size_bytes(tape.cache_spec(cache).block_len());
                PendingExcerpt { kind: ExcerptKind::Cache(cache, n), bytes: n.div_ceil(TOKENS_PER_BLOCK) * block }
            }
            Excerpt::Var(var, rows) => {
                let spec = tape.var_spec(var);
                PendingExcerpt { kind: ExcerptKind::Var, bytes: spec.planes * rows * spec.stride() * 4 }
            }
        }
    }

    /// Returns the values of the excerpt, decoded from `bytes`.
    pub fn decode(&self, tape: &Tape, bytes: &[u8]) -> Vec<f32> {
        match self.kind {
            ExcerptKind::State(state) => tape.state_spec(state).decode(bytes),
            ExcerptKind::Var => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
            ExcerptKind::Cache(cache, n) => {
                let spec = tape.cache_spec(cache);
                let (width, mut block, mut all) = (spec.width(), vec![0.0; spec.block_len()], Vec::with_capacity(n * spec.width()));
                for (i, bytes) in bytes.chunks_exact(tape.cache_format.size_bytes(spec.block_len())).enumerate() {
                    tape.cache_format.decode(bytes, &mut block);
                    let rows = 0..TOKENS_PER_BLOCK.min(n - i * TOKENS_PER_BLOCK);
                    all.extend(rows.flat_map(|token| (0..width).map(move |i| (token, i))).map(|(token, i)| block[spec.place(token, i)]));
                }
                all
            }
        }
    }
}
