//! A tape lowered for one size of step: a flat list of ready dispatches. Playing a plan does no string, map or bind-group work.

use super::device::Device;
use super::op::{Op, ready};
use crate::error::Result;
use crate::exec::{WordTime, weight_bytes};
use crate::tape::{Binding, Dispatch, Held, Lowering, Section, Tape};
use std::ops::Range;

/// A dispatch in its place.
struct Placed {
    op: Op,
    /// Makes logits: skipped where none are wanted.
    is_head: bool,
    /// Index in the tape.
    word: usize,
}

pub struct Plan {
    ops: Vec<Placed>,
    /// Bytes of weights of every word.
    weight_bytes: Held<u64>,
}

impl Plan {
    /// Of a section's words. `resolve` gives what lies behind a binding.
    pub fn new<'b>(
        device: &Device,
        cx: &Lowering<'_>,
        section: &Section,
        cursor: &wgpu::Buffer,
        resolve: &dyn Fn(Binding) -> wgpu::BindingResource<'b>,
    ) -> Result<Plan> {
        let mut dispatches: Vec<(Dispatch, usize)> = Vec::new();
        let weight_bytes = Held::new(&section.own.words, |i| {
            let own = cx.tape.words[i].lower(cx);
            let bytes = weight_bytes(cx.tape, &own);
            dispatches.extend(own.into_iter().map(|d| (d, i)));
            Ok(bytes)
        })?;
        let flat: Vec<&Dispatch> = dispatches.iter().map(|(d, _)| d).collect();
        let ready = ready(device, &flat, cursor, &|_, binding| resolve(binding))?;
        let place = |(op, (_, word)): (Op, &(Dispatch, usize))| Placed { op, is_head: cx.tape.words[*word].is_head(), word: *word };
        let ops = ready.into_iter().zip(&dispatches).map(place).collect();
        Ok(Plan { ops, weight_bytes })
    }

    /// Encodes every dispatch.
    pub fn encode(&self, pass: &mut wgpu::ComputePass<'_>, with_head: bool) {
        self.ops.iter().filter(|op| with_head || !op.is_head).for_each(|placed| placed.op.encode(pass));
    }

    /// Encodes these words of the tape, but for the head, into one pass.
    pub fn encode_words(&self, encoder: &mut wgpu::CommandEncoder, words: Range<usize>) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        self.ops.iter().filter(|op| words.contains(&op.word) && !op.is_head).for_each(|placed| placed.op.encode(&mut pass));
    }

    /// Encodes a pass a word, between two timestamps each; gives what each word is but for its time.
    pub fn encode_timed(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        queries: &wgpu::QuerySet,
        tape: &Tape,
        with_head: bool,
    ) -> Vec<WordTime> {
        let mut words = Vec::new();
        for ops in self.ops.chunk_by(|a, b| a.word == b.word).filter(|ops| with_head || !ops[0].is_head) {
            let first = 2 * words.len() as u32;
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: None,
                timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                    query_set: queries,
                    beginning_of_pass_write_index: Some(first),
                    end_of_pass_write_index: Some(first + 1),
                }),
            });
            ops.iter().for_each(|placed| placed.op.encode(&mut pass));
            let word = ops[0].word;
            let name = tape.words[word].name();
            words.push(WordTime { word: name, dispatches: ops.len(), seconds: 0.0, weight_bytes: self.weight_bytes[word] });
        }
        words
    }

    pub fn n_dispatches(&self) -> usize {
        self.ops.len()
    }
}
