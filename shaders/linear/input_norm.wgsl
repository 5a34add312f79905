// The input of a product: the normalised row, as in norm/rows. Every workgroup normalises the row. Fills the shader slot `input`.
//   input = (x - mean) / sqrt(var + eps) * g + b   in an RMS norm mean and b are zero
// The lanes of a workgroup compute the moments together in `begin`. The first workgroup stores the input in `kept` if `keeps` is 1.
// Slot reduce: lib/reduce, lib/reduce_subgroup
import package::lib::cursor::output_row;
import package::slot::reduce::{WG, reduce_sum};
import package::linear::stack::params;

struct Input {
    width: u32,
    // Stride of a row of `vectors` and `kept`, in vectors of 4 floats.
    stride: u32,
    // Stride of a row of x, in vectors of 4 floats.
    x_stride: u32,
    // 1 if this dispatch stores the normalised rows in `kept`, otherwise 0.
    keeps: u32,
    eps: f32,
    // 1: layer norm; 0: RMS norm.
    centred: u32,
}

@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>; // [T, x_stride]
@group(0) @binding(5) var<storage, read> vectors: array<vec4<f32>>; // [1 + centred, stride]: g, b
@group(0) @binding(6) var<storage, read_write> kept: array<vec4<f32>>; // [T or O, stride]

struct Source {
    here: u32,
    mean: f32,
    scale: f32,
}

fn begin(row: u32, x_at: u32, lane: u32, is_first: bool) -> Source {
    let here = select(row, output_row(row), params.of_outputs == 1u) * params.input.x_stride;
    let quarters = (params.input.width + 3u) / 4u;
    let n = f32(params.input.width);
    var mean = 0.0;
    if params.input.centred == 1u {
        var sum = 0.0;
        for (var i = lane; i < quarters; i += WG) { sum += dot(x[here + i], vec4(1.0)); }
        mean = reduce_sum(vec4(sum), lane).x / n;
    }
    var square = 0.0;
    for (var i = lane; i < quarters; i += WG) {
        // The padding of x must not count. It is zero, but minus the mean it would not be zero.
        let d = select(vec4(0.0), x[here + i] - mean, 4u * i + vec4(0u, 1u, 2u, 3u) < vec4(params.input.width));
        square += dot(d, d);
    }
    let source = Source(here, mean, 1.0 / sqrt(reduce_sum(vec4(square), lane).x / n + params.input.eps));
    if !is_first || params.input.keeps == 0u { return source; }
    for (var i = lane; i < quarters; i += WG) { kept[row * params.input.stride + i] = input4(source, i); }
    return source;
}

fn input4(s: Source, i: u32) -> vec4<f32> {
    let b = f32(params.input.centred) * vectors[params.input.centred * params.input.stride + i];
    return (x[s.here + i] - s.mean) * s.scale * vectors[i] + b;
}
