//! Writes kernels as HLSL, with the options that wgpu uses for trusted shaders on Direct3D 12.

use super::recipes::Kernel;
use naga::back::{PipelineConstants, hlsl, pipeline_constants::process_overrides};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use std::path::Path;
use wingbeat::low_level::exec::gpu::parse;

/// Writes one file per kernel to `folder`, named by the kernel's place in the list. The first line is a comment with the kernel's name. Kernels
/// with cooperative matrices are left out, because Direct3D has no such matrices.
///
/// # Errors
/// Returns one line for each kernel that naga cannot translate, or whose file cannot be written. The list is empty without errors.
pub fn write_all(kernels: &[Kernel], folder: &Path) -> Vec<String> {
    let is_plain = |kernel: &&Kernel| kernel.recipe.modules.iter().all(|(slot, _)| *slot != "cooperative");
    let write = |(i, kernel): (usize, &Kernel)| {
        let text = translate(kernel).map_err(|e| format!("{}: {e}", kernel.name))?;
        let path = folder.join(format!("{i:03}.hlsl"));
        std::fs::write(&path, format!("// {}\n{text}", kernel.name)).map_err(|e| format!("{}: {e}", path.display()))
    };
    kernels.iter().filter(is_plain).enumerate().filter_map(|numbered| write(numbered).err()).collect()
}

fn translate(kernel: &Kernel) -> Result<String, String> {
    let module = parse(&kernel.recipe).map_err(|e| e.to_string())?;
    let capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32 | Capabilities::SHADER_FLOAT16 | Capabilities::SUBGROUP;
    let info = Validator::new(ValidationFlags::all(), capabilities).validate(&module).map_err(|e| e.to_string())?;
    let stage = Some((naga::ShaderStage::Compute, "main"));
    let (module, info) = process_overrides(&module, &info, stage, &PipelineConstants::default()).map_err(|e| e.to_string())?;
    let options = hlsl::Options {
        shader_model: hlsl::ShaderModel::V6_5,
        fake_missing_bindings: true,
        zero_initialize_workgroup_memory: false,
        force_loop_bounding: false,
        restrict_indexing: false,
        ..hlsl::Options::default()
    };
    let mut text = String::new();
    let pipeline = hlsl::PipelineOptions::default();
    hlsl::Writer::new(&mut text, &options, &pipeline).write(&module, &info, None).map_err(|e| e.to_string())?;
    Ok(text)
}
