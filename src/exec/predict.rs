//! Estimates how long a step takes on a GPU that is not available, from the dispatches of a tape.
//!
//! The time of a dispatch is the sum of three times: the time between two dispatches; the time to read bytes or the time to compute products,
//! whichever is longer; and the time for which lanes wait for loads that follow one after another. All factors below are estimates. Use them
//! only to compare designs that were not measured on a GPU.

use super::gpu::DrawSizes;
use crate::error::{Error, Result};
use crate::tape::{Binding, Caps, Class, Dispatch, Lowering, Param, Tape};
use crate::words::SPAN;
use serde::Serialize;
use std::sync::LazyLock;

/// The share of the memory bandwidth that a long read reaches.
const READ: f64 = 0.93;
/// The time in seconds, per dispatch, in which not all cores read: before the last core has begun, and after the first core has finished.
const RAMP: f64 = 1.0e-6;
/// The share of the memory bandwidth that a read of scattered columns reaches.
const SCATTERED: f64 = 0.5;
/// The share of zeros in the input of an ffn's value matrix, in trained models.
const ZEROS: f64 = 0.88;
/// The share of a GPU's rate of f32 operations that the tiled product reaches.
const TILED: f64 = 0.33;
/// The number of instructions per product of two numbers in linear/tiled, with a tile of 64 x 128, as compiled for an AMD GPU (NAVI21).
const TILED_INSTRUCTIONS: f64 = 1.44;
/// The number of instructions per product of two numbers in linear/tiled_rounded, with a tile of 128 x 64, as compiled for NAVI21. Products of bytes are
/// not counted.
const ROUNDED_INSTRUCTIONS: f64 = 0.28;
/// The share of a GPU's rate of f32 operations that the product for few tokens reaches.
const FEW: f64 = 0.5;
/// The time in seconds that a workgroup of rwkv/wkv takes for a token.
const WKV_TOKEN: f64 = 0.3e-6;
/// The time in seconds that a workgroup of rwkv/wkv_span takes for a span.
const WKV_SPAN: f64 = 5.3e-6;
/// The number of workgroups of rwkv/wkv_span that a core runs at the same time.
const WKV_SPANS_PER_CORE: f64 = 4.0;
/// The time in seconds that a workgroup of rwkv/wkv_chain takes for a span.
const WKV_CHAIN: f64 = 1.4e-6;
/// The time in seconds of the searches in sample/draw.
const SEARCHES: f64 = 12e-6;

/// The speed of a GPU.
#[derive(Debug, Clone, Copy)]
pub struct Gpu {
    /// The name on the command line.
    pub name: &'static str,
    /// The product's name.
    pub title: &'static str,
    /// `true` if the GPU is part of the processor and uses the memory of the host.
    pub is_integrated: bool,
    /// The memory bandwidth in GB/s (data sheet).
    pub gb_s: f64,
    /// The rate of f32 operations in TFLOP/s (data sheet), without AMD's dual issue.
    pub tflop_s: f64,
    /// The rate in TFLOP/s that the kernel for cooperative matrices reaches (estimate). `None` if wgpu offers no cooperative matrices on this GPU.
    pub cooperative_tflop_s: Option<f64>,
    /// The number of cores: SMs (NVIDIA), compute units (AMD), GPU cores (Apple).
    pub cores: usize,
    /// The time from the end of a dispatch to the start of the next dispatch, in seconds (estimate).
    pub dispatch: f64,
    /// The time that a load from memory takes, in seconds (estimate).
    pub memory: f64,
    /// The time that a load from the second-level cache takes, in seconds (estimate).
    pub cache: f64,
    /// How many multiplications of f32 take as long as the product of four pairs of bytes.
    pub dot: f64,
}

/// The table of known GPUs. Its first lines explain the columns.
const TABLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/gpus.txt"));

/// All known GPUs.
pub static GPUS: LazyLock<Vec<Gpu>> = LazyLock::new(|| TABLE.lines().filter(|line| !line.starts_with('#')).map(gpu).collect());

/// Reads a line of [`TABLE`].
fn gpu(line: &'static str) -> Gpu {
    let [name, title, numbers] = line.splitn(3, " | ").collect::<Vec<_>>().try_into().expect("a line has three columns");
    let numbers: Vec<f64> = numbers.split(' ').map(|n| n.parse().expect("a number")).collect();
    let [gb_s, tflop_s, cooperative, cores, dispatch, memory, cache, dot] = numbers.try_into().expect("a line has eight numbers");
    Gpu {
        name,
        title: title.trim_end_matches(" *"),
        is_integrated: title.ends_with('*'),
        gb_s,
        tflop_s,
        cooperative_tflop_s: Some(cooperative).filter(|&rate| rate > 0.0),
        cores: cores as usize,
        dispatch: dispatch * 1e-6,
        memory: memory * 1e-6,
        cache: cache * 1e-6,
        dot,
    }
}

/// Finds a GPU by its name, in upper or lower case. Spaces and hyphens are ignored.
///
/// # Errors
/// `Usage` if the name is unknown.
pub fn find(name: &str) -> Result<&'static Gpu> {
    let wanted = name.to_lowercase().replace([' ', '-'], "");
    GPUS.iter().find(|gpu| gpu.name == wanted).ok_or_else(|| {
        let known: Vec<_> = GPUS.iter().map(|gpu| gpu.name).collect();
        Error::usage(format!("unknown GPU {name:?}, expected one of {}", known.join(", ")))
    })
}

/// The estimate for all calls of one word in a step.
#[derive(Debug, Clone, Serialize)]
pub struct PredictedWord {
    pub word: &'static str,
    pub calls: usize,
    pub dispatches: usize,
    pub ms: f64,
    /// The number of bytes that the calls read and write: weights, states, caches and activations.
    pub bytes: u64,
}

/// A step to estimate: `n_slots` slots with `n_tokens` new tokens each. Each slot has `depth` tokens before the step.
#[derive(Debug, Clone, Copy)]
pub struct StepLoad {
    pub n_slots: usize,
    pub n_tokens: usize,
    pub depth: usize,
}

/// Returns the cost of each kind of word in a step, in the order of their first calls, then the cost of sampling. The formats of the
/// tape's matrices, states and caches must be set before the call.
pub fn step(tape: &Tape, gpu: &Gpu, load: StepLoad) -> Vec<PredictedWord> {
    let cooperative = gpu.cooperative_tflop_s.map(|_| 16);
    let caps = Caps { subgroups: true, cooperative, spans: !gpu.is_integrated, ..Caps::plain(Class::Groups, (2 << 30) - 4) };
    let tokens = load.n_slots * load.n_tokens;
    let cx = Lowering {
        tape,
        caps: &caps,
        tokens,
        runs: load.n_slots,
        outputs: load.n_slots,
        capacity: tokens,
        context: load.depth + load.n_tokens,
    };
    let mut costs: Vec<PredictedWord> = Vec::new();
    let mut add = |word: &'static str, dispatches: &[Dispatch]| {
        let at = costs.iter().position(|cost| cost.word == word).unwrap_or_else(|| {
            costs.push(PredictedWord { word, calls: 0, dispatches: 0, ms: 0.0, bytes: 0 });
            costs.len() - 1
        });
        let cost = &mut costs[at];
        cost.calls += 1;
        for dispatch in dispatches {
            let (seconds, bytes) = price(dispatch, &cx, gpu, load);
            cost.dispatches += 1;
            cost.ms += 1e3 * seconds;
            cost.bytes += bytes as u64;
        }
    };
    for word in &tape.words {
        add(word.name(), &word.lower(&cx));
    }
    if let Some(logits) = tape.logits {
        add("sampling", &DrawSizes::of(tape.var_spec(logits), load.n_slots.next_power_of_two()).dispatches());
    }
    costs
}

/// Returns the estimated time of a dispatch in seconds, and the number of bytes that the dispatch reads or writes.
fn price(dispatch: &Dispatch, cx: &Lowering<'_>, gpu: &Gpu, load: StepLoad) -> (f64, f64) {
    let tape = cx.tape;
    let is_sparse = dispatch.shader == "linear/sparse";
    let is_tiled = dispatch.shader.starts_with("linear/tiled");
    let is_sorted = dispatch.modules.iter().any(|(_, module)| module == "experts::stack");
    let (mut bytes, mut weights, mut width, mut caches) = (0.0, 0.0, 0, Vec::new());
    for (_, binding) in &dispatch.bindings {
        match *binding {
            Binding::Piece(matrix, i) => {
                let spec = tape.matrix_spec(matrix);
                let pieces = if is_sparse { spec.column_pieces(cx.caps.max_binding) } else { spec.pieces(cx.caps.max_binding) };
                let piece = &pieces[i];
                if spec.is_table() {
                    bytes += (spec.row_bytes() * cx.tokens) as f64;
                } else {
                    let used = spec.n_used.map(|n| n as f64 / spec.parts.len() as f64);
                    let share = match used {
                        // A tile reads an expert once for all of its tokens. The cache serves the other tiles of the expert.
                        Some(used) if is_sorted => 1.0 - (1.0 - used).powf(cx.tokens as f64),
                        // Each token reads its experts by itself.
                        Some(used) => used * cx.tokens as f64,
                        None if is_sparse => (1.0 - ZEROS) / SCATTERED * cx.tokens as f64,
                        None => 1.0,
                    };
                    bytes += piece.size_bytes() as f64 * share;
                    for segment in &piece.segments {
                        let k = spec.parts[segment.part].k;
                        weights += (segment.rows * k) as f64 * used.map_or(1.0, |used| used * surplus(dispatch, used * cx.tokens as f64));
                        width = width.max(k);
                    }
                }
            }
            // A state is read once and written once.
            Binding::State(state) => bytes += 2.0 * (tape.state_spec(state).page_bytes() * load.n_slots) as f64,
            // A cache of latents (compressed keys and values) is bound twice, as keys and as values, but counts once.
            Binding::Cache(cache) if dispatch.shader == "attention/attend" && !caches.contains(&cache) => {
                caches.push(cache);
                let token = tape.cache_format.size_bytes(tape.cache_spec(cache).width());
                bytes += (token * (load.depth + load.n_tokens) * load.n_slots) as f64;
            }
            Binding::Var(var) => bytes += (tape.var_spec(var).stride() * 4 * cx.tokens.min(256)) as f64,
            _ => (),
        }
    }
    let rate = match dispatch.shader {
        "linear/tiled" => TILED * gpu.tflop_s,
        "linear/tiled_rounded" => TILED * gpu.tflop_s * TILED_INSTRUCTIONS / (ROUNDED_INSTRUCTIONS + gpu.dot / 4.0),
        "linear/tiled_cooperative" => gpu.cooperative_tflop_s.unwrap_or(gpu.tflop_s * TILED),
        _ => FEW * gpu.tflop_s,
    };
    let operations = if is_sparse { 0.0 } else { 2.0 * weights * cx.tokens as f64 };
    // If the size of the grid is not a multiple of the number of cores, some cores are idle in the last round. Only tiled products count this idle
    // time.
    let groups: f64 = dispatch.grid.iter().map(|&n| f64::from(n)).product();
    let rounds = groups / gpu.cores as f64;
    let idle = if is_tiled { rounds.ceil().max(1.0) / rounds } else { 1.0 };
    let read = bytes / (READ * gpu.gb_s * 1e9);
    let computed = operations / (rate * 1e12) * idle;
    (gpu.dispatch + RAMP + read.max(computed) + waits(dispatch, gpu, load, width), bytes)
}

/// Returns how many times more sums a product of experts computes than it needs: the last tile of an expert is half empty on average. `n` is the number of
/// tokens per expert. Returns 1 for kernels without tiles.
fn surplus(dispatch: &Dispatch, n: f64) -> f64 {
    let constant = |wanted: &str| dispatch.constants.iter().find(|(name, _)| *name == wanted).map_or(0, |(_, value)| *value);
    let tile = match dispatch.shader {
        "linear/matvec" => constant("BLOCKS") * constant("TOKENS"),
        "linear/tiled" => constant("TILE_TOKENS"),
        "linear/tiled_cooperative" => 64,
        _ => 0,
    };
    let tile = f64::from(tile);
    if tile == 0.0 { 1.0 } else { (n + tile / 2.0).max(tile) / n }
}

/// Returns the time in seconds for which the lanes of a dispatch wait for loads that follow one after another. `width` is the number of inputs
/// of the dispatch's product.
fn waits(dispatch: &Dispatch, gpu: &Gpu, load: StepLoad, width: usize) -> f64 {
    let constant = |wanted: &str| dispatch.constants.iter().find(|(name, _)| *name == wanted).map_or(0, |(_, value)| *value as usize);
    match dispatch.shader {
        // Before the product, each workgroup computes the product's input, such as a norm. It reads the whole row of x, 256 elements at a time. Then
        // its lanes compute two sums, as a layer norm does.
        "linear/matvec" if dispatch.modules.iter().any(|(slot, module)| *slot == "input" && module != "linear::input") => {
            width.div_ceil(256) as f64 * gpu.cache + 0.4e-6
        }
        "rwkv/head" => {
            let ahead = constant("AHEAD").max(1);
            let units: usize = dispatch.params.iter().filter(|(name, _)| *name == "lora").map(|(_, value)| rows(value, ahead)).sum();
            units as f64 * (gpu.memory + gpu.cache) / 2.0 + 3.5e-6
        }
        // The tokens of a run are computed one after another, so their times add up.
        "rwkv/wkv" => load.n_tokens as f64 * WKV_TOKEN,
        "rwkv/wkv_span" => {
            let groups: f64 = dispatch.grid.iter().map(|&n| f64::from(n)).product();
            (groups / (WKV_SPANS_PER_CORE * gpu.cores as f64)).ceil() * WKV_SPAN
        }
        "rwkv/wkv_chain" => load.n_tokens.div_ceil(SPAN) as f64 * WKV_CHAIN,
        "sample/draw" => SEARCHES,
        _ => 0.0,
    }
}

/// Returns how often a lane of rwkv/head waits for loads: once per `ahead` units of each low-rank matrix. `param` has one row per low-rank matrix,
/// with the matrix's number of units at index 1.
fn rows(param: &Param, ahead: usize) -> usize {
    match param {
        Param::Rows(rows) => rows.iter().map(|row| (row[1] as usize).div_ceil(ahead)).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_found_by_its_name() {
        assert_eq!(find("7900 XTX").unwrap().cores, 96);
        assert!(find("voodoo").unwrap_err().to_string().contains("4090"));
    }
}
