// The vectors that a recurrence reads for each of a few tokens, in a uniform binding (layout: rwkv/wkv). Fills the shader slot `feed` on software
// adapters, which read uniform bindings faster than workgroup memory.
@group(1) @binding(0) var<uniform> feed: array<vec4<f32>, 4096>;

const LANES: u32 = 8u;
// All tokens of a dispatch are in the window, so none is staged.
const STAGE: u32 = 65535u;

// The first element of the next tokens, and the number of elements from one token to the next.
var<private> window_at: u32;
var<private> window_stride: u32;

fn prefetch(at: u32, stride: u32, n: u32, lane: u32) {}

fn publish(at: u32, stride: u32, lane: u32) {
    window_at = at;
    window_stride = stride;
}

// Returns element i of the vectors of a token: the token-th one after the token that `publish` was called for.
fn fed(token: u32, i: u32) -> vec4<f32> { return feed[window_at + token * window_stride + i]; }
