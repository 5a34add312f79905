// The vectors that a recurrence reads for each token (layout: rwkv/wkv), in a uniform binding. The binding has all tokens of a dispatch. Fills
// the shader slot `feed` on software adapters. Software adapters read uniform bindings faster than workgroup memory.
import package::constants::{ROW, QUARTERS};

@group(1) @binding(0) var<uniform> feed: array<vec4<f32>, 4096>;

const LANES: u32 = 8u;
// The number of tokens per call of `publish`. The uniform binding has all tokens of a dispatch, so one call is enough.
const STAGE: u32 = 65535u;

// The arguments of the last `publish`: the first element of the first token, and the number of elements from one token to the next.
var<private> window_at: u32;
var<private> window_stride: u32;

fn prefetch(at: u32, stride: u32, n: u32, lane: u32) {}

fn publish(at: u32, stride: u32, lane: u32) {
    window_at = at;
    window_stride = stride;
}

// Returns element i of the vectors of a token: four floats. `token` is the index of the token, counted from the first token of the last
// `publish`.
fn fed(token: u32, i: u32) -> vec4<f32> { return feed[window_at + token * window_stride + i / QUARTERS * ROW + i % QUARTERS]; }
