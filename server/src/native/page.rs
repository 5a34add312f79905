//! `GET /`: the chat page. Its files are part of the program.

use crate::body::Name;
use crate::failure::{Answer, Failure};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use wingbeat::error::Error;

/// The content security policy: the page may load its own files and send requests to this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// Ollama's answer to `GET /`. Ollama's clients send this request to find out whether a server runs.
const PROBED: &str = "Ollama is running";

/// Answers with the page if the client accepts HTML, otherwise with `PROBED`.
pub async fn index(headers: HeaderMap) -> Answer {
    let asks_for_html = headers.get_all(header::ACCEPT).iter().any(|kinds| kinds.to_str().is_ok_and(|kinds| kinds.contains("text/html")));
    let mut response = if asks_for_html { answer("index.html", &headers)? } else { PROBED.into_response() };
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    Ok(response)
}

pub async fn file(Name(name): Name, headers: HeaderMap) -> Answer {
    answer(&name, &headers)
}

/// Answers with a file, or with status 304 if the browser has this version of the file.
fn answer(name: &str, asked: &HeaderMap) -> Answer<Response> {
    let found = FILES.iter().find(|(known, _)| *known == name);
    let (name, content) =
        found.ok_or_else(|| Failure::new(StatusCode::NOT_FOUND, "not_found", Error::input("the page has no file with this name")))?;
    let kind = match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("woff2") => "font/woff2",
        _ => "text/plain; charset=utf-8",
    };
    let hash = Sha256::digest(content);
    let tag = format!("\"{}\"", hash.iter().take(12).map(|byte| format!("{byte:02x}")).collect::<String>());
    let tags = asked.get_all(header::IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
    let is_known = tags.flat_map(|tags| tags.split(',')).any(|known| known.trim().trim_start_matches("W/") == tag);
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::ETAG, &tag),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    match is_known {
        true => Ok((StatusCode::NOT_MODIFIED, headers).into_response()),
        false => Ok((headers, *content).into_response()),
    }
}
