//! wingbeat
pub mod arch;
pub mod error;
pub mod exec;
pub mod quant;
pub mod sample;
pub mod session;
pub mod tape;
pub mod tensor;
pub mod vocab;
pub mod weights;
pub mod words;
