//! The requests that Open WebUI sends to servers of OpenAI's and Ollama's API, with the fields and headers of its source (0.6).

use super::{Answer, Server};
use serde_json::{Value, json};

const HEADERS: [(&str, &str); 5] = [
    ("content-type", "application/json"),
    ("authorization", "Bearer none"),
    ("x-openwebui-user-name", "Ada%20Lovelace"),
    ("x-openwebui-user-id", "6f1c"),
    ("x-openwebui-user-role", "admin"),
];

fn post(server: &Server, path: &str, body: Value) -> Answer {
    let answer = server.send("POST", path, &HEADERS, body.to_string().as_bytes());
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    answer
}

#[test]
fn requests_to_openais_api_are_answered() {
    let server = Server::start();
    // The address of the connection may end with a slash.
    let models = server.sent("GET", "/v1//models", &HEADERS, &[]);
    assert_eq!(models.status, 404, "a slash within the path is another path");
    let models = server.send("GET", "/v1/models", &HEADERS, &[]).ok();
    assert_eq!(models["data"][0]["id"], "tiny");
    let messages = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "light"}]}]);
    let chat = json!({"stream": true, "model": "tiny", "messages": messages, "stream_options": {"include_usage": true}, "temperature": 0.5,
        "max_tokens": 8, "reasoning_effort": "medium", "frequency_penalty": 0.1, "logit_bias": {"100": -100}, "seed": 1, "stop": ["###"]});
    let events = post(&server, "/v1/chat/completions", chat).events();
    assert!(events.last().unwrap()["usage"]["completion_tokens"].as_u64().is_some_and(|n| n > 0));
    // Open WebUI requests titles and tags without a stream.
    let title = json!({"model": "tiny", "messages": [{"role": "user", "content": "### Task: write a title"}], "stream": false, "max_completion_tokens": 8});
    assert!(post(&server, "/v1/chat/completions", title).json()["choices"][0]["message"]["content"].is_string());
    let tools = json!([{"type": "function", "function": {"name": "search", "description": "Searches", "parameters": {"type": "object", "properties": {}}}}]);
    let native = json!({"model": "tiny", "messages": messages, "stream": true, "tools": tools, "max_tokens": 4});
    post(&server, "/v1/chat/completions", native).events();
    let vectors = post(&server, "/v1/embeddings", json!({"model": "tiny", "input": ["a", "b"], "user": "6f1c"})).json();
    assert_eq!(vectors["data"].as_array().unwrap().len(), 2);
}

#[test]
fn requests_to_ollamas_api_are_answered() {
    let server = Server::start();
    for path in ["/api/version", "/api/tags", "/api/ps"] {
        server.send("GET", path, &HEADERS, &[]).ok();
    }
    post(&server, "/api/show", json!({"model": "tiny:latest", "name": "tiny:latest"}));
    let messages = json!([{"role": "user", "content": "light", "images": []}]);
    let options = json!({"num_ctx": 2048, "num_predict": 8, "temperature": 0.5, "mirostat": 0, "repeat_last_n": 64, "tfs_z": 1.0, "seed": 1, "stop": ["###"]});
    let chat = json!({"model": "tiny:latest", "messages": messages, "options": options, "stream": true, "keep_alive": "5m", "think": false, "format": null});
    let lines = post(&server, "/api/chat", chat).text;
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert!(last["done"] == true && last["eval_count"].as_u64().is_some_and(|n| n > 0), "{last}");
    // Open WebUI has a button that unloads a model, and computes vectors of documents.
    assert_eq!(post(&server, "/api/generate", json!({"model": "tiny:latest", "keep_alive": 0, "prompt": ""})).json()["done"], true);
    let vectors = post(&server, "/api/embed", json!({"model": "tiny", "input": ["a", "b"], "truncate": true})).json();
    assert_eq!(vectors["embeddings"].as_array().unwrap().len(), 2);
}
