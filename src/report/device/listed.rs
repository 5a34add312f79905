//! The devices of this machine. Not in a browser, which names one adapter, and only to who awaits it.

use super::{DeviceReport, Features, Limits};
use crate::exec::gpu::{Adapter, Backend, adapters};
use crate::exec::host_memory;
use crate::session;

/// Every adapter, then the host's own cores; `chosen` is the id of the one in use.
pub fn devices(backend: Backend, chosen: &str) -> Vec<DeviceReport> {
    let all = adapters(backend);
    let mut list: Vec<_> = all.iter().enumerate().map(|(i, a)| of_adapter(format!("gpu:{i}"), a)).collect();
    list.push(builtin());
    list.iter_mut().for_each(|d| d.chosen = d.id == chosen);
    list
}

/// The device of a model. Adapters are listed anew for what a model does not keep.
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
        limits: Limits::default(),
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
        limits: Limits {
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

/// Our own executor on the host's cores.
fn builtin() -> DeviceReport {
    let memory = host_memory();
    DeviceReport {
        id: "cpu".into(),
        name: format!("{} threads", rayon::current_num_threads()),
        backend: "cpu".into(),
        kind: "builtin".into(),
        driver: String::new(),
        features: Features::default(),
        limits: Limits::default(),
        memory_bytes: memory.map(|m| m.total),
        memory_free_bytes: memory.and_then(|m| m.free),
        chosen: false,
    }
}
