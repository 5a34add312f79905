//! All integration tests in one binary, except `memory.rs`. The tests check what users of the library and of the command line can see.

mod ahead;
mod batch;
mod batcher;
mod begin_and_finish;
#[cfg(feature = "serve")]
mod bench_serve;
mod chat;
mod cli;
mod deep_attention;
mod deep_embed;
#[cfg(unix)]
mod docs;
mod draws;
mod embed;
mod errors;
mod family;
mod files;
mod formats;
mod glm4;
mod golden;
mod grammar;
mod hostile;
mod hostile_grammars;
mod invariants;
mod layers;
mod outputs;
mod presentation;
mod prose;
#[cfg(all(unix, feature = "download"))]
mod pull;
mod quality;
mod quantised_files;
mod resume;
mod safety;
#[cfg(feature = "serve")]
mod serve;
mod session;
mod several_devices;
mod shaders;
mod spans;
mod speculation;
mod state_dtype;
mod support;
mod text_ends;
mod usual_flags;
mod words;
