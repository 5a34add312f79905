//! Translates kernels to SPIR-V with the options that wgpu uses for trusted shaders on Vulkan 1.3.

use naga::back::{PipelineConstants, pipeline_constants::process_overrides, spv};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use wingbeat::low_level::exec::gpu::{Access, Recipe, Signature, parse};

/// A kernel in SPIR-V and its bindings.
pub struct Shader {
    pub words: Vec<u32>,
    /// For each binding: the group, the number in the group, and `true` if the binding is a uniform buffer.
    pub bindings: Vec<(u32, u32, bool)>,
}

/// Composes a kernel and translates it. The error says what naga refused.
pub fn write(recipe: &Recipe) -> Result<Shader, String> {
    let module = parse(recipe).map_err(|e| e.to_string())?;
    let signature = Signature::of(&module, recipe.shader).map_err(|e| e.to_string())?;
    let bindings = signature.slots.iter().map(|s| (s.group, s.binding, s.access == Access::Uniform)).collect();
    let is_cooperative = recipe.modules.iter().any(|(slot, _)| *slot == "cooperative");

    let capabilities =
        Capabilities::SHADER_FLOAT16_IN_FLOAT32 | Capabilities::SHADER_FLOAT16 | Capabilities::SUBGROUP | Capabilities::COOPERATIVE_MATRIX;
    let info = Validator::new(ValidationFlags::all(), capabilities).validate(&module).map_err(|e| e.to_string())?;
    let stage = Some((naga::ShaderStage::Compute, "main"));
    let (module, info) = process_overrides(&module, &info, stage, &PipelineConstants::default()).map_err(|e| e.to_string())?;
    let pipeline = spv::PipelineOptions { entry_point: "main".into(), shader_stage: naga::ShaderStage::Compute };
    let words = spv::write_vec(&module, &info, &options(is_cooperative), Some(&pipeline)).map_err(|e| e.to_string())?;
    Ok(Shader { words, bindings })
}

fn options(is_cooperative: bool) -> spv::Options<'static> {
    use spv::Capability as C;
    let mut capabilities = vec![
        C::Shader,
        C::GroupNonUniform,
        C::GroupNonUniformVote,
        C::GroupNonUniformArithmetic,
        C::GroupNonUniformBallot,
        C::GroupNonUniformShuffle,
        C::GroupNonUniformShuffleRelative,
        C::GroupNonUniformQuad,
        C::DotProductInputAllKHR,
        C::DotProductInput4x8BitKHR,
        C::DotProductInput4x8BitPackedKHR,
        C::DotProductKHR,
        C::Int8,
    ];
    if is_cooperative {
        capabilities.extend([C::Float16, C::CooperativeMatrixKHR, C::VulkanMemoryModel]);
    }
    // Trusted shaders have no checks of their own. The driver checks buffers, because wgpu enables `robustBufferAccess`.
    let unchecked = BoundsCheckPolicy::Unchecked;
    spv::Options {
        lang_version: (1, 6),
        flags: spv::WriterFlags::empty(),
        capabilities: Some(capabilities.into_iter().collect()),
        bounds_check_policies: BoundsCheckPolicies { index: unchecked, buffer: unchecked, image_load: unchecked, binding_array: unchecked },
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        force_loop_bounding: false,
        ray_query_initialization_tracking: false,
        fake_missing_bindings: true,
        emit_int_div_checks: false,
        task_dispatch_limits: None,
        ..spv::Options::default()
    }
}
