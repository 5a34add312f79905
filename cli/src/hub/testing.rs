//! A server for tests that plays the hub, or the host to which the hub redirects.

use super::address::Address;
use super::cache::Cache;
use super::client::{Client, Limits};
use super::digest::Etag;
use super::settings::HubSettings;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub path: String,
    /// The headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The number of bytes after which the connection is cut.
    pub cut: Option<usize>,
    /// Bytes that follow the body again and again, with this pause, until the client closes the connection.
    pub endless: Option<(&'static str, Duration)>,
    /// Bytes that precede the answer in the same way, so that the answer never begins.
    pub before: Option<(&'static str, Duration)>,
}

impl Answer {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Answer {
        Answer { status, headers: Vec::new(), body: body.into(), cut: None, endless: None, before: None }
    }

    pub fn with(mut self, name: &str, value: impl ToString) -> Answer {
        self.headers.push((name.into(), value.to_string()));
        self
    }

    /// Adds bytes that follow the body without an end.
    pub fn then(mut self, bytes: &'static str, pause_ms: u64) -> Answer {
        self.endless = Some((bytes, Duration::from_millis(pause_ms)));
        self
    }

    /// Adds bytes that precede the answer without an end.
    pub fn after(mut self, bytes: &'static str, pause_ms: u64) -> Answer {
        self.before = Some((bytes, Duration::from_millis(pause_ms)));
        self
    }

    /// Returns the content of a file, or the part that the request asks for.
    pub fn part(request: &Request, content: &[u8]) -> Answer {
        let range = request.headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
        match range {
            Some(start) if start < content.len() => {
                let range = format!("bytes {start}-{}/{}", content.len() - 1, content.len());
                Answer::new(206, &content[start..]).with("content-range", range)
            }
            Some(_) => Answer::new(416, ""),
            None => Answer::new(200, content),
        }
    }
}

type Handler = dyn Fn(&Request, usize) -> Answer + Send + Sync;

/// A running server. Its thread ends with the process.
pub struct Hub {
    pub address: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Hub {
    /// Starts a server whose answers `handler` returns. `handler` gets the number of earlier requests with the same method and path.
    pub fn start(handler: impl Fn(&Request, usize) -> Answer + Send + Sync + 'static) -> Hub {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), handler)
    }

    /// Starts a server as [`start`](Self::start) does, at the address of `listener`.
    pub fn on(listener: TcpListener, handler: impl Fn(&Request, usize) -> Answer + Send + Sync + 'static) -> Hub {
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (seen, handler): (_, Arc<Handler>) = (requests.clone(), Arc::new(handler));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, handler) = (seen.clone(), handler.clone());
                std::thread::spawn(move || answer(stream, &seen, &*handler));
            }
        });
        Hub { address, requests }
    }

    /// Starts a hub with the repository `me/models` and these files. The files have the hashes of large files.
    pub fn with_files(files: &[(&str, &[u8])]) -> Hub {
        let files: Vec<(String, Vec<u8>)> = files.iter().map(|(name, content)| (name.to_string(), content.to_vec())).collect();
        Hub::start(move |request, _| hub_answer(request, &files))
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns a client as [`client`](Self::client) does, but with time limits of 400 ms.
    pub fn impatient_client(&self) -> Client {
        let ms = Duration::from_millis;
        let limits = Limits { silence: ms(400), list: ms(400), window: ms(400), ..Limits::default() };
        let mut client = Client::with_limits(self.settings(), limits);
        client.pause = ms(1);
        client
    }

    /// Returns a client of this hub with the token `hf_secret`, and pauses of a millisecond.
    pub fn client(&self) -> Client {
        let mut client = Client::new(self.settings());
        client.pause = Duration::from_millis(1);
        client
    }

    fn settings(&self) -> HubSettings {
        HubSettings::for_test(&[("HF_ENDPOINT", self.address.as_str()), ("HF_TOKEN", "hf_secret"), ("HF_HUB_CACHE", "/nowhere")])
    }
}

/// Answers as the hub does with the files of the repository `me/models`.
pub fn hub_answer(request: &Request, files: &[(String, Vec<u8>)]) -> Answer {
    if request.path.starts_with("/api/models/me/models/revision/") {
        let siblings: Vec<_> = files.iter().map(|(name, _)| serde_json::json!({ "rfilename": name })).collect();
        return Answer::new(200, serde_json::json!({ "sha": COMMIT, "siblings": siblings }).to_string());
    }
    let name = request.path.strip_prefix(&format!("/me/models/resolve/{COMMIT}/"));
    match files.iter().find(|(file, _)| Some(file.as_str()) == name) {
        Some((_, content)) => described(Answer::part(request, content), content),
        None => Answer::new(404, "").with("x-error-code", "EntryNotFound"),
    }
}

/// Adds the headers with which the hub describes a large file.
pub fn described(answer: Answer, content: &[u8]) -> Answer {
    let answer = answer.with("x-repo-commit", COMMIT).with("x-linked-size", content.len());
    answer.with("x-linked-etag", format!("\"{}\"", sha256(content)))
}

pub fn sha256(content: &[u8]) -> String {
    let mut hasher = Etag::parse(&"0".repeat(64)).unwrap().hasher(0);
    hasher.update(content);
    hasher.finish()
}

/// Returns the address of a file of `me/models`, and a cache in a new folder.
pub fn model_and_cache(file: &str) -> (Address, Cache, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path().join("hub"));
    (Address::in_repository("me/models", Some(file)).unwrap(), cache, folder)
}

fn answer(stream: TcpStream, seen: &Mutex<Vec<Request>>, handler: &Handler) {
    let mut reader = BufReader::new(&stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_string()),
        }
    }
    let mut words = lines[0].split(' ').map(str::to_string);
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let headers =
        lines[1..].iter().filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.to_lowercase(), value.into())).collect();
    let request = Request { method, path, headers };
    let earlier = {
        let mut seen = seen.lock().unwrap();
        let earlier = seen.iter().filter(|r| r.method == request.method && r.path == request.path).count();
        seen.push(request.clone());
        earlier
    };
    let answer = handler(&request, earlier);
    let mut head = format!("HTTP/1.1 {} X\r\nconnection: close\r\n", answer.status);
    if !answer.headers.iter().any(|(name, _)| matches!(name.as_str(), "content-length" | "transfer-encoding")) {
        head += &format!("content-length: {}\r\n", answer.body.len());
    }
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let mut out = &stream;
    if let Some(before) = answer.before {
        return repeat(out, before);
    }
    let _ = out.write_all(format!("{head}\r\n").as_bytes());
    if request.method != "HEAD" {
        let _ = out.write_all(&answer.body[..answer.cut.unwrap_or(answer.body.len())]);
        answer.endless.into_iter().for_each(|endless| repeat(out, endless));
    }
}

/// Sends the same bytes until the client closes the connection.
fn repeat(mut out: &TcpStream, (bytes, pause): (&str, Duration)) {
    while out.write_all(bytes.as_bytes()).is_ok() {
        std::thread::sleep(pause);
    }
}
