// The vectors that a recurrence reads for each token (layout: rwkv/wkv), in a storage buffer. Fills the shader slot `feed` on GPUs. The
// workgroup copies the vectors of STAGE tokens to workgroup memory, because all lanes read all these vectors. The vectors of the next STAGE
// tokens are loaded into registers while the lanes compute, so that the lanes do not wait for memory.
import package::constants::{ROW, QUARTERS, VECTORS, STAGE, LOADS};

@group(1) @binding(0) var<storage, read> feed: array<vec4<f32>>;

const LANES: u32 = 64u;
// The number of elements of `feed` that a workgroup reads per token.
const ELEMENTS: u32 = VECTORS * QUARTERS;

var<workgroup> staged: array<vec4<f32>, STAGE * ELEMENTS>;
unroll j in LOADS { var<private> next_$j: vec4<f32>; }

// Loads the lane's elements of up to STAGE tokens. `at` is the first element of the first token, `stride` the number of elements from one
// token to the next, `n` the number of tokens that remain.
fn prefetch(at: u32, stride: u32, n: u32, lane: u32) {
    unroll j in LOADS {
        if (lane + $ju * LANES) / ELEMENTS < min(n, STAGE) {
            let element = (lane + $ju * LANES) % ELEMENTS;
            next_$j = feed[at + (lane + $ju * LANES) / ELEMENTS * stride + element / QUARTERS * ROW + element % QUARTERS];
        }
    }
}

// Makes the elements that all lanes have loaded readable by every lane. Call `publish` from uniform control flow, because it contains barriers.
fn publish(at: u32, stride: u32, lane: u32) {
    workgroupBarrier();
    unroll j in LOADS {
        if lane + $ju * LANES < STAGE * ELEMENTS { staged[lane + $ju * LANES] = next_$j; }
    }
    workgroupBarrier();
}

// Returns element i of the vectors of a token: four floats. `token` is the index of the token, counted from the first token of the last
// `publish`.
fn fed(token: u32, i: u32) -> vec4<f32> { return staged[token * ELEMENTS + i]; }
