//! All tests of the program in one binary. They check what its users see.

mod ahead;
mod batch;
#[cfg(feature = "serve")]
mod bench_serve;
mod chat;
mod cli;
#[cfg(unix)]
mod docs;
mod embed;
#[allow(dead_code, reason = "each binary uses a part")]
#[path = "../../tests/support/embedding.rs"]
mod embedding;
mod errors;
mod grammar;
mod hostile;
mod hostile_grammars;
mod inspect;
mod kernels;
mod outputs;
mod presentation;
#[cfg(all(unix, feature = "download"))]
mod pull;
mod resume;
#[cfg(feature = "serve")]
mod serve;
#[allow(dead_code, reason = "the tests of the library use the rest")]
#[path = "../../tests/support/mod.rs"]
mod support;
#[cfg(unix)]
mod terminal;
mod text_ends;
mod usual_flags;
