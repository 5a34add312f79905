//! Adapters and devices: lists and opens adapters, and collects asynchronous errors such as lost devices and exhausted memory.

use super::kernel::Kernels;
use super::memory;
use super::stored::StoredKernels;
use crate::error::{Error, Result};
use crate::exec::environment::{self, BINDING_LIMIT, CHECKED, COOPERATIVE, KERNELS, SPANS, SUBGROUPS};
use crate::exec::{Memory, host_memory};
use crate::tape::{Caps, Class, Tuning};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, OnceLock};

/// A graphics API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// The APIs that wgpu prefers on this system.
    #[default]
    Auto,
    Vulkan,
    Metal,
    Dx12,
    Gl,
}

impl Backend {
    /// Every backend except `Auto`.
    pub const ALL: [Backend; 4] = [Backend::Vulkan, Backend::Metal, Backend::Dx12, Backend::Gl];

    /// Returns the name that the option `backend` takes.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Auto => "auto",
            Backend::Vulkan => "vulkan",
            Backend::Metal => "metal",
            Backend::Dx12 => "dx12",
            Backend::Gl => "gl",
        }
    }

    /// Returns whether this program supports the API on this system.
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

/// The kind of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdapterKind {
    Discrete,
    Integrated,
    Virtual,
    /// A software adapter: llvmpipe, SwiftShader, WARP.
    Cpu,
    Other,
}

impl AdapterKind {
    /// Returns the name of the kind, for output.
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

/// An adapter as one backend lists it: a GPU, or a driver that runs GPU shaders on the CPU.
#[derive(Clone)]
pub struct Adapter {
    pub name: String,
    pub backend: String,
    pub kind: AdapterKind,
    pub driver: String,
    pub has_f16: bool,
    pub has_timestamps: bool,
    pub has_cooperative_matrix: bool,
    /// The largest n for which kernels and adapter support cooperative matrices of n x n, with f16 factors and f32 sums: 16, 8 or `None`.
    pub cooperative: Option<usize>,
    /// The smallest and the largest number of invocations in a subgroup. `None` if subgroup operations are not supported.
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

    /// Returns the memory that the driver reports now, or `None` if the driver does not report memory. For a software adapter, returns the
    /// host's memory.
    pub fn memory(&self) -> Option<Memory> {
        if self.kind == AdapterKind::Cpu { host_memory() } else { memory::of(&self.inner) }
    }

    /// Returns `true` unless the adapter is a discrete GPU. The driver of a slow adapter may abort a dispatch that runs for seconds.
    pub fn is_slow(&self) -> bool {
        self.kind != AdapterKind::Discrete
    }

    /// Returns the capabilities that lowering uses: properties of the adapter, changed by environment variables.
    ///
    /// # Errors
    /// `Usage` if an environment variable has an unknown value, or requires a feature that the adapter does not support.
    pub fn caps(&self, batch_invariant: bool) -> Result<Caps> {
        let lanes = environment::value(KERNELS)?.map_or(self.kind == AdapterKind::Cpu, |kernels| kernels == "lanes");
        let class = if lanes { Class::Lanes } else { Class::Groups };
        let limit = usize::try_from(self.max_binding_bytes.min(self.max_buffer_bytes)).unwrap_or(usize::MAX);
        let max_binding = environment::value(BINDING_LIMIT)?.and_then(|bytes| bytes.parse().ok()).map_or(limit, |n: usize| n.min(limit));
        let subgroups = wanted(SUBGROUPS, self.subgroups.is_some_and(|(smallest, _)| smallest >= 4))?;
        let uses_matrices = wanted(COOPERATIVE, self.cooperative.is_some())? && class == Class::Groups;
        let cooperative = self.cooperative.filter(|_| uses_matrices);
        // By default, integrated GPUs use no spans: the dispatch that computes all spans in parallel needs many cores and much bandwidth.
        let spans = environment::value(SPANS)?.map_or(self.kind != AdapterKind::Integrated, |on| on == "1");
        let tuning = Tuning::unmeasured(&self.backend, &self.driver);
        Ok(Caps { batch_invariant, subgroups, cooperative, spans, tuning, ..Caps::plain(class, max_binding) })
    }
}

/// Returns the largest n for which kernels and adapter support cooperative matrices of n x n, with f16 factors and f32 sums: 16 or 8.
/// Returns `None` if neither size is supported.
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

/// The features that kernels with cooperative matrices need.
const COOPERATIVE_FEATURES: wgpu::Features = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX.union(wgpu::Features::SHADER_F16);

/// Returns whether to use a feature. `offered` is `true` if the adapter supports the feature. If the environment variable is not set,
/// returns `offered`. The value `0` forbids the feature, and the value `1` requires it.
fn wanted(variable: &str, offered: bool) -> Result<bool> {
    match environment::value(variable)?.as_deref() {
        None => Ok(offered),
        Some("1") if offered => Ok(true),
        Some("1") => Err(Error::usage("the value is 1, but the adapter does not support this feature")
            .hint("set the variable to 0, or unset it")
            .at(variable)),
        Some(_) => Ok(false),
    }
}

/// Returns the instance that lists the adapters of a backend. An instance loads drivers, and unloads them when it is dropped. But drivers run
/// threads of their own, and a thread whose code is unmapped kills the process. So an instance lives as long as the process: one for the usual
/// backends and, for those who ask for it, one for OpenGL, which takes long to open.
fn instance(backend: Backend) -> &'static wgpu::Instance {
    static PRIMARY: OnceLock<wgpu::Instance> = OnceLock::new();
    static GL: OnceLock<wgpu::Instance> = OnceLock::new();
    let (kept, backends) = match backend {
        Backend::Gl => (&GL, wgpu::Backends::GL),
        _ => (&PRIMARY, wgpu::Backends::PRIMARY),
    };
    kept.get_or_init(|| {
        wgpu::Instance::new(wgpu::InstanceDescriptor {
            backends,
            flags: wgpu::InstanceFlags::empty(),
            ..wgpu::InstanceDescriptor::new_without_display_handle()
        })
    })
}

/// Lists the adapters of a backend, best first: discrete, integrated, virtual, other, software. A browser lists at most one adapter.
pub async fn adapters_async(backend: Backend) -> Vec<Adapter> {
    let mut adapters: Vec<Adapter> = instance(backend).enumerate_adapters(backend.backends()).await.into_iter().map(Adapter::new).collect();
    adapters.sort_by_key(|a| match a.kind {
        AdapterKind::Discrete => 0,
        AdapterKind::Integrated => 1,
        AdapterKind::Virtual => 2,
        AdapterKind::Other => 3,
        AdapterKind::Cpu => 4,
    });
    adapters
}

/// Calls [`adapters_async`] and blocks until it returns.
#[cfg(not(target_arch = "wasm32"))]
pub fn adapters(backend: Backend) -> Vec<Adapter> {
    crate::exec::wait::block_on(adapters_async(backend))
}

/// Returns the names of the graphics APIs that are compiled in, except wgpu's null API.
pub fn compiled_backends() -> Vec<&'static str> {
    let compiled = wgpu::Instance::enabled_backend_features();
    let is_compiled = |b: &wgpu::Backend| *b != wgpu::Backend::Noop && compiled.contains(wgpu::Backends::from(*b));
    wgpu::Backend::ALL.into_iter().filter(is_compiled).map(wgpu::Backend::to_str).collect()
}

/// The first error of a device since the last [`check`](Self::check).
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<Option<Error>>>);

impl Faults {
    fn keep(&self, error: Error) {
        if let Ok(mut slot) = self.0.lock() {
            slot.get_or_insert(error);
        }
    }

    /// Returns the first error since the last `check`, and forgets this error. Returns `Ok` if no error occurred. Later work on a lost
    /// device fails again.
    pub fn check(&self) -> Result<()> {
        match self.0.lock() {
            Ok(mut slot) => slot.take().map_or(Ok(()), Err),
            Err(_) => Err(Error::device("the device's error handler panicked")),
        }
    }
}

/// An open device with its capabilities and kernels.
pub struct Device {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub faults: Faults,
    pub caps: Caps,
    pub is_slow: bool,
    /// `true` if shaders run without bounds checks and loop limits. Tests and `doctor` compare these shaders with the reference
    /// implementations on the CPU.
    pub trusted: bool,
    /// Compiled kernels, shared by all models on the device. Each kernel is built when it is first used.
    pub kernels: Arc<Kernels>,
}

impl Device {
    /// Opens an adapter.
    ///
    /// # Errors
    /// `Device` or `Memory` if the driver does not open the device. `Usage` if an environment variable is wrong, as in [`Adapter::caps`].
    pub async fn open_async(adapter: &Adapter, batch_invariant: bool) -> Result<Device> {
        let caps = adapter.caps(batch_invariant)?;
        let opened = Self::request(adapter, &caps).await;
        if caps.cooperative.is_some() && opened.is_err() {
            log::warn!("{} does not open with cooperative matrices, so they are not used", adapter.name);
            let caps = Caps { cooperative: None, ..caps };
            let (device, queue) = Self::request(adapter, &caps).await?;
            return Ok(Self::adopt(device, queue, caps, adapter.is_slow()));
        }
        let (device, queue) = opened?;
        Ok(Self::adopt(device, queue, caps, adapter.is_slow()))
    }

    async fn request(adapter: &Adapter, caps: &Caps) -> Result<(wgpu::Device, wgpu::Queue)> {
        let mut features = wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::SUBGROUP | wgpu::Features::PIPELINE_CACHE;
        let mut experimental_features = wgpu::ExperimentalFeatures::disabled();
        if caps.cooperative.is_some() {
            features |= COOPERATIVE_FEATURES;
            // SAFETY: wgpu warns that its implementation of experimental features may have errors. One kernel uses such a feature, and
            // `selftest::settle` compares the kernel with its twin before a model uses the kernel.
            experimental_features = unsafe { wgpu::ExperimentalFeatures::enabled() };
        }
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("wingbeat"),
            // Only `profile` needs timestamps, and only [`keep_kernels`](Self::keep_kernels) the pipeline cache.
            required_features: adapter.inner.features() & features,
            experimental_features,
            required_limits: adapter.inner.limits(),
            ..Default::default()
        };
        adapter.inner.request_device(&descriptor).await.map_err(|e| {
            let text = format!("cannot open {} ({}): {e}", adapter.name, adapter.backend);
            // wgpu does not expose the kind of this error.
            let found = match e.to_string().contains("Not enough memory") {
                true => Error::memory(text).hint("close other programs, or use `device=cpu`"),
                false => Error::device(text).hint("update its driver, or choose another `device`"),
            };
            found.caused_by(e)
        })
    }

    /// From now on, keeps compiled kernels in the file `path`, if the backend has pipeline caches. Drops the kernels that were built so far.
    pub fn keep_kernels(&mut self, path: std::path::PathBuf) {
        self.kernels = Arc::new(Kernels::new(StoredKernels::open(&self.device, path)));
    }

    /// Returns the same device with other capabilities. Capabilities choose the kernel family ([`Class`]) and the sizes of the kernels, so
    /// that one device can run different kernels for the same tape.
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

    /// Wraps a device that the caller opened from `adapter`. Uses the features and limits that the caller asked for. Replaces the device's handlers of
    /// errors and of device loss.
    ///
    /// # Errors
    /// `Usage` if an environment variable is wrong, as in [`Adapter::caps`].
    pub fn of_wgpu(adapter: wgpu::Adapter, device: wgpu::Device, queue: wgpu::Queue) -> Result<Device> {
        let adapter = Adapter::new(adapter);
        let (mut caps, features) = (adapter.caps(false)?, device.features());
        caps.cooperative = caps.cooperative.filter(|_| features.contains(COOPERATIVE_FEATURES));
        caps.subgroups &= features.contains(wgpu::Features::SUBGROUP);
        caps.max_binding = caps.max_binding.min(usize::try_from(device.limits().max_storage_buffer_binding_size).unwrap_or(usize::MAX));
        Ok(Self::adopt(device, queue, caps, adapter.is_slow()))
    }

    /// Wraps an open device. Replaces the device's handlers of errors and of device loss.
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

    /// Calls `make`, which creates objects of the device, and returns the result of `make`. Returns an error if an object was not created. Errors of
    /// other threads that use the device at the same time do not count.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn checked<T>(&self, make: impl FnOnce() -> T) -> Result<T> {
        // A scope belongs to the thread that opened it. Outside a browser, its result is ready at once.
        let filters = [wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Internal];
        let scopes = filters.map(|filter| self.device.push_error_scope(filter));
        let made = make();
        let errors = scopes.into_iter().rev().filter_map(|scope| crate::exec::wait::block_on(scope.pop()));
        errors.last().map_or(Ok(made), |error| Err(explain(&error).caused_by(error)))
    }

    /// Calls `make`, which creates objects of the device, and returns the result of `make`. Returns an error if the device reported an error during
    /// the call or before the call.
    #[cfg(target_arch = "wasm32")]
    pub(super) fn checked<T>(&self, make: impl FnOnce() -> T) -> Result<T> {
        let made = make();
        self.faults.check().map(|()| made)
    }

    /// Blocks until all submitted work is done. In a browser, returns at once.
    pub fn wait(&self) -> Result<()> {
        self.poll(wgpu::PollType::wait_indefinitely())
    }

    /// Blocks until this submission and all earlier submissions are done. In a browser, returns at once.
    pub fn wait_for(&self, submission: wgpu::SubmissionIndex) -> Result<()> {
        self.poll(wgpu::PollType::Wait { submission_index: Some(submission), timeout: None })
    }

    /// Returns whether this submission and all earlier submissions are done.
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

    /// Returns an error of kind `Memory`, with `hint`, if `bytes` exceeds the adapter's limit on the size of one binding.
    pub fn check_binding(&self, label: &str, bytes: usize, hint: &str) -> Result<()> {
        let limit = self.device.limits().max_storage_buffer_binding_size;
        if bytes as u64 <= limit {
            return Ok(());
        }
        Err(Error::memory(format!("{label} needs a GPU buffer of {bytes} bytes, but the adapter allows at most {limit} bytes")).hint(hint))
    }

    /// Returns the size of a buffer for `bytes` bytes: a multiple of 16 that is at least 32.
    pub fn buffer_bytes(bytes: usize) -> usize {
        bytes.max(32).next_multiple_of(16)
    }

    /// Creates a buffer of at least `bytes` bytes.
    ///
    /// # Errors
    /// `Memory` if the size exceeds the adapter's limit, or if the device has no room.
    pub fn buffer(&self, label: &str, bytes: usize, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer> {
        let size = Self::buffer_bytes(bytes) as u64;
        let limit = self.device.limits().max_buffer_size;
        if size > limit {
            let text = format!("{label} needs one buffer of {size} bytes, but the adapter allows {limit}");
            return Err(Error::memory(text).hint("use fewer texts at once, a smaller `chunk` or `context`, or `device=cpu`"));
        }
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: false });
        self.faults.check().map_err(|e| e.at(label))?;
        Ok(buffer)
    }
}

fn explain(error: &wgpu::Error) -> Error {
    match error {
        wgpu::Error::OutOfMemory { .. } => Error::memory("the device is out of memory")
            .hint("close other GPU programs, or choose a smaller model, fewer texts at once, a smaller `context` or `device=cpu`"),
        wgpu::Error::Validation { description, .. } => {
            Error::device(format!("the device rejected an invalid call: {description}")).hint("run `wingbeat doctor` and report its output")
        }
        wgpu::Error::Internal { description, .. } => {
            Error::device(format!("the driver failed: {description}")).hint("update the driver, or choose another `device`")
        }
    }
}

fn lost(message: &str) -> Error {
    Error::device(format!("the device was lost: {message}")).hint(
        "the driver was reset, a dispatch took too long, or the GPU was removed; use a smaller `chunk` or `device=cpu`, or update the driver",
    )
}
