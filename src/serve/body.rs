//! Reads the bodies of requests.

use super::app::App;
use super::failure::{Answer, Failure};
use crate::engine::Fields;
use crate::error::Error;
use axum::body::{Bytes, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

/// The bytes of a body, at most [`ServeOptions::max_body`](super::ServeOptions).
pub struct Body(pub Bytes);

impl FromRequest<Arc<App>> for Body {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Arc<App>) -> Answer<Body> {
        read_at_most(request, app.options.max_body, "body_too_large", app).await.map(Body)
    }
}

/// Reads a body of at most `most` bytes. A larger body is refused with this code.
///
/// # Errors
/// 413 if the body is larger, 408 if the client is too slow, 400 if the connection breaks.
pub async fn read_at_most(request: Request, most: usize, code: &'static str, app: &App) -> Answer<Bytes> {
    let too_large = || {
        let e = Error::input(format!("expected a body of at most {most} bytes, found a larger body"));
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, code, e)
    };
    let stated = request.headers().get("content-length").and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if stated.is_some_and(|length| length > most as u64) {
        discard(request, 4 << 20).await;
        return Err(too_large());
    }
    let read = tokio::time::timeout(app.options.read_timeout, to_bytes(request.into_body(), most));
    match read.await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(e)) => match std::error::Error::source(&e).is_some_and(|source| source.is::<http_body_util::LengthLimitError>()) {
            true => Err(too_large()),
            false => Err(Error::input("the connection broke while the body was read").into()),
        },
        Err(_) => {
            let text = format!("the body did not arrive within {} seconds", app.options.read_timeout.as_secs());
            Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", Error::input(text)))
        }
    }
}

/// Reads at most `most` bytes of a body that is refused, because many clients read no answer before they have sent their body.
pub async fn discard(request: Request, most: usize) {
    const PATIENCE: Duration = Duration::from_secs(2);
    let _ = tokio::time::timeout(PATIENCE, to_bytes(request.into_body(), most)).await;
}

impl Body {
    /// Parses the body. Unknown fields are ignored.
    ///
    /// # Errors
    /// 400 with the path of the wrong field.
    pub fn parse<T: DeserializeOwned>(&self) -> Answer<T> {
        parse(&self.fields()?)
    }

    /// Returns the fields of the body.
    ///
    /// # Errors
    /// 400 if the body is not a JSON object.
    pub fn fields(&self) -> Answer<Fields<'_>> {
        Ok(Fields::read(&self.0)?)
    }
}

/// Converts the fields of a body to a type. Unknown fields are ignored.
///
/// # Errors
/// 400 with the path of the wrong field.
pub fn parse<T: DeserializeOwned>(fields: &Fields<'_>) -> Answer<T> {
    serde_path_to_error::deserialize(fields.deserializer()).map_err(|e| {
        let path = e.path().to_string();
        let inner = e.into_inner();
        let error = Error::input(crate::error::in_words(&inner)).caused_by(inner);
        if path == "." { error.into() } else { error.field(&path).into() }
    })
}
