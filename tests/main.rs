//! All integration tests in one binary, except `memory.rs`. The tests check what users of the library and of the command line can see.

mod ahead;
mod batch;
mod batcher;
#[cfg(feature = "serve")]
mod bench_serve;
mod chat;
mod cli;
mod coded;
mod deep_attention;
mod deep_embed;
#[cfg(unix)]
mod docs;
mod draws;
mod embed;
mod endings;
mod errors;
mod family;
mod formats;
mod glm4;
mod golden;
mod grammar;
mod habits;
mod hostile;
mod invariants;
mod layers;
mod looks;
mod outputs;
mod parts;
mod prose;
mod quality;
mod resume;
mod rules;
mod safety;
#[cfg(feature = "serve")]
mod serve;
mod session;
mod shaders;
mod spans;
mod state_dtype;
mod support;
mod waiting;
mod words;
