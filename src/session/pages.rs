//! Pages: a page is the device memory for the recurrent states of one slot. This module counts the slots that use each page, and records which half
//! of a page is current.
//!
//! Some states are shift vectors: the inputs of the previous token. A page has two copies of each, in halves 0 and 1. A step reads one half and
//! writes the other.
//!
//! A forked slot shares the page of the original slot. When either slot steps, the step reads the shared page and writes a new one.

use crate::tape::Run;

/// The page with the initial state. No slot writes to this page.
pub const ZERO: usize = 0;

/// The pages of a session, with their numbers of users.
pub struct Pages {
    /// The number of slots that use each page.
    users: Vec<usize>,
    /// For each page, the index (0 or 1) of the half with the current shift vectors.
    half: Vec<usize>,
}

/// The places that a step of one slot reads (`page_in`, `shift_in`) and writes (`page_out`, `shift_out`). The `page` fields are indices of pages. The
/// `shift` fields are indices of halves: twice the page's index, plus 0 or 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    pub page_in: usize,
    pub page_out: usize,
    pub shift_in: usize,
    pub shift_out: usize,
}

impl Move {
    /// Returns the run (consecutive tokens of one slot in a step) of `len` tokens that begins at row `first_row` of the step.
    pub fn run(&self, first_row: u32, len: u32) -> Run {
        Run {
            first_row,
            len,
            page_in: self.page_in as u32,
            page_out: self.page_out as u32,
            shift_in: self.shift_in as u32,
            shift_out: self.shift_out as u32,
            ..Run::default()
        }
    }
}

impl Pages {
    /// Creates pages for `n_slots` slots. If `leave` is true, all slots can move to new pages in one step ([`Pages::leave`]), so `n_slots` pages are
    /// added. Otherwise only slots that share a page move. At least two slots share each such page, so `n_slots / 2` additional pages are enough.
    pub fn new(n_slots: usize, leave: bool) -> Pages {
        let n = 1 + n_slots + if leave { n_slots } else { n_slots / 2 };
        let mut users = vec![0; n];
        users[ZERO] = 1;
        Pages { users, half: vec![0; n] }
    }

    /// Returns the number of pages.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Counts one more user of a page, and returns the page.
    pub fn share(&mut self, page: usize) -> usize {
        self.users[page] += 1;
        page
    }

    /// Counts one user fewer of a page. A page without users is free.
    pub fn release(&mut self, page: usize) {
        self.users[page] -= 1;
    }

    /// Takes a free page and returns its index. The page then has one user.
    ///
    /// # Panics
    /// If no page is free. [`Pages::new`] creates enough pages for all slots.
    pub fn take(&mut self) -> usize {
        let page = self.users.iter().position(|&n| n == 0).expect("there are pages for every slot");
        self.users[page] = 1;
        page
    }

    /// Returns the index of the current half of `page`: twice the page's index, plus 0 or 1. The current half has the shift vectors after the last
    /// step.
    pub fn shift(&self, page: usize) -> usize {
        2 * page + self.half[page]
    }

    /// Plans a step of a slot that uses `page`. If no other slot uses `page`, the step writes to `page`, otherwise to a new page. [`Pages::finish`]
    /// or [`Pages::cancel`] must follow, to release the page that the slot does not keep. Until then, the number of users of `page` does not change.
    /// So two slots that share a page and step together each write to a new page of their own.
    pub fn begin(&mut self, page: usize) -> Move {
        let shift_in = self.shift(page);
        if self.users[page] > 1 {
            return self.leave(page);
        }
        Move { page_in: page, page_out: page, shift_in, shift_out: shift_in ^ 1 }
    }

    /// Plans steps that begin from `page` and write to a new page, so that `page` does not change. [`Pages::finish_steps`] or [`Pages::cancel`] must
    /// follow, to release the page that the slot does not keep.
    pub fn leave(&mut self, page: usize) -> Move {
        let page_out = self.take();
        Move { page_in: page, page_out, shift_in: self.shift(page), shift_out: 2 * page_out }
    }

    /// Completes a planned move after one step, as [`finish_steps`](Self::finish_steps) does.
    pub fn finish(&mut self, go: &Move) {
        self.finish_steps(go, 1);
    }

    /// Completes a planned move after `n` steps. Records the current half of the written page. If the slot moved, counts one user fewer of the old
    /// page. The first step wrote to `page_out`, and the later steps updated that page in place.
    pub fn finish_steps(&mut self, go: &Move, n: usize) {
        self.half[go.page_out] = (go.shift_out + n - 1) % 2;
        if go.page_in != go.page_out {
            self.release(go.page_in);
        }
    }

    /// Cancels a planned move: the slot stays on its page. If the move took a new page, this page becomes free again.
    pub fn cancel(&mut self, go: &Move) {
        if go.page_in != go.page_out {
            self.release(go.page_out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_can_leave_a_shared_page_at_once() {
        for n_slots in [1, 2, 3, 8, 70] {
            let mut pages = Pages::new(n_slots, false);
            // All slots step from the zero page. Then every second slot becomes a fork of the slot before it, and all slots step again.
            let mut slots: Vec<usize> = (0..n_slots).map(|_| pages.share(ZERO)).collect();
            for _ in 0..3 {
                let moves: Vec<Move> = slots.iter().map(|&p| pages.begin(p)).collect();
                for (a, b) in moves.iter().enumerate().flat_map(|(i, a)| moves[..i].iter().map(move |b| (a, b))) {
                    assert!(a.page_out != b.page_out && a.page_out != b.page_in && a.page_in != b.page_out);
                    assert!(a.shift_out != b.shift_out && a.shift_out != b.shift_in);
                }
                moves.iter().for_each(|m| pages.finish(m));
                slots = moves.iter().map(|m| m.page_out).collect();
                for pair in 0..n_slots / 2 {
                    pages.release(slots[2 * pair + 1]);
                    slots[2 * pair + 1] = pages.share(slots[2 * pair]);
                }
            }
            slots.iter().for_each(|&p| pages.release(p));
            assert_eq!(pages.users.iter().sum::<usize>(), 1);
        }
    }

    #[test]
    fn every_slot_can_leave_its_own_page_at_once() {
        let mut pages = Pages::new(5, true);
        let mut slots: Vec<usize> = (0..5).map(|_| pages.share(ZERO)).collect();
        for n in [1, 2, 7] {
            let moves: Vec<Move> = slots.iter().map(|&p| pages.leave(p)).collect();
            moves.iter().for_each(|m| pages.finish_steps(m, n));
            slots = moves.iter().map(|m| m.page_out).collect();
            // The last step determines the current half.
            assert!(slots.iter().all(|&p| pages.shift(p) == 2 * p + (n - 1) % 2));
        }
    }

    #[test]
    fn a_cancelled_step_changes_nothing() {
        let mut pages = Pages::new(1, false);
        let page = pages.share(ZERO);
        let go = pages.begin(page);
        pages.cancel(&go);
        assert_eq!((pages.users[ZERO], pages.shift(page)), (2, 0));
    }
}
