//! Endpoints of Anthropic's API. Each endpoint translates between Anthropic's JSON and the requests and events of the engine.

mod body;
mod count;
mod lines;
mod message;
mod messages;

use crate::failure::Failure;
use axum::http::StatusCode;
pub use body::MessagesBody;
pub use count::{InputTokens, count};
pub use lines::MessageEvent;
pub use message::MessageObject;
pub use messages::create;
use serde::Serialize;
use utoipa::ToSchema;

/// The body of an error.
#[derive(Serialize, ToSchema)]
pub struct AnthropicError {
    /// Always `error`.
    r#type: &'static str,
    error: ErrorDetail,
    /// The id of the request in the log.
    request_id: String,
}

#[derive(Serialize, ToSchema)]
pub struct ErrorDetail {
    r#type: &'static str,
    /// Begins with the path of the wrong field, such as `messages[0].content`, and contains what to do.
    message: String,
}

impl AnthropicError {
    pub fn of(failure: &Failure, request_id: &str) -> AnthropicError {
        AnthropicError { r#type: "error", error: ErrorDetail::of(failure), request_id: request_id.into() }
    }
}

impl ErrorDetail {
    fn of(failure: &Failure) -> ErrorDetail {
        let kind = match failure.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "api_error",
        };
        ErrorDetail { r#type: kind, message: failure.message() }
    }
}
