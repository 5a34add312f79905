//! The tokens that slots must read, and how steps divide them.

use super::pages::Move;
use super::slots::Slot;
use crate::error::Result;
use crate::tape::Step;

/// A list of items, each a slot with the tokens that the slot must read. The work takes one or several steps.
pub trait ReadList {
    fn len(&self) -> usize;
    fn slot(&self, i: usize) -> Slot;
    fn tokens(&self, i: usize) -> &[u32];
    /// Returns how many of the item's last tokens are guesses. If there are guesses, the step returns logits after the token before them and after
    /// each guess. The item's tokens then count as read only when [`settle`](crate::session::Session::settle) is called.
    fn n_guesses(&self, _i: usize) -> usize {
        0
    }
}

impl ReadList for [(Slot, &[u32])] {
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

impl ReadList for [(Slot, u32)] {
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

/// A rule that divides tokens into steps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ChunkRule {
    /// A chunk of tokens per step. The stop flag interrupts between two steps.
    Chunks,
    /// One token per slot and step. The stop flag is ignored.
    OneByOne,
}

/// Selects the tokens after which a step returns logits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LogitRows {
    /// Logits after the last token of each item.
    Last,
    /// Logits after every token of each item.
    All,
}

/// Callback for the logits of one item. Its arguments are the index of the token in the item, and the logits after the token.
pub type Each<'a> = &'a mut dyn FnMut(usize, &[f32]) -> Result<()>;

/// Callback for the logits of several items. Its arguments are the index of the item, the index of the token in the item, and the logits after
/// the token.
pub type EachRow<'a> = &'a mut dyn FnMut(usize, usize, &[f32]) -> Result<()>;

/// The tokens `from..from + len` of an item, which one step reads.
#[derive(Clone, Copy)]
pub struct Part {
    /// Index of the item in the [`ReadList`].
    pub work: usize,
    pub slot: Slot,
    pub from: usize,
    pub len: usize,
    /// True if the part has the item's last token.
    pub is_last: bool,
    /// The number of tokens that the slot will have read after the step.
    pub end: usize,
    /// The number of guesses at the end of the part.
    pub n_guesses: usize,
}

/// Buffers of a step, reused to avoid allocations.
#[derive(Default)]
pub struct Scratch {
    pub step: Step,
    pub parts: Vec<Part>,
    pub moves: Vec<Move>,
    /// The indices of the parts with guesses for which [`settle`](crate::session::Session::settle) was not called yet.
    pub unsettled: Vec<usize>,
    /// The number of tokens read so far, per item. Includes the current step.
    pub done: Vec<usize>,
    /// Logits of the last step, `[rows, vocab]`.
    pub logits: Vec<f32>,
    /// The number of rows of logits that the step returns, per part.
    pub rows: Vec<usize>,
    /// Hidden states of the last step, `[rows, n_embd]`, if they were copied before the step was finished. `logits` are then there, too.
    pub hidden: Option<Vec<f32>>,
}

impl Scratch {
    /// Begins work of `n` items, of which no token is read yet.
    pub fn begin(&mut self, n: usize) {
        self.done.clear();
        self.done.resize(n, 0);
    }

    /// Chooses the tokens of the next step: at most `each` tokens per item, at most `room` tokens in total. Stores the choice in `parts`, and adds it
    /// to `done`. Returns the number of chosen tokens.
    pub fn cut<W: ReadList + ?Sized>(&mut self, work: &W, mut room: usize, each: usize) -> usize {
        let all = room;
        self.parts.clear();
        for (i, from) in self.done.iter_mut().enumerate() {
            let left = work.tokens(i).len() - *from;
            let len = room.min(left).min(each);
            if len > 0 {
                self.parts.push(Part {
                    work: i,
                    slot: work.slot(i),
                    from: *from,
                    len,
                    is_last: len == left,
                    end: 0,
                    n_guesses: work.n_guesses(i),
                });
                room -= len;
                *from += len;
            }
        }
        all - room
    }
}
