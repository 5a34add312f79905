//! A table that stays in host memory: in each step only the rows of its tokens go to the device, and the cursor says which of these
//! a token has.

use super::Device;
use super::upload::Kept;
use crate::error::Result;
use crate::tape::{Matrix, Step};

/// Rows of a table in host memory.
pub struct Table {
    pub matrix: Matrix,
    /// Each has some of the rows, those of the next follow.
    pieces: Vec<Kept>,
    rows: Vec<usize>,
    row_bytes: usize,
}

impl Table {
    /// `pieces` holds so many `rows` each.
    pub fn new(matrix: Matrix, pieces: Vec<Kept>, rows: Vec<usize>, row_bytes: usize) -> Table {
        Table { matrix, pieces, rows, row_bytes }
    }

    /// Buffers for a step of at most that many tokens: the beginning of the table, as if it had no more rows.
    pub fn room(&self, device: &Device, tokens: usize) -> Result<Vec<wgpu::Buffer>> {
        let mut left = tokens;
        let mut buffers = Vec::new();
        for (piece, &rows) in self.pieces.iter().zip(&self.rows) {
            let n = rows.min(left);
            left -= n;
            buffers.push(device.buffer("rows of the table", n * self.row_bytes, piece.usage)?);
        }
        Ok(buffers)
    }

    /// Writes every row that the step reads, once, and gives the step with the places where they lie for its tokens.
    pub fn write(&self, device: &Device, buffers: &[wgpu::Buffer], step: &Step) -> Step {
        let mut ids = step.tokens.clone();
        ids.sort_unstable();
        ids.dedup();
        for (to, &id) in ids.iter().enumerate() {
            let ((piece, at), (from, from_at)) = (self.place(to), self.place(id as usize));
            device.queue.write_buffer(&buffers[piece], at as u64, &self.pieces[from].bytes[from_at..from_at + self.row_bytes]);
        }
        let place = |id: &u32| ids.binary_search(id).expect("it is among them") as u32;
        Step { tokens: step.tokens.iter().map(place).collect(), ..step.clone() }
    }

    /// The piece of a row, and the byte where it begins.
    fn place(&self, row: usize) -> (usize, usize) {
        let mut first = 0;
        for (piece, &rows) in self.rows.iter().enumerate() {
            if row < first + rows {
                return (piece, (row - first) * self.row_bytes);
            }
            first += rows;
        }
        unreachable!("tokens are checked to be in the table")
    }
}
