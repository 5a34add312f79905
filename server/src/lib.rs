//! An HTTP server for RWKV and GLM-4 models, with the APIs of OpenAI, Ollama, Anthropic and llama.cpp, and with endpoints for saved states.
//!
//! The server is a thin layer over [`engine`](wingbeat::engine): each request becomes an engine request, and each event becomes a part of the
//! response. Each API has a folder with its endpoints: `openai`, `ollama`, `anthropic` and `llama`. The folder `native` has the other endpoints. A
//! new endpoint needs a file in one of these folders, and an entry in the list of `routes.rs`.

mod abilities;
mod anthropic;
mod api;
mod app;
mod body;
mod budget;
mod failure;
mod fields;
mod guard;
mod hosted;
mod ids;
mod keep_alive;
mod keys;
mod ledger;
mod llama;
mod log;
mod metrics;
mod middleware;
mod native;
mod ollama;
mod openai;
mod options;
mod recordings;
mod routes;
mod run;
mod scratch;
mod states;
mod store;
mod text_or_list;
mod tickets;
mod visitors;
mod watched;
mod worker_pools;

pub use hosted::{LoadEngine, ServedModel, ServedTask};
pub use keys::Keys;
pub use options::{LogFormat, ServeOptions};
pub use run::run;
