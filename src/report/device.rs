//! Devices as the verb `devices` lists them and as every other report names the one it ran on.

#[cfg(not(target_arch = "wasm32"))]
mod listed;

#[cfg(not(target_arch = "wasm32"))]
pub use listed::{device_of, devices};

use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub struct DeviceReport {
    /// What the option `device` takes: `gpu:N` or `cpu`.
    pub id: String,
    pub name: String,
    pub backend: String,
    /// `discrete`, `integrated`, `virtual`, `cpu` (a software adapter), `other`, or `builtin`.
    #[serde(rename = "type")]
    pub kind: String,
    pub driver: String,
    pub features: Features,
    pub limits: Limits,
    /// All that there is, where the driver tells: of the adapter, or the host's where it has none of its own.
    pub memory_bytes: Option<u64>,
    /// What this process can still take of it. Only where devices are listed: it is another number every time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_free_bytes: Option<u64>,
    pub chosen: bool,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Features {
    pub f16: bool,
    /// Smallest and largest.
    pub subgroups: Option<[u32; 2]>,
    pub cooperative_matrix: bool,
    pub timestamps: bool,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Limits {
    pub max_binding_bytes: Option<u64>,
    pub max_buffer_bytes: Option<u64>,
    pub max_workgroup_bytes: Option<u32>,
    pub max_storage_buffers: Option<u32>,
}
