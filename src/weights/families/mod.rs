//! What files say of a family of models: how its tensors are named, which keys its `config.json` has, how a GGUF maps to both. A file
//! here for each family, and a line in [`FAMILIES`](super::FAMILIES).

pub mod glm;
pub mod rwkv;
