//! Compares responses with the server's description of itself, `/openapi.json`. `Server::send` compares every response of every test.

use super::{Answer, Server};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use wingbeat_server::{ServeOptions, ServedModel, ServedTask};

/// Returns the path in the description that a request's path matches, and its operation. `None` if the description has no such operation.
fn operation<'a>(api: &'a Value, method: &str, path: &str) -> Option<(&'a str, &'a Value)> {
    let parts: Vec<&str> = path.split('?').next().unwrap().split('/').collect();
    let matches = |known: &str| {
        let known: Vec<&str> = known.split('/').collect();
        known.len() == parts.len() && known.iter().zip(&parts).all(|(known, part)| known.starts_with('{') || known == part)
    };
    let (path, operations) = api["paths"].as_object().unwrap().iter().find(|(known, _)| matches(known))?;
    Some((path, operations.get(method.to_ascii_lowercase())?))
}

fn media_type(answer: &Answer) -> &str {
    answer.header("content-type").split(';').next().unwrap()
}

/// Compares a response with the description. Does nothing if the description does not have the path and the method.
pub fn check(api: &Value, method: &str, path: &str, answer: &Answer) -> Result<(), String> {
    let Some((_, operation)) = operation(api, method, path) else { return Ok(()) };
    let kind = media_type(answer);
    let content = &operation["responses"][answer.status.to_string()]["content"][kind];
    if content.is_null() {
        return Err(format!("status {} with {kind} is not described", answer.status));
    }
    let parsed = |text: &str| serde_json::from_str::<Value>(text).map_err(|e| e.to_string());
    match kind {
        "application/json" => fits(api, &content["schema"], &parsed(&answer.text)?),
        "text/event-stream" => {
            let lines = answer.text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|line| *line != "[DONE]");
            lines.map(parsed).try_for_each(|event| fits(api, &content["schema"], &event?))
        }
        "application/x-ndjson" => answer.text.lines().map(parsed).try_for_each(|line| fits(api, &content["schema"], &line?)),
        _ => Ok(()),
    }
}

/// Compares a value with a schema. Unlike JSON Schema, this function refuses properties that the schema does not describe.
fn fits(api: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let described = described(api, schema, value)?;
    match value.as_object().into_iter().flat_map(Map::keys).find(|name| !described.contains(*name)) {
        Some(name) => Err(format!("the property {name} is not described: {value}")),
        None => Ok(()),
    }
}

/// Compares a value with a schema. Returns the properties of the value that the schema describes.
fn described(api: &Value, schema: &Value, value: &Value) -> Result<BTreeSet<String>, String> {
    let refused = |why: String| Err(format!("{why}: {value}"));
    let mut names = BTreeSet::new();
    for (keyword, of) in schema.as_object().unwrap() {
        let options = || of.as_array().unwrap().iter().map(|option| described(api, option, value));
        match keyword.as_str() {
            "$ref" => {
                let name = of.as_str().unwrap().strip_prefix("#/components/schemas/").unwrap();
                let target = &api["components"]["schemas"][name];
                assert!(target.is_object(), "{name} is not in the description");
                names.extend(described(api, target, value).map_err(|e| format!("{name}: {e}"))?);
            }
            "allOf" => names.extend(options().collect::<Result<Vec<_>, _>>()?.into_iter().flatten()),
            "oneOf" | "anyOf" => {
                let (found, errors): (Vec<_>, Vec<_>) = options().partition(Result::is_ok);
                match found.len() {
                    0 => return refused(format!("no schema matches, {errors:?}")),
                    1 => names.extend(found.into_iter().flatten().flatten()),
                    n => return refused(format!("{n} schemas match")),
                }
            }
            "type" => {
                let is = |kind: &Value| match kind.as_str().unwrap() {
                    "null" => value.is_null(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_i64() || value.is_u64(),
                    "number" => value.is_number(),
                    "string" => value.is_string(),
                    "array" => value.is_array(),
                    "object" => value.is_object(),
                    kind => panic!("unknown type {kind}"),
                };
                if !of.as_array().map_or_else(|| is(of), |kinds| kinds.iter().any(is)) {
                    return refused(format!("expected {of}"));
                }
                // An object whose schema lists no properties may have any.
                if schema["properties"].is_null() && schema["additionalProperties"].is_null() {
                    names.extend(value.as_object().into_iter().flat_map(Map::keys).cloned());
                }
            }
            "properties" => {
                for (name, schema) in of.as_object().unwrap() {
                    if let Some(value) = value.get(name) {
                        fits(api, schema, value).map_err(|e| format!("{name}: {e}"))?;
                        names.insert(name.clone());
                    }
                }
            }
            "additionalProperties" => {
                for (name, value) in value.as_object().into_iter().flatten().filter(|(name, _)| schema["properties"][name].is_null()) {
                    fits(api, of, value).map_err(|e| format!("{name}: {e}"))?;
                    names.insert(name.clone());
                }
            }
            "required" => {
                let missing = of.as_array().unwrap().iter().find(|name| value.get(name.as_str().unwrap()).is_none());
                if let Some(name) = missing.filter(|_| value.is_object()) {
                    return refused(format!("{name} is missing"));
                }
            }
            "items" => value.as_array().into_iter().flatten().try_for_each(|value| fits(api, of, value))?,
            "enum" if !of.as_array().unwrap().contains(value) => return refused(format!("expected one of {of}")),
            "minimum" if value.as_f64().is_some_and(|x| x < of.as_f64().unwrap()) => return refused(format!("expected at least {of}")),
            "enum" | "minimum" | "format" | "description" | "propertyNames" => {}
            keyword => panic!("this test does not know the keyword {keyword}"),
        }
    }
    // A schema without conditions allows any value.
    if schema.as_object().unwrap().keys().all(|keyword| keyword == "description") {
        names.extend(value.as_object().into_iter().flat_map(Map::keys).cloned());
    }
    Ok(names)
}

/// Returns the method, the path and the media type of every successful response in the description.
fn all(api: &Value) -> BTreeSet<(String, String, String)> {
    let mut all = BTreeSet::new();
    for (path, operations) in api["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let success = ["200", "201"].iter().find_map(|status| operation["responses"][status]["content"].as_object());
            all.extend(success.unwrap().keys().map(|kind| (method.clone(), path.clone(), kind.clone())));
        }
    }
    all
}

#[test]
fn every_endpoint_answers_as_described() {
    let server = Server::start();
    let api = server.get("/openapi.json").ok();
    let mut seen = BTreeSet::new();
    let mut send = |server: &Server, method: &str, path: &str, body: &[u8]| {
        let answer = server.send(method, path, &[], body);
        assert!([200, 201].contains(&answer.status), "{method} {path}: {}", answer.text);
        let (path, _) = operation(&api, method, path).unwrap_or_else(|| panic!("{method} {path} is not described"));
        seen.insert((method.to_ascii_lowercase(), path.to_owned(), media_type(&answer).to_owned()));
        answer
    };
    for path in [
        "/v1/models",
        "/v1/models/tiny",
        "/props",
        "/tokenizer_info",
        "/health",
        "/slots",
        "/metrics",
        "/api/tags",
        "/api/ps",
        "/api/version",
    ] {
        send(&server, "GET", path, &[]);
    }
    let parameters = json!({"type": "object", "properties": {"x": {"enum": [1]}}, "required": ["x"], "additionalProperties": false});
    let tool = json!({"name": "f", "parameters": parameters});
    let mut kept = Value::Null;
    for stream in [false, true] {
        for (path, body) in [
            ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": "a"}], "n": 2, "logprobs": true, "top_logprobs": 2})),
            ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": "a"}], "format": "g1", "thinking": "on"})),
            ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": "a"}], "session_id": "s"})),
            (
                "/v1/chat/completions",
                json!({"messages": [{"role": "user", "content": "a"}], "format": "g1", "tool_choice": "required", "max_tokens": 60,
                       "tools": [{"type": "function", "function": tool}], "stream_options": {"include_usage": true}}),
            ),
            ("/v1/completions", json!({"prompt": ["a", "b"], "logprobs": 2, "echo": true, "stream_options": {"include_usage": true}})),
            (
                "/api/chat",
                json!({"messages": [{"role": "user", "content": "a"}], "think": true, "options": {"format": "g1", "num_predict": 6}}),
            ),
            ("/api/generate", json!({"prompt": "a", "options": {"num_predict": 6}})),
            ("/completion", json!({"prompt": "a", "n_probs": 1})),
            ("/infill", json!({"input_prefix": "a", "input_suffix": "b"})),
            ("/v1/messages", json!({"messages": [{"role": "user", "content": "a"}], "format": "g1", "thinking": {"type": "enabled"}})),
            (
                "/v1/messages",
                json!({"messages": [{"role": "user", "content": "a"}], "format": "g1", "tool_choice": {"type": "any"}, "max_tokens": 60,
                       "tools": [{"name": "f", "input_schema": parameters}]}),
            ),
            ("/v1/responses", json!({"input": "a", "metadata": {"a": "b"}, "text": {"format": {"type": "json_schema", "schema": {}}}})),
            ("/v1/responses", json!({"input": "a", "format": "g1", "thinking": "on", "store": false, "reasoning": {"summary": "auto"}})),
            (
                "/v1/responses",
                json!({"input": "a", "format": "g1", "tool_choice": "required", "max_output_tokens": 60,
                       "tools": [{"type": "function", "name": "f", "parameters": parameters}]}),
            ),
        ] {
            let mut whole = json!({"stream": stream, "max_tokens": 6, "seed": 1});
            whole.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
            let answer = send(&server, "POST", path, whole.to_string().as_bytes());
            if path == "/v1/responses" && !stream {
                kept = answer.json()["id"].clone();
            }
        }
    }
    let kept = format!("/v1/responses/{}", kept.as_str().unwrap());
    send(&server, "GET", &kept, &[]);
    send(&server, "GET", &format!("{kept}/input_items"), &[]);
    let resumable = json!({"messages": [{"role": "user", "content": "a"}], "stream": true, "resumable": true, "return_progress": true, "max_tokens": 4});
    let answer = send(&server, "POST", "/v1/chat/completions", resumable.to_string().as_bytes());
    let id = format!("/v1/chat/completions/{}", answer.events()[0]["id"].as_str().unwrap());
    send(&server, "GET", &format!("{id}/events"), &[]);
    send(&server, "DELETE", &id, &[]);
    send(&server, "DELETE", &kept, &[]);
    for (path, body) in [
        ("/v1/embeddings", json!({"input": ["a", "b"]})),
        ("/v1/score", json!({"text_1": "a", "text_2": "b"})),
        ("/v1/embeddings", json!({"input": "a", "encoding_format": "base64"})),
        ("/v1/messages/count_tokens", json!({"messages": [{"role": "user", "content": "a"}]})),
        ("/api/embed", json!({"input": ["a", "b"]})),
        ("/api/embeddings", json!({"prompt": "a"})),
        ("/api/show", json!({"model": "tiny"})),
        ("/tokenize", json!({"content": "a"})),
        // The bytes of a single token of this character are not UTF-8.
        ("/tokenize", json!({"content": "\u{10348}", "with_pieces": true})),
        ("/detokenize", json!({"tokens": [100]})),
        ("/apply-template", json!({"messages": [{"role": "user", "content": "a"}]})),
        ("/v1/tokens/count", json!({"content": "a"})),
        ("/v1/states", json!({"action": "save", "name": "a", "prompt": "a"})),
        ("/v1/states", json!({"action": "fork", "name": "b", "from": "a"})),
        ("/v1/states", json!({"action": "delete", "name": "b"})),
    ] {
        send(&server, "POST", path, body.to_string().as_bytes());
    }
    for path in ["/v1/states", "/v1/states/a", "/v1/states/a/content"] {
        send(&server, "GET", path, &[]);
    }
    let state = server.download("/v1/states/a/content");
    send(&server, "PUT", "/v1/states/c/content", &state);
    send(&server, "DELETE", "/v1/states/c", &[]);
    let mut want = all(&api);
    match super::reranking() {
        Some((load, package)) => {
            let model = ServedModel { name: "emb".into(), task: ServedTask::Embedding, load };
            let server = Server::hosting(ServeOptions::default(), vec![model]);
            server.wait();
            let body = json!({"query": package["query"], "documents": package["documents"], "return_documents": true});
            let ranking = send(&server, "POST", "/v1/rerank", body.to_string().as_bytes()).json();
            for path in ["/rerank", "/v2/rerank"] {
                assert_eq!(server.post(path, &body).ok(), ranking);
            }
        }
        None => want.retain(|(_, path, _)| path != "/v1/rerank"),
    }
    assert_eq!(seen, want);
}

#[test]
fn a_response_that_differs_from_its_description_is_found() {
    let server = Server::start();
    let api = server.get("/openapi.json").ok();
    let path = "/v1/chat/completions";
    let body = |stream: bool| json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "logprobs": true, "stream": stream});
    let real = server.post(path, &body(false));
    assert_eq!(check(&api, "POST", path, &real), Ok(()));
    for (pointer, value, want) in [
        ("/choices/0/finish_reason", json!("tired"), "expected one of"),
        ("/choices/0/index", json!("0"), "expected \"integer\""),
        ("/choices/0/message/mood", json!("good"), "the property mood is not described"),
        ("/choices/0/logprobs/content/0/bytes", json!("a"), "ChatToken: bytes: expected"),
        ("/state", json!({"name": "x"}), "no schema matches"),
        ("/usage", json!({}), "is missing"),
        ("/usage/prompt_tokens", json!(-1), "expected at least 0"),
        ("/created", Value::Null, "expected \"integer\""),
        ("/more", json!(1), "the property more is not described"),
    ] {
        let mut changed = real.json();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        changed.pointer_mut(parent).unwrap()[name] = value;
        let e = check(&api, "POST", path, &Answer { text: changed.to_string(), ..real.clone() }).unwrap_err();
        assert!(e.contains(want), "{pointer}: {e}");
    }
    let e = check(&api, "POST", path, &Answer { status: 201, ..real.clone() }).unwrap_err();
    assert!(e.contains("not described"), "{e}");
    let stream = server.post(path, &body(true));
    assert_eq!(check(&api, "POST", path, &stream), Ok(()));
    let text = stream.text.replace("\"delta\"", "\"message\"");
    assert!(check(&api, "POST", path, &Answer { text, ..stream }).is_err());
}
