//! Pages of state: counts the slots that use a page, and records which half of its double-buffered vectors is current.
//!
//! A fork shares a page. A step of a slot with a shared page reads that page and writes a new page.

use crate::tape::Run;

/// The page of the initial state, which no slot writes to.
pub const ZERO: usize = 0;

/// The pages of a session.
pub struct Pages {
    /// The number of slots that use each page.
    users: Vec<usize>,
    /// For each page, the index (0 or 1) of the half with the current shift vectors.
    half: Vec<usize>,
}

/// The pages and half pages that a step reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    pub page_in: usize,
    pub page_out: usize,
    pub shift_in: usize,
    pub shift_out: usize,
}

impl Move {
    /// Returns the run of `len` tokens, beginning at row `first_row` of the step.
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
    /// Creates pages. If `leave` is true, there are enough for all slots to leave their pages at once ([`Pages::leave`]). Otherwise there are
    /// enough for all slots that share a page to leave it at once. Slots that share pages use at most half as many pages as there are slots.
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

    /// Counts one user less of a page. A page without users is free.
    pub fn release(&mut self, page: usize) {
        self.users[page] -= 1;
    }

    /// Takes a free page and returns it. The page then has one user.
    pub fn take(&mut self) -> usize {
        let page = self.users.iter().position(|&n| n == 0).expect("there are pages for every slot");
        self.users[page] = 1;
        page
    }

    /// Returns the index of the half page with the current shift vectors.
    pub fn shift(&self, page: usize) -> usize {
        2 * page + self.half[page]
    }

    /// Plans a step from a page. The page keeps its users until [`Pages::finish`]. So if two slots share the page, neither of them writes to it
    /// in this step.
    pub fn begin(&mut self, page: usize) -> Move {
        let shift_in = self.shift(page);
        if self.users[page] > 1 {
            return self.leave(page);
        }
        Move { page_in: page, page_out: page, shift_in, shift_out: shift_in ^ 1 }
    }

    /// Plans steps that begin from a page and do not change it.
    pub fn leave(&mut self, page: usize) -> Move {
        let page_out = self.take();
        Move { page_in: page, page_out, shift_in: self.shift(page), shift_out: 2 * page_out }
    }

    /// Completes a move of one step.
    pub fn finish(&mut self, go: &Move) {
        self.finish_steps(go, 1);
    }

    /// Completes a move of `n` steps. The first step wrote to `page_out`; the others updated it in place.
    pub fn finish_steps(&mut self, go: &Move, n: usize) {
        self.half[go.page_out] = (go.shift_out + n - 1) % 2;
        if go.page_in != go.page_out {
            self.release(go.page_in);
        }
    }

    /// Undoes the plan of a step that failed.
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
            // All slots step from the zero page. Then half of them are forks of the other half, and all step again.
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
