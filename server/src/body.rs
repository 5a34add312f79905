//! Reads the parts of a request: the body, the name in the path, the model in the query. If a part is wrong, the response has an error object; axum's
//! own extractors would return plain text.

use super::app::App;
use super::budget::Claim;
use super::failure::{Answer, Failure};
use super::guard::Caller;
use super::hosted::Hosted;
use super::worker_pools::QUICK_BYTES;
use axum::body::{Bytes, HttpBody};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use wingbeat::engine::{Engine, Fields};
use wingbeat::error::Error;
use wingbeat::low_level::front_end::{in_words, short};

/// A request's body. A body of more than [`ServeOptions::max_body`](super::ServeOptions) bytes is refused.
pub struct Body {
    pub bytes: Bytes,
    claim: Claim,
}

impl FromRequest<Arc<App>> for Body {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Arc<App>) -> Answer<Body> {
        read_at_most(request, app.options.max_body, "body_too_large", app).await
    }
}

/// Reads a body of at most `most` bytes. A larger body is refused with the error code `code`.
///
/// # Errors
/// 413 if the body is larger, 408 if the client is too slow, 429 if there is no memory left for bodies, 400 if the connection breaks.
pub async fn read_at_most(request: Request, most: usize, code: &'static str, app: &App) -> Answer<Body> {
    let too_large = || {
        let e = Error::input(format!("expected a body of at most {most} bytes, found a larger body"));
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, code, e)
    };
    // A body without a stated length has the lower bound 0, so its size is checked while it is read.
    let stated = request.body().size_hint().lower();
    if stated > most as u64 {
        discard(request, MAX_DRAINED).await;
        return Err(too_large());
    }
    let caller = request.extensions().get::<Caller>();
    let claim = app.budget.claim(caller.map_or("", |caller| &caller.namespace));
    let until = tokio::time::Instant::now() + app.options.read_timeout;
    let late = |_| {
        let text = format!("the body did not arrive within {} seconds", app.options.read_timeout.as_secs());
        Failure::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", Error::input(text))
    };
    // The system gives memory to the buffer only as bytes arrive.
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(stated as usize).map_err(|_| Error::memory(format!("{stated} bytes for a body could not be allocated")))?;
    let mut body = request.into_body();
    while let Some(frame) = tokio::time::timeout_at(until, body.frame()).await.map_err(late)? {
        let frame = frame.map_err(|_| Error::input("the connection broke while the body was read"))?;
        let Ok(part) = frame.into_data() else { continue };
        let claimed = if bytes.len() + part.len() > most { Err(too_large()) } else { claim.set(bytes.len() + part.len()) };
        if let Err(refused) = claimed {
            drop(bytes);
            drain(body, MAX_DRAINED).await;
            return Err(refused);
        }
        bytes.extend_from_slice(&part);
    }
    Ok(Body { bytes: bytes.into(), claim })
}

/// The maximum number of bytes that are drained from the body of a refused request.
const MAX_DRAINED: usize = 4 << 20;

/// Drains a refused body, at most `most` bytes and two seconds: many clients only look at the response once they have sent everything.
pub async fn discard(request: Request, most: usize) {
    drain(request.into_body(), most).await;
}

/// Drains the rest of a body as [`discard`] does. Keeps none of its bytes.
async fn drain(mut body: axum::body::Body, most: usize) {
    const PATIENCE: Duration = Duration::from_secs(2);
    let mut n = 0;
    let drained = async {
        while let Some(Ok(frame)) = body.frame().await {
            n += frame.data_ref().map_or(0, |part| part.len());
            if n > most {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(PATIENCE, drained).await;
}

impl Body {
    /// Runs `work` with the body and then frees the body. A large body is parsed on a thread that may block. Returns the result, and the claim on the
    /// memory of what was parsed.
    ///
    /// # Errors
    /// The errors of `work`.
    pub async fn read<T: Send + 'static>(
        self,
        app: &App,
        work: impl FnOnce(&Body) -> Answer<T> + Send + 'static,
    ) -> Answer<(T, Arc<Claim>)> {
        if self.bytes.len() <= QUICK_BYTES {
            return work(&self).map(|parsed| (parsed, Arc::new(self.claim)));
        }
        let namespace = self.claim.namespace.clone();
        let n_bytes = self.bytes.len();
        let work = move || work(&self).map(|parsed| (parsed, Arc::new(self.claim)));
        app.worker_pools.run(&namespace, n_bytes, work).await
    }

    /// Returns the body's bytes and the claim on their memory.
    pub fn into_parts(self) -> (Bytes, Claim) {
        (self.bytes, self.claim)
    }

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
        Ok(Fields::read(&self.bytes)?)
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
        let engine = app.started(&model).await?.0;
        let caller = parts.extensions.get::<Caller>().cloned().unwrap_or_default();
        Ok(OfModel { app: app.clone(), caller, model, engine })
    }
}
