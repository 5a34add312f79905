//! The parts below a session: checkpoints, architectures, words (fused operations), kernels and executors. Documented for authors of
//! kernels, formats and architectures. Not stable: names may change in any version.

#[path = "arch/mod.rs"]
pub mod arch;
#[path = "exec/mod.rs"]
pub mod exec;
#[path = "quant/mod.rs"]
pub mod quant;
#[cfg(not(target_arch = "wasm32"))]
#[path = "report/mod.rs"]
pub mod report;
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
