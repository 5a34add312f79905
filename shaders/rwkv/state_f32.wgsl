// The state of the recurrence as it is, four numbers at a time; what pads a row is zero.
@group(0) @binding(6) var<storage, read_write> state: array<vec4<f32>>; // [pages, width, QUARTERS]

fn load4(at: u32) -> vec4<f32> { return state[at]; }
fn store4(at: u32, x: vec4<f32>) { state[at] = x; }

// What is left of numbers once they were stored.
fn kept(x: vec4<f32>) -> vec4<f32> { return x; }
