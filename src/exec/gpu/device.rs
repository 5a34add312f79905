//! Adapters: listing, choosing, opening, and what the device says later of lost contexts and exhausted memory.

use super::kernel::Kernels;
use super::memory;
use crate::error::{Error, Result};
use crate::exec::environment::{self, BINDING_LIMIT, CHECKED, COOPERATIVE, KERNELS, SUBGROUPS};
use crate::exec::{Memory, host_memory};
use crate::tape::{Caps, Class};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

/// Which graphics API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    #[default]
    Auto,
    Vulkan,
    Metal,
    Dx12,
    Gl,
}

impl Backend {
    /// All but `Auto`.
    pub const ALL: [Backend; 4] = [Backend::Vulkan, Backend::Metal, Backend::Dx12, Backend::Gl];

    pub fn name(self) -> &'static str {
        match self {
            Backend::Auto => "auto",
            Backend::Vulkan => "vulkan",
            Backend::Metal => "metal",
            Backend::Dx12 => "dx12",
            Backend::Gl => "gl",
        }
    }

    /// Whether the program has this graphics interface on this system.
    pub fn is_built_in(self) -> bool {
        wgpu::Instance::enabled_backend_features().intersects(self.backends())
    }

    fn backends(self) -> wgpu::Backends {
        match self {
            Backend::Auto => wgpu::Backends::PRIMARY,
            Backend::Vulkan => wgpu::Backends::VULKAN,
            Backend::Metal => wgpu::Backends::METAL,
            Backend::Dx12 => wgpu::Backends::DX12,
            Backend::Gl => wgpu::Backends::GL,
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(name: &str) -> Result<Backend> {
        let found = [Backend::Auto].into_iter().chain(Self::ALL).find(|backend| backend.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| Error::usage(format!("expected auto, vulkan, metal, dx12 or gl, found {name:?}")).field("backend"))
    }
}

/// What kind of machine an adapter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdapterKind {
    Discrete,
    Integrated,
    Virtual,
    /// A CPU that plays GPU: llvmpipe, SwiftShader, WARP.
    Cpu,
    Other,
}

impl AdapterKind {
    pub fn name(self) -> &'static str {
        match self {
            AdapterKind::Discrete => "discrete",
            AdapterKind::Integrated => "integrated",
            AdapterKind::Virtual => "virtual",
            AdapterKind::Cpu => "cpu",
            AdapterKind::Other => "other",
        }
    }
}

/// One adapter through one backend.
#[derive(Clone)]
pub struct Adapter {
    pub name: String,
    pub backend: String,
    pub kind: AdapterKind,
    pub driver: String,
    pub has_f16: bool,
    pub has_timestamps: bool,
    pub has_cooperative_matrix: bool,
    /// Size of the matrices in f16 with sums in f32 that subgroups multiply together.
    pub cooperative: Option<usize>,
    /// Smallest and largest subgroup, where subgroup operations are offered.
    pub subgroups: Option<(u32, u32)>,
    pub max_binding_bytes: u64,
    pub max_buffer_bytes: u64,
    pub max_workgroup_bytes: u32,
    pub max_storage_buffers: u32,
    pub(super) inner: wgpu::Adapter,
}

impl Adapter {
    fn new(inner: wgpu::Adapter) -> Adapter {
        let (info, features, limits) = (inner.get_info(), inner.features(), inner.limits());
        Adapter {
            kind: match info.device_type {
                wgpu::DeviceType::DiscreteGpu => AdapterKind::Discrete,
                wgpu::DeviceType::IntegratedGpu => AdapterKind::Integrated,
                wgpu::DeviceType::VirtualGpu => AdapterKind::Virtual,
                wgpu::DeviceType::Cpu => AdapterKind::Cpu,
                wgpu::DeviceType::Other => AdapterKind::Other,
            },
            backend: info.backend.to_str().to_string(),
            driver: format!("{} {}", info.driver, info.driver_info).trim().to_string(),
            name: info.name,
            has_f16: features.contains(wgpu::Features::SHADER_F16),
            has_timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
            has_cooperative_matrix: features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX),
            cooperative: cooperative(&inner),
            subgroups: features.contains(wgpu::Features::SUBGROUP).then_some((info.subgroup_min_size, info.subgroup_max_size)),
            max_binding_bytes: limits.max_storage_buffer_binding_size,
            max_buffer_bytes: limits.max_buffer_size,
            max_workgroup_bytes: limits.max_compute_workgroup_storage_size,
            max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
            inner,
        }
    }

    /// Its memory as its driver says now, where it says; a software adapter has the host's.
    pub fn memory(&self) -> Option<Memory> {
        if self.kind == AdapterKind::Cpu { host_memory() } else { memory::of(&self.inner) }
    }

    /// Whether drivers end a dispatch that runs for seconds.
    pub fn is_slow(&self) -> bool {
        self.kind != AdapterKind::Discrete
    }

    /// What lowering may count on, with the environment's overrides.
    pub fn caps(&self, batch_invariant: bool) -> Result<Caps> {
        let lanes = environment::value(KERNELS)?.map_or(self.kind == AdapterKind::Cpu, |kernels| kernels == "lanes");
        let class = if lanes { Class::Lanes } else { Class::Groups };
        let limit = usize::try_from(self.max_binding_bytes.min(self.max_buffer_bytes)).unwrap_or(usize::MAX);
        let max_binding = environment::value(BINDING_LIMIT)?.and_then(|bytes| bytes.parse().ok()).map_or(limit, |n: usize| n.min(limit));
        let subgroups = wanted(SUBGROUPS, self.subgroups.is_some())?;
        let uses_matrices = wanted(COOPERATIVE, self.cooperative.is_some())? && class == Class::Groups;
        let cooperative = self.cooperative.filter(|_| uses_matrices);
        Ok(Caps { batch_invariant, subgroups, cooperative, ..Caps::plain(class, max_binding) })
    }
}

/// The larger of the sizes for which kernels are written, f16 times f16 with sums in f32, where a kernel may use them.
fn cooperative(adapter: &wgpu::Adapter) -> Option<usize> {
    if !adapter.features().contains(COOPERATIVE_FEATURES | wgpu::Features::SUBGROUP) {
        return None;
    }
    let offered = adapter.cooperative_matrix_properties();
    let has = |size: u32| {
        offered.iter().any(|p| {
            [p.m_size, p.n_size, p.k_size] == [size; 3]
                && p.ab_type == wgpu::CooperativeScalarType::F16
                && p.cr_type == wgpu::CooperativeScalarType::F32
        })
    };
    [16, 8].into_iter().find(|&size| has(size)).map(|size| size as usize)
}

/// What the kernels with cooperative matrices enable.
const COOPERATIVE_FEATURES: wgpu::Features = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX.union(wgpu::Features::SHADER_F16);

/// Whether to use what an adapter offers or does not: an environment variable forbids it with `0` and demands it with `1`.
fn wanted(variable: &str, offered: bool) -> Result<bool> {
    match environment::value(variable)?.as_deref() {
        None => Ok(offered),
        Some("1") if offered => Ok(true),
        Some("1") => Err(Error::usage("expected 0, found 1: the adapter does not offer it").at(variable)),
        Some(_) => Ok(false),
    }
}

/// Every adapter that the backends offer, best first: discrete, integrated, virtual, other, software. A browser offers one.
pub async fn adapters_async(backend: Backend) -> Vec<Adapter> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: backend.backends(),
        flags: wgpu::InstanceFlags::empty(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let mut adapters: Vec<Adapter> = instance.enumerate_adapters(backend.backends()).await.into_iter().map(Adapter::new).collect();
    adapters.sort_by_key(|a| match a.kind {
        AdapterKind::Discrete => 0,
        AdapterKind::Integrated => 1,
        AdapterKind::Virtual => 2,
        AdapterKind::Other => 3,
        AdapterKind::Cpu => 4,
    });
    adapters
}

/// As [`adapters_async`], on a thread that may block.
#[cfg(not(target_arch = "wasm32"))]
pub fn adapters(backend: Backend) -> Vec<Adapter> {
    crate::exec::wait::block_on(adapters_async(backend))
}

/// Returns the names of the graphics APIs that are compiled in, as the option `backend` takes them. The API that does nothing is left out.
pub fn compiled_backends() -> Vec<&'static str> {
    let compiled = wgpu::Instance::enabled_backend_features();
    let is_compiled = |b: &wgpu::Backend| *b != wgpu::Backend::Noop && compiled.contains(wgpu::Backends::from(*b));
    wgpu::Backend::ALL.into_iter().filter(is_compiled).map(wgpu::Backend::to_str).collect()
}

/// The first thing that went wrong on a device since it was asked last.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<Option<Error>>>);

impl Faults {
    fn keep(&self, error: Error) {
        if let Ok(mut slot) = self.0.lock() {
            slot.get_or_insert(error);
        }
    }

    /// The fault, once. A lost device stays lost: later calls fail in their own way.
    pub fn check(&self) -> Result<()> {
        match self.0.lock() {
            Ok(mut slot) => slot.take().map_or(Ok(()), Err),
            Err(_) => Err(Error::device("the device's error handler failed")),
        }
    }
}

/// An open device.
pub struct Device {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub faults: Faults,
    pub caps: Caps,
    pub is_slow: bool,
    /// Shaders run without bounds checks and loop counters: tests and `doctor` hold them to their twins.
    pub trusted: bool,
    /// Made when first asked for, shared by all models on the device.
    pub kernels: Arc<Kernels>,
}

impl Device {
    /// Opens an adapter.
    ///
    /// # Errors
    /// `Device` or `Memory` if its driver refuses, `Usage` at an environment variable that it cannot follow.
    pub async fn open_async(adapter: &Adapter, batch_invariant: bool) -> Result<Device> {
        let caps = adapter.caps(batch_invariant)?;
        let opened = Self::request(adapter, &caps).await;
        if caps.cooperative.is_some() && opened.is_err() {
            log::warn!("{} offers cooperative matrices and does not open with them; it goes without", adapter.name);
            let caps = Caps { cooperative: None, ..caps };
            let (device, queue) = Self::request(adapter, &caps).await?;
            return Ok(Self::adopt(device, queue, caps, adapter.is_slow()));
        }
        let (device, queue) = opened?;
        Ok(Self::adopt(device, queue, caps, adapter.is_slow()))
    }

    async fn request(adapter: &Adapter, caps: &Caps) -> Result<(wgpu::Device, wgpu::Queue)> {
        let mut features = wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::SUBGROUP;
        let mut experimental_features = wgpu::ExperimentalFeatures::disabled();
        if caps.cooperative.is_some() {
            features |= COOPERATIVE_FEATURES;
            // SAFETY: what wgpu warns of are its own errors. One kernel uses the feature; `selftest::settle` compares it with its
            // twin before a model does.
            experimental_features = unsafe { wgpu::ExperimentalFeatures::enabled() };
        }
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("wingbeat"),
            // Timestamps are for profiles.
            required_features: adapter.inner.features() & features,
            experimental_features,
            required_limits: adapter.inner.limits(),
            ..Default::default()
        };
        adapter.inner.request_device(&descriptor).await.map_err(|e| {
            let text = format!("cannot open {} ({}): {e}", adapter.name, adapter.backend);
            // wgpu keeps the kind of this error to itself.
            let found = match e.to_string().contains("Not enough memory") {
                true => Error::memory(text).hint("close other programs, or use `device=cpu`"),
                false => Error::device(text).hint("update its driver, or choose another `device`"),
            };
            found.caused_by(e)
        })
    }

    /// The same device with other caps than the adapter's own: the self-test plays every family of kernels on it.
    pub fn with_caps(&self, caps: Caps) -> Device {
        Device {
            device: self.device.clone(),
            queue: self.queue.clone(),
            faults: self.faults.clone(),
            caps,
            is_slow: self.is_slow,
            trusted: self.trusted,
            kernels: self.kernels.clone(),
        }
    }

    /// A device that somebody else opened.
    pub fn adopt(device: wgpu::Device, queue: wgpu::Queue, caps: Caps, is_slow: bool) -> Device {
        let faults = Faults::default();
        let sink = faults.clone();
        device.on_uncaptured_error(Arc::new(move |error| sink.keep(explain(&error).caused_by(error))));
        let sink = faults.clone();
        device.set_device_lost_callback(move |reason, message| {
            if reason != wgpu::DeviceLostReason::Destroyed {
                sink.keep(lost(&message));
            }
        });
        let trusted = environment::value(CHECKED).is_ok_and(|checked| checked.is_none_or(|on| on == "0"));
        Device { device, queue, faults, caps, is_slow, trusted, kernels: Arc::default() }
    }

    /// Blocks until all submitted work is done. In a browser, returns at once.
    pub fn wait(&self) -> Result<()> {
        self.poll(wgpu::PollType::wait_indefinitely())
    }

    /// Blocks until that submission is done, and all before it. In a browser, returns at once.
    pub fn wait_for(&self, submission: wgpu::SubmissionIndex) -> Result<()> {
        self.poll(wgpu::PollType::Wait { submission_index: Some(submission), timeout: None })
    }

    /// Whether that submission is done, and all before it.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn is_done(&self, submission: wgpu::SubmissionIndex) -> Result<bool> {
        let now = Some(std::time::Duration::ZERO);
        match self.device.poll(wgpu::PollType::Wait { submission_index: Some(submission), timeout: now }) {
            Err(wgpu::PollError::Timeout) => self.faults.check().map(|()| false),
            polled => {
                self.faults.check()?;
                polled.map(|_| true).map_err(|e| lost(&e.to_string()))
            }
        }
    }

    fn poll(&self, until: wgpu::PollType) -> Result<()> {
        let polled = self.device.poll(until);
        self.faults.check()?;
        polled.map(|_| ()).map_err(|e| lost(&e.to_string()).caused_by(e))
    }

    /// Whether the adapter binds that many bytes at once.
    pub fn check_binding(&self, label: &str, bytes: usize, hint: &str) -> Result<()> {
        let limit = self.device.limits().max_storage_buffer_binding_size;
        if bytes as u64 <= limit {
            return Ok(());
        }
        Err(Error::memory(format!("{label} needs {bytes} bytes in one binding, the adapter allows {limit}")).hint(hint))
    }

    /// How many bytes a buffer has that is to hold so many.
    pub fn buffer_bytes(bytes: usize) -> usize {
        bytes.max(32).next_multiple_of(16)
    }

    pub fn buffer(&self, label: &str, bytes: usize, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer> {
        let size = Self::buffer_bytes(bytes) as u64;
        let limit = self.device.limits().max_buffer_size;
        if size > limit {
            let text = format!("{label} needs one buffer of {size} bytes, the adapter allows {limit}");
            return Err(Error::memory(text).hint("use fewer slots, a smaller `chunk` or `context`, or `device=cpu`"));
        }
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: false });
        self.faults.check().map_err(|e| e.at(label))?;
        Ok(buffer)
    }
}

fn explain(error: &wgpu::Error) -> Error {
    match error {
        wgpu::Error::OutOfMemory { .. } => Error::memory("the device is out of memory")
            .hint("close other programs that use the GPU, or choose a smaller model, fewer slots, a smaller `context` or `device=cpu`"),
        wgpu::Error::Validation { description, .. } => {
            Error::device(format!("the device refused a call: {description}")).hint("run `wingbeat doctor` and report its page")
        }
        wgpu::Error::Internal { description, .. } => {
            Error::device(format!("the driver failed: {description}")).hint("update the driver, or choose another `device`")
        }
    }
}

fn lost(message: &str) -> Error {
    Error::device(format!("the device was lost: {message}")).hint(
        "a driver reset, a dispatch that took too long, or a removed GPU; try a smaller `chunk`, update the driver, or use `device=cpu`",
    )
}
