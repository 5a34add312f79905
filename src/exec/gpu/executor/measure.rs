//! Measures the time of each word of a step, and the fraction of zeros in sparse inputs. Both measurements block.

use super::GpuExecutor;
use super::excerpts::floats;
use crate::error::{Error, Result};
use crate::exec::{Loaded, WordTime, mean, share_of_zeros};
use crate::tape::Step;
use std::ops::Range;
use wgpu::BufferUsages;

/// The number of bytes of a timestamp.
const STAMP: usize = 8;

impl GpuExecutor {
    /// Implements [`Executor::profile_words`](crate::exec::Executor::profile_words).
    pub(super) fn timed(&mut self, step: &Step, of: &Range<usize>) -> Result<Vec<WordTime>> {
        let device = self.model.device.clone();
        if !device.device.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
            return Err(Error::device("this adapter does not support timestamps").hint("measure without `profile`"));
        }
        let size = self.prepare(step, 1)?;
        let n = 2 * of.len().max(1);
        let queries =
            device.device.create_query_set(&wgpu::QuerySetDescriptor { label: None, ty: wgpu::QueryType::Timestamp, count: n as u32 });
        let stamps = device.buffer("timestamps", n * STAMP, BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC)?;
        let (model, with_head, mut words) = (self.model.clone(), !step.outputs.is_empty(), Vec::new());
        let mut turn = model.weights.turn()?;
        let mut encoder = self.play(&mut turn, of, with_head, |own, stage| {
            let mut encoder = own.encoder();
            own.plans[&size].encode_timed(&mut encoder, &queries, model.tape(), stage, with_head, &mut words);
            Ok(encoder)
        })?;
        if words.is_empty() {
            device.queue.submit([encoder.finish()]);
            return Ok(words);
        }
        encoder.resolve_query_set(&queries, 0..2 * words.len() as u32, &stamps, 0);
        let mut ticks: Vec<u64> = Vec::new();
        self.read_now(encoder, &stamps, words.len() * 2 * STAMP, |bytes| {
            ticks.extend(bytes.chunks_exact(STAMP).map(|stamp| u64::from_le_bytes(stamp.try_into().expect("8 bytes"))));
        })?;
        let period = f64::from(device.queue.get_timestamp_period()) * 1e-9;
        for (word, ticks) in words.iter_mut().zip(ticks.chunks_exact(2)) {
            word.seconds = ticks[1].saturating_sub(ticks[0]) as f64 * period;
        }
        Ok(words)
    }

    /// Implements [`Executor::sparsity_words`](crate::exec::Executor::sparsity_words).
    pub(super) fn mean_sparsity(&mut self, step: &Step, words: &Range<usize>) -> Result<Option<f64>> {
        let size = self.prepare(step, 1)?;
        let model = self.model.clone();
        let (tape, mut turn) = (model.tape(), model.weights.turn()?);
        let mut shares = Vec::new();
        let encoder = self.play(&mut turn, words, false, |own, stage| {
            let (mut encoder, mut played) = (own.encoder(), stage.start);
            for i in stage.clone() {
                let Some((var, range)) = tape.words[i].sparse_input(tape) else { continue };
                own.plans[&size].encode_words(&mut encoder, &(played..i), false);
                let (from, stride) = (own.vars[var.0].clone(), tape.var_spec(var).stride());
                let share = |bytes: &[u8]| shares.push(share_of_zeros(&floats(bytes).collect::<Vec<_>>(), stride, &range));
                own.read_now(encoder, &from, step.tokens.len() * stride * 4, share)?;
                (encoder, played) = (own.encoder(), i);
            }
            own.plans[&size].encode_words(&mut encoder, &(played..stage.end), false);
            Ok(encoder)
        })?;
        model.device.queue.submit([encoder.finish()]);
        model.device.faults.check()?;
        Ok(mean(&shares))
    }
}
