//! Tests of access and limits: keys, hosts, origins, sizes, connections and the queue.

use super::{Server, keys};
use serde_json::json;
use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::time::Duration;
use wingbeat::engine::EngineOptions;
use wingbeat::error::{Error, Kind};
use wingbeat_server::{ServeOptions, run};

#[test]
fn a_key_is_required() {
    let server = Server::with(ServeOptions { keys: keys(), ..ServeOptions::default() });
    let wrong = server.as_caller("key-of-eve");
    for (caller, path, status) in [
        (&server, "/v1/models", 401),
        (&wrong, "/v1/models", 401),
        (&wrong, "/metrics", 401),
        (&server, "/health", 200),
        (&server, "/", 200),
    ] {
        let answer = caller.get(path);
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
        assert!(!answer.text.contains("key-of-eve"));
    }
    let refused = wrong.post("/v1/completions", &json!({"prompt": "a"}));
    assert_eq!(refused.json()["error"]["code"], "invalid_api_key");
    server.as_caller("key-of-bob").get("/v1/models").ok();
}

#[test]
fn foreign_hosts_and_origins_are_refused() {
    let server = Server::start();
    let status = |headers: &[(&str, &str)]| server.send("GET", "/v1/models", headers, &[]).status;
    assert_eq!((status(&[("host", "evil.example")]), status(&[("origin", "https://evil.example")])), (403, 403));
    assert_eq!(status(&[("origin", &server.url)]), 200);
    // Without an allowed origin, no header tells a browser that other pages may read the answer.
    assert_eq!(server.get("/v1/models").header("access-control-allow-origin"), "");
    let open = Server::with(ServeOptions { origins: vec!["https://a.example".into()], ..ServeOptions::default() });
    let answer = open.send("GET", "/v1/models", &[("origin", "https://a.example")], &[]);
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, "https://a.example"));
}

#[test]
fn an_open_address_needs_keys() {
    for host in ["0.0.0.0", "::"] {
        let options = ServeOptions { host: host.into(), port: 0, ..ServeOptions::default() };
        let e = run(options, Vec::new(), &mut |_| ()).unwrap_err();
        assert_eq!((e.kind, e.field_name()), (Kind::Usage, Some("host")), "{e}");
    }
}

#[test]
fn sizes_are_limited() {
    let server = Server::with(ServeOptions { max_body: 1000, read_timeout: Duration::from_millis(500), ..ServeOptions::default() });
    let long = server.post("/v1/completions", &json!({"prompt": "a".repeat(2000)}));
    assert_eq!((long.status, &long.json()["error"]["code"]), (413, &json!("body_too_large")));
    // This client announces ten bytes of body, and sends only one.
    let slow = server.exchange(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{");
    assert!(slow.starts_with("HTTP/1.1 408"), "{slow}");
    // One header never ends, and another header is too long.
    server.exchange(b"GET /health HTTP/1.1\r\nhost: loc");
    let huge = format!("GET /health HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "a".repeat(300 << 10));
    let huge = server.exchange(huge.as_bytes());
    assert!(huge.is_empty() || huge.starts_with("HTTP/1.1 431"), "{}", &huge[..huge.len().min(60)]);
    server.get("/health").ok();
}

#[test]
fn a_full_queue_is_429_and_a_client_that_leaves_frees_its_slot() {
    let engine = EngineOptions { slots: 1, queue: 1, ..EngineOptions::default() };
    let server = Server::with_engine(ServeOptions::default(), engine);
    let endless = || server.begin("/v1/completions", &json!({"prompt": "a", "max_tokens": -1, "ignore_eos": true, "stream": true}));
    let first = endless();
    server.until(|slots| slots["running"] == 1);
    let second = endless();
    server.until(|slots| slots["waiting"] == 1);
    let full = server.post("/v1/completions", &json!({"prompt": "a"}));
    assert_eq!((full.status, full.header("retry-after"), &full.json()["error"]["type"]), (429, "1", &json!("rate_limit_error")));
    // The queue refuses the request before the storage looks for the state, which is unknown.
    assert_eq!(server.post("/v1/completions", &json!({"prompt": "a", "state": "unknown"})).status, 429);
    assert_eq!(server.get("/slots").ok()[0]["requests"].as_array().unwrap().len(), 2);
    drop((second, first));
    server.until(|slots| slots["free_slots"] == 1);
    server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 2})).ok();
}

#[test]
fn a_client_that_leaves_bytes_behind_frees_its_slot() {
    let server = Server::with_engine(ServeOptions::default(), EngineOptions { slots: 4, ..EngineOptions::default() });
    // Hyper reads the bytes after the body only when the response is complete, so hyper alone does not see the end of the connection.
    let gone = ["\n", "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"].map(|more| {
        let mut stream = server.open("/v1/completions", &json!({"prompt": "a", "max_tokens": -1, "ignore_eos": true}));
        stream.write_all(more.as_bytes()).unwrap();
        stream
    });
    server.until(|slots| slots["running"] == 2);
    drop(gone);
    server.until(|slots| slots["free_slots"] == 4);
    // A pipelined request of a client that stays gets its response.
    let request = "GET /health HTTP/1.1\r\nhost: localhost\r\n";
    let both = server.exchange(format!("{request}\r\n{request}connection: close\r\n\r\n").as_bytes());
    assert_eq!(both.matches("HTTP/1.1 200").count(), 2, "{both}");
}

#[test]
fn connections_that_only_wait_keep_no_key_out() {
    let server = Server::with(ServeOptions { keys: keys(), max_connections: 3, ..ServeOptions::default() });
    let connect = || TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    let mut waiting: Vec<TcpStream> = (0..3).map(|_| connect()).collect();
    // One of the three connections has begun a header.
    waiting[1].write_all(b"POST /v1/completions HTTP/1.1\r\nhost: loc").unwrap();
    let ada = server.as_caller("key-of-ada");
    // A fourth connection with a key would wait until the server closes one of these three.
    for _ in 0..3 {
        let stream = ada.begin("/v1/completions", &json!({"prompt": "a", "max_tokens": 2, "stream": true}));
        waiting.push(stream);
        waiting.push(connect());
    }
}

#[test]
fn a_key_has_a_share_of_the_queue() {
    // Without swapping, requests of the keys do not take turns, so the counts of waiting requests are stable.
    let engine = EngineOptions { slots: 1, queue: 4, queue_per_namespace: Some(2), swap_bytes: 0, ..EngineOptions::default() };
    let server = Server::with_engine(ServeOptions { keys: keys(), ..ServeOptions::default() }, engine);
    let (ada, bob) = (server.as_caller("key-of-ada"), server.as_caller("key-of-bob"));
    let endless = |caller: &Server, prompts: &[&str]| {
        caller.begin("/v1/completions", &json!({"prompt": prompts, "max_tokens": -1, "ignore_eos": true, "stream": true}))
    };
    // One prompt runs, and two wait.
    let of_ada = endless(&ada, &["a", "b", "c"]);
    ada.until(|slots| slots["waiting"] == 2);
    let full = ada.post("/v1/completions", &json!({"prompt": "d"}));
    let error = &full.json()["error"];
    assert_eq!((full.status, full.header("retry-after"), &error["code"]), (429, "1", &json!("queue_full")), "{}", full.text);
    let want = "the queue has no more room for this caller: 2 requests of the caller are waiting (try again when some of these requests have ended)";
    assert_eq!(error["message"], want);
    // The other key has its own share.
    let of_bob = endless(&bob, &["a", "b"]);
    bob.until(|slots| slots["waiting"] == 4);
    let full = bob.post("/v1/completions", &json!({"prompt": "c"}));
    assert_eq!(
        (full.status, &full.json()["error"]["message"]),
        (429, &json!("the queue is full: 4 requests are waiting (try again later)"))
    );
    let metrics = bob.get("/metrics").text;
    assert!(metrics.contains("wingbeat_waiting_requests{model=\"tiny\"} 4"), "{metrics}");
    // One slot and two places in the queue can never take four prompts.
    let many = bob.post("/v1/completions", &json!({"prompt": ["a", "b", "c", "d"]}));
    let error = &many.json()["error"];
    assert_eq!((many.status, &error["param"]), (400, &json!("prompt")));
    let want = "prompt: expected at most 3 prompts, for which the slots and the queue have room, found 4 (divide the prompts among several requests)";
    assert_eq!(error["message"], want);
    drop((of_ada, of_bob));
    ada.until(|slots| slots["free_slots"] == 1);
    ada.until(|slots| slots["waiting"] == 0);
    let few = ada.post("/v1/completions", &json!({"prompt": ["a", "b", "c"], "max_tokens": 1}));
    assert_eq!(few.ok()["choices"].as_array().unwrap().len(), 3);
}

#[test]
fn a_server_answers_while_its_model_loads() {
    let (go, may_go) = channel::<()>();
    let may_go = std::sync::Mutex::new(may_go);
    let load = Box::new(move || {
        let _ = may_go.lock().unwrap().recv();
        Err(Error::model("no such model"))
    });
    let server = Server::loading(ServeOptions::default(), load);
    let health = server.get("/health");
    assert_eq!((health.status, &health.json()["status"]), (503, &json!("loading")));
    let early = server.post("/v1/completions", &json!({"prompt": "a"}));
    assert_eq!((early.status, early.header("retry-after"), &early.json()["error"]["code"]), (503, "5", &json!("model_loading")));
    drop(go);
    // A model that cannot be loaded ends the server.
    let began = std::time::Instant::now();
    while TcpStream::connect(server.url.strip_prefix("http://").unwrap()).is_ok() {
        assert!(began.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.end().unwrap_err().message, "no such model");
}
