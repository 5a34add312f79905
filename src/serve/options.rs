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
    /// Origins of web pages that may use the server, such as `https://example.org`; `*` allows all. Pages of the server itself are always allowed.
    pub origins: Vec<String>,
    /// Further names in the header `Host` that the server accepts; `*` accepts all. IP addresses, `localhost` and `host` are always accepted.
    pub hosts: Vec<String>,
    /// The time for running requests to complete after `stop` is set. After this time, their texts are cut.
    pub grace: Duration,
    /// The most bytes of a request's body. Uploaded states may be larger: see `state_quota`.
    pub max_body: usize,
    /// The longest time that a client may take to send a header, and to send a body.
    pub read_timeout: Duration,
    /// The most connections that are open at the same time.
    pub max_connections: usize,
    /// The most continuations (`n`) that one request may ask for, counted over all its prompts.
    pub max_n: usize,
    /// The most bytes of a grammar or of a JSON schema.
    pub max_schema: usize,
    /// The URL of the storage of states: a folder (`file:///path`, or a path), or an address of object storage such as `s3://bucket/prefix`. `None`
    /// keeps states in memory until the server ends.
    pub states: Option<String>,
    /// The most bytes of stored states per API key and model.
    pub state_quota: u64,
    /// The format of the log on stderr.
    pub log: LogFormat,
    /// If true, the log contains the bodies of requests. These contain prompts.
    pub log_prompts: bool,
    /// Set by the caller when the server must end.
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
            read_timeout: Duration::from_secs(30),
            max_connections: 1024,
            max_n: 128,
            max_schema: 256 << 10,
            states: None,
            state_quota: 1 << 30,
            log: LogFormat::Text,
            log_prompts: false,
            stop: Arc::default(),
        }
    }
}
