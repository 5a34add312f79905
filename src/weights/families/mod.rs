//! The families of models: names of tensors, keys of `config.json`, names and keys of GGUF files. A family is one file here and one line
//! in [`FAMILIES`](super::FAMILIES).

pub mod glm;
pub mod rwkv;
