//! Weights on their way to a device: rows, columns or blocks, in the order in which a file gives them.

use super::Device;
use crate::error::Result;
use crate::exec::load::{Progress, encode_part};
use crate::quant::PAD;
use crate::tape::{MatrixSpec, Source, WINDOW_BYTES};
use crate::words::GROUP;
use wgpu::BufferUsages;

/// Bytes uploaded before we wait for the device: bounds the staging memory that wgpu holds.
const UPLOAD_BATCH: usize = 16 << 20;

/// Sends bytes in order and waits now and then.
pub struct Upload<'a> {
    device: &'a Device,
    pending: usize,
    done: u64,
    total: u64,
    progress: Progress<'a>,
}

impl<'a> Upload<'a> {
    pub fn new(device: &'a Device, total: u64, progress: Progress<'a>) -> Upload<'a> {
        Upload { device, pending: 0, done: 0, total, progress }
    }

    /// A matrix as the device's kernels read it.
    pub fn matrix(&mut self, spec: &MatrixSpec, source: &dyn Source) -> Result<Vec<wgpu::Buffer>> {
        if self.device.caps.in_blocks(spec) {
            self.blocks(spec, source)
        } else if self.device.caps.by_columns(spec) {
            self.columns(spec, source)
        } else {
            self.pieces(spec, source)
        }
    }

    /// Rows as they are, a storage buffer a piece.
    fn pieces(&mut self, spec: &MatrixSpec, source: &dyn Source) -> Result<Vec<wgpu::Buffer>> {
        let mut buffers = Vec::new();
        for piece in spec.pieces(self.device.caps.max_binding) {
            let bytes = spec.format.size_bytes(piece.units * PAD);
            let buffer = self.device.buffer(&spec.parts[0].tensor, bytes, BufferUsages::STORAGE | BufferUsages::COPY_DST)?;
            let mut at = 0;
            for s in &piece.segments {
                encode_part(&spec.parts[s.part], s.first_row, s.rows, spec.format, source, &mut |bytes| {
                    self.write(&buffer, &mut at, bytes)
                })?;
            }
            buffers.push(buffer);
        }
        Ok(buffers)
    }

    /// A row an input channel, of which every storage buffer has some columns.
    fn columns(&mut self, spec: &MatrixSpec, source: &dyn Source) -> Result<Vec<wgpu::Buffer>> {
        let part = spec.parts[0].turned();
        let pieces = spec.column_pieces(self.device.caps.max_binding);
        let mut buffers = Vec::new();
        for piece in &pieces {
            let bytes = spec.format.size_bytes(piece.units * PAD);
            buffers.push(self.device.buffer(&part.tensor, bytes, BufferUsages::STORAGE | BufferUsages::COPY_DST)?);
        }
        let bytes_of = |units: usize| spec.format.size_bytes(units * PAD);
        let mut written = vec![0; pieces.len()];
        let mut columns = Vec::new();
        encode_part(&part, 0, part.rows, spec.format, source, &mut |rows| {
            let mut first = 0;
            for ((piece, buffer), at) in pieces.iter().zip(&buffers).zip(&mut written) {
                let units = piece.units / part.rows;
                columns.clear();
                rows.chunks_exact(bytes_of(part.units()))
                    .for_each(|row| columns.extend_from_slice(&row[bytes_of(first)..][..bytes_of(units)]));
                self.write(buffer, at, &columns)?;
                first += units;
            }
            Ok(())
        })?;
        Ok(buffers)
    }

    /// Rows in tiles of 64 KiB.
    fn blocks(&mut self, spec: &MatrixSpec, source: &dyn Source) -> Result<Vec<wgpu::Buffer>> {
        let blocks = spec.blocks(self.device.caps.max_binding, GROUP);
        let mut buffers: Vec<wgpu::Buffer> = Vec::new();
        for group in blocks.chunk_by(|a, b| a.buffer == b.buffer) {
            let bytes = group.last().map_or(0, |b| b.at + b.n_tiles * b.tile_bytes) + WINDOW_BYTES;
            buffers.push(self.device.buffer(&spec.parts[0].tensor, bytes, BufferUsages::UNIFORM | BufferUsages::COPY_DST)?);
        }
        let unit_bytes = spec.format.size_bytes(PAD);
        for group in blocks.chunk_by(|a, b| a.part == b.part) {
            let part = &spec.parts[group[0].part];
            // Rows come in pieces of any length; a block is sent when its last row is there.
            let mut rows = Vec::new();
            let mut left = group.iter();
            let mut next = left.next();
            encode_part(part, 0, part.rows, spec.format, source, &mut |bytes| {
                rows.extend_from_slice(bytes);
                while let Some(block) = next {
                    let size = block.rows * part.units() * unit_bytes;
                    if rows.len() < size {
                        break;
                    }
                    let tiles = block.tiles(&rows[..size], part.units(), unit_bytes);
                    self.write(&buffers[block.buffer], &mut (block.at as u64), &tiles)?;
                    rows.drain(..size);
                    next = left.next();
                }
                Ok(())
            })?;
        }
        Ok(buffers)
    }

    pub fn write(&mut self, buffer: &wgpu::Buffer, at: &mut u64, bytes: &[u8]) -> Result<()> {
        self.device.queue.write_buffer(buffer, *at, bytes);
        *at += bytes.len() as u64;
        self.done += bytes.len() as u64;
        self.pending += bytes.len();
        if self.pending >= UPLOAD_BATCH {
            self.pending = 0;
            self.device.queue.submit([]);
            self.device.wait()?;
            (self.progress)(self.done.min(self.total), self.total);
        }
        Ok(())
    }
}
