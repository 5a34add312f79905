// The sizes and the bindings that the dispatches of sampling share. src/exec/gpu/draws.rs has the layouts.
import package::sample::settings::Settings;

struct Params {
    n_vocab: u32,
    // The number of elements, of four ids each, in a row of `keys` and in a plane of `memory`.
    quads: u32,
    // The number of elements, of four logits each, in a row of `logits`.
    stride: u32,
    // The number of rows of ids in `drawn`, a ring buffer with one row per step.
    n_steps: u32,
    // The number of ids in a row of `drawn`.
    n_slots: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> settings: array<Settings>; // [slot]
