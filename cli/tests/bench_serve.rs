//! Tests `bench-serve` with the real server, and with servers that answer wrongly.

use crate::cli::{code, feed, json, put, refused, run, stderr};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A running `wingbeat serve`, which ends when this value is dropped.
struct Serve {
    child: Child,
    url: String,
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts `wingbeat serve` with the embedded model on the CPU.
fn serve(flags: &[&str]) -> Serve {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
    command.args(["serve", "--device", "cpu", "--port", "0"]).args(flags);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let url = lines.find_map(|line| Some(line.unwrap().strip_prefix("listening on ")?.to_owned())).expect("the server listens");
    // The log must not fill the pipe.
    std::thread::spawn(move || lines.for_each(drop));
    Serve { child, url }
}

/// Starts a server that answers each request with the text that `respond` returns for the path. If the text is empty,
/// the server never answers. If the text has the header `connection: keep-alive`, the server closes the connection at the next
/// request. Returns the URL.
fn canned(respond: impl Fn(&str) -> String + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let respond = Arc::new(respond);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let respond = respond.clone();
            std::thread::spawn(move || answer(stream.unwrap(), &*respond));
        }
    });
    url
}

fn answer(mut stream: TcpStream, respond: &dyn Fn(&str) -> String) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).unwrap();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some(n) = line.to_lowercase().strip_prefix("content-length:") {
            length = n.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let text = respond(first.split(' ').nth(1).unwrap_or_default());
    match text.is_empty() {
        true => std::thread::sleep(Duration::from_secs(120)),
        false => stream.write_all(text.as_bytes()).unwrap(),
    }
    if text.contains("connection: keep-alive") {
        // Closes the connection when the client uses it again.
        let _ = reader.read_line(&mut first);
    }
}

fn response(status: &str, kind: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

const MODELS: &str = r#"{"object":"list","data":[{"id":"m","vocabulary":100}]}"#;
const STREAM: &str = "data: {\"choices\":[{\"index\":0,\"text\":\"a\",\"finish_reason\":null}]}\n\n\
    data: {\"choices\":[{\"index\":0,\"text\":\"b\",\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n";

/// Starts a server with the model `m`, whose completions are answered with `completion`.
fn with_completion(completion: String) -> String {
    canned(move |path| match path {
        "/health" => response("404 Not Found", "text/plain", ""),
        "/v1/models" => response("200 OK", "application/json", MODELS),
        _ => completion.clone(),
    })
}

fn bench(url: &str, flags: &str) -> Output {
    let args: Vec<&str> = ["bench-serve", url].into_iter().chain(flags.split_whitespace()).collect();
    feed(&args, b"")
}

#[test]
fn a_server_is_measured_with_one_client_and_with_two() {
    let server = serve(&[]);
    let report = json(&bench(&server.url, "--clients 2,1 --requests 2 --prompt-tokens 5 --max-tokens 6 --seed 3 --json"));
    assert_eq!((report["url"].as_str(), report["model"]["id"].as_str()), (Some(server.url.as_str()), Some("small-world")));
    let levels = report["levels"].as_array().unwrap();
    assert_eq!(levels.iter().map(|level| level["clients"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
    for (level, requests) in levels.iter().zip([2, 4]) {
        let count = |name: &str| level[name].as_u64().unwrap();
        assert_eq!(
            [count("requests"), count("failures"), count("prompt_tokens"), count("completion_tokens")],
            [requests, 0, 5 * requests, 6 * requests]
        );
        let ms = |name: &str, p: &str| level[name][p].as_f64().unwrap();
        assert!(ms("first_token_ms", "p50") > 0.0 && ms("first_token_ms", "p95") >= ms("first_token_ms", "p50"), "{level}");
        assert!(ms("between_tokens_ms", "p50") > 0.0 && ms("longest_gap_ms", "p95") >= ms("between_tokens_ms", "p50"), "{level}");
        assert!(level["tokens_per_second"].as_f64().unwrap() > 0.0 && level["ratio_to_one_client"].as_f64().unwrap() > 0.0, "{level}");
    }

    // `--plain` sends only fields that other servers know, too. `-s` limits the time instead of the number of requests.
    let output = bench(&format!("{}/v1/", server.url), "-c 1 -s 1 -p 3 -n 2 --plain");
    let table = crate::cli::stdout(&output);
    assert!(table.starts_with("| clients | requests | failed |") && table.lines().count() == 3, "{table}");
    assert!(stderr(&output).contains("small-world, f16"), "{}", stderr(&output));

    refused(&bench(&server.url, "--model other"), 2, "unknown model \"other\" (models of this server: small-world)");
}

#[test]
fn a_server_with_keys_needs_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let keys = put(&folder, "keys", b"# keys\nanna 0123456789abcdef\n");
    let keys = keys.to_str().unwrap();
    let server = serve(&["--key-file", keys]);
    let flags = "-c 1 -r 1 -p 2 -n 2 --json";
    refused(&bench(&server.url, flags), 1, "/v1/models: the server answered 401 Unauthorized: an API key is required");
    assert_eq!(json(&bench(&server.url, &format!("{flags} --key-file {keys}")))["levels"][0]["failures"], 0);
    let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
    command.args(["bench-serve", &server.url]).args(flags.split(' ')).env("WINGBEAT_API_KEY", "0123456789abcdef");
    assert_eq!(json(&command.output().unwrap())["levels"][0]["failures"], 0);
    let empty = put(&folder, "empty", b"# no key\n");
    refused(&bench(&server.url, &format!("--key-file {}", empty.display())), 1, "expected an API key, found none");
}

#[test]
fn a_server_that_answers_wrongly_is_reported() {
    // The port is free again after the listener is dropped.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    refused(&bench(&free.to_string(), ""), 1, "the server cannot be reached: Connection refused (start a server with");
    refused(&bench("https://127.0.0.1", ""), 2, "expected a URL with http, found https");
    refused(&run(&["bench-serve", "--clients", "0"]), 2, "expected a whole number from 1 to 4096");

    let sse = "text/event-stream";
    for (completion, want) in [
        (response("401 Unauthorized", "application/json", "{}"), "/v1/completions: the server answered 401 Unauthorized (give an API key"),
        (response("404 Not Found", "text/html", "<html>"), "the server answered 404 Not Found (check the URL and --model"),
        (
            response("200 OK", "application/json", "{}"),
            "expected a stream of server-sent events, found the content type \"application/json\"",
        ),
        (response("200 OK", sse, "data: {\"error\":{\"message\":\"the device was lost\"}}\n\n"), "/v1/completions: the device was lost"),
        (response("200 OK", sse, "data: {\"choices\":[{\"text\":\"a\"}]}\n\n"), "the server ended the answer early"),
        (response("200 OK", sse, "data: hello\n\n"), "expected a chunk of a completion, found \"hello\""),
        ("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9\r\n\r\n: x".into(), "the connection broke"),
    ] {
        let output = bench(&with_completion(completion), "--json");
        refused(&output, 1, want);
        assert!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["error"].is_object());
    }
    refused(&bench(&canned(|_| response("404 Not Found", "text/html", "")), ""), 1, "does not report the size of the model's vocabulary");
    refused(&bench(&canned(|_| response("200 OK", "text/html", "<html>")), ""), 1, "expected a list of models, found \"<html>\"");
}

#[test]
fn a_server_may_load_its_model_first() {
    let n_asked = AtomicUsize::new(0);
    let url = canned(move |path| match path {
        "/health" if n_asked.fetch_add(1, Ordering::SeqCst) < 3 => {
            response("503 Service Unavailable", "application/json", "{\"status\":\"loading\"}")
        }
        "/health" => response("200 OK", "application/json", "{}"),
        "/v1/models" => response("200 OK", "application/json", MODELS),
        _ => response("200 OK", "text/event-stream", STREAM),
    });
    let output = bench(&url, "-c 1,2 -r 3");
    let table = crate::cli::stdout(&output);
    assert!(
        table.lines().nth(2).unwrap().starts_with("| 1 | 3 | 0 |") && table.lines().nth(3).unwrap().starts_with("| 2 | 6 | 0 |"),
        "{table}"
    );
    assert!(stderr(&output).contains("the server loads its model; waiting at most 60 s"), "{}", stderr(&output));
}

#[test]
fn failed_requests_are_counted() {
    let n_asked = AtomicUsize::new(0);
    let url = canned(move |path| match path {
        "/v1/models" => response("200 OK", "application/json", MODELS),
        // The first two completions are not measured. After them, every second completion fails. From the seventh on, all fail.
        "/v1/completions" => match n_asked.fetch_add(1, Ordering::SeqCst) {
            3 | 5 | 6.. => response("429 Too Many Requests", "application/json", "{\"error\":{\"message\":\"the queue is full\"}}"),
            _ => response("200 OK", "text/event-stream", STREAM),
        },
        _ => response("404 Not Found", "text/plain", ""),
    });
    let output = bench(&url, "-c 1,2 -r 4");
    refused(&output, 1, "2 clients: 8 of 8 requests failed: the server answered 429 Too Many Requests: the queue is full");
    let table = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(table.lines().nth(2).unwrap().starts_with("| 1 | 4 | 2 |"), "{table}");
    assert!(table.lines().nth(3).unwrap().starts_with("| 2 | 8 | 8 | - | - | - | - | 0.0 | 0.00 |"), "{table}");
    assert!(stderr(&output).contains("warning: 1 client: 2 of 4 requests failed: the server answered 429"), "{}", stderr(&output));
}

/// Some servers keep a connection open after an answer and close the connection when the next request comes. llama-server does this after streams.
#[test]
fn a_request_on_a_connection_that_the_server_closes_is_sent_again() {
    let n_asked = Arc::new(AtomicUsize::new(0));
    let count = n_asked.clone();
    let url = canned(move |path| match path {
        "/v1/models" => response("200 OK", "application/json", MODELS),
        "/v1/completions" => {
            count.fetch_add(1, Ordering::SeqCst);
            response("200 OK", "text/event-stream", STREAM).replace("connection: close", "connection: keep-alive")
        }
        _ => response("404 Not Found", "text/plain", ""),
    });
    let output = bench(&url, "-c 1 -r 4");
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    // Two completions are not measured.
    assert_eq!(n_asked.load(Ordering::SeqCst), 6);
}

#[cfg(unix)]
#[test]
fn an_interrupt_leaves_the_finished_lines() {
    let n_asked = AtomicUsize::new(0);
    let url = canned(move |path| match path {
        "/v1/models" => response("200 OK", "application/json", MODELS),
        // The first three completions are two that are not measured, and the only request with one client. The next completions never end.
        "/v1/completions" if n_asked.fetch_add(1, Ordering::SeqCst) < 3 => response("200 OK", "text/event-stream", STREAM),
        "/v1/completions" => String::new(),
        _ => response("404 Not Found", "text/plain", ""),
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
    command.args(["bench-serve", &url, "-c", "1,2", "-r", "1"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.nth(2).unwrap().unwrap().starts_with("| 1 | 1 | 0 |"));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(code(&child.wait_with_output().unwrap()), 130);
    assert!(lines.next().is_none());
}
