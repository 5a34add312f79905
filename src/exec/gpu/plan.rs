//! Plans: the words of a tape, lowered for one size of step to a flat list of prepared dispatches. Encoding a plan looks up no names and creates no
//! bind groups.

use super::device::Device;
use super::op::{Op, ready};
use crate::error::Result;
use crate::exec::{WordTime, weight_bytes};
use crate::tape::{Binding, Dispatch, Lowering, PerHandle, Rows, Section, Step, TOKENS_PER_BLOCK, Tape};
use std::ops::Range;

/// Upper bounds on the size of a step, rounded up to powers of two. A plan, the list of prepared dispatches of a step, is made for one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StepSize {
    pub tokens: usize,
    pub runs: usize,
    pub outputs: usize,
    /// The number of tokens of the longest slot, or 0 if the tape has no caches.
    pub context: usize,
}

impl StepSize {
    /// Returns a size that suits each of `n_steps` steps, of which `step` is the first. The context grows by one token per step.
    pub fn of(step: &Step, n_steps: usize, tape: &Tape) -> StepSize {
        let context = if tape.caches.is_empty() { 0 } else { step.context() + n_steps - 1 };
        StepSize { tokens: step.tokens.len(), runs: step.runs.len(), outputs: step.outputs.len(), context }.rounded()
    }

    /// Returns a size with room for `n` tokens, `n` runs and `n` outputs.
    pub fn room(n: usize) -> StepSize {
        StepSize { tokens: n, runs: n, outputs: n, context: 0 }.rounded()
    }

    fn rounded(self) -> StepSize {
        let round = |n: usize| n.max(1).next_power_of_two();
        let context = if self.context == 0 { 0 } else { round(self.context).max(TOKENS_PER_BLOCK) };
        StepSize { tokens: round(self.tokens), runs: round(self.runs), outputs: round(self.outputs), context }
    }

    /// Returns the number of rows that an activation has in a step of this size. `rows` determines the kind of rows: one per token, one per output,
    /// or a fixed number.
    pub fn rows(&self, rows: Rows) -> usize {
        rows.count(self.tokens, self.outputs)
    }
}

/// A prepared dispatch, and the word that it belongs to.
struct PlacedDispatch {
    op: Op,
    /// `true` if the word is the output head, which is skipped if a step has no outputs.
    is_head: bool,
    /// The index of the word in the tape.
    word: usize,
}

/// The dispatches of a section for one size of step.
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
            if !section.has_word(i) {
                return Ok(0);
            }
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

    /// Encodes all dispatches.
    pub fn encode(&self, pass: &mut wgpu::ComputePass<'_>) {
        self.ops.iter().for_each(|placed| placed.op.encode(pass));
    }

    /// Encodes the dispatches of `words`, a range of the tape's words, as one compute pass. The output head is encoded only if `with_head` is true.
    pub fn encode_words(&self, encoder: &mut wgpu::CommandEncoder, words: &Range<usize>, with_head: bool) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        self.of(words, with_head).for_each(|placed| placed.op.encode(&mut pass));
    }

    /// Returns the dispatches of `words`, a range of the tape's words. The dispatches of the output head are returned only if `with_head` is true.
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
