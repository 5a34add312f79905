//! Tests every shader that the words (the fused operations of a layer) use, without a device. Each shader is composed, validated, checked against
//! WebGPU's default limits, made into a pipeline on the null device, and translated to SPIR-V, MSL and HLSL.

mod files;
mod show;

use std::collections::HashSet;
use wingbeat::low_level::arch::{ARCHS, synthetic};
use wingbeat::low_level::exec::gpu::{Access, Device, DrawSizes, Recipe, Signature, compose, parse};
use wingbeat::low_level::exec::selftest::{self, Extent};
use wingbeat::low_level::quant::{Activations, FORMATS, Format, Scaling, find};
use wingbeat::low_level::tape::{Caps, Class, Dispatch, Lowering, MatrixPart, Rows, Tape, Tuning};
use wingbeat::low_level::words::WORDS;

const CLASSES: [Class; 2] = [Class::Groups, Class::Lanes];

/// Calls `each` with every dispatch of a tape, for both kernel families and every size of step. All weights have the format `format`.
fn lowerings(mut tape: Tape, format: &'static dyn Format, sizes: &[usize], each: &mut dyn FnMut(Dispatch)) {
    tape.store_as(format);
    if format.scaling() == Scaling::None {
        tape.cache_format = format;
        // A tape without matrix states refuses f16. This error is ignored.
        tape.store_states(format).ok();
    }
    // Kernels for software adapters take no activations of 8 bits, no subgroups, no cooperative matrices and no measured sizes.
    for (class, activations) in [(Class::Lanes, Activations::Float), (Class::Groups, Activations::Float), (Class::Groups, Activations::I8)]
    {
        tape.activations = activations;
        tape.keep_rounded();
        let plain = Caps::plain(class, 128 << 20);
        let mut variants = vec![Caps { batch_invariant: true, ..plain.clone() }, Caps { sparse: false, ..plain.clone() }];
        if class == Class::Groups {
            variants.extend([
                Caps { subgroups: true, ..plain.clone() },
                Caps { cooperative: Some(16), ..plain.clone() },
                Caps { cooperative: Some(8), ..plain.clone() },
                Caps { tuning: Tuning::unmeasured("metal", ""), ..plain.clone() },
            ]);
        }
        variants.push(plain);
        for caps in variants {
            for &tokens in sizes {
                for (runs, context) in [(tokens.min(4), tokens), (tokens, 8192)] {
                    let cx = Lowering { tape: &tape, caps: &caps, tokens, runs, outputs: 1, capacity: tokens, context };
                    tape.words.iter().flat_map(|w| w.lower(&cx)).for_each(&mut *each);
                }
            }
        }
    }
}

/// Returns every different shader, each with one dispatch that uses it.
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
    DrawSizes { n_vocab: 65536, stride: 65536, n_slots: 4, n_steps: 8 }.dispatches().into_iter().for_each(&mut each);
    for (word, &format) in WORDS.iter().flat_map(|word| FORMATS.iter().map(move |format| (word, format))) {
        let cases = selftest::cases(word, format, Extent::Full);
        cases.into_iter().for_each(|case| lowerings(case.tape, format, &[1, 2, 4, 8, 16, 32, 64, 256], &mut each));
    }
    // Adds the kernel sizes that a tuning pass may choose.
    let mut tape = Tape::new();
    let (y, x) = (tape.var("y", Rows::Tokens, &[64]), tape.var("x", Rows::Tokens, &[64]));
    tape.linear_add(MatrixPart::new("w", 64, 64), y, x);
    for (format, tokens) in ["f16", "nf4"].into_iter().flat_map(|format| [1, 2, 4, 8, 16, 32, 64, 256].map(|n| (format, n))) {
        tape.store_as(find(format).unwrap());
        for tuning in Tuning::default().candidates(tokens) {
            let caps = Caps { tuning, ..Caps::plain(Class::Groups, 128 << 20) };
            let cx = Lowering { tape: &tape, caps: &caps, tokens, runs: 1, outputs: 1, capacity: tokens, context: 1 };
            tape.words.iter().flat_map(|w| w.lower(&cx)).for_each(&mut each);
        }
    }
    tape.activations = Activations::I8;
    for (format, tokens) in ["q8_0", "q4_k", "q6_k"].into_iter().flat_map(|format| Tuning::STEPS.map(|n| (format, n))) {
        tape.store_as(find(format).unwrap());
        tape.keep_rounded();
        for tile in Tuning::default().rounded_candidates(tokens) {
            let tuning = Tuning::default().with_rounded(tokens, Some(tile));
            let caps = Caps { tuning, ..Caps::plain(Class::Groups, 128 << 20) };
            let cx = Lowering { tape: &tape, caps: &caps, tokens, runs: 1, outputs: 1, capacity: tokens, context: 1 };
            tape.words.iter().flat_map(|w| w.lower(&cx)).for_each(&mut each);
        }
    }
    // Adds two layers of the largest published size. They have the largest matrices, and more layers would take long.
    for (arch, &format) in ARCHS.iter().flat_map(|arch| FORMATS.iter().map(move |format| (arch, format))) {
        let mut tape = Tape::new();
        let largest = arch.sizes().last().expect("every family has sizes");
        arch.published(largest).expect("a size it lists").record(&mut tape);
        tape.words.truncate(14);
        lowerings(tape, format, &[1, 16], &mut each);
    }
    found
}

#[test]
fn every_shader_fits_the_default_limits_and_translates() {
    let limits = wgpu::Limits::default();
    let (device, queue) = wgpu::Device::noop(&wgpu::DeviceDescriptor {
        required_features: wgpu::Features::SUBGROUP | wgpu::Features::SHADER_F16 | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX,
        // SAFETY: the null device runs no shader.
        experimental_features: unsafe { wgpu::ExperimentalFeatures::enabled() },
        ..Default::default()
    });
    let null = Device::adopt(device, queue, Caps::plain(Class::Groups, 128 << 20), false);
    let all = all();
    assert!(all.len() > 20);
    // web/test/kernels.test.mjs compiles these texts in Chromium.
    if let Some(out) = std::env::var_os("WGSL_OUT") {
        let text =
            |recipe: &Recipe| serde_json::json!({ "shader": recipe.shader, "modules": recipe.modules, "text": compose(recipe).unwrap() });
        let texts: Vec<_> = all.iter().map(|(recipe, _)| text(recipe)).collect();
        std::fs::write(out, serde_json::to_vec(&texts).unwrap()).unwrap();
    }
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

/// Translates a shader to SPIR-V, MSL and HLSL. Panics if a translation fails.
fn translate(module: &naga::Module, recipe: &Recipe) {
    use naga::back::{PipelineConstants, hlsl, msl, pipeline_constants::process_overrides, spv};
    use naga::valid::{Capabilities, ValidationFlags, Validator};
    let capabilities =
        Capabilities::SHADER_FLOAT16_IN_FLOAT32 | Capabilities::SHADER_FLOAT16 | Capabilities::SUBGROUP | Capabilities::COOPERATIVE_MATRIX;
    let info = Validator::new(ValidationFlags::all(), capabilities).validate(module).unwrap_or_else(|e| panic!("{recipe:?}: {e:?}"));
    let stage = Some((naga::ShaderStage::Compute, "main"));
    let (module, info) = process_overrides(module, &info, stage, &PipelineConstants::default()).unwrap();

    let cooperative = recipe.modules.iter().find(|(slot, _)| *slot == "cooperative").map(|(_, module)| module.as_str());
    let version = if cooperative.is_some() { (1, 6) } else { (1, 3) };
    let options = spv::Options { lang_version: version, ..spv::Options::default() };
    let words = spv::write_vec(&module, &info, &options, None).unwrap_or_else(|e| panic!("{recipe:?}: SPIR-V: {e}"));
    assert!(words.len() > 100);

    // Metal has only cooperative matrices of 8 x 8.
    if cooperative == Some("lib::cooperative16") {
        return;
    }
    let options = msl::Options { lang_version: (2, 4), fake_missing_bindings: true, ..msl::Options::default() };
    let pipeline = msl::PipelineOptions::default();
    let (text, _) = msl::write_string(&module, &info, &options, &pipeline).unwrap_or_else(|e| panic!("{recipe:?}: MSL: {e}"));
    assert!(text.contains("kernel"));

    // Direct3D has no cooperative matrices.
    if cooperative.is_some() {
        return;
    }
    let options = hlsl::Options { shader_model: hlsl::ShaderModel::V6_2, fake_missing_bindings: true, ..hlsl::Options::default() };
    let mut text = String::new();
    let pipeline = hlsl::PipelineOptions::default();
    hlsl::Writer::new(&mut text, &options, &pipeline).write(&module, &info, None).unwrap_or_else(|e| panic!("{recipe:?}: HLSL: {e}"));
    assert!(text.contains("numthreads"));
}

/// Activations are rounded to f16 only in chunks of a prompt with quantised or f16 weights. They are not rounded for few tokens, if all logits are
/// requested, under batch invariance, or with f32 weights.
#[test]
fn only_prompts_use_cooperative_matrices() {
    let mut tape = Tape::new();
    let (y, x) = (tape.var("y", Rows::Tokens, &[64]), tape.var("x", Rows::Tokens, &[64]));
    tape.linear_add(MatrixPart::new("w", 64, 64), y, x);
    let uses = |tape: &Tape, caps: &Caps, tokens: usize, outputs: usize| {
        let cx = Lowering { tape, caps, tokens, runs: 1, outputs, capacity: tokens, context: 1 };
        tape.words[0].lower(&cx)[0].shader == "linear/tiled_cooperative"
    };
    let caps = Caps { cooperative: Some(16), ..Caps::plain(Class::Groups, 1 << 30) };
    for (format, wide) in [("f16", false), ("f32", true)] {
        tape.store_as(wingbeat::low_level::quant::find(format).unwrap());
        assert_eq!(uses(&tape, &caps, 32, 1), !wide);
        assert!(!uses(&tape, &caps, 16, 1) && !uses(&tape, &caps, 64, 64));
        assert!(!uses(&tape, &Caps { batch_invariant: true, ..caps.clone() }, 64, 1));
        assert!(!uses(&tape, &Caps { cooperative: None, ..caps.clone() }, 64, 1));
    }
}

/// Counts dispatches per layer, for a few tokens and for a chunk. Embedding and head add two dispatches for a few tokens, and three for a chunk.
#[test]
fn a_layer_takes_as_many_dispatches_as_the_documentation_says() {
    let caps = |batch_invariant| Caps { batch_invariant, ..Caps::plain(Class::Groups, 1 << 31) };
    let names =
        ["rwkv4-0.1b", "rwkv5-0.1b", "rwkv6-0.1b", "rwkv7-0.1b", "rwkv7a-0.1b", "rwkv7b-0.1b", "glm4-0.5b", "arwkv7-1.5b", "qrwkv6-32b"];
    let counts = [(4, 7, 0), (5, 9, 1), (7, 12, 1), (5, 10, 1), (8, 13, 1), (16, 21, 1), (7, 9, 0), (6, 11, 1), (12, 14, 0)];
    for (name, (few, many, span)) in names.into_iter().zip(counts) {
        let blueprint = synthetic::named(name).unwrap();
        // The word `deep_embed` needs the embedding of each token, which a second lookup keeps.
        let more = usize::from(["rwkv7a-0.1b", "rwkv7b-0.1b"].contains(&name));
        let n_layer = blueprint.facts().n_layer;
        let mut tape = Tape::new();
        blueprint.record(&mut tape);
        let count = |tokens: usize, caps: &Caps| {
            let cx = Lowering { tape: &tape, caps, tokens, runs: tokens.min(4), outputs: 1, capacity: tokens, context: 1 };
            tape.words.iter().map(|w| w.lower(&cx).len()).sum::<usize>()
        };
        for tokens in [1, 4] {
            assert_eq!(count(tokens, &caps(false)), 2 + more + few * n_layer, "{name}, {tokens} tokens");
        }
        assert_eq!(count(64, &caps(false)), 3 + more + many * n_layer, "{name}, a chunk");
        // From 65 tokens on, the recurrence of RWKV-5, 6 and 7 takes two dispatches.
        assert_eq!(count(128, &caps(false)), 3 + more + (many + span) * n_layer, "{name}, a large chunk");
        assert_eq!(count(128, &caps(true)), 3 + more + many * n_layer, "{name}, a large chunk, deterministic");
        // Under batch invariance, a step of one token has as many dispatches as a chunk.
        assert_eq!(count(1, &caps(true)), 3 + more + many * n_layer, "{name}, deterministic");
    }
}

/// The kernel's struct `Settings` has the fields and offsets of the host's struct `Row`.
#[test]
fn the_row_of_settings_has_the_fields_of_the_shader() {
    use std::mem::offset_of;
    use wingbeat::low_level::sample::Row;
    let recipe = Recipe::from(&DrawSizes { n_vocab: 64, stride: 64, n_slots: 1, n_steps: 1 }.dispatches()[2]);
    let module = parse(&recipe).unwrap();
    let (_, settings) = module.types.iter().find(|(_, t)| t.name.as_deref() == Some("Settings")).unwrap();
    let naga::TypeInner::Struct { members, span } = &settings.inner else { panic!("Settings is a struct") };
    let found: Vec<(&str, usize)> = members.iter().map(|m| (m.name.as_deref().unwrap(), m.offset as usize)).collect();
    macro_rules! row {
        ($($field:ident),*) => { vec![$((stringify!($field), offset_of!(Row, $field))),*] };
    }
    let mut want = row![flags, top_p, top_k, min_p_distance, n_sigma, filter_scale, draw_scale, repeat, repeat_inverse];
    want.extend(row![decay, presence, frequency, frequency_sign]);
    want.extend([("seed_low", offset_of!(Row, seed)), ("seed_high", offset_of!(Row, seed) + 4)]);
    assert_eq!((found, *span as usize), (want, size_of::<Row>()));
}
