//! The matrices of a section (consecutive layers of a model). Resident layers stay on the device, and other layers are streamed through the
//! device.

use super::Device;
use super::stream::{Stream, Turn};
use super::table::Table;
use super::upload::{Kept, Upload};
use crate::error::Result;
use crate::tape::{Held, Matrix, Section, Source};
use std::ops::Range;

/// The matrices of a section, and the stages in which its words (fused operations) are submitted.
pub struct Weights {
    /// The buffers of each matrix, one per piece. Matrices of streamed layers share buffers.
    pub matrices: Held<Vec<wgpu::Buffer>>,
    pub stages: Vec<Stage>,
    /// The streamed layers, or `None` if all layers stay on the device.
    pub stream: Option<Stream>,
    /// The embedding table if it stays in host memory, otherwise `None`.
    pub table: Option<Table>,
    /// The number of bytes of device memory that the matrices take, including the buffers for streaming.
    pub device_bytes: u64,
}

/// A range of words that are submitted together, because their matrices are on the device at the same time.
pub struct Stage {
    pub words: Range<usize>,
    /// The index of the stage's layer among the streamed layers, or `None` if its layers are resident.
    pub streamed: Option<usize>,
}

impl Weights {
    /// Uploads the matrices of resident layers, and encodes the matrices of streamed layers to host memory.
    pub async fn load(device: &Device, section: &Section, source: &dyn Source, upload: &mut Upload<'_>) -> Result<Weights> {
        let tape = &section.tape;
        let split = section.layers.start + section.n_resident;
        let resident = tape.extent(&(section.layers.start..split));
        let mut matrices: Vec<Vec<wgpu::Buffer>> = Vec::new();
        for m in resident.matrices {
            matrices.push(upload.matrix(&tape.matrices[m], source)?);
            upload.caught_up().await?;
        }
        let mut device_bytes: u64 = matrices.iter().flatten().map(wgpu::Buffer::size).sum();
        let mut stages = vec![Stage { words: resident.words, streamed: None }];
        let (mut layers, mut table) = (Vec::new(), None);
        for layer in split..section.layers.end {
            let own = tape.extent(&(layer..layer + 1));
            let mut kept: Vec<Vec<Kept>> = Vec::new();
            for m in own.matrices {
                let (spec, pieces) = (&tape.matrices[m], upload.matrix(&tape.matrices[m], source)?);
                if spec.is_table() {
                    let rows = spec.pieces(device.caps.max_binding).iter().map(|p| p.segments.iter().map(|s| s.rows).sum()).collect();
                    table = Some(Table::new(Matrix(m), pieces, rows, spec.row_bytes()));
                    // The layer has no pieces of the table: each executor has its own buffers for rows of the table.
                    kept.push(Vec::new());
                } else {
                    kept.push(pieces);
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
        let matrices = Held::new(&section.own.matrices, |_| Ok(matrices.next().expect("there is one for each")))?;
        Ok(Weights { matrices, stages, stream, table, device_bytes })
    }

    /// Waits until no other step uses the stream, and reserves the stream for one step. Returns `None` if no layer is streamed.
    pub fn turn(&self) -> Result<Option<Turn<'_>>> {
        self.stream.as_ref().map(Stream::turn).transpose()
    }
}
