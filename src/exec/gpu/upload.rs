//! Uploads matrices to a device in one of three layouts: row-major, column-major or in blocks of rows.

use super::Device;
use crate::error::{Result, filled};
use crate::exec::load::{Progress, encode_part, survey};
use crate::quant::{Affine, EncodedRows, PAD, WEIGHTS_PER_BLOCK};
use crate::tape::{Block, MatrixPiece, MatrixSpec, PieceSegment, Region, Source, WORD_BYTES};
use crate::words::GROUP;
use wgpu::BufferUsages;

/// The number of bytes that are uploaded before the host waits for the device. The wait bounds wgpu's staging memory.
const UPLOAD_BATCH: usize = 16 << 20;

/// The target of an upload: a buffer on the device, or host memory.
pub trait UploadTarget: Sized {
    fn new(device: &Device, label: &str, bytes: usize, usage: BufferUsages) -> Result<Self>;
    fn write(&mut self, device: &Device, at: u64, bytes: &[u8]);
}

impl UploadTarget for wgpu::Buffer {
    fn new(device: &Device, label: &str, bytes: usize, usage: BufferUsages) -> Result<Self> {
        device.buffer(label, bytes, usage)
    }

    fn write(&mut self, device: &Device, at: u64, bytes: &[u8]) {
        device.queue.write_buffer(self, at, bytes);
    }
}

/// The content of a buffer in host memory, and the usage of the buffer on a device.
pub struct HostBuffer {
    pub usage: BufferUsages,
    pub bytes: Vec<u8>,
}

impl UploadTarget for HostBuffer {
    fn new(_device: &Device, label: &str, bytes: usize, usage: BufferUsages) -> Result<Self> {
        Ok(HostBuffer { usage, bytes: filled(0, Device::buffer_bytes(bytes), label)? })
    }

    fn write(&mut self, _device: &Device, at: u64, bytes: &[u8]) {
        self.bytes[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

/// Writes bytes, and waits for the device after every [`UPLOAD_BATCH`] bytes.
pub struct Upload<'a> {
    device: &'a Device,
    pending: usize,
    done: u64,
    total: u64,
    progress: Progress<'a>,
}

impl<'a> Upload<'a> {
    /// Begins an upload of `total` bytes. `progress` is called with the bytes done and the total bytes.
    pub fn new(device: &'a Device, total: u64, progress: Progress<'a>) -> Upload<'a> {
        Upload { device, pending: 0, done: 0, total, progress }
    }

    /// Writes a matrix in the layout that the device's kernels read. Returns the targets in order, one per buffer. Each buffer holds a part of the
    /// matrix.
    pub fn matrix<S: UploadTarget>(&mut self, spec: &MatrixSpec, source: &dyn Source) -> Result<Vec<S>> {
        // Each function releases a tensor as soon as it is written. Otherwise a layer's experts, which are many tensors of one matrix, would fill the
        // memory.
        if self.device.caps.in_blocks(spec) {
            self.blocks(spec, source)
        } else if self.device.caps.by_columns(spec) {
            self.columns(spec, source)
        } else {
            self.pieces(spec, source)
        }
    }

    /// Writes a matrix row-major, cut into pieces of consecutive rows. Each piece fits a storage binding and has its own target.
    fn pieces<S: UploadTarget>(&mut self, spec: &MatrixSpec, source: &dyn Source) -> Result<Vec<S>> {
        let surveys = spec.parts.iter().map(|p| survey(p, source)).collect::<Result<Vec<_>>>()?;
        let mut buffers = Vec::new();
        for piece in spec.pieces(self.device.caps.max_binding) {
            let mut buffer: S = self.storage(&spec.parts[0].tensor, &piece)?;
            for s in &piece.segments {
                let (part, affine) = (&spec.parts[s.part], surveys[s.part].as_ref());
                encode_part(part, spec.axis(), affine, s.first_row, s.rows, source, &mut |row, encoded| {
                    self.rows(&mut buffer, s, row - s.first_row, encoded)
                })?;
                if let Some(affine) = affine {
                    self.write(&mut buffer, s.scales * WORD_BYTES, &s.region.place_affine(affine, s.first_row))?;
                }
                source.release(&part.tensor);
            }
            buffers.push(buffer);
        }
        Ok(buffers)
    }

    fn storage<S: UploadTarget>(&mut self, name: &str, piece: &MatrixPiece) -> Result<S> {
        S::new(self.device, name, piece.size_bytes(), BufferUsages::STORAGE | BufferUsages::COPY_DST)
    }

    /// Writes encoded rows of a segment, beginning at row `first` of the segment. A segment is the rows of one matrix in a piece.
    fn rows(&mut self, to: &mut impl UploadTarget, s: &PieceSegment, first: usize, encoded: &EncodedRows) -> Result<()> {
        let whole = &s.region;
        let rows = encoded.codes.len() / whole.format.size_bytes(whole.units * PAD);
        let (region, before) = (Region { rows, ..*whole }, Region { rows: first, ..*whole });
        // The rows before `first` may end within a word of 16 bytes, so the offset is counted in bytes.
        self.write(to, s.codes * WORD_BYTES + whole.bytes_of_rows(first), &region.place_codes(&encoded.codes))?;
        if encoded.scales.is_empty() {
            return Ok(());
        }
        self.write(to, (s.scales + before.scale_words()) * WORD_BYTES, &region.place_scales(&encoded.scales))
    }

    /// Writes a matrix column-major: a stored row has the weights of one input channel. Each target holds the weights of all input channels for a
    /// range of output channels.
    fn columns<S: UploadTarget>(&mut self, spec: &MatrixSpec, source: &dyn Source) -> Result<Vec<S>> {
        let affine = survey(&spec.parts[0], source)?.map(Affine::transposed);
        let (part, axis) = (spec.parts[0].transposed(), spec.axis().transposed());
        let pieces = spec.column_pieces(self.device.caps.max_binding);
        let mut buffers = pieces.iter().map(|p| self.storage(&part.tensor, p)).collect::<Result<Vec<S>>>()?;
        let bytes_of = |units: usize| part.format.size_bytes(units * PAD);
        let blocks = part.units().div_ceil(WEIGHTS_PER_BLOCK / PAD);
        let mut own = EncodedRows::default();
        encode_part(&part, axis, affine.as_ref(), 0, part.rows, source, &mut |row, encoded| {
            for (piece, buffer) in pieces.iter().zip(&mut buffers) {
                let s = &piece.segments[0];
                let (first, units) = (s.first_row / PAD, s.region.units);
                own.codes.clear();
                own.scales.clear();
                encoded
                    .codes
                    .chunks_exact(bytes_of(part.units()))
                    .for_each(|row| own.codes.extend_from_slice(&row[bytes_of(first)..][..bytes_of(units)]));
                let of_blocks = first / (WEIGHTS_PER_BLOCK / PAD)..(first + units).div_ceil(WEIGHTS_PER_BLOCK / PAD);
                encoded.scales.chunks_exact(blocks).for_each(|row| own.scales.extend_from_slice(&row[of_blocks.clone()]));
                self.rows(buffer, s, row, &own)?;
            }
            Ok(())
        })?;
        for (piece, buffer) in pieces.iter().zip(&mut buffers).filter(|_| affine.is_some()) {
            let s = &piece.segments[0];
            let affine = affine.as_ref().expect("filtered").columns(s.first_row, s.region.units * PAD);
            self.write(buffer, s.scales * WORD_BYTES, &s.region.place_affine(&affine, 0))?;
        }
        source.release(&part.tensor);
        Ok(buffers)
    }

    /// Writes a matrix in blocks of rows. A block is divided into tiles, each of which fits a uniform binding of 64 KiB.
    fn blocks<S: UploadTarget>(&mut self, spec: &MatrixSpec, source: &dyn Source) -> Result<Vec<S>> {
        let blocks = spec.blocks(self.device.caps.max_binding, GROUP);
        let mut buffers: Vec<S> = Vec::new();
        for group in blocks.chunk_by(|a, b| a.buffer == b.buffer) {
            let bytes = group.last().map_or(0, Block::buffer_bytes);
            buffers.push(S::new(self.device, &spec.parts[0].tensor, bytes, BufferUsages::UNIFORM | BufferUsages::COPY_DST)?);
        }
        for group in blocks.chunk_by(|a, b| a.part == b.part) {
            let part = &spec.parts[group[0].part];
            let affine = survey(part, source)?;
            // `encode_part` delivers any number of rows at a time, so `codes` collects the rows of a block. The block is written once its last row is
            // there.
            let (mut codes, mut scales) = (Vec::new(), Vec::new());
            let mut left = group.iter().peekable();
            encode_part(part, spec.axis(), affine.as_ref(), 0, part.rows, source, &mut |_, encoded| {
                codes.extend_from_slice(&encoded.codes);
                scales.extend_from_slice(&encoded.scales);
                while let Some(block) = left.next_if(|b| part.format.size_bytes(b.rows * part.units() * PAD) <= codes.len()) {
                    let region = spec.region(part, block.rows);
                    let size = part.format.size_bytes(block.rows * part.units() * PAD);
                    let buffer = &mut buffers[block.buffer];
                    for tile in 0..block.n_tiles {
                        let placed = region.place_tile(&codes[..size], tile * block.tile_units, block.tile_units);
                        self.write(buffer, block.at + tile * block.tile_bytes, &placed)?;
                    }
                    codes.drain(..size);
                    let placed = match &affine {
                        Some(affine) => region.place_affine(affine, block.first_row),
                        None => {
                            let k = part.units() * PAD;
                            region.place_scales(spec.axis().of_rows(&scales, block.first_row, block.rows, k, part.format))
                        }
                    };
                    self.write(buffer, block.scales_at(), &placed)?;
                }
                Ok(())
            })?;
            source.release(&part.tensor);
        }
        Ok(buffers)
    }

    /// In a browser, waits until all writes are done. Elsewhere, returns at once: [`write`](Self::write) itself waits after every [`UPLOAD_BATCH`]
    /// bytes.
    #[cfg_attr(not(target_arch = "wasm32"), expect(clippy::unused_async, reason = "only a browser has to be awaited"))]
    pub async fn caught_up(&mut self) -> Result<()> {
        #[cfg(target_arch = "wasm32")]
        {
            let device = self.device;
            let sent = super::readback::SubmittedWork::new(device, device.queue.submit([]));
            std::future::poll_fn(|context| sent.poll(device, context)).await?;
        }
        Ok(())
    }

    /// Writes bytes to a target, from byte `at` on. After every [`UPLOAD_BATCH`] bytes, waits for the device and reports progress.
    pub fn write(&mut self, to: &mut impl UploadTarget, at: usize, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        to.write(self.device, at as u64, bytes);
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
