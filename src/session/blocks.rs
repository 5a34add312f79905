//! Blocks of the KV cache (64 tokens each), with the number of slots that use each block. Forked slots share blocks. A slot that writes to a shared
//! block first replaces the block by a copy.

use crate::tape::TOKENS_PER_BLOCK;

/// The blocks of a session.
pub struct Blocks {
    /// The number of slots that use each block.
    users: Vec<u32>,
    free: Vec<u32>,
}

impl Blocks {
    /// Creates `n` free blocks.
    pub fn new(n: usize) -> Blocks {
        Blocks { users: vec![0; n], free: (0..n as u32).rev().collect() }
    }

    /// Counts one more user of each block in `table`, the list of a slot's blocks.
    pub fn share(&mut self, table: &[u32]) {
        table.iter().for_each(|&block| self.users[block as usize] += 1);
    }

    /// Counts one user fewer of each block in `table`, the list of a slot's blocks. Frees blocks without users.
    pub fn release(&mut self, table: &[u32]) {
        for &block in table {
            self.users[block as usize] -= 1;
            if self.users[block as usize] == 0 {
                self.free.push(block);
            }
        }
    }

    /// Prepares a slot's `table`, the list of its blocks, for writing tokens `from..to`: adds missing blocks, and replaces blocks that other slots
    /// also use. If a replaced block also holds tokens before `from`, returns the old and the new block. The caller must then copy the old block to
    /// the new one.
    pub fn own(&mut self, table: &mut Vec<u32>, from: usize, to: usize) -> Option<(u32, u32)> {
        let mut copy = None;
        for i in from / TOKENS_PER_BLOCK..to.div_ceil(TOKENS_PER_BLOCK) {
            match table.get(i).copied() {
                Some(block) if self.users[block as usize] == 1 => {}
                Some(shared) => {
                    table[i] = self.take();
                    self.release(&[shared]);
                    if i * TOKENS_PER_BLOCK < from {
                        copy = Some((shared, table[i]));
                    }
                }
                None => table.push(self.take()),
            }
        }
        copy
    }

    /// Removes from a slot's `table` the blocks that hold none of the slot's first `n` tokens, and releases these blocks.
    pub fn truncate(&mut self, table: &mut Vec<u32>, n: usize) {
        let kept = n.div_ceil(TOKENS_PER_BLOCK).min(table.len());
        self.release(&table[kept..]);
        table.truncate(kept);
    }

    fn take(&mut self) -> u32 {
        let block = self.free.pop().expect("there are blocks for every slot");
        self.users[block as usize] = 1;
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forks_share_until_one_of_them_writes() {
        let mut blocks = Blocks::new(8);
        let mut a = Vec::new();
        assert_eq!(blocks.own(&mut a, 0, 100), None);
        assert_eq!(a.len(), 2);
        let mut b = a.clone();
        blocks.share(&b);
        // The second block is half full. Slot b continues in a copy, so slot a is then the only user of the original block.
        let copy = blocks.own(&mut b, 100, 130);
        assert_eq!((copy, b.len()), (Some((a[1], b[1])), 3));
        assert!(a[0] == b[0] && a[1] != b[1]);
        assert_eq!(blocks.own(&mut a, 100, 101), None);
        // A slot that continues at the end of a block needs no copy.
        let mut c = a.clone();
        blocks.share(&c);
        assert_eq!(blocks.own(&mut c, 64, 65), None);
        assert!(c[0] == a[0] && c[1] != a[1]);
        blocks.truncate(&mut b, 64);
        assert_eq!(b, a[..1]);
        [a, b, c].iter().for_each(|table| blocks.release(table));
        assert_eq!(blocks.free.len(), 8);
    }

    #[test]
    fn there_are_always_enough() {
        let (n_slots, per_slot) = (4, 3);
        let mut blocks = Blocks::new(n_slots * per_slot);
        let mut tables = vec![Vec::new(); n_slots];
        for round in 0..20 {
            let n = round * 37 % (per_slot * TOKENS_PER_BLOCK);
            blocks.own(&mut tables[0], 0, n);
            for i in 1..n_slots {
                blocks.release(&tables[i]);
                tables[i] = tables[0].clone();
                blocks.share(&tables[i]);
            }
            for table in &mut tables {
                blocks.own(table, n, per_slot * TOKENS_PER_BLOCK);
            }
            tables.iter_mut().for_each(|t| blocks.truncate(t, n / 2));
        }
    }
}
