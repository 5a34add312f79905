//! Prepares dispatches: resolves their pipelines, bind groups and parameters once, before the dispatches are encoded.

use super::compose::Recipe;
use super::device::Device;
use super::reflect::{CURSOR, PARAMS};
use crate::error::{Error, Result};
use crate::tape::{Binding, Dispatch};

/// One prepared dispatch.
pub struct Op {
    pipeline: wgpu::ComputePipeline,
    groups: Vec<wgpu::BindGroup>,
    grid: [u32; 3],
}

/// Prepares dispatches and returns one [`Op`] per dispatch. `resolve` returns the resource of a binding, from its name in the shader and
/// its value in the dispatch.
///
/// # Errors
/// `Device` if the bindings or the parameters of a shader and its dispatch differ. `Input` if a grid has more than 65 535 workgroups in a
/// dimension.
pub fn ready<'b>(
    device: &Device,
    dispatches: &[&Dispatch],
    cursor: &wgpu::Buffer,
    resolve: &dyn Fn(&str, Binding) -> wgpu::BindingResource<'b>,
) -> Result<Vec<Op>> {
    let recipes: Vec<Recipe> = dispatches.iter().map(|&dispatch| Recipe::from(dispatch)).collect();
    device.kernels.build_all(device, recipes.iter());
    let alignment = device.device.limits().min_uniform_buffer_offset_alignment as usize;
    let mut uniforms = Vec::new();
    let mut made = Vec::new();
    for (dispatch, recipe) in dispatches.iter().zip(&recipes) {
        let kernel = device.kernels.get(device, recipe)?;
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
    for (dispatch, (kernel, at, size)) in dispatches.iter().zip(made) {
        let resource = |name: &str| match name {
            PARAMS => wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: &uniform,
                offset: at as u64,
                size: wgpu::BufferSize::new(size as u64),
            }),
            CURSOR => cursor.as_entire_binding(),
            _ => {
                let (_, binding) = dispatch.bindings.iter().find(|(n, _)| *n == name).expect("checked before");
                resolve(name, *binding)
            }
        };
        let group = |(g, layout): (usize, &wgpu::BindGroupLayout)| {
            let slots = kernel.signature.slots.iter().filter(|s| s.group as usize == g);
            let entries: Vec<_> = slots.map(|s| wgpu::BindGroupEntry { binding: s.binding, resource: resource(&s.name) }).collect();
            device.device.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout, entries: &entries })
        };
        let groups = kernel.layouts.iter().enumerate().map(group).collect();
        ops.push(Op { pipeline: kernel.pipeline.clone(), groups, grid: dispatch.grid });
    }
    device.faults.check()?;
    Ok(ops)
}

impl Op {
    /// Encodes the dispatch.
    pub fn encode(&self, pass: &mut wgpu::ComputePass<'_>) {
        self.encode_grid(pass, self.grid);
    }

    /// Encodes the dispatch with another grid.
    pub fn encode_grid(&self, pass: &mut wgpu::ComputePass<'_>, grid: [u32; 3]) {
        pass.set_pipeline(&self.pipeline);
        for (i, group) in self.groups.iter().enumerate() {
            pass.set_bind_group(i as u32, group, &[]);
        }
        pass.dispatch_workgroups(grid[0], grid[1], grid[2]);
    }
}

/// Checks that a grid has at most 65 535 workgroups per dimension, the default limit of WebGPU.
fn check_grid(dispatch: &Dispatch) -> Result<()> {
    if dispatch.grid.iter().all(|&n| n <= 65535) {
        return Ok(());
    }
    Err(Error::input(format!(
        "the shader {} needs a grid of {:?} workgroups, but a GPU allows at most 65535 per dimension",
        dispatch.shader, dispatch.grid
    ))
    .hint("use a smaller `chunk`"))
}
