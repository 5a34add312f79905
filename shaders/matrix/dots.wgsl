// The codes of one unit (eight weights) of each of four rows.
struct Quad {
    a: mat2x4<f32>,
    b: mat2x4<f32>,
    c: mat2x4<f32>,
    d: mat2x4<f32>,
}

// Returns the dot products of the four rows with eight inputs.
fn dots(w: Quad, x: mat2x4<f32>) -> vec4<f32> {
    return vec4(
        dot(w.a[0], x[0]) + dot(w.a[1], x[1]),
        dot(w.b[0], x[0]) + dot(w.b[1], x[1]),
        dot(w.c[0], x[0]) + dot(w.c[1], x[1]),
        dot(w.d[0], x[0]) + dot(w.d[1], x[1]),
    );
}
