// Stores a sum of products as an element of y. First computes z = activation(bias + sum). The code `store` then selects how z changes y:
//   0: y = z   1: y += z   2: y += a z   3: y = a + (b - a) z   4: y = y z
// a and b are elements of `side`, a buffer of other activations.
import package::lib::activation::activate;

@group(0) @binding(2) var<storage, read> bias: array<f32>; // [rows]; unused if bias_at is NO_BIAS
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // [T, y_stride]
@group(0) @binding(4) var<storage, read> side: array<f32>; // [T, side_stride]; read if `store` is 2 or 3

const NO_BIAS: u32 = 0xffffffffu;

// `bias_at`, `y_at`, `a_at` and `b_at` are the offsets of bias, y, a and b for row 0 of token 0, in floats.
struct Epilogue {
    activation: u32,
    store: u32,
    bias_at: u32,
    y_at: u32,
    y_stride: u32,
    a_at: u32,
    b_at: u32,
    side_stride: u32,
}

// Applies the epilogue to the sum of one row and token, and stores the result in y.
fn finish(e: Epilogue, t: u32, row: u32, sum: f32) {
    var z = sum;
    if e.bias_at != NO_BIAS { z += bias[e.bias_at + row]; }
    z = activate(e.activation, z);
    let at = t * e.y_stride + e.y_at + row;
    let side_at = t * e.side_stride + row;
    switch e.store {
        case 1u: { z += y[at]; }
        case 2u: { z = y[at] + side[side_at + e.a_at] * z; }
        case 3u: {
            let a = side[side_at + e.a_at];
            z = a + (side[side_at + e.b_at] - a) * z;
        }
        case 4u: { z *= y[at]; }
        default: {}
    }
    y[at] = z;
}
