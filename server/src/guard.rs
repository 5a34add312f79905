//! Checks the header of a request: first its size, then the fields `Host`, `Origin` and `Authorization`. These three fields determine who may use the
//! server.

use super::ServeOptions;
use super::failure::{Answer, Failure};
use super::keys::Owner;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use std::net::IpAddr;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::front_end::short;

/// The sender of a request.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// The id of the request, for the log and the response.
    pub request_id: String,
    /// The name of the caller's key. `None` if the server has no keys, or if the endpoint needs no key.
    pub key: Option<String>,
    /// The namespace of the caller's states and cache entries. Empty if `key` is `None`.
    pub namespace: String,
    /// The value of the header `x-session-id`.
    pub session: Option<String>,
}

/// The maximum size of a request's address and header fields together, in bytes.
pub const MAX_HEADER: usize = 64 << 10;
/// The maximum number of header fields in a request.
pub const MAX_FIELDS: usize = 100;

/// Checks the size of a request's header.
///
/// # Errors
/// 431 if the header has too many fields or bytes.
pub fn check_size(headers: &HeaderMap, uri: &Uri) -> Answer<()> {
    let n_address = uri.path_and_query().map_or(0, |address| address.as_str().len());
    // Each field also has a colon, a space, and two bytes that end the line.
    let n_bytes = n_address + headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum::<usize>();
    if headers.len() <= MAX_FIELDS && n_bytes <= MAX_HEADER {
        return Ok(());
    }
    let found = format!("found {} fields and {n_bytes} bytes", headers.len());
    let e = Error::input(format!("expected a header of at most {MAX_FIELDS} fields and {MAX_HEADER} bytes, {found}"));
    Err(Failure::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "header_too_large", e))
}

/// Checks that the header `Host` names this server. A page of a foreign site that resolves its own name to this machine (DNS rebinding) sends a
/// foreign name.
///
/// # Errors
/// 400 if there are several names, 403 if the name is foreign.
pub fn check_host(headers: &HeaderMap, options: &ServeOptions) -> Answer<()> {
    let n = headers.get_all(header::HOST).iter().count();
    if n > 1 {
        return Err(Error::input(format!("expected one header `Host`, found {n}")).into());
    }
    let name = without_port(text(headers, header::HOST));
    let is_own = name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || name.eq_ignore_ascii_case(&options.host)
        || options.hosts.iter().any(|known| known == "*" || known.eq_ignore_ascii_case(name));
    let e = || Error::input(format!("the host {:?} is not a name of this server", short(name, 60)));
    require(is_own, || e().hint("the server's operator can allow the name with the option `allow-host`"))
}

/// Returns the value of a header field, or an empty text if the field is missing or is not text.
fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Refuses a request with 403 unless `is_allowed` is true.
fn require(is_allowed: bool, e: impl FnOnce() -> Error) -> Answer<()> {
    if is_allowed { Ok(()) } else { Err(Failure { status: StatusCode::FORBIDDEN, ..e().into() }) }
}

/// Checks that every origin of the option `cors` can match. A browser sends a scheme, a host and perhaps a port, so any other text would never match.
///
/// # Errors
/// `Usage` if a text is not an origin.
pub fn check_options(options: &ServeOptions) -> Result<()> {
    let is_origin =
        |text: &str| text == "*" || text.split_once("://").is_some_and(|(scheme, host)| is_word(scheme, "+-.") && is_word(host, "-._:[]"));
    match options.origins.iter().find(|origin| !is_origin(origin)) {
        None => Ok(()),
        Some(origin) => {
            let e = Error::usage(format!("expected an origin such as https://example.org, found {:?}", short(origin, 60)));
            Err(e.field("cors").hint("an origin has no path and no slash at its end"))
        }
    }
}

/// Returns whether a text has at least one character, and only ASCII letters, digits and the characters in `more`.
fn is_word(text: &str, more: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
}

/// Checks the header `Origin`, if present: the origin must be this server or an allowed origin.
///
/// # Errors
/// 403 if the origin is foreign.
pub fn check_origin(headers: &HeaderMap, options: &ServeOptions) -> Answer<()> {
    if !headers.contains_key(header::ORIGIN) {
        return Ok(());
    }
    let (origin, host) = (text(headers, header::ORIGIN), text(headers, header::HOST));
    let is_own =
        origin.split_once("://").is_some_and(|(scheme, rest)| matches!(scheme, "http" | "https") && rest.eq_ignore_ascii_case(host));
    let is_allowed = is_own || options.origins.iter().any(|known| known == "*" || known == origin);
    let e = || Error::input(format!("pages of {:?} may not use this server", short(origin, 60)));
    require(is_allowed, || e().hint("the server's operator can allow the origin with the option `cors`"))
}

/// Returns whether a request needs no key: the page, the API document and the health check.
pub fn is_public(method: &Method, path: &str) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
        && (matches!(path, "/" | "/health" | "/v1/health" | "/openapi.json" | "/favicon.ico") || path.starts_with("/page/"))
}

/// Finds the owner of the key in the header `Authorization: Bearer KEY` or `x-api-key: KEY`. Returns `None` if the server has no keys.
///
/// # Errors
/// 401 if the key is missing or unknown.
pub fn authorize(headers: &HeaderMap, options: &ServeOptions) -> Answer<Option<Owner>> {
    if options.keys.is_empty() {
        return Ok(None);
    }
    let refused = |text: &str| Err(Failure::new(StatusCode::UNAUTHORIZED, "invalid_api_key", Error::input(text)));
    let bearer = text(headers, header::AUTHORIZATION).split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let key = bearer.map_or_else(|| text(headers, header::HeaderName::from_static("x-api-key")), |(_, key)| key.trim());
    match options.keys.find(key) {
        Some(owner) => Ok(Some(owner)),
        None if key.is_empty() => refused("an API key is required: send the header Authorization: Bearer KEY"),
        None => refused("the API key is unknown"),
    }
}

/// Returns the host in `host:port` or `[v6]:port`, without brackets. Returns the whole text if it has another form.
fn without_port(host: &str) -> &str {
    let split = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']'),
        None => Some(host.split_at(host.rfind(':').unwrap_or(host.len()))),
    };
    let is_port = |rest: &str| rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    split.filter(|(_, rest)| is_port(rest)).map_or(host, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(header::HeaderName, &str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_foreign_host_is_refused() {
        let options = ServeOptions { hosts: vec!["box.lan".into()], ..ServeOptions::default() };
        let is_allowed = |host: &str| check_host(&headers(&[(header::HOST, host)]), &options).is_ok();
        for host in ["127.0.0.1:8080", "localhost", "LocalHost:1", "[::1]:80", "10.0.0.7:8080", "box.lan:8080"] {
            assert!(is_allowed(host), "{host}");
        }
        for host in [
            "evil.example:8080",
            "",
            "127.0.0.1.evil.example",
            "localhost.evil.example:80",
            "[::1]evil.example",
            "[::1",
            "127.0.0.1:8080@evil",
            "localhost:80x",
        ] {
            assert!(!is_allowed(host), "{host}");
        }
    }

    #[test]
    fn an_option_must_be_an_origin() {
        let check = |origin: &str| check_options(&ServeOptions { origins: vec![origin.into()], ..ServeOptions::default() }).is_ok();
        for origin in ["*", "https://a.example", "http://localhost:8081", "http://[::1]:80", "chrome-extension://abcdef"] {
            assert!(check(origin), "{origin}");
        }
        for origin in ["", "a.example", "https://a.example/", "https://a.example/page", "https://", "no origin", "https://*.example"] {
            assert!(!check(origin), "{origin}");
        }
    }

    #[test]
    fn a_foreign_origin_is_refused() {
        let options = ServeOptions { origins: vec!["https://a.example".into()], ..ServeOptions::default() };
        let is_allowed =
            |origin: &str| check_origin(&headers(&[(header::HOST, "localhost:8080"), (header::ORIGIN, origin)]), &options).is_ok();
        assert!(check_origin(&HeaderMap::new(), &options).is_ok());
        assert!(is_allowed("http://localhost:8080") && is_allowed("https://a.example"));
        for origin in ["null", "http://localhost:8081", "http://a.example", "https://a.example.evil", "file://localhost:8080"] {
            assert!(!is_allowed(origin), "{origin}");
        }
    }
}
