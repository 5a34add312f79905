//! Runs many requests at once with one model. The text of each request arrives as events. The command line, servers and language bindings use this
//! module.
//!
//! [`Engine`] owns a session (slots of one model that step together) on a separate thread. [`Engine::submit`] checks a [`Request`], queues the
//! request and returns a [`Generation`]. A [`Generation`] yields [`Event`]s, as an iterator that blocks or as an asynchronous stream. Dropping a
//! generation cancels its request.

mod answer;
#[cfg(feature = "grammar")]
pub(crate) mod closed;
mod conversations;
mod description;
mod event;
#[cfg(feature = "grammar")]
pub(crate) mod followers;
mod generation;
mod handle;
mod narrow;
mod options;
mod outbox;
mod passage;
mod prefix;
pub(crate) mod prepare;
mod prepared;
mod queue;
mod request;
mod rules;
mod scheduler;
mod shared;
mod states;
mod submission;
#[cfg(all(test, feature = "embedded-model"))]
mod tests;
mod thread;
pub(crate) mod wire;

pub(crate) use conversations::{no_room, since};
pub use event::{Completion, Event, FinishReason, Usage};
#[cfg(feature = "grammar")]
pub(crate) use followers::Followers;
pub use generation::{Events, Generation};
pub use handle::Engine;
pub use options::{CacheOptions, EngineOptions, StateOptions};
pub(crate) use passage::{Passage, Pinned, Space, TurnResult};
pub use request::{Follows, Input, Request, ToolChoice, UNLIMITED};
pub use rules::{Close, Rules};
pub use shared::EngineStats;
pub use states::{StateInfo, check_name as check_state_name, is_unknown_state};
pub use wire::Fields;
