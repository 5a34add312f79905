//! The matrices of a section (consecutive layers of a model). Resident layers stay on the device, and other layers are streamed through the
//! device.

use super::Device;
use super::stream::{Stream, StreamTurn};
use super::table::HostTable;
use super::upload::{HostBuffer, Upload};
use crate::error::Result;
use crate::tape::{Matrix, PerHandle, Section, Source, Tape};
use std::ops::Range;

/// The matrices of a section, and the stages in which its words (fused operations) are submitted.
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
        let (mut matrices, mut tables): (Vec<Vec<wgpu::Buffer>>, _) = (Vec::new(), Vec::new());
        for m in resident.matrices {
            if in_host && tape.matrices[m].is_table() {
                tables.push(table(device, tape, m, source, upload)?);
                // Each executor has its own buffers for rows of the table.
                matrices.push(Vec::new());
            } else {
                matrices.push(upload.matrix(&tape.matrices[m], source)?);
            }
            upload.caught_up().await?;
        }
        let mut device_bytes: u64 = matrices.iter().flatten().map(wgpu::Buffer::size).sum();
        let mut stages = vec![Stage { words: resident.words, streamed: None }];
        let mut layers = Vec::new();
        for layer in split..section.layers.end {
            let own = tape.extent(&(layer..layer + 1));
            let mut kept: Vec<Vec<HostBuffer>> = Vec::new();
            for m in own.matrices {
                if tape.matrices[m].is_table() {
                    tables.push(table(device, tape, m, source, upload)?);
                    kept.push(Vec::new());
                } else {
                    kept.push(upload.matrix(&tape.matrices[m], source)?);
                }
            }
            stages.push(Stage { words: own.words, streamed: Some(layers.len()) });
            layers.push(kept);
        }
        stages.retain(|stage| !stage.words.is_empty());
        let mut stream = None;
        if !layers.is_empty() {
            let (made, bound) = Stream::new(device, layers)?;
            matrices.extend(bound.into_iter().flatten());
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

/// Encodes matrix `m` of the tape to a table in host memory.
fn table(device: &Device, tape: &Tape, m: usize, source: &dyn Source, upload: &mut Upload<'_>) -> Result<HostTable> {
    let spec = &tape.matrices[m];
    let rows = spec.pieces(device.caps.max_binding).iter().map(|p| p.segments.iter().map(|s| s.rows).sum()).collect();
    Ok(HostTable::new(Matrix(m), upload.matrix(spec, source)?, rows, spec.row_bytes()))
}
