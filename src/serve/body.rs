//! Reads the parts of a request: the body, the name in the path, the model in the query. If a part is wrong, the response has an error object; axum's
//! own extractors would return plain text.

use super::app::App;
use super::failure::{Answer, Failure};
use super::guard::Caller;
use super::hosted::Hosted;
use crate::engine::{Engine, Fields};
use crate::error::{Error, in_words, short};
use axum::body::{Bytes, HttpBody, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

/// The bytes of a request's body. A body of more than [`ServeOptions::max_body`](super::ServeOptions) bytes is refused.
pub struct Body(pub Bytes);

impl FromRequest<Arc<App>> for Body {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Arc<App>) -> Answer<Body> {
        read_at_most(request, app.options.max_body, "body_too_large", app).await.map(Body)
    }
}

/// Reads a body of at most `most` bytes. A larger body is refused with the error code `code`.
///
/// # Errors
/// 413 if the body is larger, 408 if the client is too slow, 400 if the connection breaks.
pub async fn read_at_most(request: Request, most: usize, code: &'static str, app: &App) -> Answer<Bytes> {
    let too_large = || {
        let e = Error::input(format!("expected a body of at most {most} bytes, found a larger body"));
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, code, e)
    };
    // A body without a stated length has the lower bound 0, so its size is checked while it is read.
    if request.body().size_hint().lower() > most as u64 {
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

/// Drains a refused body, at most `most` bytes and two seconds: many clients only look at the response once they have sent everything.
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
        let error = Error::input(in_words(&inner)).caused_by(inner);
        if path == "." { error.into() } else { error.field(&path).into() }
    })
}

/// The name in a request's path: the value of `{name}`, `{id}` or `{file}` in the route.
pub struct Name(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Name> {
        let named = Path::<String>::from_request_parts(parts, state).await;
        let wrong = |_| Failure::field("path", format!("expected a name in UTF-8 in the path, found {:?}", short(parts.uri.path(), 100)));
        named.map(|Path(name)| Name(name)).map_err(wrong)
    }
}

/// The caller, and the model that the query selects with `?model=NAME`, with the model's engine. Without `model`, the first model that generates text
/// is selected.
pub struct OfModel {
    pub app: Arc<App>,
    pub caller: Caller,
    pub model: Arc<Hosted>,
    pub engine: Engine,
}

impl FromRequestParts<Arc<App>> for OfModel {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Answer<OfModel> {
        let query = url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
        let names: Vec<_> = query.filter(|(key, _)| key == "model").map(|(_, name)| name).collect();
        if names.len() > 1 {
            return Err(Failure::field("model", format!("expected at most one model in the query, found {}", names.len())));
        }
        let model = app.model(names.first().map(AsRef::as_ref))?;
        let engine = model.engine()?.0;
        let caller = parts.extensions.get::<Caller>().cloned().unwrap_or_default();
        Ok(OfModel { app: app.clone(), caller, model, engine })
    }
}
