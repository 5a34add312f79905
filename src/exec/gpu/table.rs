//! Tables in host memory, such as the embedding. In each step, only the rows of the step's tokens are written to the device. The cursor
//! (the buffer that describes a step) holds the index of each token's row, which is the same for all tables.

use super::Device;
use super::upload::HostBuffer;
use crate::error::Result;
use crate::tape::{Matrix, Step};

/// A table in host memory, with one row per token id.
pub struct HostTable {
    pub matrix: Matrix,
    /// The rows of the table in order, cut into pieces of consecutive rows.
    pieces: Vec<HostBuffer>,
    /// The number of rows in each piece.
    rows: Vec<usize>,
    row_bytes: usize,
}

impl HostTable {
    /// Creates a table from pieces of consecutive rows. `rows` has the number of rows in each piece.
    pub fn new(matrix: Matrix, pieces: Vec<HostBuffer>, rows: Vec<usize>, row_bytes: usize) -> HostTable {
        HostTable { matrix, pieces, rows, row_bytes }
    }

    /// Creates buffers for the rows of at most `tokens` tokens. The buffers have the layout of the first `tokens` rows of the table.
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

    /// Writes the rows `ids` to `buffers`, in this order.
    fn write(&self, device: &Device, buffers: &[wgpu::Buffer], ids: &[u32]) {
        for (to, &id) in ids.iter().enumerate() {
            let ((piece, at), (from, from_at)) = (self.place(to), self.place(id as usize));
            device.queue.write_buffer(&buffers[piece], at as u64, &self.pieces[from].bytes[from_at..from_at + self.row_bytes]);
        }
    }

    /// Returns the index of the piece that holds a row, and the row's first byte in that piece.
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

/// Writes the rows that the step reads to the buffers of each table, each row once. `buffers` has one entry per table. Returns a copy of the
/// step whose tokens are indices of these rows.
pub fn write_rows(device: &Device, tables: &[HostTable], buffers: &[Vec<wgpu::Buffer>], step: &Step) -> Step {
    let mut ids = step.tokens.clone();
    ids.sort_unstable();
    ids.dedup();
    tables.iter().zip(buffers).for_each(|(table, buffers)| table.write(device, buffers, &ids));
    let place = |id: &u32| ids.binary_search(id).expect("it is among them") as u32;
    Step { tokens: step.tokens.iter().map(place).collect(), ..step.clone() }
}
