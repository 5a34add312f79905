//! Downloads models from Hugging Face's hub into the cache that Hugging Face's own programs use, so that no file is stored twice.
//!
//! The hub is not trusted. Every name, size, redirect and hash that it sends is checked before it is used, and nothing outside the cache is written,
//! read or removed. The module does not know the published models, flags or terminals.

mod address;
mod cache;
mod client;
mod digest;
mod download;
mod expand;
mod partial;
mod plan;
mod redirect;
mod remove;
mod series;
mod settings;
mod shown;
#[cfg(test)]
mod testing;

pub use address::{Address, PREFIX};
pub use cache::Cache;
pub use client::Client;
pub use plan::Plan;
pub use series::newer;
pub use settings::HubSettings;
pub use shown::shown;
