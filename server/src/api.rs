//! The APIs of the server. The path of a request determines its API, and each API has its own form of errors.

use super::anthropic::AnthropicError;
use super::failure::Failure;
use super::ollama::OllamaError;
use serde_json::{Value, json};

/// The API to which a path belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// OpenAI's API, and the server's own endpoints.
    OpenAi,
    Ollama,
    Anthropic,
}

impl Api {
    /// Returns the API of a path, or of a route.
    pub fn of(path: &str) -> Api {
        match path {
            "/v1/messages" => Api::Anthropic,
            _ if path.starts_with("/v1/messages/") => Api::Anthropic,
            _ if path.starts_with("/api/") => Api::Ollama,
            _ => Api::OpenAi,
        }
    }

    /// Returns the body of an error. `request_id` identifies the request in the log.
    pub fn error(self, failure: &Failure, request_id: &str) -> Value {
        match self {
            Api::OpenAi => json!(failure.body(request_id)),
            Api::Ollama => json!(OllamaError::of(failure)),
            Api::Anthropic => json!(AnthropicError::of(failure, request_id)),
        }
    }
}
