//! Endpoints of wingbeat's own: states, tokens, and the operation of the server.

pub mod openapi;
pub mod operation;
pub mod page;
pub mod states;
pub mod tokens;
