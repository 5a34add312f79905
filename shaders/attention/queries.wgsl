// The queries of a workgroup, copied to workgroup memory because all lanes read the same vector at the same time. Fills the shader slot
// `queries`.
import package::constants::{UNITS, QUERIES};

@group(0) @binding(1) var<storage, read> qkv: array<vec4<f32>>; // [T, stride]: q [H, D] first, rotated and scaled
var<workgroup> queries: array<vec4<f32>, 2u * QUERIES * UNITS>; // [QUERIES, D]

// Loads vector i (channels 4 i ..= 4 i + 3) of query m into workgroup memory. The query begins at `at` in qkv. Every module of the shader
// slot `queries` defines `bring` and `query4`.
fn bring(m: u32, i: u32, at: u32) { queries[m * 2u * UNITS + i] = qkv[at + i]; }

// Returns vector i of query m: channels 4 i ..= 4 i + 3.
fn query4(m: u32, i: u32, at: u32) -> vec4<f32> { return queries[m * 2u * UNITS + i]; }
