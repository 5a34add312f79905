//! Endpoints of OpenAI's API. Also `/v1/rerank`, in the form that Jina, Cohere and others share.

pub mod answer;
pub mod chat;
pub mod completions;
pub mod embeddings;
pub mod extras;
pub mod messages;
pub mod models;
pub mod prompts;
pub mod rerank;
pub mod responses;
pub mod score;
pub mod stream;

pub use answer::Choices;
pub use chat::ChatBody;
pub use completions::CompletionBody;
pub use messages::{WireMessage, read as read_messages};
pub use prompts::check_tokens;
pub use responses::ResponseBody;
