//! Lists the kernels for GPUs: the recipes that the published models use, and the recipes of all kernel sizes that tuning may choose.

use std::collections::HashSet;
use wingbeat::low_level::arch::ARCHS;
use wingbeat::low_level::exec::gpu::{DrawSizes, Recipe};
use wingbeat::low_level::quant::{Activations, FORMATS, Format, Scaling, find};
use wingbeat::low_level::tape::{Caps, Class, Dispatch, Lowering, MatrixPart, Rows, Tape, Tuning, vector};
use wingbeat::low_level::words::{Activation, LAYER_NORM_EPS, Norm, Projection};

/// A kernel and its name in tables: the shader, the modules in its slots, and its constants.
pub struct Kernel {
    pub name: String,
    pub recipe: Recipe,
}

/// The step sizes, in tokens, whose kernels are listed. Each power of two has its own plan, and plans of different sizes can use different
/// kernels.
const TOKENS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 256, 512];
/// The number of words that are kept at the beginning of a tape: enough for two layers. The kernels of all further layers are among the kernels
/// of these two layers.
const WORDS_OF_TWO_LAYERS: usize = 20;

/// Returns all kernels, in the order of their names. `cooperative` is the size of the driver's cooperative matrices, and `tuning` has the kernel
/// sizes without a measurement.
pub fn all(cooperative: Option<usize>, tuning: &Tuning) -> Vec<Kernel> {
    let mut seen = HashSet::new();
    let mut kernels = Vec::new();
    let mut add = |dispatch: Dispatch| {
        let recipe = Recipe::from(&dispatch);
        if seen.insert(recipe.clone()) {
            kernels.push(Kernel { name: name(&recipe), recipe });
        }
    };
    DrawSizes { n_vocab: 65536, stride: 65536, n_slots: 4, n_steps: 8 }.dispatches().into_iter().for_each(&mut add);
    published(cooperative, tuning, &mut add);
    tuned(tuning, &mut add);
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    kernels
}

/// Calls `add` with the dispatches of the published models: each architecture, variant and format, with and without subgroups.
fn published(cooperative: Option<usize>, tuning: &Tuning, add: &mut dyn FnMut(Dispatch)) {
    // GPUs with few registers are integrated GPUs, which use no spans by default.
    let plain = Caps { tuning: tuning.clone(), spans: !tuning.few_registers, ..Caps::plain(Class::Groups, (2 << 30) - 4) };
    let mut variants =
        vec![plain.clone(), Caps { subgroups: true, ..plain.clone() }, Caps { batch_invariant: true, subgroups: true, ..plain.clone() }];
    variants.extend(cooperative.map(|size| Caps { subgroups: true, cooperative: Some(size), ..plain }));
    let blueprints = ARCHS.iter().flat_map(|arch| {
        let sizes = arch.sizes().iter().filter_map(|size| arch.published(size));
        sizes.chain(arch.variants().iter().map(|(_, blueprint)| blueprint()))
    });
    for blueprint in blueprints {
        let mut tape = Tape::new();
        blueprint.record(&mut tape);
        let head = tape.words.pop();
        tape.words.truncate(WORDS_OF_TWO_LAYERS);
        tape.words.extend(head);
        for &format in FORMATS {
            tape.store_as(format);
            if format.scaling() == Scaling::None {
                tape.cache_format = format;
                // A tape without matrix states refuses f16. This error is ignored.
                tape.store_states(format).ok();
            }
            for (activations, caps, tokens) in variants
                .iter()
                .flat_map(|caps| TOKENS.map(|n| (caps, n)))
                .flat_map(|(caps, n)| [Activations::Float, Activations::I8].map(|activations| (activations, caps, n)))
            {
                tape.activations = activations;
                tape.keep_rounded();
                for context in [tokens, 4096.max(tokens)] {
                    let cx = Lowering { tape: &tape, caps, tokens, runs: tokens.min(4), outputs: 1, capacity: tokens, context };
                    tape.words.iter().flat_map(|word| word.lower(&cx)).for_each(&mut *add);
                }
            }
        }
    }
}

/// Calls `add` with the dispatches of two products, in every kernel size that tuning may choose. One product has stored inputs. The other
/// product computes its inputs. `first` has the sizes with which tuning begins. If the GPU has few registers, a kernel of any format may spill, so
/// the weights are stored in every format in turn. Otherwise they are stored in f16 and i8 in turn.
fn tuned(first: &Tuning, add: &mut dyn FnMut(Dispatch)) {
    const WIDTH: usize = 2560;
    let mut tape = Tape::new();
    let x = tape.var("x", Rows::Tokens, &[WIDTH]);
    let norm = tape.vectors(WIDTH, ["g", "b", "mix"].map(vector).into());
    let shift = tape.state("shift".into(), &[WIDTH], true);
    let key = Projection { part: MatrixPart::new("k", WIDTH, WIDTH), mix: 0, activation: Activation::ReluSquared, bias: None };
    let k = tape.norm_shift_linear("ffn", x, Norm::layer(norm, LAYER_NORM_EPS), vec![key], shift);
    tape.linear_add(MatrixPart::new("v", WIDTH, WIDTH), k, x);
    let is_listed = |format: &dyn Format| first.few_registers || ["f16", "i8"].contains(&format.name());
    let formats = FORMATS.iter().copied().filter(|&format| is_listed(format));
    for (format, tokens) in formats.flat_map(|format| TOKENS.map(|n| (format, n))) {
        tape.store_as(format);
        for tuning in first.candidates(tokens) {
            let caps = Caps { tuning, subgroups: true, ..Caps::plain(Class::Groups, 1 << 30) };
            let cx = Lowering { tape: &tape, caps: &caps, tokens, runs: 1, outputs: 1, capacity: tokens, context: 1 };
            tape.words.iter().flat_map(|word| word.lower(&cx)).for_each(&mut *add);
        }
    }
    tape.activations = Activations::I8;
    for (format, tokens) in ["q8_0", "q4_k", "q6_k"].into_iter().flat_map(|format| Tuning::STEPS.map(|n| (format, n))) {
        tape.store_as(find(format).expect("a format of the list"));
        tape.keep_rounded();
        for tile in first.rounded_candidates(tokens) {
            let caps = Caps { tuning: first.with_rounded(tokens, Some(tile)), subgroups: true, ..Caps::plain(Class::Groups, 1 << 30) };
            let cx = Lowering { tape: &tape, caps: &caps, tokens, runs: 1, outputs: 1, capacity: tokens, context: 1 };
            tape.words.iter().flat_map(|word| word.lower(&cx)).for_each(&mut *add);
        }
    }
}

fn name(recipe: &Recipe) -> String {
    let modules = recipe.modules.iter().map(|(slot, module)| format!(" {slot}={}", module.rsplit("::").next().unwrap_or(module)));
    let constants = recipe.constants.iter().map(|(name, value)| format!(" {name}={value}"));
    recipe.shader.to_string() + &modules.chain(constants).collect::<String>()
}
