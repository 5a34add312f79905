//! The families of models. A family defines the names of its tensors, the keys of its `config.json`, and the names and keys of its GGUF files.
//! Each family has one file here and one entry in [`FAMILIES`](super::FAMILIES).

pub mod glm;
pub mod rwkv;
