//! Hostile requests. Every refusal is an error object with a message that a person can act on.

use super::Server;
use serde_json::Value;
use std::time::Duration;
use wingbeat_server::ServeOptions;

#[test]
fn every_refusal_is_an_error_object() {
    let server = Server::with(ServeOptions { max_body: 1000, read_timeout: Duration::from_secs(1), ..ServeOptions::default() });
    let long = "a".repeat(33 << 10);
    for (start, more, status, want) in [
        ("GET /v1/models/%ff", "", 400, "expected a name in UTF-8"),
        ("GET /v1/models/other", "", 404, "unknown model \"other\""),
        ("GET /v1/states/%ff", "", 400, "expected a name in UTF-8"),
        ("DELETE /v1/states/%ff", "", 400, "expected a name in UTF-8"),
        ("GET /v1/states/a%2f..%2fb", "", 400, "expected a state's name"),
        ("GET /v1/states/%ff/content", "", 400, "expected a name in UTF-8"),
        ("PUT /v1/states/%ff/content", "content-length: 1\r\n\r\na", 400, "expected a name in UTF-8"),
        ("GET /v1/responses/%ff", "", 400, "expected a name in UTF-8"),
        ("DELETE /v1/responses/%c3%28", "", 400, "expected a name in UTF-8"),
        ("GET /v1/responses/none", "", 404, "unknown response \"none\""),
        ("GET /page/%ff", "", 400, "expected a name in UTF-8"),
        ("GET /v1/states?model=a&model=b", "", 400, "expected at most one model in the query, found 2"),
        ("GET /v1/states/x?model=a&x=1&model=%ff", "", 400, "expected at most one model in the query, found 2"),
        ("GET /v1/none", "", 404, "unknown path \"/v1/none\""),
        ("GET http://localhost/v1/none", "", 404, "unknown path \"/v1/none\""),
        ("GET //none", "", 404, "unknown path \"/none\""),
        ("OPTIONS *", "", 404, "unknown path"),
        ("CONNECT localhost:80", "", 404, "unknown path"),
        ("PUT /v1/chat/completions", "", 405, "the method \"PUT\""),
        ("BREW /v1/models", "", 405, "the method \"BREW\""),
        ("POST /v1/completions", "", 400, "found \"\": the JSON ends where a value must follow"),
        ("POST /v1/completions", "content-type: text/plain\r\ncontent-length: 8\r\n\r\nprompt=a", 400, "found \"prompt=a\""),
        ("POST /v1/completions", "content-length: 3\r\n\r\n\u{ff}a", 400, "found"),
        ("POST /v1/completions", "content-length: 1000\r\n\r\n{", 408, "did not arrive within 1 seconds"),
        ("POST /v1/completions", &format!("content-length: 1001\r\n\r\n{}", &long[..1001]), 413, "at most 1000 bytes"),
        ("POST /v1/completions", "transfer-encoding: chunked\r\n\r\nzz\r\n", 400, "the connection broke"),
        ("GET /v1/models", &format!("x: {long}\r\ny: {long}\r\n\r\n"), 431, "expected a header of at most 100 fields and 65536 bytes"),
        ("GET /v1/models", &format!("{}\r\n", "x: y\r\n".repeat(101)), 431, "found 103 fields"),
        (&format!("GET /v1/models/{long}"), &format!("x: {long}\r\n\r\n"), 431, "65536 bytes"),
    ] {
        let end = if more.is_empty() { "\r\n" } else { more };
        let request = format!("{start} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{end}");
        let answer = server.exchange(request.as_bytes());
        let start = &start[..start.len().min(60)];
        let (header, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{start}: {answer:?}"));
        let header = header.to_ascii_lowercase();
        assert!(
            header.starts_with(&format!("http/1.1 {status} ")) && header.contains("content-type: application/json"),
            "{start}: {answer}"
        );
        let body: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{start}: {e}: {answer}"));
        let said = body["error"]["message"].as_str().unwrap();
        assert!(said.contains(want), "{start}: {said}");
        assert!(header.contains(&format!("x-request-id: {}", body["error"]["request_id"].as_str().unwrap())), "{start}: {header}");
    }
    // The header `Allow` lists the methods of a path.
    assert_eq!(server.send("PUT", "/v1/states", &[], &[]).header("allow"), "GET,HEAD,POST");
}
