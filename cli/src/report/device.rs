//! The JSON that describes a device, for `wingbeat devices` and as a part of other reports.

use serde::Serialize;
use wingbeat::low_level::exec::gpu::{Adapter, Backend, adapters};
use wingbeat::low_level::exec::host_memory;
use wingbeat::low_level::session;

#[derive(Debug, Clone, Serialize)]
pub struct DeviceReport {
    /// The value for the option `device`: `gpu:N` or `cpu`.
    pub id: String,
    pub name: String,
    pub backend: String,
    /// The kind of the device: `discrete`, `integrated`, `virtual`, `cpu` (a software adapter), `other`, or `builtin` (wingbeat's own code
    /// on the CPU).
    #[serde(rename = "type")]
    pub kind: String,
    pub driver: String,
    pub features: Features,
    pub limits: DeviceLimits,
    /// The size of the adapter's memory in bytes, or of the host's memory if the adapter has no memory of its own. `None` if the size is
    /// unknown.
    pub memory_bytes: Option<u64>,
    /// The bytes of memory that are free for this process, or `None` if unknown. Only lists of devices have this field, because the number
    /// changes from run to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_free_bytes: Option<u64>,
    pub chosen: bool,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Features {
    pub f16: bool,
    /// The smallest and the largest subgroup size in lanes. `None` if the adapter has no subgroups.
    pub subgroups: Option<[u32; 2]>,
    pub cooperative_matrix: bool,
    pub timestamps: bool,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct DeviceLimits {
    pub max_binding_bytes: Option<u64>,
    pub max_buffer_bytes: Option<u64>,
    pub max_workgroup_bytes: Option<u32>,
    pub max_storage_buffers: Option<u32>,
}

/// Lists every adapter of `backend`, then the CPU. Marks the device whose id is `chosen` as the chosen device.
pub fn devices(backend: Backend, chosen: &str) -> Vec<DeviceReport> {
    let all = adapters(backend);
    let mut list: Vec<_> = all.iter().enumerate().map(|(i, a)| of_adapter(format!("gpu:{i}"), a)).collect();
    list.push(builtin());
    list.iter_mut().for_each(|d| d.chosen = d.id == chosen);
    list
}

/// Describes `device`, the device of a loaded model. Lists the adapters again, because a model does not keep all properties of its device.
pub fn device_of(device: &session::Device, backend: Backend) -> DeviceReport {
    let listed = match device.id.as_str() {
        "cpu" => Some(builtin()),
        id => devices(backend, id).into_iter().find(|d| d.id == id && d.name == device.name),
    };
    let bare = || DeviceReport {
        id: device.id.clone(),
        name: device.name.clone(),
        backend: device.backend.clone(),
        kind: device.kind.clone(),
        driver: device.driver.clone(),
        features: Features::default(),
        limits: DeviceLimits::default(),
        memory_bytes: None,
        memory_free_bytes: None,
        chosen: true,
    };
    DeviceReport { chosen: true, memory_free_bytes: None, ..listed.unwrap_or_else(bare) }
}

fn of_adapter(id: String, a: &Adapter) -> DeviceReport {
    let memory = a.memory();
    DeviceReport {
        id,
        name: a.name.clone(),
        backend: a.backend.clone(),
        kind: a.kind.name().into(),
        driver: a.driver.clone(),
        features: Features {
            f16: a.has_f16,
            subgroups: a.subgroups.map(|(min, max)| [min, max]),
            cooperative_matrix: a.has_cooperative_matrix,
            timestamps: a.has_timestamps,
        },
        limits: DeviceLimits {
            max_binding_bytes: Some(a.max_binding_bytes),
            max_buffer_bytes: Some(a.max_buffer_bytes),
            max_workgroup_bytes: Some(a.max_workgroup_bytes),
            max_storage_buffers: Some(a.max_storage_buffers),
        },
        memory_bytes: memory.map(|m| m.total),
        memory_free_bytes: memory.and_then(|m| m.free),
        chosen: false,
    }
}

/// Describes the CPU as a device.
fn builtin() -> DeviceReport {
    let memory = host_memory();
    DeviceReport {
        id: "cpu".into(),
        name: format!("{} threads", rayon::current_num_threads()),
        backend: "cpu".into(),
        kind: "builtin".into(),
        driver: String::new(),
        features: Features::default(),
        limits: DeviceLimits::default(),
        memory_bytes: memory.map(|m| m.total),
        memory_free_bytes: memory.and_then(|m| m.free),
        chosen: false,
    }
}
