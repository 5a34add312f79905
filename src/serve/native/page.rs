//! `GET /`: the chat page. Its files are part of the program.

use crate::error::Error;
use crate::serve::body::Name;
use crate::serve::failure::{Answer, Failure};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// The content security policy: the page may load its own files and send requests to this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// The text with which Ollama answers. Ollama's clients ask for `/` to find out whether a server runs.
const PROBED: &str = "Ollama is running";

/// Answers with the page, or with Ollama's text if the client does not ask for HTML.
pub async fn index(headers: HeaderMap) -> Answer {
    let asks_for_html = headers.get_all(header::ACCEPT).iter().any(|kinds| kinds.to_str().is_ok_and(|kinds| kinds.contains("text/html")));
    let mut response = if asks_for_html { answer("index.html")? } else { PROBED.into_response() };
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    Ok(response)
}

pub async fn file(Name(name): Name) -> Answer {
    answer(&name)
}

fn answer(name: &str) -> Answer<Response> {
    let found = FILES.iter().find(|(known, _)| *known == name);
    let (name, content) =
        found.ok_or_else(|| Failure::new(StatusCode::NOT_FOUND, "not_found", Error::input("the page has no file with this name")))?;
    let kind = match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    };
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    Ok((headers, *content).into_response())
}
