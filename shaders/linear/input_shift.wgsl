// The input of a product: norm, token shift and the lerp of one mix. Every workgroup computes this input. Fills the shader slot
// `input`.
//   x_hat = norm(x)   p = x_hat of the row above, or the state in the first row of a run   input = x_hat + (p - x_hat) mix
// Normalising again in every workgroup costs less than one more dispatch. The lanes of a workgroup compute the moments together in `begin`. The
// first workgroup also stores x_hat and p of every row as planes of `kept`, and x_hat of a run's last row as its new state (`shift_out` in
// lib/cursor).
// Slot reduce: lib/reduce, lib/reduce_subgroup
import package::lib::cursor::{row_at, run_at};
import package::slot::reduce::{WG, reduce_sum};
import package::linear::stack::params;

struct Input {
    width: u32,
    // Stride of a row of x, `vectors`, `shift` and `kept`, in vectors of 4 floats.
    stride: u32,
    // Index in `kept` of the first plane that this dispatch stores.
    plane: u32,
    // The number of rows of a plane of `kept`. If `capacity` is 0, no plane is stored.
    capacity: u32,
    // 1 if this dispatch stores the state and the planes, otherwise 0.
    keeps: u32,
    eps: f32,
    // 1: layer norm; 0: RMS norm, whose bias b is zero.
    centred: u32,
}

@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>; // [T, stride]
@group(0) @binding(5) var<storage, read> vectors: array<vec4<f32>>; // [2 + n_mixes, stride]: g, b, mixes
@group(0) @binding(6) var<storage, read_write> shift: array<vec4<f32>>; // [2 pages, stride]
@group(0) @binding(7) var<storage, read_write> kept: array<vec4<f32>>; // [.., capacity, stride]

// The input of one row. `here` and `above` are the offsets in x of this row and of the row above. `state_at` is the offset of p in `shift`,
// `mix_at` the offset of the mix in `vectors`. `mean` and `scale` have two elements: for this row and for the row above.
struct Source {
    here: u32,
    above: u32,
    state_at: u32,
    mix_at: u32,
    from_state: bool,
    mean: vec2<f32>,
    scale: vec2<f32>,
}

fn begin(t: u32, mix: u32, lane: u32, is_first: bool) -> Source {
    let row = row_at(t);
    let run = run_at(row.run);
    let stride = params.input.stride;
    let quarters = (params.input.width + 3u) / 4u;
    let here = t * stride;
    // In the first row of a run, `above` is `here`, and its moments are not used.
    let above = select(here - stride, here, row.first == 1u);

    let n = f32(params.input.width);
    var sums = vec4(0.0);
    for (var i = lane; i < quarters; i += WG) { sums += vec4(dot(x[here + i], vec4(1.0)), dot(x[above + i], vec4(1.0)), 0.0, 0.0); }
    let mean = select(vec2(0.0), reduce_sum(sums, lane).xy / n, params.input.centred == 1u);
    var squares = vec4(0.0);
    for (var i = lane; i < quarters; i += WG) {
        // The padding of x must not count. It is zero, but minus the mean it would not be zero.
        let inside = 4u * i + vec4(0u, 1u, 2u, 3u) < vec4(params.input.width);
        let a = select(vec4(0.0), x[here + i] - mean.x, inside);
        let b = select(vec4(0.0), x[above + i] - mean.y, inside);
        squares += vec4(dot(a, a), dot(b, b), 0.0, 0.0);
    }
    let scale = 1.0 / sqrt(reduce_sum(squares, lane).xy / n + params.input.eps);

    let source = Source(here, above, run.shift_in * stride, (2u + mix) * stride, row.first == 1u, mean, scale);
    if !is_first || params.input.keeps == 0u { return source; }
    for (var i = lane; i < quarters; i += WG) {
        let both = inputs(source, i);
        if row.last == 1u { shift[run.shift_out * stride + i] = both[0]; }
        if params.input.capacity > 0u {
            kept[(params.input.plane * params.input.capacity + t) * stride + i] = both[0];
            kept[((params.input.plane + 1u) * params.input.capacity + t) * stride + i] = both[1];
        }
    }
    return source;
}

// Returns elements 4 i ..= 4 i + 3 of x_hat and of p.
fn inputs(s: Source, i: u32) -> mat2x4<f32> {
    let g = vectors[i];
    let b = vectors[params.input.stride + i];
    var p = (x[s.above + i] - s.mean.y) * s.scale.y * g + b;
    if s.from_state { p = shift[s.state_at + i]; }
    return mat2x4<f32>((x[s.here + i] - s.mean.x) * s.scale.x * g + b, p);
}

fn input4(s: Source, i: u32) -> vec4<f32> {
    let both = inputs(s, i);
    return both[0] + (both[1] - both[0]) * vectors[s.mix_at + i];
}
