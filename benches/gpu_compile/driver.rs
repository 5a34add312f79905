//! Opens a device of a Vulkan driver that compiles without a GPU, and compiles kernels on this device. wgpu cannot open such a device.

use super::spirv::Shader;
use ash::vk;
use std::collections::BTreeMap;
use std::ffi::CStr;

/// A Vulkan device that only compiles kernels. The device is never destroyed, because the process ends soon.
pub struct Driver {
    /// The adapter's name.
    pub name: String,
    /// The driver and its version.
    pub version: String,
    /// The size of the driver's cooperative matrices, 16 or 8. `None` if the driver has no cooperative matrices that wingbeat's kernels can use.
    pub cooperative: Option<usize>,
    device: ash::Device,
    extension: ash::khr::pipeline_executable_properties::Device,
}

/// The result of compiling a kernel.
pub struct Compiled {
    /// The numbers that the driver reports about the kernel, by the driver's names.
    pub statistics: BTreeMap<String, u64>,
    /// The machine code as text.
    pub assembly: String,
}

impl Driver {
    /// Opens the first adapter whose name contains `adapter`, in upper or lower case.
    pub fn open(adapter: &str) -> Result<Driver, String> {
        // SAFETY: the loader library is Vulkan's. All handles live as long as the process.
        unsafe { Driver::open_unsafe(adapter) }
    }

    unsafe fn open_unsafe(wanted: &str) -> Result<Driver, String> {
        let entry = unsafe { ash::Entry::load() }.map_err(|e| format!("no Vulkan loader: {e}"))?;
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        let instance = unsafe { entry.create_instance(&info, None) }.map_err(|e| format!("no Vulkan driver: {e}"))?;
        let adapters = unsafe { instance.enumerate_physical_devices() }.map_err(|e| format!("no adapter: {e}"))?;
        let mut seen = Vec::new();
        for adapter in adapters {
            let mut driver = vk::PhysicalDeviceDriverProperties::default();
            let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut driver);
            unsafe { instance.get_physical_device_properties2(adapter, &mut properties) };
            let name = text(properties.properties.device_name_as_c_str());
            let version = format!("{} {}", text(driver.driver_name_as_c_str()), text(driver.driver_info_as_c_str()));
            if name.to_lowercase().contains(&wanted.to_lowercase()) {
                return unsafe { Driver::device(&entry, &instance, adapter, name, version) };
            }
            seen.push(name);
        }
        Err(format!("no adapter named {wanted:?}, only {seen:?}"))
    }

    unsafe fn device(
        entry: &ash::Entry,
        instance: &ash::Instance,
        adapter: vk::PhysicalDevice,
        name: String,
        version: String,
    ) -> Result<Driver, String> {
        let extensions = unsafe { instance.enumerate_device_extension_properties(adapter) }.map_err(|e| e.to_string())?;
        let has = |wanted: &CStr| extensions.iter().any(|e| e.extension_name_as_c_str() == Ok(wanted));
        if !has(vk::KHR_PIPELINE_EXECUTABLE_PROPERTIES_NAME) {
            return Err(format!("{version} reports no statistics of kernels"));
        }
        let mut enabled = vec![vk::KHR_PIPELINE_EXECUTABLE_PROPERTIES_NAME];
        let cooperative = has(vk::KHR_COOPERATIVE_MATRIX_NAME).then(|| unsafe { cooperative(entry, instance, adapter) }).flatten();
        enabled.extend(cooperative.map(|_| vk::KHR_COOPERATIVE_MATRIX_NAME));
        enabled.extend(has(vk::EXT_ROBUSTNESS2_NAME).then_some(vk::EXT_ROBUSTNESS2_NAME));
        let names: Vec<_> = enabled.iter().map(|name| name.as_ptr()).collect();

        // The features that wgpu enables where the adapter has them.
        let (mut have11, mut have12, mut have13) = (
            vk::PhysicalDeviceVulkan11Features::default(),
            vk::PhysicalDeviceVulkan12Features::default(),
            vk::PhysicalDeviceVulkan13Features::default(),
        );
        let mut have = vk::PhysicalDeviceFeatures2::default().push_next(&mut have11).push_next(&mut have12).push_next(&mut have13);
        unsafe { instance.get_physical_device_features2(adapter, &mut have) };
        let basic = vk::PhysicalDeviceFeatures::default().robust_buffer_access(have.features.robust_buffer_access == vk::TRUE);
        let mut v11 = vk::PhysicalDeviceVulkan11Features::default()
            .storage_buffer16_bit_access(have11.storage_buffer16_bit_access == vk::TRUE)
            .uniform_and_storage_buffer16_bit_access(have11.uniform_and_storage_buffer16_bit_access == vk::TRUE);
        let mut v12 = vk::PhysicalDeviceVulkan12Features::default()
            .vulkan_memory_model(have12.vulkan_memory_model == vk::TRUE)
            .vulkan_memory_model_device_scope(have12.vulkan_memory_model_device_scope == vk::TRUE)
            .shader_float16(have12.shader_float16 == vk::TRUE)
            .shader_int8(have12.shader_int8 == vk::TRUE);
        let mut v13 = vk::PhysicalDeviceVulkan13Features::default()
            .subgroup_size_control(have13.subgroup_size_control == vk::TRUE)
            .shader_integer_dot_product(have13.shader_integer_dot_product == vk::TRUE)
            .maintenance4(have13.maintenance4 == vk::TRUE);
        let mut robustness = vk::PhysicalDeviceRobustness2FeaturesEXT::default().robust_buffer_access2(true).robust_image_access2(true);
        let mut matrices = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default().cooperative_matrix(true);
        let mut executable = vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default().pipeline_executable_info(true);
        let queue = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
        let mut info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queue)
            .enabled_extension_names(&names)
            .enabled_features(&basic)
            .push_next(&mut v11)
            .push_next(&mut v12)
            .push_next(&mut v13)
            .push_next(&mut executable);
        if cooperative.is_some() {
            info = info.push_next(&mut matrices);
        }
        if has(vk::EXT_ROBUSTNESS2_NAME) {
            info = info.push_next(&mut robustness);
        }
        let device = unsafe { instance.create_device(adapter, &info, None) }.map_err(|e| format!("{name} cannot be opened: {e}"))?;
        let extension = ash::khr::pipeline_executable_properties::Device::new(instance, &device);
        Ok(Driver { name, version, cooperative, device, extension })
    }

    /// Compiles a kernel.
    pub fn compile(&self, shader: &Shader) -> Result<Compiled, String> {
        // SAFETY: the SPIR-V comes from naga, and the layout has its bindings. Nothing runs.
        unsafe { self.compile_unsafe(shader) }.map_err(|e| format!("the driver refuses the kernel: {e}"))
    }

    unsafe fn compile_unsafe(&self, shader: &Shader) -> Result<Compiled, vk::Result> {
        let device = &self.device;
        let n_groups = shader.bindings.iter().map(|(group, ..)| group + 1).max().unwrap_or(0);
        let layouts = (0..n_groups)
            .map(|wanted| {
                let bindings: Vec<_> = shader
                    .bindings
                    .iter()
                    .filter(|(group, ..)| *group == wanted)
                    .map(|(_, binding, is_uniform)| {
                        vk::DescriptorSetLayoutBinding::default()
                            .binding(*binding)
                            .descriptor_type(if *is_uniform {
                                vk::DescriptorType::UNIFORM_BUFFER
                            } else {
                                vk::DescriptorType::STORAGE_BUFFER
                            })
                            .descriptor_count(1)
                            .stage_flags(vk::ShaderStageFlags::COMPUTE)
                    })
                    .collect();
                unsafe { device.create_descriptor_set_layout(&vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings), None) }
            })
            .collect::<Result<Vec<_>, _>>()?;
        let layout = unsafe { device.create_pipeline_layout(&vk::PipelineLayoutCreateInfo::default().set_layouts(&layouts), None) }?;
        let module = unsafe { device.create_shader_module(&vk::ShaderModuleCreateInfo::default().code(&shader.words), None) }?;
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .flags(vk::PipelineShaderStageCreateFlags::ALLOW_VARYING_SUBGROUP_SIZE)
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(c"main");
        let flags = vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR | vk::PipelineCreateFlags::CAPTURE_INTERNAL_REPRESENTATIONS_KHR;
        let info = vk::ComputePipelineCreateInfo::default().flags(flags).layout(layout).stage(stage);
        let pipeline = unsafe { device.create_compute_pipelines(vk::PipelineCache::null(), &[info], None) }.map_err(|(_, e)| e)?[0];
        let executable = vk::PipelineExecutableInfoKHR::default().pipeline(pipeline).executable_index(0);
        let statistics = unsafe { self.statistics(&executable) }?;
        let assembly = unsafe { self.assembly(&executable) }?;
        unsafe {
            device.destroy_pipeline(pipeline, None);
            device.destroy_shader_module(module, None);
            device.destroy_pipeline_layout(layout, None);
            layouts.into_iter().for_each(|layout| device.destroy_descriptor_set_layout(layout, None));
        }
        Ok(Compiled { statistics, assembly })
    }

    unsafe fn statistics(&self, executable: &vk::PipelineExecutableInfoKHR) -> Result<BTreeMap<String, u64>, vk::Result> {
        use vk::PipelineExecutableStatisticFormatKHR as Format;
        let found = unsafe { self.extension.get_pipeline_executable_statistics(executable) }?;
        let number = |s: &vk::PipelineExecutableStatisticKHR| match s.format {
            // SAFETY: the format says which field is set.
            Format::UINT64 => unsafe { s.value.u64 },
            Format::INT64 => unsafe { s.value.i64 }.unsigned_abs(),
            Format::FLOAT64 => (unsafe { s.value.f64 }) as u64,
            _ => 0,
        };
        Ok(found.iter().map(|s| (text(s.name_as_c_str()), number(s))).collect())
    }

    /// Returns the text of the last representation, which is the machine code.
    unsafe fn assembly(&self, executable: &vk::PipelineExecutableInfoKHR) -> Result<String, vk::Result> {
        let get = self.extension.fp().get_pipeline_executable_internal_representations_khr;
        let device = self.device.handle();
        let mut n = 0;
        unsafe { get(device, executable, &mut n, std::ptr::null_mut()) }.result()?;
        let mut parts = vec![vk::PipelineExecutableInternalRepresentationKHR::default(); n as usize];
        // The first call returned the number of texts. This call returns their sizes, and the next call returns the texts.
        unsafe { get(device, executable, &mut n, parts.as_mut_ptr()) }.result()?;
        let mut texts: Vec<Vec<u8>> = parts.iter().map(|part| vec![0; part.data_size]).collect();
        for (part, text) in parts.iter_mut().zip(&mut texts) {
            part.p_data = text.as_mut_ptr().cast();
        }
        unsafe { get(device, executable, &mut n, parts.as_mut_ptr()) }.result()?;
        let last = texts.pop().unwrap_or_default();
        Ok(String::from_utf8_lossy(&last).trim_end_matches('\0').to_string())
    }
}

/// Returns the size of the adapter's cooperative matrices for subgroups: 16 for 16 x 16, or 8 for 8 x 8. The matrices have elements in f16 and
/// sums in f32. Returns `None` if the adapter has no such matrices.
unsafe fn cooperative(entry: &ash::Entry, instance: &ash::Instance, adapter: vk::PhysicalDevice) -> Option<usize> {
    let extension = ash::khr::cooperative_matrix::Instance::new(entry, instance);
    let found = unsafe { extension.get_physical_device_cooperative_matrix_properties(adapter) }.ok()?;
    let is_square = |size: u32| {
        found.iter().any(|p| {
            (p.m_size, p.n_size, p.k_size) == (size, size, size)
                && (p.a_type, p.result_type) == (vk::ComponentTypeKHR::FLOAT16, vk::ComponentTypeKHR::FLOAT32)
                && p.scope == vk::ScopeKHR::SUBGROUP
        })
    };
    [16, 8].into_iter().find(|&size| is_square(size)).map(|size| size as usize)
}

fn text(name: Result<&CStr, std::ffi::FromBytesUntilNulError>) -> String {
    name.map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}
