//! Builds pipelines: composes the text of a recipe, parses the text with naga, reads the bindings, and compiles the shader. Caches
//! pipelines by recipe.

use super::compose::{Recipe, compose};
use super::device::Device;
use super::reflect::{Access, Signature};
use crate::error::{Error, Result};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A pipeline, its bind group layouts and its bindings.
pub struct Kernel {
    pub pipeline: wgpu::ComputePipeline,
    pub layouts: Vec<wgpu::BindGroupLayout>,
    pub signature: Signature,
}

/// The kernels of a device, by recipe and [`Device::trusted`]. Each kernel is built when it is first used.
#[derive(Default)]
pub struct Kernels(Mutex<HashMap<(Recipe, bool), Arc<Kernel>>>);

impl Kernels {
    /// Returns the kernel of a recipe. Builds the kernel if it is not cached.
    pub fn get(&self, device: &Device, recipe: &Recipe) -> Result<Arc<Kernel>> {
        let mut kernels = self.0.lock().map_err(|_| Error::device("another thread panicked while it built a kernel"))?;
        let key = (recipe.clone(), device.trusted);
        if let Some(kernel) = kernels.get(&key) {
            return Ok(kernel.clone());
        }
        let kernel = Arc::new(build(device, recipe)?);
        kernels.insert(key, kernel.clone());
        Ok(kernel)
    }
}

/// Composes and parses a shader.
///
/// # Errors
/// `Device` if the shader cannot be composed, or if naga refuses a line. The message then has this line.
pub fn parse(recipe: &Recipe) -> Result<naga::Module> {
    let text = compose(recipe)?;
    naga::front::wgsl::parse_str(&text).map_err(|e| {
        log::debug!("{}", e.emit_to_string(&text));
        let line = e.location(&text).and_then(|l| text.lines().nth(l.line_number as usize - 1)).unwrap_or("").trim();
        Error::device(format!("{e}: {line}")).at(recipe.shader)
    })
}

fn build(device: &Device, recipe: &Recipe) -> Result<Kernel> {
    let started = web_time::Instant::now();
    let module = parse(recipe)?;
    let signature = Signature::of(&module, recipe.shader)?;
    let layouts = layouts(&device.device, &signature);
    let groups: Vec<_> = layouts.iter().map(Some).collect();
    let layout = device.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(recipe.shader),
        bind_group_layouts: &groups,
        immediate_size: 0,
    });
    let source = wgpu::ShaderModuleDescriptor { label: Some(recipe.shader), source: wgpu::ShaderSource::Naga(Cow::Owned(module)) };
    let module = if device.trusted {
        // SAFETY: the shaders are our own. Every index is inside its binding: the tape determines both the sizes in the shader and
        // the sizes of buffers. Tests compare each kernel with its twin, with guard rows after each output, with and without checks.
        unsafe { device.device.create_shader_module_trusted(source, wgpu::ShaderRuntimeChecks::unchecked()) }
    } else {
        device.device.create_shader_module(source)
    };
    let pipeline = device.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(recipe.shader),
        layout: Some(&layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions { zero_initialize_workgroup_memory: false, ..Default::default() },
        cache: None,
    });
    device.faults.check().map_err(|e| e.at(recipe.shader))?;
    log::debug!("kernel {} {:?} {:?} in {:.0?}", recipe.shader, recipe.modules, recipe.constants, started.elapsed());
    Ok(Kernel { pipeline, layouts, signature })
}

/// Creates the bind group layouts 0, 1, …, one per group.
fn layouts(device: &wgpu::Device, signature: &Signature) -> Vec<wgpu::BindGroupLayout> {
    let n_groups = signature.slots.iter().map(|s| s.group + 1).max().unwrap_or(0);
    let group = |g: u32| {
        let entry = |slot: &super::reflect::Slot| wgpu::BindGroupLayoutEntry {
            binding: slot.binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: match slot.access {
                    Access::Uniform => wgpu::BufferBindingType::Uniform,
                    access => wgpu::BufferBindingType::Storage { read_only: access == Access::Read },
                },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        };
        let entries: Vec<_> = signature.slots.iter().filter(|s| s.group == g).map(entry).collect();
        device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries })
    };
    (0..n_groups).map(group).collect()
}
