//! Errors as responses: a status, and an error object as in OpenAI's API.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use wingbeat::error::{Error, Kind};
use wingbeat::low_level::session::Panicked;

/// An error as a response. Programs read the status and the code, people read the error.
#[derive(Debug, Clone)]
pub struct Failure {
    pub status: StatusCode,
    /// The error's code in OpenAI's API, such as `model_not_found`. `None` if the status says everything.
    pub code: Option<&'static str>,
    pub error: Box<Error>,
    /// The number of seconds after which the client may try again. `None` if trying again does not help.
    pub retry_after: Option<u32>,
}

/// The body of an error in OpenAI's API, and of the server's own endpoints.
#[derive(Serialize, ToSchema)]
pub struct ErrorBody {
    error: ErrorObject,
}

#[derive(Serialize, ToSchema)]
pub struct ErrorObject {
    /// Says what is wrong, and what to do.
    message: String,
    r#type: &'static str,
    /// The path of the wrong field, such as `messages[0].content`.
    param: Option<String>,
    code: Option<&'static str>,
    /// The id of the request in the log.
    request_id: String,
}

/// The result of a handler.
pub type Answer<T = Response> = Result<T, Failure>;

/// The message that a client receives after a panic.
pub const INTERNAL: &str = "internal error of the server; its log has the details";

impl Failure {
    pub fn new(status: StatusCode, code: &'static str, error: Error) -> Failure {
        Failure { status, code: Some(code), error: Box::new(error), retry_after: None }
    }

    /// Returns a failure with the status 400 and the name of the wrong field.
    pub fn field(field: &str, message: impl Into<String>) -> Failure {
        Error::input(message).field(field).into()
    }

    /// Returns a failure with the status 503: the same request may succeed after some seconds.
    pub fn unavailable(code: &'static str, message: impl Into<String>) -> Failure {
        Failure { retry_after: Some(5), ..Failure::new(StatusCode::SERVICE_UNAVAILABLE, code, Error::new(Kind::Busy, message)) }
    }

    /// Returns the failure of a request that arrives while the server shuts down.
    pub fn stopping() -> Failure {
        Failure::unavailable("stopping", "the server is shutting down")
    }

    /// Sets the field that causes the failure, as `Error::field` does.
    pub fn in_field(self, name: &str) -> Failure {
        Failure { error: Box::new(self.error.field(name)), ..self }
    }

    /// Replaces the engine's name of the wrong field by `path`, the path of the field in the body. `known` lists the names that are replaced. A failure
    /// with another field stays unchanged.
    pub fn renamed(mut self, known: &[&str], path: &str) -> Failure {
        let field = self.error.field.as_deref().unwrap_or_default();
        let rest =
            known.iter().find_map(|name| field.strip_prefix(name)).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[', ':']));
        if let Some(rest) = rest {
            self.error.field = Some(format!("{path}{rest}").into());
        }
        self
    }

    /// Replaces the status 500 by 507: the server cannot store a file of the request. Returns failures with another status unchanged.
    pub fn unstored(self) -> Failure {
        if self.status != StatusCode::INTERNAL_SERVER_ERROR {
            return self;
        }
        let message = format!("the server could not store the file: {}", self.error.message);
        let mut failure = Failure { status: StatusCode::INSUFFICIENT_STORAGE, code: Some("storage_failed"), ..self };
        (failure.error.message, failure.error.hint) = (message, None);
        failure
    }

    /// Returns the text for the log. For an error of the server, the text is the whole error. For an error of the client, the text is only the code
    /// and the field, because the message can quote the request.
    pub fn in_log(&self) -> String {
        if self.status.is_server_error() {
            return self.error.to_string();
        }
        let code = self.code.unwrap_or("invalid_request");
        // The end of a path such as `logit_bias.12` is text from the request, so the log has only the beginning.
        let field = self.error.field_name().and_then(|field| field.split(['.', '[', ':']).next());
        field.map_or_else(|| code.to_owned(), |field| format!("{code} {field}"))
    }

    /// Returns the text for the client. The text begins with the name of the wrong field, because many clients show only the text. Leaves out the place of
    /// a server's error, because this place can be a path on the server.
    pub fn message(&self) -> String {
        let Error { message, hint, place, .. } = &*self.error;
        let place = place.as_ref().filter(|_| !self.status.is_server_error()).map(|place| format!("{place}: ")).unwrap_or_default();
        let hint = hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        let field = self.error.field.as_deref().map(|field| format!("{field}: ")).unwrap_or_default();
        format!("{place}{field}{message}{hint}")
    }

    /// Returns the body of the response. `request_id` identifies the request in the log.
    pub fn body(&self, request_id: &str) -> ErrorBody {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        };
        ErrorBody {
            error: ErrorObject {
                message: self.message(),
                r#type: kind,
                param: self.error.field_name().map(str::to_owned),
                code: self.code,
                request_id: request_id.into(),
            },
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let is_panic = std::error::Error::source(&error).is_some_and(|cause| cause.is::<Panicked>());
        let (status, code, retry_after) = match error.kind {
            _ if is_panic => (StatusCode::INTERNAL_SERVER_ERROR, None, None),
            Kind::Input | Kind::Usage => (StatusCode::BAD_REQUEST, None, None),
            Kind::Busy => (StatusCode::TOO_MANY_REQUESTS, Some("queue_full"), Some(1)),
            Kind::Memory => (StatusCode::SERVICE_UNAVAILABLE, Some("out_of_memory"), Some(5)),
            Kind::Device | Kind::Interrupted => (StatusCode::SERVICE_UNAVAILABLE, Some("device_error"), Some(5)),
            // `Kind` may grow: an unknown kind is the server's fault.
            _ => (StatusCode::INTERNAL_SERVER_ERROR, None, None),
        };
        let mut error = Box::new(error);
        // The engine's hint says to set `context`, but only the operator can set this option.
        if error.hint.as_deref().is_some_and(|hint| hint.contains("`context`")) {
            error.hint = Some("send a shorter prompt; the operator of the server sets the limit".into());
        }
        Failure { status, code, error, retry_after }
    }
}

/// Runs work on a thread that may block. A panic becomes an error.
pub async fn blocking<T: Send + 'static, E: From<Error> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(Error::file(INTERNAL).into()))
}

impl IntoResponse for Failure {
    /// Returns a response without a body. The [`middleware`](super::middleware) adds the error object, because the object contains the id of the
    /// request.
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_not_the_fault_of_the_request() {
        let panicked = wingbeat::low_level::session::caught::<()>(|| panic!("expected by the test")).unwrap_err();
        assert_eq!(Failure::from(panicked.field("grammar")).status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(Failure::from(Error::input("x").field("grammar")).status, StatusCode::BAD_REQUEST);
    }
}
