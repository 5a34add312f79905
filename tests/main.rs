//! All integration tests of the library in one binary, except `memory.rs`. The tests of the program are in `cli/tests`, and the server's tests are in
//! `server/tests`.

mod activations;
mod adapters;
mod batcher;
mod begin_and_finish;
mod calibration;
mod damaged_states;
mod deep_attention;
mod deep_embed;
mod draws;
mod family;
mod files;
mod flash;
mod formats;
mod glm4;
mod golden;
mod grammar;
mod invariants;
mod layers;
// `support` does not declare this module, because the tests of the front ends use `support` without wgpu.
#[path = "support/null.rs"]
mod null;
mod prose;
mod quality;
mod quantised_files;
mod qwen;
mod safety;
mod session;
mod several_devices;
mod shaders;
mod spans;
mod speculation;
mod state_dtype;
mod support;
mod words;

use support::made;
