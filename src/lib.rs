//! wingbeat
pub mod arch;
#[cfg(feature = "cli")]
pub mod cli;
pub mod error;
pub mod exec;
pub mod quant;
pub mod report;
pub mod sample;
pub mod session;
pub mod tape;
pub mod tensor;
pub mod vocab;
pub mod weights;
pub mod words;
