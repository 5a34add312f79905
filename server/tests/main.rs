//! Tests of the server with the tiny RWKV-7 on the CPU: endpoints, states, keys, limits, the end.

mod anthropic;
mod cases;
mod chat;
mod continued;
mod damaged;
mod description;
#[allow(dead_code, reason = "each binary uses a part")]
#[path = "../../tests/support/embedding.rs"]
mod embedding;
mod faults;
mod fields;
mod fields_of_others;
mod guards;
mod hostile;
mod llama;
mod ollama;
mod open_webui;
mod responses;
mod states;
#[allow(dead_code, reason = "the tests of the library use the rest")]
#[path = "../../tests/support/mod.rs"]
mod support;
mod templates;
mod texts;
mod vectors;

use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use ureq::Agent;
use wingbeat::engine::{Engine, EngineOptions, StateOptions};
use wingbeat::error::Result;
use wingbeat::low_level::session::Output;
use wingbeat_server::{Keys, LoadEngine, ServeOptions, ServedModel, ServedTask, run};

/// Returns a function that starts an engine with a reranker, and the numbers that the package `rwkv-emb` computes. Returns `None` without the
/// models' files.
fn reranking() -> Option<(LoadEngine, Value)> {
    embedding::file("reranker.pth")?;
    Some((Box::new(|| embedding::engine("cpu")), embedding::package()))
}

/// A running server.
pub struct Server {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    agent: Agent,
    key: Option<String>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

/// A response: the status, the headers that tests read, and the body.
#[derive(Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: ureq::http::HeaderMap,
    pub text: String,
}

impl Answer {
    /// Returns the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    /// Returns the body of a successful response as JSON.
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        self.json()
    }

    /// Returns the JSON of all events of a stream. The last line must be `[DONE]`.
    pub fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text);
        let mut lines: Vec<&str> = self.text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(lines.pop(), Some("[DONE]"), "{}", self.text);
        lines.into_iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Server {
    /// Starts a server without keys.
    pub fn start() -> Server {
        Self::with(ServeOptions::default())
    }

    /// Starts a server with 4 slots and waits until its model is ready.
    pub fn with(options: ServeOptions) -> Server {
        let states = StateOptions { forgets: true, ..StateOptions::default() };
        Self::with_engine(options, EngineOptions { slots: 4, states, ..EngineOptions::default() })
    }

    pub fn with_engine(options: ServeOptions, engine: EngineOptions) -> Server {
        let load: LoadEngine = Box::new(move || {
            let mut options = crate::support::options("cpu");
            options.deterministic = true;
            Engine::start(&crate::support::tiny(&options), engine.clone())
        });
        let server = Self::loading(options, load);
        server.wait();
        server
    }

    /// Starts a server with a model named `vectors` for vectors, without a model that generates text, and waits until the model is ready.
    pub fn with_vectors() -> Server {
        Self::with_vectors_and(ServeOptions::default(), EngineOptions::default())
    }

    /// Starts the server of [`with_vectors`](Self::with_vectors) with other options. Its engine has 2 slots.
    pub fn with_vectors_and(options: ServeOptions, engine: EngineOptions) -> Server {
        let load: LoadEngine = Box::new(move || {
            let mut options = crate::support::options("cpu");
            options.output = Output::Hidden;
            Engine::start(&crate::support::tiny(&options), EngineOptions { slots: 2, ..engine.clone() })
        });
        let server = Self::hosting(options, vec![ServedModel { name: "vectors".into(), task: ServedTask::Embedding, load }]);
        server.wait();
        server
    }

    /// Waits until all models are ready.
    fn wait(&self) {
        let began = Instant::now();
        while self.get("/health").status != 200 {
            assert!(began.elapsed() < Duration::from_secs(60), "the models were not loaded");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts a server and returns while its model may be loading.
    pub fn loading(options: ServeOptions, load: LoadEngine) -> Server {
        Self::hosting(options, vec![ServedModel { name: "tiny".into(), task: ServedTask::Text, load }])
    }

    fn hosting(options: ServeOptions, models: Vec<ServedModel>) -> Server {
        let stop = options.stop.clone();
        let options = ServeOptions { port: 0, ..options };
        let (address, listens) = channel();
        let thread = std::thread::spawn(move || run(options, models, &mut |at| address.send(at).unwrap()));
        let address = listens.recv_timeout(Duration::from_secs(30)).expect("the server listens");
        let config = Agent::config_builder().http_status_as_error(false).timeout_global(Some(Duration::from_secs(120)));
        Server { url: format!("http://{address}"), agent: config.build().into(), key: None, stop, thread: Some(thread) }
    }

    /// Returns a client of the same server that sends a key.
    pub fn as_caller(&self, key: &str) -> Server {
        Server { url: self.url.clone(), agent: self.agent.clone(), key: Some(key.into()), stop: Arc::default(), thread: None }
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], &[])
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[], body.to_string().as_bytes())
    }

    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        // All servers have the same description, so one is enough.
        static API: OnceLock<Value> = OnceLock::new();
        let answer = self.sent(method, path, headers, body);
        let api = API.get_or_init(|| self.sent("GET", "/openapi.json", &[], &[]).ok());
        description::check(api, method, path, &answer).unwrap_or_else(|e| panic!("{method} {path}: {e}"));
        answer
    }

    fn sent(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let mut response = self.agent.run(request.body(body).unwrap()).unwrap();
        let text = String::from_utf8_lossy(&response.body_mut().read_to_vec().unwrap()).into_owned();
        Answer { status: response.status().as_u16(), headers: response.headers().clone(), text }
    }

    /// Returns the bytes of a successful download.
    pub fn download(&self, path: &str) -> Vec<u8> {
        let mut response = self.agent.get(format!("{}{path}", self.url)).call().unwrap();
        assert_eq!(response.status().as_u16(), 200);
        response.body_mut().read_to_vec().unwrap()
    }

    /// Sends a request on a new connection. Returns the connection without waiting for the response; dropping it cancels the request.
    pub fn open(&self, path: &str, body: &Value) -> TcpStream {
        let body = body.to_string();
        let key = self.key.iter().map(|key| format!("authorization: Bearer {key}\r\n")).collect::<String>();
        let mut stream = TcpStream::connect(self.url.strip_prefix("http://").unwrap()).unwrap();
        write!(stream, "POST {path} HTTP/1.1\r\nhost: localhost\r\n{key}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
        stream
    }

    /// Opens a connection like [`open`](Self::open), and waits until a successful response begins.
    pub fn begin(&self, path: &str, body: &Value) -> TcpStream {
        let (mut stream, mut status) = (self.open(path, body), [0; 12]);
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        stream
    }

    /// Waits until the first model in `/slots` satisfies a condition.
    pub fn until(&self, is_so: impl Fn(&Value) -> bool) {
        let began = Instant::now();
        while !is_so(&self.get("/slots").ok()[0]) {
            assert!(began.elapsed() < Duration::from_secs(60), "{}", self.get("/slots").text);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends bytes on a new connection. Returns all bytes that arrive until the server closes the connection or sends nothing for 20 seconds.
    pub fn exchange(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.url.strip_prefix("http://").unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Asks the server to end. Returns its result.
    pub fn end(mut self) -> Result<()> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads from a connection until a text between `before` and `after` has arrived, and returns this text.
pub fn read_until(connection: &mut TcpStream, before: &str, after: &str) -> String {
    let (mut seen, mut part) = (Vec::new(), [0; 1024]);
    loop {
        let n = connection.read(&mut part).unwrap();
        assert!(n > 0, "the connection ended: {}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&part[..n]);
        let text = String::from_utf8_lossy(&seen);
        if let Some((found, _)) = text.split_once(before).and_then(|(_, rest)| rest.split_once(after)) {
            return found.into();
        }
    }
}

/// Returns two keys: `key-of-ada` and `key-of-bob`.
pub fn keys() -> Keys {
    Keys::read("ada key-of-ada\nbob key-of-bob").unwrap()
}
