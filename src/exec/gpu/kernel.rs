//! Builds pipelines. Composes the WGSL text of a recipe (the shader, modules and constants of a kernel), parses the text with naga, reads the
//! bindings, and compiles the shader. Caches pipelines by recipe.

use super::compose::{Recipe, compose, for_naga};
use super::device::Device;
use super::reflect::{Access, Signature};
use super::stored::StoredKernels;
use crate::error::{Error, Result};
use crate::exec::environment::WGSL;
use crate::exec::wait::MAY_BLOCK;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};

/// A pipeline, its bind group layouts and its bindings.
pub struct Kernel {
    pub pipeline: wgpu::ComputePipeline,
    pub layouts: Vec<wgpu::BindGroupLayout>,
    pub signature: Signature,
}

/// A place for a kernel, `None` until the kernel is built. A thread that builds the kernel holds the lock, and other threads that need the kernel
/// wait.
type KernelPlace = Arc<Mutex<Option<Arc<Kernel>>>>;

/// The kernels of a device, by recipe and [`Device::trusted`]. Each kernel is built once. Several threads may build different kernels.
#[derive(Default)]
pub struct Kernels {
    places: Mutex<HashMap<(Recipe, bool), KernelPlace>>,
    stored: Option<StoredKernels>,
}

impl Kernels {
    /// Returns an empty cache of kernels. `stored` has the data that the driver compiled in an earlier run of the program, or is `None` if no file
    /// keeps such data.
    pub fn new(stored: Option<StoredKernels>) -> Kernels {
        Kernels { places: Mutex::default(), stored }
    }

    /// Returns the kernel of a recipe. Builds the kernel if no earlier call has built it.
    pub fn get(&self, device: &Device, recipe: &Recipe) -> Result<Arc<Kernel>> {
        let place = self.places.lock().map_err(|_| panicked())?.entry((recipe.clone(), device.trusted)).or_default().clone();
        let mut place = place.lock().map_err(|_| panicked())?;
        if let Some(kernel) = &*place {
            return Ok(kernel.clone());
        }
        let kernel = Arc::new(build(device, recipe, self.stored.as_ref())?);
        *place = Some(kernel.clone());
        Ok(kernel)
    }

    /// Returns the number of kernels that were built.
    #[cfg(test)]
    pub fn n_built(&self) -> usize {
        self.places.lock().unwrap().values().filter(|place| place.lock().unwrap().is_some()).count()
    }

    /// Builds the kernels of `recipes` on several threads, each once, in the order of `recipes`. Does nothing if fewer than two kernels are missing,
    /// or if only one thread may compile, because then [`get`](Self::get) is as fast. Errors are ignored as in [`build_next`](Self::build_next).
    pub fn build_all<'a>(&self, device: &Device, recipes: impl Iterator<Item = &'a Recipe>) {
        let mut known = HashSet::new();
        let mut missing: VecDeque<Recipe> = recipes.filter(|&recipe| known.insert(recipe)).cloned().collect();
        match self.places.lock() {
            Ok(places) => missing.retain(|recipe| !places.contains_key(&(recipe.clone(), device.trusted))),
            Err(_) => return,
        }
        if missing.len() < 2 || n_threads(device) < 2 {
            return;
        }
        let missing = Mutex::new(missing);
        std::thread::scope(|scope| {
            for _ in 0..n_threads(device) {
                scope.spawn(|| self.build_next(device, &missing));
            }
        });
    }

    /// Builds the kernels of `recipes` one after another, and awaits each. Calls `progress(kernels done, all kernels)`.
    ///
    /// # Errors
    /// `Device` for the first kernel that cannot be built.
    pub async fn build_awaited(&self, device: &Device, recipes: &[Recipe], progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        for (i, recipe) in recipes.iter().enumerate() {
            progress(i, recipes.len());
            let kernel = Arc::new(build_awaited(device, recipe, self.stored.as_ref()).await?);
            let place = self.places.lock().map_err(|_| panicked())?.entry((recipe.clone(), device.trusted)).or_default().clone();
            place.lock().map_err(|_| panicked())?.get_or_insert(kernel);
        }
        progress(recipes.len(), recipes.len());
        Ok(())
    }

    /// Takes recipes from the front of `left`, and builds their kernels, until `left` is empty. Several threads may share `left`. Errors are
    /// ignored, because [`get`](Self::get) builds the kernel again and returns the error.
    pub fn build_next(&self, device: &Device, left: &Mutex<VecDeque<Recipe>>) {
        let next = || left.lock().ok()?.pop_front();
        while let Some(recipe) = next() {
            if let Err(e) = self.get(device, &recipe) {
                log::debug!("{}: {e}", recipe.shader);
            }
        }
    }
}

fn panicked() -> Error {
    Error::device("another thread panicked while it built a kernel")
}

/// The largest number of threads that compile kernels.
const MOST_THREADS: usize = 8;

/// Returns how many threads compile kernels at a time. With OpenGL, the result is 1: all threads share one context, and wgpu panics in a thread that
/// waits more than six seconds for the context (one second on Windows). On a busy machine, llvmpipe can compile for that long. A browser also has one
/// thread.
pub fn n_threads(device: &Device) -> usize {
    if device.device.adapter_info().backend == wgpu::Backend::Gl {
        return 1;
    }
    std::thread::available_parallelism().map_or(1, |n| n.get()).min(MOST_THREADS)
}

/// Composes and parses a shader.
///
/// # Errors
/// `Device` if the shader cannot be composed, or if naga refuses a line, which the message then contains.
pub fn parse(recipe: &Recipe) -> Result<naga::Module> {
    parse_text(recipe, &for_naga(&compose(recipe)?))
}

fn parse_text(recipe: &Recipe, text: &str) -> Result<naga::Module> {
    naga::front::wgsl::parse_str(text).map_err(|e| {
        log::debug!("{}", e.emit_to_string(text));
        let line = e.location(text).and_then(|l| text.lines().nth(l.line_number as usize - 1)).unwrap_or("").trim();
        Error::device(format!("{e}: {line}")).at(recipe.shader)
    })
}

fn build(device: &Device, recipe: &Recipe, stored: Option<&StoredKernels>) -> Result<Kernel> {
    let draft = ShaderDraft::new(recipe)?;
    device.checked(|| draft.make(device, recipe, stored)).map_err(|e| e.at(recipe.shader))
}

/// Does what [`build`] does, and awaits the errors that a browser reports later.
async fn build_awaited(device: &Device, recipe: &Recipe, stored: Option<&StoredKernels>) -> Result<Kernel> {
    let draft = ShaderDraft::new(recipe)?;
    device.checked_async(|| draft.make(device, recipe, stored)).await.map_err(|e| e.at(recipe.shader))
}

/// A composed shader and its bindings.
struct ShaderDraft {
    started: web_time::Instant,
    source: wgpu::ShaderSource<'static>,
    signature: Signature,
}

impl ShaderDraft {
    fn new(recipe: &Recipe) -> Result<ShaderDraft> {
        let started = web_time::Instant::now();
        let text = compose(recipe)?;
        let module = parse_text(recipe, &for_naga(&text))?;
        let signature = Signature::of(&module, recipe.shader)?;
        // A browser compiles WGSL. From a module, wgpu would write WGSL without `@align` (gfx-rs/wgpu#4373), and the kernels that need it would read
        // wrong weights without any message. So a browser gets our own text, and naga only reads the bindings.
        let is_text = !MAY_BLOCK && WGSL.is("naga")? != Some(true);
        let source = if is_text { wgpu::ShaderSource::Wgsl(text.into()) } else { wgpu::ShaderSource::Naga(Cow::Owned(module)) };
        Ok(ShaderDraft { started, source, signature })
    }

    fn make(self, device: &Device, recipe: &Recipe, stored: Option<&StoredKernels>) -> Kernel {
        let layouts = layouts(&device.device, &self.signature);
        let pipeline = pipeline(device, recipe, self.source, &layouts, stored);
        log::debug!("kernel {} {:?} {:?} in {:.0?}", recipe.shader, recipe.modules, recipe.constants, self.started.elapsed());
        Kernel { pipeline, layouts, signature: self.signature }
    }
}

/// Compiles a shader.
fn pipeline(
    device: &Device,
    recipe: &Recipe,
    source: wgpu::ShaderSource<'_>,
    layouts: &[wgpu::BindGroupLayout],
    stored: Option<&StoredKernels>,
) -> wgpu::ComputePipeline {
    let groups: Vec<_> = layouts.iter().map(Some).collect();
    let layout = device.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(recipe.shader),
        bind_group_layouts: &groups,
        immediate_size: 0,
    });
    let source = wgpu::ShaderModuleDescriptor { label: Some(recipe.shader), source };
    let module = if device.trusted {
        // SAFETY: the shaders are our own. Every index is inside its binding: the tape determines both the sizes in the shader and the sizes of
        // buffers. Tests compare each kernel with its twin, both with and without bounds checks. Guard rows after each output reveal writes beyond
        // the output.
        unsafe { device.device.create_shader_module_trusted(source, wgpu::ShaderRuntimeChecks::unchecked()) }
    } else {
        device.device.create_shader_module(source)
    };
    device.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(recipe.shader),
        layout: Some(&layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions { zero_initialize_workgroup_memory: false, ..Default::default() },
        cache: stored.map(StoredKernels::cache),
    })
}

/// Creates the bind group layouts 0, 1, …, one per group.
fn layouts(device: &wgpu::Device, signature: &Signature) -> Vec<wgpu::BindGroupLayout> {
    let n_groups = signature.slots.iter().map(|s| s.group + 1).max().unwrap_or(0);
    let group = |g: u32| {
        let entry = |slot: &super::reflect::ShaderBinding| wgpu::BindGroupLayoutEntry {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::tape::{Caps, Class};

    fn combine(lanes: u32) -> Recipe {
        Recipe { shader: "attention/combine", modules: Vec::new(), constants: vec![("LANES", lanes), ("VALUE_UNITS", 8), ("BLOCK", 16)] }
    }

    /// Builds kernels on several threads while other threads build kernels with too many lanes.
    #[test]
    fn an_error_belongs_to_the_kernel_that_failed() {
        let (device, queue) = wgpu::Device::noop(&wgpu::DeviceDescriptor::default());
        let device = Device::adopt(device, queue, Caps::plain(Class::Groups, 1 << 20), false);
        let sizes = (1..=8).flat_map(|n| [32 * n, 512 * n]);
        let recipes: Vec<(u32, Recipe)> = sizes.map(|lanes| (lanes, combine(lanes))).collect();
        device.kernels.build_all(&device, recipes.iter().map(|(_, recipe)| recipe));
        for (lanes, recipe) in &recipes {
            let built = device.kernels.get(&device, recipe);
            if *lanes > 256 {
                let e = built.err().expect("the limit is 256 lanes");
                assert_eq!(e.kind, Kind::Device, "{e}");
                assert!(e.to_string().contains("attention/combine"), "{e}");
            } else {
                let again = device.kernels.get(&device, recipe).unwrap();
                assert!(Arc::ptr_eq(&built.unwrap(), &again), "a kernel is built once");
            }
        }
        device.faults.check().unwrap();
    }
}
