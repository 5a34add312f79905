//! Endpoints that OpenAI's API does not have: states, tokens, and the operation of the server.

pub mod openapi;
pub mod operation;
pub mod page;
pub mod states;
pub mod tokens;
