//! Options of a server.

use super::Keys;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Options of a server. Start from `ServeOptions::default()`.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The name or IP address of the network interface that accepts connections.
    pub host: String,
    /// The TCP port. 0 selects a free port.
    pub port: u16,
    /// The API keys. Without keys, every request is accepted, and only loopback addresses are allowed as `host`.
    pub keys: Keys,
    /// Origins whose web pages may use the server, such as `https://example.org`; `*` allows all origins. The server's own pages are always allowed.
    pub origins: Vec<String>,
    /// Further host names that the server accepts in the header `Host`; `*` accepts all. IP addresses, `localhost` and `host` are always accepted.
    pub hosts: Vec<String>,
    /// How long running requests may continue after `stop` is set. The server then cuts their texts.
    pub grace: Duration,
    /// The maximum size of a request's body in bytes. `state_quota` limits uploaded states instead.
    pub max_body: usize,
    /// The maximum memory of bodies, waiting requests and uploads, in bytes. With several keys, the requests of one key may use half of it.
    pub request_memory: usize,
    /// How long a client may take to send the header of a request, and again to send its body.
    pub read_timeout: Duration,
    /// The maximum number of connections that are open at the same time.
    pub max_connections: usize,
    /// The maximum number of continuations (`n`) that one request may ask for, over all its prompts together.
    pub max_n: usize,
    /// The maximum size in bytes of a grammar, a JSON schema or a list of tools.
    pub max_schema: usize,
    /// The storage of saved states: a folder (`file:///path`, or a path), or the URL of an object storage such as `s3://bucket/prefix`. `None` keeps
    /// states in memory until the server ends.
    pub states: Option<String>,
    /// The maximum size of all stored states per API key and model, in bytes. `None` sets no limit; a write then needs no listing of the files.
    pub state_quota: Option<u64>,
    /// If set, models load on their first use, and leave memory after this time without a request. `None` loads all models at the start and keeps them.
    pub keep_alive: Option<Duration>,
    /// Further names of the first model that generates text. A request with such a name begins in the tuned initial state that
    /// [`EngineOptions::initial`](wingbeat::engine::EngineOptions::initial) has under this name.
    pub tuned: Vec<String>,
    /// The format of the log on stderr.
    pub log: LogFormat,
    /// If true, the log contains the bodies of requests, and so their prompts.
    pub log_prompts: bool,
    /// The caller sets this flag to end the server.
    pub stop: Arc<AtomicBool>,
}

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One line of text per request.
    Text,
    /// One JSON object per request.
    Json,
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions {
            host: "127.0.0.1".into(),
            port: 8080,
            keys: Keys::default(),
            origins: Vec::new(),
            hosts: Vec::new(),
            grace: Duration::from_secs(30),
            max_body: 16 << 20,
            request_memory: 512 << 20,
            read_timeout: Duration::from_secs(30),
            max_connections: 1024,
            max_n: 128,
            max_schema: 256 << 10,
            states: None,
            state_quota: Some(1 << 30),
            keep_alive: None,
            tuned: Vec::new(),
            log: LogFormat::Text,
            log_prompts: false,
            stop: Arc::default(),
        }
    }
}
