//! A plan is a tape (a model's recorded program), lowered for one size of step: a flat list of prepared dispatches. Encoding a plan looks up no names
//! and creates no bind groups.

use super::device::Device;
use super::op::{Op, ready};
use crate::error::Result;
use crate::exec::{WordTime, weight_bytes};
use crate::tape::{Binding, Dispatch, Lowering, PerHandle, Section, Tape};
use std::ops::Range;

/// A prepared dispatch, and the word that it belongs to.
struct PlacedDispatch {
    op: Op,
    /// `true` if the word is the output head, which is skipped if a step has no outputs.
    is_head: bool,
    /// The index of the word in the tape.
    word: usize,
}

/// The dispatches of a section (consecutive layers on one device) for one size of step.
pub struct Plan {
    ops: Vec<PlacedDispatch>,
    /// The number of bytes of weights that each word reads.
    weight_bytes: PerHandle<u64>,
}

impl Plan {
    /// Lowers the words of a section to dispatches, and prepares the dispatches. `resolve` returns the resource of a binding.
    pub fn new<'b>(
        device: &Device,
        cx: &Lowering<'_>,
        section: &Section,
        cursor: &wgpu::Buffer,
        resolve: &dyn Fn(Binding) -> wgpu::BindingResource<'b>,
    ) -> Result<Plan> {
        let mut dispatches: Vec<(Dispatch, usize)> = Vec::new();
        let weight_bytes = PerHandle::new(&section.own.words, |i| {
            let own = cx.tape.words[i].lower(cx);
            let bytes = weight_bytes(cx.tape, &own);
            dispatches.extend(own.into_iter().map(|d| (d, i)));
            Ok(bytes)
        })?;
        let flat: Vec<&Dispatch> = dispatches.iter().map(|(d, _)| d).collect();
        let ready = ready(device, &flat, cursor, &|_, binding| resolve(binding))?;
        let place = |(op, (_, word)): (Op, &(Dispatch, usize))| PlacedDispatch { op, is_head: cx.tape.words[*word].is_head(), word: *word };
        let ops = ready.into_iter().zip(&dispatches).map(place).collect();
        Ok(Plan { ops, weight_bytes })
    }

    /// Encodes all dispatches. The dispatches of the output head are encoded only if `with_head` is true.
    pub fn encode(&self, pass: &mut wgpu::ComputePass<'_>, with_head: bool) {
        self.ops.iter().filter(|op| with_head || !op.is_head).for_each(|placed| placed.op.encode(pass));
    }

    /// Encodes these words of the tape as one compute pass. The output head is encoded only if `with_head` is true.
    pub fn encode_words(&self, encoder: &mut wgpu::CommandEncoder, words: &Range<usize>, with_head: bool) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        self.of(words, with_head).for_each(|placed| placed.op.encode(&mut pass));
    }

    /// Returns the dispatches of these words. The dispatches of the output head are returned only if `with_head` is true.
    fn of(&self, words: &Range<usize>, with_head: bool) -> impl Iterator<Item = &PlacedDispatch> {
        let at = |word: usize| self.ops.partition_point(|op| op.word < word);
        self.ops[at(words.start)..at(words.end)].iter().filter(move |op| with_head || !op.is_head)
    }

    /// Encodes one timestamped compute pass per word and appends a [`WordTime`] for each word to `timed`. The field `seconds` is filled in
    /// after readback. The pass of entry `i` of `timed` writes timestamps `2 i` and `2 i + 1`.
    pub fn encode_timed(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        queries: &wgpu::QuerySet,
        tape: &Tape,
        words: &Range<usize>,
        with_head: bool,
        timed: &mut Vec<WordTime>,
    ) {
        let ops: Vec<&PlacedDispatch> = self.of(words, with_head).collect();
        for ops in ops.chunk_by(|a, b| a.word == b.word) {
            let first = 2 * timed.len() as u32;
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
            timed.push(WordTime { word: name, dispatches: ops.len(), seconds: 0.0, weight_bytes: self.weight_bytes[word] });
        }
    }

    /// Returns the number of dispatches, including the dispatches of the output head.
    pub fn n_dispatches(&self) -> usize {
        self.ops.len()
    }
}
