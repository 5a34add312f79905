//! What slots are to read, and how it is cut into steps.

use super::pages::Move;
use super::slots::Slot;
use crate::error::Result;
use crate::tape::Step;

/// Slots and what they are to read.
pub trait Work {
    fn len(&self) -> usize;
    fn slot(&self, i: usize) -> Slot;
    fn tokens(&self, i: usize) -> &[u32];
}

impl Work for [(Slot, &[u32])] {
    fn len(&self) -> usize {
        self.len()
    }
    fn slot(&self, i: usize) -> Slot {
        self[i].0
    }
    fn tokens(&self, i: usize) -> &[u32] {
        self[i].1
    }
}

impl Work for [(Slot, u32)] {
    fn len(&self) -> usize {
        self.len()
    }
    fn slot(&self, i: usize) -> Slot {
        self[i].0
    }
    fn tokens(&self, i: usize) -> &[u32] {
        std::slice::from_ref(&self[i].1)
    }
}

/// How tokens are cut into steps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// As many a step as the chunk takes. The stop flag ends it between two steps.
    Chunks,
    /// One of each slot a step, to the end.
    OneByOne,
}

/// Which logits a step brings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// After the last token of each slot's work.
    Last,
    /// After every token.
    All,
}

/// Takes the logits after a token: its place among the tokens of its slot, logits.
pub type Each<'a> = &'a mut dyn FnMut(usize, &[f32]) -> Result<()>;

/// The same for several pieces of work: which one, the token's place among its tokens, logits.
pub type EachRow<'a> = &'a mut dyn FnMut(usize, usize, &[f32]) -> Result<()>;

/// Tokens `from .. from + len` of a piece of work, in one step.
#[derive(Clone, Copy)]
pub struct Part {
    pub work: usize,
    pub slot: Slot,
    pub from: usize,
    pub len: usize,
    /// None follow.
    pub is_last: bool,
    /// Tokens that the slot has read once the step is done.
    pub end: usize,
}

/// What a step needs, kept for its memory.
#[derive(Default)]
pub struct Scratch {
    pub step: Step,
    pub parts: Vec<Part>,
    pub moves: Vec<Move>,
    /// Tokens of each piece of work that are read.
    pub done: Vec<usize>,
    /// Of the last step.
    pub logits: Vec<f32>,
    /// Rows of logits of each part.
    pub rows: Vec<usize>,
}

impl Scratch {
    /// Nothing of so many pieces of work is read.
    pub fn begin(&mut self, n: usize) {
        self.done.clear();
        self.done.resize(n, 0);
    }

    /// Says who takes part in the next step: whoever has tokens left, with `each` at the most, until there is no room. Gives how many tokens
    /// that are.
    pub fn cut<W: Work + ?Sized>(&mut self, work: &W, mut room: usize, each: usize) -> usize {
        let all = room;
        self.parts.clear();
        for (i, from) in self.done.iter_mut().enumerate() {
            let left = work.tokens(i).len() - *from;
            let len = room.min(left).min(each);
            if len > 0 {
                self.parts.push(Part { work: i, slot: work.slot(i), from: *from, len, is_last: len == left, end: 0 });
                room -= len;
                *from += len;
            }
        }
        all - room
    }
}
