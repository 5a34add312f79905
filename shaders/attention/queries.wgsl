// The queries of a workgroup, in its own memory: all lanes read the same number at a time.
import package::constants::{UNITS, QUERIES};

@group(0) @binding(1) var<storage, read> qkv: array<vec4<f32>>; // [T, stride]: q [H, D] first, rotated and scaled
var<workgroup> queries: array<vec4<f32>, 2u * QUERIES * UNITS>; // [QUERIES, D]

// Every module in the place of this one has these two functions. Part i of query m, which lies at `at` in qkv, comes in.
fn bring(m: u32, i: u32, at: u32) { queries[m * 2u * UNITS + i] = qkv[at + i]; }

fn query4(m: u32, i: u32, at: u32) -> vec4<f32> { return queries[m * 2u * UNITS + i]; }
