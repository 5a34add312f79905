//! Endpoints of llama-server: `/completion`, `/infill` and `/props`. Each converts its body to a request of the engine.

mod answer;
pub mod completion;
pub mod infill;
pub mod props;

pub use answer::LlamaText;
pub use completion::LlamaBody;
pub use infill::InfillBody;
