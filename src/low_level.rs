//! The modules that sessions are built on: checkpoints, architectures, words (fused operations), kernels and executors. These modules are documented
//! for authors of kernels, formats and architectures. The modules are not stable: names may change in any version.

#[path = "arch/mod.rs"]
pub mod arch;
#[path = "exec/mod.rs"]
pub mod exec;
#[path = "quant/mod.rs"]
pub mod quant;
#[cfg(not(target_arch = "wasm32"))]
#[path = "report/mod.rs"]
pub mod report;
#[path = "sample/mod.rs"]
pub mod sample;
#[path = "session/mod.rs"]
pub mod session;
#[path = "tape/mod.rs"]
pub mod tape;
#[path = "template/mod.rs"]
pub mod template;
#[path = "tensor/mod.rs"]
pub mod tensor;
#[path = "weights/mod.rs"]
pub mod weights;
#[path = "words/mod.rs"]
pub mod words;
