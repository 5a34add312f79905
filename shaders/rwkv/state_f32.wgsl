// The recurrent state in f32, read and written four elements at a time. The padding of a row is zero. Fills the shader slot `state`.
@group(0) @binding(6) var<storage, read_write> state: array<vec4<f32>>; // [pages, width, QUARTERS]

fn load4(at: u32) -> vec4<f32> { return state[at]; }
fn store4(at: u32, x: vec4<f32>) { state[at] = x; }

// Returns x as it would be after storing and loading: f32 needs no rounding.
fn kept(x: vec4<f32>) -> vec4<f32> { return x; }
