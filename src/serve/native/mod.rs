//! Endpoints of wingbeat's own: states, tokens, and the operation of the server.

pub mod health;
pub mod metrics;
pub mod openapi;
pub mod page;
pub mod slots;
pub mod states;
pub mod tokens;
