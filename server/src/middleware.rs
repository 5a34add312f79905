//! The code around every handler: checks the caller, gives the request an id, renders errors, and writes the log.

use super::api::Api;
use super::app::App;
use super::body::discard;
use super::failure::{Failure, INTERNAL};
use super::guard::{self, Caller};
use super::log::AccessLogEntry;
use super::visitors::Visitor;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use std::time::Instant;

pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Anthropic's name of the header with the id of the request.
const ANTHROPIC_ID: HeaderName = HeaderName::from_static("request-id");
/// The maximum number of bytes that are drained from the body of a request whose caller is refused.
const MAX_REFUSED: usize = 64 << 10;
const SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");

/// Runs a handler if the caller may use the server.
pub async fn check_and_log(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let request_id = request_id(request.headers());
    let method = request.method().clone();
    // The log and the metrics have the route, not the path: a path can contain the name of a state, and the number of paths is unbounded.
    let route = request.extensions().get::<MatchedPath>().map_or("unknown", MatchedPath::as_str).to_string();
    let api = Api::of(request.uri().path());
    let checked = admitted(&app, &request, &request_id);
    let key = checked.as_ref().ok().and_then(|caller| caller.key.clone());
    let open = request.extensions().get::<Arc<Visitor>>().map(|visitor| {
        key.iter().for_each(|_| visitor.show_key());
        visitor.begin()
    });
    let mut response = match checked {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(failure) => {
            discard(request, MAX_REFUSED).await;
            failure.into_response()
        }
    };
    let failure = response.extensions_mut().remove::<Failure>();
    if let Some(failure) = &failure {
        let body = api.error(failure, &request_id).to_string();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        *response.body_mut() = Body::from(body);
    }
    if let Ok(id) = HeaderValue::from_str(&request_id) {
        if api == Api::Anthropic {
            response.headers_mut().insert(ANTHROPIC_ID, id.clone());
        }
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let status = response.status();
    app.metrics.on_response(&route, status.as_u16());
    let error = failure.map(|failure| failure.in_log());
    app.log(&AccessLogEntry {
        request_id: &request_id,
        method: method.as_str(),
        route: &route,
        status: status.as_u16(),
        key: key.as_deref(),
        milliseconds: began.elapsed().as_secs_f64() * 1e3,
        error: error.as_deref(),
    });
    match open {
        Some(open) => open.until_sent(response),
        None => response,
    }
}

fn admitted(app: &App, request: &Request, request_id: &str) -> Result<Caller, Failure> {
    let headers = request.headers();
    guard::check_size(headers, request.uri())?;
    guard::check_host(headers, &app.options)?;
    guard::check_origin(headers, &app.options)?;
    // A browser sends the preflight request of CORS without a key.
    let is_public = guard::is_public(request.method(), request.uri().path()) || request.method() == Method::OPTIONS;
    let owner = if is_public { None } else { guard::authorize(headers, &app.options)? };
    let of_text =
        |id: &HeaderValue| id.to_str().map(str::to_owned).map_err(|_| Failure::field("x-session-id", "expected a name, found other bytes"));
    let session = headers.get(SESSION_ID).map(of_text).transpose()?;
    let (key, namespace) = owner.map(|owner| (Some(owner.name), owner.namespace)).unwrap_or_default();
    Ok(Caller { request_id: request_id.into(), key, namespace, session })
}

/// Returns the client's own id of the request if it has 1 to 100 ASCII letters, digits, `-`, `_` and `.`. Otherwise returns a new id.
fn request_id(headers: &HeaderMap) -> String {
    let own = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let is_id = |id: &&str| (1..=100).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    own.filter(is_id).map_or_else(|| super::ids::new_id("req-"), str::to_owned)
}

/// Returns the response after a handler panicked.
pub fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    Failure::from(wingbeat::error::Error::file(INTERNAL)).into_response()
}
