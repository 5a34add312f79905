//! A tape lowered for one size of step: a flat list of ready dispatches.
//!
//! Pipelines, bind groups, grids and parameters are resolved here, once; playing a plan does no string, map or bind-group work.

use super::compose::Recipe;
use super::device::Device;
use super::reflect::{CURSOR, PARAMS};
use crate::error::{Error, Result};
use crate::exec::{WordTime, weight_bytes};
use crate::tape::{Binding, Dispatch, Lowering, Tape};

struct Op {
    pipeline: wgpu::ComputePipeline,
    groups: Vec<wgpu::BindGroup>,
    grid: [u32; 3],
    /// Makes logits: skipped where none are wanted.
    is_head: bool,
    /// Index in the tape.
    word: usize,
}

pub struct Plan {
    ops: Vec<Op>,
    /// Bytes of weights of every word.
    weight_bytes: Vec<u64>,
}

impl Plan {
    /// `resolve` gives what lies behind a binding.
    pub fn new<'b>(
        device: &Device,
        cx: &Lowering<'_>,
        cursor: &wgpu::Buffer,
        resolve: &dyn Fn(Binding) -> wgpu::BindingResource<'b>,
    ) -> Result<Plan> {
        let mut dispatches: Vec<(Dispatch, usize)> = Vec::new();
        let mut bytes = Vec::new();
        for (i, word) in cx.tape.words.iter().enumerate() {
            let own = word.lower(cx);
            bytes.push(weight_bytes(cx.tape, &own));
            dispatches.extend(own.into_iter().map(|d| (d, i)));
        }
        let alignment = device.device.limits().min_uniform_buffer_offset_alignment as usize;
        let mut uniforms = Vec::new();
        let mut made = Vec::new();
        for (dispatch, _) in &dispatches {
            let kernel = device.kernels.get(device, &Recipe::from(dispatch))?;
            kernel.signature.check(dispatch)?;
            check_grid(dispatch)?;
            let params = kernel.signature.params(dispatch)?;
            let at = uniforms.len();
            uniforms.extend_from_slice(&params);
            uniforms.resize(uniforms.len().next_multiple_of(alignment), 0);
            made.push((kernel, at, params.len()));
        }
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let uniform = device.buffer("parameters", uniforms.len(), usage)?;
        device.queue.write_buffer(&uniform, 0, &uniforms);

        let mut ops = Vec::new();
        for ((dispatch, word), (kernel, at, size)) in dispatches.iter().zip(made) {
            let resource = |name: &str| match name {
                PARAMS => wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: &uniform,
                    offset: at as u64,
                    size: wgpu::BufferSize::new(size as u64),
                }),
                CURSOR => cursor.as_entire_binding(),
                _ => {
                    let (_, binding) = dispatch.bindings.iter().find(|(n, _)| *n == name).expect("checked before");
                    resolve(*binding)
                }
            };
            let group = |(g, layout): (usize, &wgpu::BindGroupLayout)| {
                let slots = kernel.signature.slots.iter().filter(|s| s.group as usize == g);
                let entries: Vec<_> = slots.map(|s| wgpu::BindGroupEntry { binding: s.binding, resource: resource(&s.name) }).collect();
                device.device.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout, entries: &entries })
            };
            let groups = kernel.layouts.iter().enumerate().map(group).collect();
            ops.push(Op {
                pipeline: kernel.pipeline.clone(),
                groups,
                grid: dispatch.grid,
                is_head: cx.tape.words[*word].is_head(),
                word: *word,
            });
        }
        device.faults.check()?;
        Ok(Plan { ops, weight_bytes: bytes })
    }

    /// Encodes every dispatch into one pass.
    pub fn encode(&self, encoder: &mut wgpu::CommandEncoder, with_head: bool) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        self.ops.iter().filter(|op| with_head || !op.is_head).for_each(|op| op.encode(&mut pass));
    }

    /// Encodes a pass a word, between two timestamps each; gives what each word is but for its time.
    pub fn encode_timed(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        queries: &wgpu::QuerySet,
        tape: &Tape,
        with_head: bool,
    ) -> Vec<WordTime> {
        let mut words = Vec::new();
        for ops in self.ops.chunk_by(|a, b| a.word == b.word).filter(|ops| with_head || !ops[0].is_head) {
            let first = 2 * words.len() as u32;
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: None,
                timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                    query_set: queries,
                    beginning_of_pass_write_index: Some(first),
                    end_of_pass_write_index: Some(first + 1),
                }),
            });
            ops.iter().for_each(|op| op.encode(&mut pass));
            let word = ops[0].word;
            let name = tape.words[word].name();
            words.push(WordTime { word: name, dispatches: ops.len(), seconds: 0.0, weight_bytes: self.weight_bytes[word] });
        }
        words
    }

    pub fn n_dispatches(&self) -> usize {
        self.ops.len()
    }
}

impl Op {
    fn encode(&self, pass: &mut wgpu::ComputePass<'_>) {
        pass.set_pipeline(&self.pipeline);
        for (i, group) in self.groups.iter().enumerate() {
            pass.set_bind_group(i as u32, group, &[]);
        }
        pass.dispatch_workgroups(self.grid[0], self.grid[1], self.grid[2]);
    }
}

/// WebGPU allows 65 535 workgroups in a dimension.
fn check_grid(dispatch: &Dispatch) -> Result<()> {
    if dispatch.grid.iter().all(|&n| n <= 65535) {
        return Ok(());
    }
    Err(Error::input(format!("{} would need a grid of {:?} workgroups", dispatch.shader, dispatch.grid)).hint("use a smaller --chunk"))
}
