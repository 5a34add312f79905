//! Asks how much memory an adapter has. WebGPU does not report memory, so this module calls the backend's own API through wgpu.

use crate::exec::Memory;

/// Returns the memory of an adapter, or `None` if the backend does not report memory. OpenGL and browsers do not report memory.
pub fn of(adapter: &wgpu::Adapter) -> Option<Memory> {
    match adapter.get_info().backend {
        #[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
        wgpu::Backend::Vulkan => vulkan(adapter),
        #[cfg(windows)]
        wgpu::Backend::Dx12 => dx12(adapter),
        #[cfg(target_vendor = "apple")]
        wgpu::Backend::Metal => metal(adapter),
        _ => None,
    }
}

/// Returns the size of the largest heap in device memory, and the free bytes of this heap if the driver reports them. Smaller heaps are
/// windows into the largest heap, or host-visible memory that large buffers do not use. Returns `None` before Vulkan 1.1.
#[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn vulkan(adapter: &wgpu::Adapter) -> Option<Memory> {
    use ash::{ext, vk};
    // SAFETY: the handles are only used for queries in this function. They are not kept and not destroyed.
    let hal = unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }?;
    let (instance, device) = (hal.shared_instance(), hal.raw_physical_device());
    let has_query = |version: u32| version >= vk::API_VERSION_1_1;
    let can = hal.physical_device_capabilities();
    if !has_query(instance.instance_api_version()) || !has_query(can.properties().api_version) {
        return None;
    }
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let mut answer = vk::PhysicalDeviceMemoryProperties2::default();
    let has_budget = can.supports_extension(ext::memory_budget::NAME);
    if has_budget {
        answer = answer.push_next(&mut budget);
    }
    // SAFETY: instance and device have Vulkan 1.1, which defines this function. `answer` is chained only to a structure that the device
    // supports.
    unsafe { instance.raw_instance().get_physical_device_memory_properties2(device, &mut answer) };
    let heaps = answer.memory_properties;
    let local = (0..heaps.memory_heap_count as usize).filter(|&i| heaps.memory_heaps[i].flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
    let largest = local.max_by_key(|&i| heaps.memory_heaps[i].size)?;
    let free = has_budget.then(|| budget.heap_budget[largest].saturating_sub(budget.heap_usage[largest]));
    Some(Memory { total: heaps.memory_heaps[largest].size, free })
}

/// Returns the adapter's memory. The total is the dedicated memory or the budget that Windows reports, whichever is larger.
#[cfg(windows)]
fn dx12(adapter: &wgpu::Adapter) -> Option<Memory> {
    use windows::Win32::Graphics::Dxgi::{DXGI_MEMORY_SEGMENT_GROUP_LOCAL, DXGI_QUERY_VIDEO_MEMORY_INFO};
    // SAFETY: the interface is only used for queries in this function, and not kept.
    let hal = unsafe { adapter.as_hal::<wgpu::hal::api::Dx12>() }?;
    let mut info = DXGI_QUERY_VIDEO_MEMORY_INFO::default();
    // SAFETY: the interface is alive as long as `hal`. The call writes only to `info`, before it returns.
    unsafe { hal.raw_adapter().QueryVideoMemoryInfo(0, DXGI_MEMORY_SEGMENT_GROUP_LOCAL, &mut info) }.ok()?;
    // SAFETY: the interface is alive as long as `hal`.
    let dedicated = unsafe { hal.raw_adapter().GetDesc1() }.map_or(0, |d| d.DedicatedVideoMemory as u64);
    Some(Memory { total: info.Budget.max(dedicated), free: Some(info.Budget.saturating_sub(info.CurrentUsage)) })
}

/// Returns the largest working set that Metal recommends, and how many bytes of this set are free. The memory may be shared with the host.
#[cfg(target_vendor = "apple")]
fn metal(adapter: &wgpu::Adapter) -> Option<Memory> {
    use objc2_metal::MTLDevice;
    // SAFETY: the device is only used for two queries in this function, and not kept.
    let hal = unsafe { adapter.as_hal::<wgpu::hal::api::Metal>() }?;
    let device = hal.raw_device();
    let total = device.recommendedMaxWorkingSetSize();
    Some(Memory { total, free: Some(total.saturating_sub(device.currentAllocatedSize() as u64)) })
}

#[cfg(test)]
mod tests {
    use crate::exec::gpu::{AdapterKind, Backend, adapters};

    /// llvmpipe is a Vulkan device whose only heap is the host's memory.
    #[test]
    fn an_adapter_of_vulkan_reports_its_memory() {
        let all = adapters(Backend::Vulkan);
        if all.is_empty() {
            return eprintln!("SKIPPED: there is no adapter");
        }
        for adapter in all {
            let memory = super::of(&adapter.inner).unwrap_or_else(|| panic!("{} reports no memory", adapter.name));
            assert!(memory.total > 1 << 27, "{}: {memory:?}", adapter.name);
            assert!(memory.free.is_none_or(|free| free <= memory.total), "{}: {memory:?}", adapter.name);
            if adapter.kind == AdapterKind::Cpu {
                assert_eq!(adapter.memory().map(|m| m.total), crate::exec::host_memory().map(|m| m.total));
            }
        }
    }
}
