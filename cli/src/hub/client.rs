//! Asks the hub for the list of a repository's files, for the size and hash of a file, and for its bytes.

mod limits;

use super::address::{Address, check_path, is_commit};
use super::digest::Etag;
use super::redirect::{host, is_same_origin, next};
use super::settings::HubSettings;
use super::shown::shown;
pub use limits::{Limits, Watched};
use serde::Deserialize;
use std::io;
use std::thread::sleep;
use std::time::Duration;
use ureq::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, ETAG, LOCATION, RANGE, RETRY_AFTER};
use ureq::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use ureq::{Agent, Body};
use url::Url;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::front_end::size;

/// The number of times that a request is repeated after a temporary failure.
pub const RETRIES: u32 = 4;
const REDIRECTS: u32 = 10;
/// The longest pause that the hub may ask for. A longer pause ends the request with an error.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
const LARGEST_LISTING: u64 = 32 << 20;

/// A client of the hub.
pub struct Client {
    agent: Agent,
    settings: HubSettings,
    limits: Limits,
    /// The pause before the first repetition of a request. Each further pause is twice as long.
    pub(super) pause: Duration,
}

/// The files of a repository at one commit.
#[derive(Debug, Clone)]
pub struct Listing {
    pub commit: String,
    /// The paths of the files. Paths that are not safe below the cache are left out.
    pub files: Vec<String>,
}

/// The size and the hash that the hub announces for a file.
#[derive(Debug, Clone)]
pub struct Metadata {
    pub etag: Etag,
    pub size_bytes: u64,
}

/// The bytes of a file, from `start` on.
pub struct FileContent {
    pub start: u64,
    pub reader: Watched,
}

/// The redirects that a request follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Follow {
    /// Follow redirects that stay on the hub. Only the hub's own answer has the metadata of a file; another host's answer does not.
    OnTheHub,
    All,
}

#[derive(Deserialize)]
struct Repository {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

impl Client {
    /// Creates a client. Opens no connection.
    pub fn new(settings: HubSettings) -> Client {
        Self::with_limits(settings, Limits::default())
    }

    /// Creates a client with its own time limits.
    pub(super) fn with_limits(settings: HubSettings, limits: Limits) -> Client {
        Client { agent: agent(&settings, limits, None), settings, limits, pause: Duration::from_secs(1) }
    }

    /// Returns how many new bytes of a file count as progress of a download.
    pub fn least_bytes(&self) -> u64 {
        self.limits.least_bytes
    }

    /// Returns the files of a repository.
    ///
    /// # Errors
    /// `File` if the hub cannot be reached, does not have the repository, or answers with something else.
    pub fn list(&self, address: &Address) -> Result<Listing> {
        let url = self.url(&["api", "models", &address.owner, &address.repository, "revision", &address.revision]);
        let agent = agent(&self.settings, self.limits, Some(self.limits.list));
        let (mut response, _) = self.send(&agent, Method::GET, url, None, Follow::OnTheHub, address)?;
        if response.status() != StatusCode::OK {
            return Err(self.refused(&response, address));
        }
        let limited = response.body_mut().with_config().limit(LARGEST_LISTING);
        let bytes = limited.read_to_vec().map_err(|e| self.unreachable(&e).at(address))?;
        let found: Repository = serde_json::from_slice(&bytes).map_err(|e| {
            let e = Error::file(format!("expected the list of files from the hub, found something else: {}", shown(&e.to_string())));
            e.at(address).hint("check HF_ENDPOINT")
        })?;
        if !is_commit(&found.sha) {
            return Err(Error::file("expected a commit of 40 hexadecimal digits from the hub, found something else").at(address));
        }
        let files = found.siblings.into_iter().map(|sibling| sibling.rfilename);
        Ok(Listing { commit: found.sha, files: files.filter(|file| check_path("file", file).is_ok()).collect() })
    }

    /// Returns the size and the hash of a file at `commit`.
    ///
    /// # Errors
    /// `File` if the hub cannot be reached, does not have the file, or announces no valid size and hash.
    pub fn metadata(&self, address: &Address, commit: &str) -> Result<Metadata> {
        let (response, url) = self.send(&self.agent, Method::HEAD, self.file(address, commit), None, Follow::OnTheHub, address)?;
        let (status, headers) = (response.status(), response.headers());
        if status != StatusCode::OK && !status.is_redirection() {
            return Err(self.refused(&response, address));
        }
        if let Some(found) = text(headers, "x-repo-commit").filter(|found| *found != commit) {
            let found = if is_commit(found) { found } else { "something else" };
            return Err(Error::file(format!("expected the commit {commit} from the hub, found {found}")).at(address));
        }
        let own_length = || text(headers, CONTENT_LENGTH.as_str()).filter(|_| status == StatusCode::OK);
        let length = text(headers, "x-linked-size").or_else(own_length).and_then(|length| length.parse().ok());
        match (announced(headers, status), length) {
            (Some(etag), Some(size_bytes)) => Ok(Metadata { etag: etag.map_err(|e| e.at(address))?, size_bytes }),
            _ => Err(Error::file(format!("{} announces no size and hash of this file", host(&url))).at(address).hint("check HF_ENDPOINT")),
        }
    }

    /// Requests the bytes of a file from `start` on. If the server cannot continue there, the content begins at 0.
    ///
    /// # Errors
    /// `File` if the server cannot be reached, or if its answer contradicts `expected`.
    pub fn content(&self, address: &Address, commit: &str, expected: &Metadata, start: u64) -> Result<FileContent> {
        let range = (start > 0).then(|| format!("bytes={start}-"));
        // The download has an agent of its own, because `Watched` shuts down the agent of a slow answer.
        let agent = agent(&self.settings, self.limits, None);
        let (response, url) = self.send(&agent, Method::GET, self.file(address, commit), range.as_deref(), Follow::All, address)?;
        let wrong = |text: String| Err(Error::file(text).at(host(&url)).at(address).hint("run the command again"));
        let (status, headers) = (response.status(), response.headers());
        if is_same_origin(&url, &self.settings.endpoint) {
            match announced(headers, status) {
                Some(Ok(etag)) if etag != expected.etag => {
                    return wrong(format!("expected the file with the hash {}, found {etag}", expected.etag));
                }
                _ => {}
            }
        }
        let start = match status {
            StatusCode::OK => 0,
            StatusCode::PARTIAL_CONTENT => {
                let found = text(headers, CONTENT_RANGE.as_str()).unwrap_or_default();
                let end = expected.size_bytes.saturating_sub(1);
                if found != format!("bytes {start}-{end}/{}", expected.size_bytes) {
                    return wrong(format!("expected the bytes {start}-{end} of {}, found other bytes", expected.size_bytes));
                }
                start
            }
            StatusCode::RANGE_NOT_SATISFIABLE if start > 0 => return self.content(address, commit, expected, 0),
            _ => return Err(self.refused(&response, address)),
        };
        let length = text(headers, CONTENT_LENGTH.as_str()).and_then(|length| length.parse::<u64>().ok());
        if let Some(length) = length.filter(|length| *length != expected.size_bytes - start) {
            return wrong(format!("expected {} bytes, found {length}", expected.size_bytes - start));
        }
        let reader = response.into_body().into_with_config().limit(u64::MAX).reader();
        let reader = Watched::new(Box::new(reader), agent, self.limits).map_err(|e| Error::of_io(e).at(address))?;
        Ok(FileContent { start, reader })
    }

    /// Waits before a request is repeated. `attempt` counts the repetitions from 0.
    pub fn wait(&self, attempt: u32) {
        sleep(self.pause * 2u32.saturating_pow(attempt));
    }

    fn url(&self, parts: &[&str]) -> Url {
        let mut url = self.settings.endpoint.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(parts);
        }
        url
    }

    fn file(&self, address: &Address, commit: &str) -> Url {
        let mut parts = vec![address.owner.as_str(), &address.repository, "resolve", commit];
        parts.extend(address.file.iter().flat_map(|file| file.split('/')));
        self.url(&parts)
    }

    /// Sends a request, follows redirects, and repeats the request after temporary failures. Returns the answer and the address that sent it. The
    /// token is sent only to the hub.
    fn send(
        &self,
        agent: &Agent,
        method: Method,
        url: Url,
        range: Option<&str>,
        follow: Follow,
        address: &Address,
    ) -> Result<(Response<Body>, Url)> {
        if self.settings.is_offline {
            let e = Error::file("this needs the hub, but HF_HUB_OFFLINE forbids connections");
            return Err(e.at(address).hint("unset HF_HUB_OFFLINE, or use a model that is in the cache"));
        }
        let (mut url, mut redirects, mut attempt) = (url, 0, 0);
        loop {
            let outcome = agent.run(self.request(&method, &url, range)?);
            let pause = match &outcome {
                Ok(response) => asked_to_wait(response),
                Err(e) => may_pass(e).then_some(None),
            };
            if let Some(asked) = pause.filter(|_| attempt < RETRIES) {
                match asked {
                    Some(pause) if pause > LONGEST_PAUSE => {
                        let text = format!("the server asks to wait {} s", pause.as_secs());
                        return Err(Error::file(text).at(host(&url)).at(address).hint("run the command again later"));
                    }
                    Some(pause) => sleep(pause),
                    None => self.wait(attempt),
                }
                attempt += 1;
                continue;
            }
            let response = outcome.map_err(|e| self.unreachable(&e).at(host(&url)).at(address))?;
            let location = text(response.headers(), LOCATION.as_str()).filter(|_| response.status().is_redirection());
            let Some(to) = location.map(|location| next(&url, location)).transpose().map_err(|e| e.at(address))? else {
                return Ok((response, url));
            };
            if follow == Follow::OnTheHub && !is_same_origin(&to, &self.settings.endpoint) {
                return Ok((response, url));
            }
            redirects += 1;
            if redirects > REDIRECTS {
                return Err(Error::file("too many redirects").at(host(&url)).at(address));
            }
            url = to;
        }
    }

    fn request(&self, method: &Method, url: &Url, range: Option<&str>) -> Result<Request<()>> {
        let mut request = Request::builder().method(method).uri(url.as_str());
        if let Some(range) = range {
            request = request.header(RANGE, range);
        }
        if let Some(token) = self.settings.token.as_ref().filter(|_| is_same_origin(url, &self.settings.endpoint)) {
            let mut value = HeaderValue::try_from(token.header()).map_err(|_| Error::usage("the token is not valid").at("HF_TOKEN"))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        request.body(()).map_err(|_| Error::file("the address is not valid").at(host(url)))
    }

    /// Returns the error for an answer with an unexpected status.
    fn refused(&self, response: &Response<Body>, address: &Address) -> Error {
        let status = response.status();
        let page = format!("{}/{}", self.settings.endpoint.as_str().trim_end_matches('/'), address.name());
        let has_token = self.settings.token.is_some();
        let (found, hint) = match (status, text(response.headers(), "x-error-code")) {
            (_, Some("GatedRepo")) => {
                ("the model's terms must be accepted first", format!("accept them at {page}, then set HF_TOKEN to a token of your account"))
            }
            (_, Some("EntryNotFound")) => ("the repository has no such file", format!("{page} lists its files")),
            (_, Some("RevisionNotFound")) => ("the repository has no such revision", format!("{page} lists its revisions")),
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) if has_token => {
                ("no such repository, or HF_TOKEN may not read it", "check the name and HF_TOKEN".into())
            }
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
                ("no such repository, or it is private", "check the name; for a private repository, set HF_TOKEN".into())
            }
            (StatusCode::NOT_FOUND, _) => ("no such repository or file", format!("check the name; {page} lists the files of a repository")),
            (StatusCode::TOO_MANY_REQUESTS, _) => ("the hub refuses more requests for now", "run the command again later".into()),
            _ => ("the server cannot answer", "run the command again later".into()),
        };
        Error::file(format!("{found} (HTTP status {})", status.as_u16())).at(address).hint(hint)
    }

    /// Converts the error of a connection. Leaves addresses out, because an address may contain a secret signature.
    fn unreachable(&self, e: &ureq::Error) -> Error {
        let found = match e {
            ureq::Error::HostNotFound => "the host was not found".into(),
            ureq::Error::Timeout(_) => "the server does not answer".into(),
            ureq::Error::Io(e) => Error::of_io(io::Error::from(e.kind())).message,
            ureq::Error::LargeResponseHeader(..) => "the headers of the answer do not end".into(),
            ureq::Error::BodyExceedsLimit(most) => format!("expected an answer of at most {}, found more", size(*most)),
            ureq::Error::Rustls(e) => format!("no encrypted connection: {e}"),
            ureq::Error::BadUri(_) | ureq::Error::RequireHttpsOnly(_) => "the address is not valid".into(),
            _ => "the connection failed".into(),
        };
        Error::file(format!("cannot reach the hub: {found}")).hint("check the connection, HF_ENDPOINT and the proxy in HTTPS_PROXY")
    }
}

/// Returns an agent that follows no redirect by itself. `body` is the longest time for the body of an answer, or `None` for no limit.
fn agent(settings: &HubSettings, limits: Limits, body: Option<Duration>) -> Agent {
    let config = Agent::config_builder()
        .max_redirects(0)
        .http_status_as_error(false)
        .https_only(settings.endpoint.scheme() == "https")
        .user_agent(concat!("wingbeat/", env!("CARGO_PKG_VERSION")))
        .accept_encoding("identity")
        .timeout_connect(Some(Duration::from_secs(30)))
        .timeout_recv_response(Some(limits.silence))
        .timeout_recv_body(body)
        .timeout_per_read(Some(limits.silence))
        .build();
    config.new_agent()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Returns the hash of the file that an answer announces, or `None` if the answer announces no hash. The header `etag` of a redirect is ignored,
/// because it describes the redirect and not the file.
fn announced(headers: &HeaderMap, status: StatusCode) -> Option<Result<Etag>> {
    let own = || text(headers, ETAG.as_str()).filter(|_| status.is_success());
    text(headers, "x-linked-etag").or_else(own).map(Etag::parse)
}

/// Returns the pause after which the request may be repeated, if the status of the answer is temporary. Returns `Some(None)` if the answer names no
/// pause, and `None` if the status is final.
fn asked_to_wait(response: &Response<Body>) -> Option<Option<Duration>> {
    let is_passing = matches!(response.status().as_u16(), 429 | 500 | 502 | 503 | 504);
    let pause = || text(response.headers(), RETRY_AFTER.as_str())?.trim().parse().ok().map(Duration::from_secs);
    is_passing.then(pause)
}

/// Returns whether a failure of a connection is temporary. A wrong host name stays wrong. A closed port may open again: a server or a proxy that
/// restarts refuses connections for a moment. This must not end a download of hours.
fn may_pass(e: &ureq::Error) -> bool {
    matches!(e, ureq::Error::Io(_) | ureq::Error::Timeout(_) | ureq::Error::ConnectionFailed)
}

#[cfg(test)]
mod tests;
