//! The matrices of a section. Resident layers stay on the device, and other layers are streamed through the device.

use super::Device;
use super::stream::{Stream, StreamTurn};
use super::upload::{HostBuffer, Upload};
use crate::error::Result;
use crate::exec::load::FetchedSource;
use crate::tape::{Matrix, PerHandle, Section, Source, Step, Tape};
use std::ops::Range;

/// The matrices of a section, and the stages in which its words are submitted.
pub struct Weights {
    /// The buffers of each matrix, one per piece. A piece is the part of a matrix that fits one binding. Matrices of streamed layers share buffers.
    pub matrices: PerHandle<Vec<wgpu::Buffer>>,
    pub stages: Vec<Stage>,
    /// The streamed layers, or `None` if all layers stay on the device.
    pub stream: Option<Stream>,
    /// The tables in host memory: all tables of the section, or no table.
    pub tables: Vec<HostTable>,
    /// The number of bytes of device memory that the matrices take, including the buffers for streaming.
    pub device_bytes: u64,
}

/// A range of words that are submitted together, because their matrices are on the device at the same time.
pub struct Stage {
    pub words: Range<usize>,
    /// The index of the stage's layer among the streamed layers, or `None` if the stage has the resident layers.
    pub streamed: Option<usize>,
}

impl Weights {
    /// Uploads the matrices of resident layers, and encodes the matrices of streamed layers to host memory.
    pub async fn load(device: &Device, section: &Section, source: &dyn Source, upload: &mut Upload<'_>) -> Result<Weights> {
        let tape = &section.tape;
        let split = section.layers.start + section.n_resident;
        let resident = tape.extent(&(section.layers.start..split));
        let in_host = tape.has_tables_in_host(&section.layers, section.n_resident);
        // A table in host memory is not uploaded here: each executor has its own buffers for the rows that a step reads.
        let is_in_host = |m: &usize| in_host && tape.matrices[*m].is_table();
        let mut tables = Vec::new();
        for m in section.own.matrices.clone().filter(is_in_host) {
            tables.push(HostTable::load(device, tape, m, &*FetchedSource::matrix(source, &tape.matrices[m]).await?, upload)?);
        }
        let mut matrices: Vec<Vec<wgpu::Buffer>> = Vec::new();
        for m in resident.matrices {
            let spec = &tape.matrices[m];
            let is_here = !is_in_host(&m) && section.has_matrix(m);
            matrices.push(if is_here { upload.matrix(spec, &*FetchedSource::matrix(source, spec).await?)? } else { Vec::new() });
            upload.caught_up().await?;
        }
        let mut device_bytes: u64 = matrices.iter().flatten().map(wgpu::Buffer::size).sum();
        let mut stages = vec![Stage { words: resident.words, streamed: None }];
        // For each streamed layer, the pieces of its weights. For each matrix of these layers, the number of pieces.
        let (mut layers, mut n_pieces) = (Vec::new(), Vec::new());
        for layer in split..section.layers.end {
            let own = tape.extent(&(layer..layer + 1));
            let mut kept: Vec<HostBuffer> = Vec::new();
            for m in own.matrices {
                let spec = &tape.matrices[m];
                let pieces = if is_in_host(&m) { Vec::new() } else { upload.matrix(spec, &*FetchedSource::matrix(source, spec).await?)? };
                n_pieces.push(pieces.len());
                kept.extend(pieces);
            }
            stages.push(Stage { words: own.words, streamed: Some(layers.len()) });
            layers.push(kept);
        }
        stages.retain(|stage| !stage.words.is_empty());
        let mut stream = None;
        if !layers.is_empty() {
            let (made, bound) = Stream::new(device, layers)?;
            let mut bound = bound.into_iter();
            matrices.extend(n_pieces.into_iter().map(|n| bound.by_ref().take(n).collect()));
            device_bytes += made.device_bytes();
            stream = Some(made);
        }
        let mut matrices = matrices.into_iter();
        let matrices = PerHandle::new(&section.own.matrices, |_| Ok(matrices.next().expect("there is one for each")))?;
        Ok(Weights { matrices, stages, stream, tables, device_bytes })
    }

    /// Waits until no other step uses the stream, and reserves the stream for one step. Returns `None` if no layer is streamed.
    pub fn turn(&self) -> Result<Option<StreamTurn<'_>>> {
        self.stream.as_ref().map(Stream::turn).transpose()
    }
}

/// A table in host memory, such as the embedding, with one row per token id. In each step, only the rows of the step's tokens are written to
/// the device. The cursor holds the index of each token's row, which is the same for all tables.
pub struct HostTable {
    pub matrix: Matrix,
    /// The rows of the table in order, cut into pieces of consecutive rows.
    pieces: Vec<HostBuffer>,
    /// The number of rows in each piece.
    rows: Vec<usize>,
    row_bytes: usize,
}

impl HostTable {
    /// Encodes matrix `m` of the tape to a table in host memory.
    fn load(device: &Device, tape: &Tape, m: usize, source: &dyn Source, upload: &mut Upload<'_>) -> Result<HostTable> {
        let spec = &tape.matrices[m];
        let rows = spec.pieces(device.caps.max_binding).iter().map(|p| p.segments.iter().map(|s| s.rows).sum()).collect();
        Ok(HostTable { matrix: Matrix(m), pieces: upload.matrix(spec, source)?, rows, row_bytes: spec.row_bytes() })
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

    /// Writes the rows `ids` to `buffers`, in the order of `ids`.
    fn write(&self, device: &Device, buffers: &[wgpu::Buffer], ids: &[u32]) {
        for (to, &id) in ids.iter().enumerate() {
            let ((piece, at), (from, from_at)) = (self.location(to), self.location(id as usize));
            device.queue.write_buffer(&buffers[piece], at as u64, &self.pieces[from].bytes[from_at..from_at + self.row_bytes]);
        }
    }

    /// Returns the index of the piece that holds a row, and the row's first byte in that piece.
    fn location(&self, row: usize) -> (usize, usize) {
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

/// Writes the rows that the step reads to the buffers of each table, each row once. `buffers` has one entry per table. Returns a copy of the step in
/// which each token is the index of its row in the buffers.
pub fn write_rows(device: &Device, tables: &[HostTable], buffers: &[Vec<wgpu::Buffer>], step: &Step) -> Step {
    let mut ids = step.tokens.clone();
    ids.sort_unstable();
    ids.dedup();
    tables.iter().zip(buffers).for_each(|(table, buffers)| table.write(device, buffers, &ids));
    let place = |id: &u32| ids.binary_search(id).expect("it is among them") as u32;
    Step { tokens: step.tokens.iter().map(place).collect(), ..step.clone() }
}
