//! Loads the weights of a model to a device. All executors of the model share these weights.

use super::Device;
use super::draws::DrawSizes;
use super::early::{self, Early};
use super::executor::GpuExecutor;
use super::upload::Upload;
use super::weights::Weights;
use crate::error::Result;
use crate::exec::load::{FetchedSource, Progress, initial_states, pack_vectors, write_initial};
use crate::exec::{Executor, Loaded, draws_on_device};
use crate::quant::PAD;
use crate::tape::{Capacity, Class, PerHandle, Section, Source, State, TOKENS_PER_BLOCK, Tuning};
use std::sync::Arc;
use wgpu::BufferUsages;

/// The weights of a section, on a device.
#[derive(Clone)]
pub struct GpuModel {
    pub(super) device: Arc<Device>,
    pub(super) section: Section,
    pub(super) weights: Arc<Weights>,
    pub(super) vectors: PerHandle<wgpu::Buffer>,
    initial: Vec<(State, Vec<f32>)>,
    _early: Arc<Early>,
    pub(super) nothing: wgpu::Buffer,
    pub(super) spare: wgpu::Buffer,
    device_bytes: u64,
}

impl GpuModel {
    /// Loads the weights of a tape, or of a section of a tape. Outside a browser, other threads compile the kernels of the first steps meanwhile.
    /// `progress` is called with the bytes done and the total bytes.
    ///
    /// # Errors
    /// `File` or `Model` if a tensor is missing or has the wrong shape; `Memory` or `Device` if the device fails.
    pub async fn load_async(
        device: Arc<Device>,
        section: impl Into<Section>,
        source: &dyn Source,
        progress: Progress<'_>,
    ) -> Result<Arc<GpuModel>> {
        let section = section.into();
        let (tape, own) = (&section.tape, &section.own);
        let early = Early::begin(&device, &section);
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_DST;
        let mut upload = Upload::new(&device, section.size_bytes(), progress);
        let weights = Weights::load(&device, &section, source, &mut upload).await?;
        let mut device_bytes = weights.device_bytes;
        let fetched = FetchedSource::vectors(source, &section).await?;
        let vectors = PerHandle::new(&own.vectors, |v| {
            let spec = &tape.vectors[v];
            let packed = pack_vectors(spec, &*fetched)?;
            let mut buffer = device.buffer(&spec.parts[0].tensor, packed.len() * 4, usage)?;
            upload.write(&mut buffer, 0, bytemuck::cast_slice(&packed))?;
            device_bytes += buffer.size();
            Ok(buffer)
        })?;
        let (nothing, spare) = (device.buffer("nothing", 256, usage)?, device.buffer("spare", 256, usage)?);
        device.queue.submit([]);
        device.wait()?;
        upload.caught_up().await?;
        let initial = initial_states(&section, &*fetched)?;
        drop(fetched);
        Ok(Arc::new(GpuModel {
            device,
            section,
            weights: Arc::new(weights),
            vectors,
            initial,
            _early: Arc::new(early),
            nothing,
            spare,
            device_bytes,
        }))
    }

    /// In a browser, compiles the kernels of the first steps. Elsewhere, other threads do that, and the function returns at once. Calls
    /// `progress(kernels done, all kernels)`.
    ///
    /// # Errors
    /// `Device` if the browser refuses a kernel.
    pub async fn build_kernels(&self, progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        early::build(&self.device, &self.section, progress).await
    }

    /// Returns a model with the same weights on `device`. `device` must be the model's device with other capabilities. The capabilities must
    /// not change the layout of weights that the kernels read.
    pub fn on(&self, device: Arc<Device>) -> Arc<GpuModel> {
        Arc::new(GpuModel { device, ..self.clone() })
    }
}

impl Loaded for GpuModel {
    fn section(&self) -> &Section {
        &self.section
    }

    fn executor(self: Arc<Self>, capacity: Capacity) -> Result<Box<dyn Executor>> {
        let (tape, initial) = (self.tape().clone(), self.initial.clone());
        let mut executor = GpuExecutor::new(self, capacity)?;
        write_initial(&mut executor, &tape, &initial)?;
        Ok(Box::new(executor))
    }

    fn sparse_bytes(&self) -> u64 {
        let own = &self.section.tape.matrices[self.section.own.matrices.clone()];
        let sparse = own.iter().filter(|m| self.device.caps.by_columns(m));
        sparse.map(|m| m.size_bytes() as u64).sum()
    }

    fn device_bytes(&self) -> u64 {
        self.device_bytes
    }

    fn prefers_to_draw(&self, n_streams: usize) -> Result<bool> {
        let tape = self.tape();
        let sizes = tape.logits.map(|v| DrawSizes::of(tape.var_spec(v), n_streams.next_power_of_two()));
        let fits = sizes.is_some_and(|s| s.is_possible() && s.largest_binding() <= self.device.caps.max_binding);
        // Streamed layers are written between the words of every step, so several steps cannot be one submission.
        Ok(draws_on_device(self.device.caps.class == Class::Groups)? && fits && self.weights.stream.is_none())
    }

    fn longest_context(&self) -> usize {
        match self.device.caps.class {
            Class::Groups => usize::MAX,
            // Software adapters silently end the loops of an invocation after 65 535 iterations in total. The divisor is an upper bound of
            // the iterations per cache block.
            Class::Lanes => {
                let units = self.tape().caches.iter().map(|c| c.head_size / PAD).max().unwrap_or(0);
                65535 / (8 * (1 + units) + 2 * TOKENS_PER_BLOCK) * TOKENS_PER_BLOCK
            }
        }
    }

    fn rounds(&self) -> bool {
        let activations = self.section.tape.activations;
        Tuning::STEPS.iter().any(|&n| self.device.caps.rounds(activations, n)) && self.section.has_rounded()
    }

    fn is_watched(&self) -> bool {
        self.device.is_slow
    }
}
