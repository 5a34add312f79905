//! Adapters: the graphics APIs of a system, the GPUs that they list, and what each GPU can do.

use super::memory;
use crate::error::{Error, Result};
use crate::exec::environment::{BINDING_LIMIT, COOPERATIVE, KERNELS, SPANS, SUBGROUPS, Variable};
use crate::exec::wait::block_on;
use crate::exec::{Memory, host_memory};
use crate::tape::{Caps, Class, Tuning};
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

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
        self.entry().0
    }

    /// Returns whether this program supports the API on this system.
    pub fn is_built_in(self) -> bool {
        wgpu::Instance::enabled_backend_features().intersects(self.entry().1)
    }

    fn entry(self) -> (&'static str, wgpu::Backends) {
        match self {
            Backend::Auto => ("auto", wgpu::Backends::PRIMARY),
            Backend::Vulkan => ("vulkan", wgpu::Backends::VULKAN),
            Backend::Metal => ("metal", wgpu::Backends::METAL),
            Backend::Dx12 => ("dx12", wgpu::Backends::DX12),
            Backend::Gl => ("gl", wgpu::Backends::GL),
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

/// The kind of an adapter, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdapterKind {
    Discrete,
    Integrated,
    Virtual,
    Other,
    /// A software adapter: llvmpipe, SwiftShader, WARP.
    Cpu,
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
    pub(super) fn new(inner: wgpu::Adapter) -> Adapter {
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
        let lanes = KERNELS.is("lanes")?.unwrap_or(self.kind == AdapterKind::Cpu);
        let class = if lanes { Class::Lanes } else { Class::Groups };
        let limit = usize::try_from(self.max_binding_bytes.min(self.max_buffer_bytes)).unwrap_or(usize::MAX);
        let max_binding = BINDING_LIMIT.value()?.and_then(|bytes| bytes.parse().ok()).map_or(limit, |n: usize| n.min(limit));
        let subgroups = wanted(&SUBGROUPS, self.subgroups.is_some_and(|(smallest, _)| smallest >= 4))?;
        let uses_matrices = wanted(&COOPERATIVE, self.cooperative.is_some())? && class == Class::Groups;
        let cooperative = self.cooperative.filter(|_| uses_matrices);
        // By default, integrated GPUs use no spans: the dispatch that computes all spans in parallel needs many cores and much bandwidth.
        let spans = SPANS.is("1")?.unwrap_or(self.kind != AdapterKind::Integrated);
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
pub(super) const COOPERATIVE_FEATURES: wgpu::Features = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX.union(wgpu::Features::SHADER_F16);

/// Returns whether to use a feature. `offered` is `true` if the adapter supports the feature. If the environment variable is not set,
/// returns `offered`. The value `0` forbids the feature. The value `1` requires it, and is an error if the adapter lacks the feature.
fn wanted(variable: &Variable, offered: bool) -> Result<bool> {
    match variable.is("1")? {
        Some(true) if !offered => Err(Error::usage("the value is 1, but the adapter does not support this feature")
            .hint("set the variable to 0, or unset it")
            .at(variable.name)),
        wanted => Ok(wanted.unwrap_or(offered)),
    }
}

/// Returns the instance that lists the adapters of a backend. An instance loads drivers, and unloads them when it is dropped. But drivers run
/// threads of their own, and a thread whose code is unmapped kills the process. So an instance lives as long as the process: one for the usual
/// backends and, only if it is asked for, one for OpenGL, which takes long to open.
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

/// Lists the adapters of a backend, sorted by kind. A browser lists at most one adapter.
pub async fn adapters_async(backend: Backend) -> Vec<Adapter> {
    let listed = match backend {
        Backend::Gl => gl_adapters().to_vec(),
        _ => instance(backend).enumerate_adapters(backend.entry().1).await,
    };
    let mut adapters: Vec<Adapter> = listed.into_iter().map(Adapter::new).collect();
    adapters.sort_by_key(|a| a.kind);
    adapters
}

/// Lists OpenGL's adapters, once per process. wgpu guards each listing's context with a lock of its own, but all listings share one context. Two
/// threads with adapters of two listings would use the context at the same time, and the driver would refuse one thread.
fn gl_adapters() -> &'static [wgpu::Adapter] {
    static LISTED: OnceLock<Vec<wgpu::Adapter>> = OnceLock::new();
    let list = async || Ok(instance(Backend::Gl).enumerate_adapters(wgpu::Backends::GL).await);
    LISTED.get_or_init(|| block_on(list()).unwrap_or_default())
}

/// Calls [`adapters_async`] and blocks until it returns. In a browser, returns an empty list.
pub fn adapters(backend: Backend) -> Vec<Adapter> {
    block_on(async { Ok(adapters_async(backend).await) }).unwrap_or_default()
}

/// Returns the names of the graphics APIs that are compiled in, except wgpu's null API.
pub fn compiled_backends() -> Vec<&'static str> {
    let compiled = wgpu::Instance::enabled_backend_features();
    let is_compiled = |b: &wgpu::Backend| *b != wgpu::Backend::Noop && compiled.contains(wgpu::Backends::from(*b));
    wgpu::Backend::ALL.into_iter().filter(is_compiled).map(wgpu::Backend::to_str).collect()
}
