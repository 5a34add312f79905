//! Sampling on the host: from logits to one token id, and the reference that the GPU's sampler is held to.
//!
//! Settings, what must be remembered between tokens (penalty counts, position in the random stream) and the chain of filters.
//! Must not know models, vocabularies or stop rules; a token is an id here.

mod chain;
mod counts;
mod exp;
mod sampler;
mod settings;
mod stream;
#[cfg(test)]
mod tests;

pub use counts::penalty_weight;
pub use sampler::{Memory, Sampler};
pub use settings::{Order, Sampling};
