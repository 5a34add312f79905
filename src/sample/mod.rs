//! Sampling on the host: from logits to one token id. The sampler on the GPU must draw the same ids, so all arithmetic is in fixed-point
//! integers.
//!
//! This module has the settings, the memory between tokens (penalty counts, position in the random stream) and the chain of filters. This module must
//! not know models, vocabularies or stop rules: here, a token is only an id.

mod chain;
mod check;
mod counts;
mod dry;
pub mod fixed;
mod host;
mod mirostat;
mod named;
mod presets;
mod row;
mod sampler;
mod seed;
mod settings;
mod stream;
#[cfg(test)]
mod tests;
mod texts;
mod wide;

pub use counts::{SEEN, count, penalty_weight};
pub use named::Setting;
pub use row::{BANNED, Row, flag};
pub use sampler::{Memory, Sampler};
pub use seed::{RANDOM_SEED, random_seed};
pub use settings::{DRY_BREAKERS, Order, Sampling};
pub use stream::number;
