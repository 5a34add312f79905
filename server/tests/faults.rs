//! Faults of one caller or one model, and their effect on other callers.

use super::Server;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use wingbeat::engine::{Engine, EngineOptions};
use wingbeat::error::Error;
use wingbeat_server::{LoadEngine, ServeOptions, ServedModel, ServedTask};

fn tiny() -> LoadEngine {
    Box::new(|| Engine::start(&crate::support::tiny(&crate::support::options("cpu")), EngineOptions::default()))
}

fn model(name: &str, load: LoadEngine) -> ServedModel {
    ServedModel { name: name.into(), task: ServedTask::Text, load }
}

#[test]
fn a_model_that_cannot_be_loaded_fails_for_its_callers_alone() {
    let broken: LoadEngine = Box::new(|| Err(Error::file("found no tensors").at("/srv/secret/broken.pth")));
    let (begun, is_loading) = channel();
    let (go_on, may_load) = channel::<()>();
    let (begun, may_load) = (std::sync::Mutex::new(begun), std::sync::Mutex::new(may_load));
    let slow: LoadEngine = Box::new(move || {
        begun.lock().unwrap().send(()).unwrap();
        may_load.lock().unwrap().recv().unwrap();
        tiny()()
    });
    let options = ServeOptions { keep_alive: Some(Duration::from_secs(60)), ..ServeOptions::default() };
    let server = Server::hosting(options, vec![model("good", tiny()), model("broken", broken), model("slow", slow)]);
    let ask = |name: &str| server.post("/v1/completions", &json!({"model": name, "prompt": "a", "max_tokens": 2}));
    for _ in 0..2 {
        let refused = ask("broken");
        assert!(
            refused.status >= 500 && refused.text.contains("the model broken could not be loaded: found no tensors"),
            "{}",
            refused.text
        );
        assert!(!refused.text.contains("/srv"), "{}", refused.text);
        assert_eq!(server.get("/health").status, 200);
    }
    assert_eq!(server.get("/v1/models/broken").ok()["status"], "unloaded");
    ask("good").ok();
    let waiting = server.open("/v1/completions", &json!({"model": "slow", "prompt": "a", "max_tokens": 2}));
    is_loading.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(server.get("/health").status, 200, "a model that loads for a request does not make the server unready");
    ask("good").ok();
    go_on.send(()).unwrap();
    let mut answer = [0; 12];
    (&waiting).read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[test]
fn a_body_for_which_there_is_no_memory_gets_an_answer() {
    let server = Server::with(ServeOptions { request_memory: 64 << 10, ..ServeOptions::default() });
    let body = vec![b' '; 3 << 20];
    let begin = || {
        let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
        write!(stream, "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len()).unwrap();
        stream
    };
    // Another body holds most of the memory.
    let mut holder = begin();
    holder.write_all(&body[..60 << 10]).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let mut stream = begin();
    // This client reads nothing before it has sent everything.
    stream.write_all(&body).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut answer = vec![0; 4096];
    let n = stream.read(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..n]);
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("retry-after:"), "{answer}");
}

#[test]
fn an_unread_stream_delays_the_end_by_five_seconds_at_most() {
    let options = ServeOptions { grace: Duration::from_secs(1), ..ServeOptions::default() };
    let stop = options.stop.clone();
    let server = Server::with(options);
    // Log-probabilities make large events, so the buffers of the connection are soon full.
    let body = json!({"prompt": "a", "stream": true, "max_tokens": 100000, "ignore_eos": true, "logprobs": 20});
    let unread = server.begin("/v1/completions", &body);
    std::thread::sleep(Duration::from_secs(2));
    let began = Instant::now();
    stop.store(true, Ordering::SeqCst);
    server.end().unwrap();
    assert!(began.elapsed() < Duration::from_millis(8500), "{:?}", began.elapsed());
    drop(unread);
}
