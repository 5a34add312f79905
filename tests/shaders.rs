//! Every shader that any lowering asks for, without a device: composed, validated, held to WebGPU's default limits, made into a
//! pipeline on the null device, and translated to SPIR-V, MSL and HLSL.

use std::collections::HashSet;
use wingbeat::arch::ARCHS;
use wingbeat::exec::gpu::{Access, Device, Recipe, Signature, parse};
use wingbeat::quant::FORMATS;
use wingbeat::tape::{Caps, Class, Dispatch, Lowering, Tape};
use wingbeat::words::WORDS;

const CLASSES: [Class; 2] = [Class::Groups, Class::Lanes];

/// Dispatches of a tape in every class, format and size of step.
fn lowerings(mut tape: Tape, sizes: &[usize], each: &mut dyn FnMut(Dispatch)) {
    for format in FORMATS {
        tape.matrices.iter_mut().for_each(|m| m.format = *format);
        for class in CLASSES {
            for batch_invariant in [false, true] {
                let caps = Caps { class, max_binding: 128 << 20, batch_invariant };
                for &tokens in sizes {
                    let cx = Lowering { tape: &tape, caps: &caps, tokens, runs: tokens.min(4), outputs: 1, capacity: tokens };
                    tape.words.iter().flat_map(|w| w.lower(&cx)).for_each(&mut *each);
                }
            }
        }
    }
}

/// Every different shader, and one dispatch that uses it.
fn all() -> Vec<(Recipe, Dispatch)> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    let mut each = |d: Dispatch| {
        assert!(d.grid.iter().all(|&n| n > 0 && n <= 65535), "{} {:?}", d.shader, d.grid);
        let recipe = Recipe::from(&d);
        if seen.insert(recipe.clone()) {
            found.push((recipe, d));
        }
    };
    WORDS.iter().flat_map(|w| (w.cases)()).for_each(|case| lowerings(case.tape, &[1, 2, 4, 8, 16, 64, 256], &mut each));
    // Two layers of a published width: the largest matrices, without the time that all layers would take.
    for arch in ARCHS {
        let mut tape = Tape::new();
        arch.published("7.2b").expect("every family has that size").record(&mut tape);
        tape.words.truncate(14);
        lowerings(tape, &[1, 16], &mut each);
    }
    found
}

#[test]
fn every_shader_fits_the_default_limits_and_translates() {
    let limits = wgpu::Limits::default();
    let (device, queue) = wgpu::Device::noop(&wgpu::DeviceDescriptor::default());
    let null = Device::adopt(device, queue, Caps { class: Class::Groups, max_binding: 128 << 20, batch_invariant: false }, false);
    let all = all();
    assert!(all.len() > 20);
    for (recipe, dispatch) in all {
        let module = parse(&recipe).unwrap();
        let signature = Signature::of(&module, recipe.shader).unwrap();
        signature.check(&dispatch).unwrap();
        signature.params(&dispatch).unwrap();

        let count = |access: &[Access]| signature.slots.iter().filter(|s| access.contains(&s.access)).count() as u32;
        assert!(count(&[Access::Read, Access::ReadWrite]) <= limits.max_storage_buffers_per_shader_stage, "{recipe:?}");
        assert!(count(&[Access::Uniform]) <= limits.max_uniform_buffers_per_shader_stage, "{recipe:?}");
        assert!(signature.slots.iter().all(|s| s.group < limits.max_bind_groups), "{recipe:?}");

        let mut sizes = naga::proc::Layouter::default();
        sizes.update(module.to_ctx()).unwrap();
        let size = |space: naga::AddressSpace| {
            let vars = module.global_variables.iter().filter(move |(_, v)| v.space == space);
            vars.map(|(_, v)| sizes[v.ty].size).collect::<Vec<u32>>()
        };
        let workgroup: u32 = size(naga::AddressSpace::WorkGroup).iter().sum();
        assert!(workgroup <= limits.max_compute_workgroup_storage_size, "{recipe:?}: {workgroup} bytes");
        assert!(size(naga::AddressSpace::Uniform).iter().all(|&n| u64::from(n) <= limits.max_uniform_buffer_binding_size), "{recipe:?}");
        let lanes: u32 = module.entry_points[0].workgroup_size.iter().product();
        assert!(lanes <= limits.max_compute_invocations_per_workgroup, "{recipe:?}: {lanes} lanes");

        translate(&module, &recipe);
        null.kernels.get(&null, &recipe).unwrap();
    }
}

fn translate(module: &naga::Module, recipe: &Recipe) {
    use naga::back::{PipelineConstants, hlsl, msl, pipeline_constants::process_overrides, spv};
    use naga::valid::{Capabilities, ValidationFlags, Validator};
    let info = Validator::new(ValidationFlags::all(), Capabilities::SHADER_FLOAT16_IN_FLOAT32)
        .validate(module)
        .unwrap_or_else(|e| panic!("{recipe:?}: {e:?}"));
    let stage = Some((naga::ShaderStage::Compute, "main"));
    let (module, info) = process_overrides(module, &info, stage, &PipelineConstants::default()).unwrap();

    let options = spv::Options { lang_version: (1, 3), ..spv::Options::default() };
    let words = spv::write_vec(&module, &info, &options, None).unwrap_or_else(|e| panic!("{recipe:?}: SPIR-V: {e}"));
    assert!(words.len() > 100);

    let options = msl::Options { lang_version: (2, 4), fake_missing_bindings: true, ..msl::Options::default() };
    let pipeline = msl::PipelineOptions::default();
    let (text, _) = msl::write_string(&module, &info, &options, &pipeline).unwrap_or_else(|e| panic!("{recipe:?}: MSL: {e}"));
    assert!(text.contains("kernel"));

    let options = hlsl::Options { shader_model: hlsl::ShaderModel::V6_2, fake_missing_bindings: true, ..hlsl::Options::default() };
    let mut text = String::new();
    let pipeline = hlsl::PipelineOptions::default();
    hlsl::Writer::new(&mut text, &options, &pipeline).write(&module, &info, None).unwrap_or_else(|e| panic!("{recipe:?}: HLSL: {e}"));
    assert!(text.contains("numthreads"));
}

/// Dispatches of a step of few tokens, and of a chunk, each by layer; embedding and head take two, or three.
#[test]
fn a_layer_takes_as_many_dispatches_as_the_documentation_says() {
    let caps = |batch_invariant| Caps { class: Class::Groups, max_binding: 1 << 30, batch_invariant };
    for (name, few, many) in [("rwkv4", 4, 7), ("rwkv5", 5, 9), ("rwkv6", 7, 12), ("rwkv7", 5, 10)] {
        let blueprint = ARCHS.iter().find(|a| a.name() == name).unwrap().published("0.1b").unwrap();
        let n_layer = blueprint.facts().n_layer;
        let mut tape = Tape::new();
        blueprint.record(&mut tape);
        let count = |tokens: usize, caps: &Caps| {
            let cx = Lowering { tape: &tape, caps, tokens, runs: tokens.min(4), outputs: 1, capacity: tokens };
            tape.words.iter().map(|w| w.lower(&cx).len()).sum::<usize>()
        };
        for tokens in [1, 4] {
            assert_eq!(count(tokens, &caps(false)), 2 + few * n_layer, "{name}, {tokens} tokens");
        }
        assert_eq!(count(64, &caps(false)), 3 + many * n_layer, "{name}, a chunk");
        // One kernel class for every batch: what a chunk needs.
        assert_eq!(count(1, &caps(true)), 3 + many * n_layer, "{name}, deterministic");
    }
}
