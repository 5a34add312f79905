//! Pages of state: who uses which, and which half of its double-buffered vectors is the current one.
//!
//! Forking shares a page. Whoever steps on a shared page reads it and writes a fresh one.

use crate::tape::Run;

/// The page of the initial state: never written, always shared.
pub const ZERO: usize = 0;

pub struct Pages {
    /// Slots that use a page.
    users: Vec<usize>,
    /// The half that holds the current shift vectors.
    half: Vec<usize>,
}

/// Where a step reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    pub page_in: usize,
    pub page_out: usize,
    pub shift_in: usize,
    pub shift_out: usize,
}

impl Move {
    /// The run of `len` tokens that goes so, from that row of the step on.
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
    /// Enough for every slot to leave its page at once, where they do so of their own ([`Pages::leave`]). Else for every slot to leave
    /// a shared one: those are at most half as many.
    pub fn new(n_slots: usize, leave: bool) -> Pages {
        let n = 1 + n_slots + if leave { n_slots } else { n_slots / 2 };
        let mut users = vec![0; n];
        users[ZERO] = 1;
        Pages { users, half: vec![0; n] }
    }

    pub fn len(&self) -> usize {
        self.users.len()
    }

    pub fn share(&mut self, page: usize) -> usize {
        self.users[page] += 1;
        page
    }

    pub fn release(&mut self, page: usize) {
        self.users[page] -= 1;
    }

    /// A page that nobody uses, with one user now.
    pub fn take(&mut self) -> usize {
        let page = self.users.iter().position(|&n| n == 0).expect("there are pages for every slot");
        self.users[page] = 1;
        page
    }

    /// The half page of current shift vectors.
    pub fn shift(&self, page: usize) -> usize {
        2 * page + self.half[page]
    }

    /// Plans a step on a page. The page read keeps its users until [`Pages::finish`], so that two slots that share it do not
    /// write it while the other reads.
    pub fn begin(&mut self, page: usize) -> Move {
        let shift_in = self.shift(page);
        if self.users[page] > 1 {
            return self.leave(page);
        }
        Move { page_in: page, page_out: page, shift_in, shift_out: shift_in ^ 1 }
    }

    /// Plans steps that leave a page as it is.
    pub fn leave(&mut self, page: usize) -> Move {
        let page_out = self.take();
        Move { page_in: page, page_out, shift_in: self.shift(page), shift_out: 2 * page_out }
    }

    pub fn finish(&mut self, go: &Move) {
        self.finish_steps(go, 1);
    }

    /// After `n` steps, of which those after the first wrote in place.
    pub fn finish_steps(&mut self, go: &Move, n: usize) {
        self.half[go.page_out] = (go.shift_out + n - 1) % 2;
        if go.page_in != go.page_out {
            self.release(go.page_in);
        }
    }

    /// The step failed: nobody moved.
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
            // Everybody starts on the zero page, steps, then half of them fork the other half, and all step again.
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
            // After n steps the current half is that which the last one wrote.
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
