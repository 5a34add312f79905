//! An HTTP client for servers with OpenAI's API.

use super::events::{EventSplitter, StreamEvent, message};
use super::statistics::AnswerTimes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use url::Url;
use wingbeat::error::{Error, Result};

/// The longest time to open a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// The longest time for the answer to a `GET` request, and for the whole body of an answer that is not a stream.
const SHORT: Duration = Duration::from_secs(30);
/// The longest time without new bytes in the answer to a completion request. Requests wait in the server's queue, so this time is long.
const LONG: Duration = Duration::from_secs(600);
/// The maximum size of an answer that is not a stream, in bytes.
const MAX_BODY: usize = 8 << 20;

/// A server that answers completions.
pub struct Server {
    url: Url,
    authorization: Option<HeaderValue>,
    http: Client<HttpConnector, Full<Bytes>>,
}

/// The state of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Ready,
    Loading,
}

impl Server {
    /// Prepares requests to the server at `url`, with the API key `key` if given. Opens no connection yet.
    ///
    /// # Errors
    /// `Usage` if the URL is not an http URL, or if the key cannot be sent in a header.
    pub fn new(url: &str, key: Option<&str>) -> Result<Server> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT));
        let authorization = key.map(|key| {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
                .map_err(|_| Error::usage("the API key has a character that an HTTP header cannot contain"))?;
            value.set_sensitive(true);
            Ok::<_, Error>(value)
        });
        Ok(Server {
            url: address(url).map_err(|e| e.at(url))?,
            authorization: authorization.transpose()?,
            http: Client::builder(TokioExecutor::new()).build(connector),
        })
    }

    /// Returns the URL of a path, such as `/v1/models`.
    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url.as_str().trim_end_matches('/'))
    }

    /// Asks whether the server is ready. A server without `/health` counts as ready.
    ///
    /// # Errors
    /// `Input` if the server cannot be reached, or is about to end.
    pub async fn health(&self) -> Result<Health> {
        let (status, body) = self.get("/health").await?;
        let is_stopping = serde_json::from_slice::<Value>(&body).is_ok_and(|body| body["status"] == "stopping");
        match status {
            StatusCode::SERVICE_UNAVAILABLE if is_stopping => Err(Error::input("the server is about to end").at(self.at(""))),
            StatusCode::SERVICE_UNAVAILABLE => Ok(Health::Loading),
            _ => Ok(Health::Ready),
        }
    }

    /// Returns the entries of `/v1/models`, or `None` if the server has no such path.
    ///
    /// # Errors
    /// `Input` if the server refuses, or if the answer is no list of models.
    pub async fn models(&self) -> Result<Option<Vec<Value>>> {
        const PATH: &str = "/v1/models";
        let (status, body) = self.get(PATH).await?;
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if !status.is_success() {
            return Err(refused(status, &body).at(self.at(PATH)));
        }
        match serde_json::from_slice::<Value>(&body).ok().map(|mut body| body["data"].take()) {
            Some(Value::Array(all)) => Ok(Some(all)),
            _ => {
                let found = wingbeat::low_level::front_end::short(&String::from_utf8_lossy(&body), 40);
                Err(Error::input(format!("expected a list of models, found {found:?}")).at(self.at(PATH)).hint(NOT_OPENAI))
            }
        }
    }

    /// Sends a streamed completion, and reads the answer to its end.
    ///
    /// # Errors
    /// `Input` if the server cannot be reached or refuses, or if the stream is not a complete answer.
    pub async fn complete(&self, body: Vec<u8>) -> Result<AnswerTimes> {
        const PATH: &str = "/v1/completions";
        let sent = Instant::now();
        let response = self.send(Method::POST, PATH, body, LONG).await?;
        let at = |e: Error| e.at(self.at(PATH));
        let status = response.status();
        if !status.is_success() {
            return Err(at(refused(status, &content(response).await?)));
        }
        let kind = content_type(response.headers());
        if !kind.starts_with("text/event-stream") {
            let e = Error::input(format!("expected a stream of server-sent events, found the content type {kind:?}"));
            return Err(at(e.hint("the server must support completions with `\"stream\": true`")));
        }
        read(response.into_body(), sent).await.map_err(at)
    }

    /// Sends `GET` and returns the whole answer.
    async fn get(&self, path: &str) -> Result<(StatusCode, Bytes)> {
        let response = self.send(Method::GET, path, Vec::new(), SHORT).await?;
        Ok((response.status(), content(response).await.map_err(|e| e.at(self.at(path)))?))
    }

    async fn send(&self, method: Method, path: &str, body: Vec<u8>, limit: Duration) -> Result<Response<Incoming>> {
        let mut request = Request::builder().method(method).uri(self.at(path));
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(value) = &self.authorization {
            request = request.header(AUTHORIZATION, value);
        }
        let request = request.body(Full::from(body)).map_err(|e| Error::usage(e.to_string()).at(self.at(path)))?;
        let mut response = within(limit, self.http.request(request.clone())).await;
        if let Ok(Err(e)) = &response
            && was_closed(e)
        {
            response = within(limit, self.http.request(request)).await;
        }
        response.map_err(|e| e.at(self.at(path)))?.map_err(|e| match e.is_connect() {
            true => Error::input(format!("the server cannot be reached: {}", cause(&e)))
                .at(self.at(""))
                .hint("start a server with `wingbeat serve`, or check the URL"),
            false => Error::input(format!("the server did not answer: {}", cause(&e))).at(self.at(path)),
        })
    }
}

const NOT_OPENAI: &str = "the URL must lead to a server with OpenAI's API, such as `wingbeat serve`";

/// Parses the URL of a server. Adds `http://` if the scheme is missing. Removes a final `/v1`, which other clients require in a URL: here, the
/// paths of requests already begin with `/v1`.
fn address(text: &str) -> Result<Url> {
    let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let mut url = Url::parse(&full)
        .map_err(|e| Error::usage(format!("expected the URL of a server: {e}")).hint("write the URL as http://HOST:PORT"))?;
    if url.scheme() == "https" {
        let hint = "use the server's http address, or a proxy or tunnel without TLS, such as `ssh -L 8080:127.0.0.1:8080 HOST`";
        return Err(Error::usage("expected a URL with http, found https, which bench-serve does not support").hint(hint));
    }
    if url.scheme() != "http" {
        return Err(Error::usage(format!("expected a URL with http, found {}", url.scheme())));
    }
    if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() || url.password().is_some() {
        let e =
            Error::usage("expected only a host, a port and a path in the URL, found a user name, a password, a query or a fragment, too");
        return Err(e.hint("give an API key with --key-file"));
    }
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix("/v1").unwrap_or(path).to_owned();
    url.set_path(&path);
    Ok(url)
}

/// Waits for `work`, but at most for `limit`.
async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T> {
    timeout(limit, work).await.map_err(|_| Error::input(format!("the server sent nothing for {} s", limit.as_secs())))
}

/// Returns the whole body of an answer that is not a stream.
async fn content(response: Response<Incoming>) -> Result<Bytes> {
    let all = within(SHORT, Limited::new(response.into_body(), MAX_BODY).collect()).await?;
    Ok(all.map_err(|e| Error::input(format!("the answer could not be read: {}", cause(e.as_ref()))))?.to_bytes())
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("none")
}

/// Returns the error for an answer whose status is not a success.
fn refused(status: StatusCode, body: &[u8]) -> Error {
    let text = match serde_json::from_slice::<Value>(body) {
        Ok(object) if !object["error"].is_null() => message(&object["error"]),
        Ok(object) if object["message"].is_string() => message(&object),
        _ => String::new(),
    };
    let text = if text.is_empty() { format!("the server answered {status}") } else { format!("the server answered {status}: {text}") };
    let e = Error::input(text);
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => e.hint("give an API key with --key-file or the variable WINGBEAT_API_KEY"),
        StatusCode::NOT_FOUND => e.hint("check the URL and --model; the URL must lead to a server with OpenAI's API"),
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => e.hint("--plain sends only fields of OpenAI's API"),
        _ => e,
    }
}

/// Returns `true` if the server closed the connection without an answer. Servers may close an idle connection that was kept open, so `send` then
/// tries once more.
fn was_closed(e: &legacy::Error) -> bool {
    std::error::Error::source(e).and_then(|e| e.downcast_ref::<hyper::Error>()).is_some_and(hyper::Error::is_incomplete_message)
}

/// Returns the innermost cause of an error, without the system's error number.
fn cause(mut e: &(dyn std::error::Error + 'static)) -> String {
    while let Some(inner) = e.source() {
        e = inner;
    }
    let text = e.to_string();
    text.split_once(" (os error ").map_or(text.as_str(), |(text, _)| text).to_owned()
}

/// Reads the stream of an answer. `sent` is the time when the request was sent.
async fn read(mut body: Incoming, sent: Instant) -> Result<AnswerTimes> {
    let mut events = EventSplitter::default();
    let (mut first, mut last) = (None, Duration::ZERO);
    let (mut longest_gap, mut n_chunks, mut is_complete, mut usage) = (Duration::ZERO, 0, false, None);
    while let Some(frame) = within(LONG, body.frame()).await? {
        let frame = frame.map_err(|e| Error::input(format!("the connection broke during the answer: {}", cause(&e))))?;
        let Some(bytes) = frame.data_ref() else { continue };
        let now = sent.elapsed();
        for event in events.read(bytes).map_err(Error::input)? {
            let StreamEvent::Chunk(chunk) = event else {
                is_complete = true;
                continue;
            };
            usage = chunk.usage.or(usage);
            is_complete |= chunk.is_last;
            if chunk.has_text || chunk.is_last {
                n_chunks += usize::from(chunk.has_text);
                longest_gap = longest_gap.max(first.map_or(Duration::ZERO, |_| now - last));
                (first, last) = (first.or(Some(now)), now);
            }
        }
    }
    let first = first.filter(|_| is_complete).ok_or_else(|| Error::input("the server ended the answer early"))?;
    let tokens = usage.map(|(_, tokens)| tokens).filter(|n| *n > 0).unwrap_or(n_chunks);
    Ok(AnswerTimes { first, last, longest_gap, tokens, prompt_tokens: usage.map(|(tokens, _)| tokens) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_an_http_url() {
        let at = |url: &str| Server::new(url, None).map(|server| server.at("/v1/models"));
        for (url, want) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1/models"),
            ("localhost:1234", "http://localhost:1234/v1/models"),
            ("http://box/", "http://box/v1/models"),
            ("http://box:80/v1/", "http://box/v1/models"),
            ("http://[::1]:9/llm/v1", "http://[::1]:9/llm/v1/models"),
        ] {
            assert_eq!(at(url).unwrap(), want);
        }
        for (url, want) in [
            ("https://box", "https://box: expected a URL with http, found https"),
            ("ftp://box", "found ftp"),
            ("http://", "expected the URL of a server"),
            ("http://me:secret@box", "only a host, a port and a path"),
            ("http://box?x=1", "only a host, a port and a path"),
        ] {
            let e = at(url).unwrap_err().to_string();
            assert!(e.contains(want), "{e}");
        }
        assert!(Server::new("box", Some("a\nb")).is_err());
    }

    #[test]
    fn a_refusal_has_the_servers_reason() {
        let e = |status: u16, body: &str| refused(StatusCode::from_u16(status).unwrap(), body.as_bytes()).to_string();
        let text = e(401, r#"{"error":{"message":"the API key is unknown"}}"#);
        assert!(text.starts_with("the server answered 401 Unauthorized: the API key is unknown (give an API key"), "{text}");
        assert!(e(404, "<html>").starts_with("the server answered 404 Not Found (check the URL"));
        assert_eq!(e(500, r#"{"message":"boom"}"#), "the server answered 500 Internal Server Error: boom");
    }
}
