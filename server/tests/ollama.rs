//! Ollama's API.

use super::{Answer, Server, keys};
use serde_json::{Value, json};
use wingbeat_server::ServeOptions;

/// Returns a body with settings that make answers short and repeatable.
fn body(more: Value) -> Value {
    let mut body = json!({"model": "tiny:latest", "options": {"seed": 3, "num_predict": 12, "num_ctx": 2048}});
    more.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
    body
}

/// Returns the objects of a streamed answer.
fn objects(answer: &Answer) -> Vec<Value> {
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/x-ndjson"), "{}", answer.text);
    answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn joined(objects: &[Value], pointer: &str) -> String {
    objects.iter().filter_map(|object| object.pointer(pointer)?.as_str()).collect()
}

#[test]
fn texts_equal_those_of_openai() {
    let server = Server::start();
    let messages = json!([{"role": "system", "content": "Be short."}, {"role": "user", "content": "light"}]);
    let openai = server.post("/v1/chat/completions", &json!({"messages": messages, "seed": 3, "max_tokens": 12})).ok();
    let want = openai["choices"][0]["message"]["content"].as_str().unwrap();
    let chat = server.post("/api/chat", &body(json!({"messages": messages, "stream": false}))).ok();
    assert_eq!((&chat["message"]["content"], &chat["message"]["role"], &chat["done"]), (&json!(want), &json!("assistant"), &json!(true)));
    assert_eq!((&chat["done_reason"], &chat["eval_count"], &chat["model"]), (&json!("length"), &json!(12), &json!("tiny:latest")));
    assert_eq!(chat["prompt_eval_count"], openai["usage"]["prompt_tokens"]);
    assert!(chat["total_duration"].as_u64() > Some(0) && chat["eval_duration"].as_u64() > Some(0), "{chat}");
    // Streaming is the default.
    let stream = objects(&server.post("/api/chat", &body(json!({"messages": messages}))));
    assert_eq!(joined(&stream, "/message/content"), want);
    let (last, rest) = stream.split_last().unwrap();
    assert!(rest.iter().all(|object| object["done"] == false && object["eval_count"].is_null()), "{stream:?}");
    assert_eq!((&last["done"], &last["done_reason"], &last["eval_count"]), (&json!(true), &json!("length"), &json!(12)));
    let prompted = server.post("/api/generate", &body(json!({"prompt": "light", "system": "Be short.", "stream": false}))).ok();
    assert_eq!(prompted["response"], want);
    let stream = objects(&server.post("/api/generate", &body(json!({"prompt": "light", "system": "Be short."}))));
    assert_eq!(joined(&stream, "/response"), want);
    let continued = server.post("/v1/completions", &json!({"prompt": "In the beginning", "seed": 3, "max_tokens": 12})).ok();
    let raw = server.post("/api/generate", &body(json!({"prompt": "In the beginning", "raw": true, "stream": false}))).ok();
    assert_eq!(raw["response"], continued["choices"][0]["text"]);
}

#[test]
fn thoughts_are_separate() {
    let server = Server::start();
    let options = json!({"seed": 3, "num_predict": 9, "format": "g1"});
    let ask = |think: Value| body(json!({"messages": [{"role": "user", "content": "a"}], "options": options, "think": think}));
    let stream = objects(&server.post("/api/chat", &ask(json!(true))));
    let whole = server.post("/api/chat", &{
        let mut whole = ask(json!("medium"));
        whole["stream"] = false.into();
        whole
    });
    let whole = whole.ok();
    assert_eq!(joined(&stream, "/message/thinking"), whole["message"]["thinking"].as_str().unwrap());
    let without = objects(&server.post("/api/chat", &ask(json!(false))));
    assert!(joined(&without, "/message/thinking").is_empty() && !joined(&without, "/message/content").is_empty());
    // A model without thoughts refuses `true` and accepts `false`.
    let plain = |think: bool| server.post("/api/chat", &body(json!({"messages": [{"role": "user", "content": "a"}], "think": think})));
    assert_eq!(plain(false).status, 200);
    assert!(plain(true).json()["error"].as_str().unwrap().starts_with("think: "), "{}", plain(true).text);
}

#[test]
fn tools_are_called_and_answered() {
    let server = Server::start();
    let parameters =
        json!({"type": "object", "properties": {"city": {"enum": ["Rome", "Ur"]}}, "required": ["city"], "additionalProperties": false});
    let tools =
        json!([{"type": "function", "function": {"name": "weather", "description": "Returns the weather", "parameters": parameters}}]);
    let more = json!({"messages": [{"role": "user", "content": "a"}], "tools": tools,
                      "options": {"seed": 3, "num_predict": 60, "format": "g1", "tool_choice": "required"}});
    let mut whole = body(more.clone());
    whole["stream"] = false.into();
    let answer = server.post("/api/chat", &whole).ok();
    let call = &answer["message"]["tool_calls"][0]["function"];
    assert_eq!((&call["name"], &answer["done_reason"]), (&json!("weather"), &json!("stop")), "{answer}");
    assert!(["Rome", "Ur"].contains(&call["arguments"]["city"].as_str().unwrap()), "{answer}");
    let stream = objects(&server.post("/api/chat", &body(more)));
    let streamed: Vec<&Value> = stream.iter().filter_map(|object| object.pointer("/message/tool_calls")).collect();
    assert_eq!(streamed, [&answer["message"]["tool_calls"]]);
    let history = json!([{"role": "user", "content": "a"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Rome"}}}]},
        {"role": "tool", "tool_name": "weather", "content": "21 degrees"}]);
    let options = json!({"seed": 3, "num_predict": 12, "format": "g1"});
    let after = server.post("/api/chat", &body(json!({"messages": history, "tools": tools, "options": options, "stream": false}))).ok();
    let history = json!([history[0], {"role": "assistant", "tool_calls": [{"function": {"name": "weather", "arguments": "{\"city\":\"Rome\"}"}}]},
        {"role": "tool", "content": "21 degrees"}]);
    let openai = json!({"messages": history, "tools": tools, "format": "g1", "seed": 3, "max_tokens": 12});
    let openai = server.post("/v1/chat/completions", &openai).ok();
    assert_eq!(after["message"]["content"], openai["choices"][0]["message"]["content"]);
}

#[test]
fn an_answer_follows_its_format() {
    let server = Server::start();
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false});
    let options = json!({"seed": 3, "num_predict": 40});
    for format in [schema, json!("json")] {
        let ask = body(json!({"prompt": "a", "format": format, "options": options, "stream": false}));
        let answer = server.post("/api/generate", &ask).ok();
        let found: Value = serde_json::from_str(answer["response"].as_str().unwrap()).unwrap_or_else(|e| panic!("{e}: {answer}"));
        assert!(found.is_object() && (format == "json" || found["ok"].is_boolean()), "{answer}");
    }
}

#[test]
fn models_are_described() {
    let server = Server::start();
    let tags = server.get("/api/tags").ok();
    assert_eq!((&tags["models"][0]["name"], &tags["models"][0]["details"]["family"]), (&json!("tiny:latest"), &json!("rwkv7")));
    assert_eq!(server.get("/api/ps").ok()["models"][0]["name"], "tiny:latest");
    let shown = server.post("/api/show", &json!({"model": "tiny"})).ok();
    assert_eq!(shown["model_info"]["general.architecture"], "rwkv7");
    let has = |name: &str| shown["capabilities"].as_array().unwrap().contains(&json!(name));
    // Tools work with every format; the format `tiny` has no thoughts.
    assert!(has("completion") && has("tools") && !has("thinking"), "{shown}");
    assert!(server.get("/api/version").ok()["version"].is_string());
    // Ollama's clients request `/` without asking for HTML, as browsers do.
    let root = server.get("/");
    assert_eq!((root.status, root.text.as_str()), (200, "Ollama is running"));
    assert_eq!(server.send("HEAD", "/", &[], &[]).status, 200);
    let loaded = server.post("/api/generate", &json!({"model": "tiny"})).ok();
    assert_eq!((&loaded["done"], &loaded["done_reason"]), (&json!(true), &json!("load")));
}

#[test]
fn vectors_equal_those_of_openai() {
    let server = Server::with_vectors();
    let openai = server.post("/v1/embeddings", &json!({"input": ["light", "dark"]})).ok();
    let found = server.post("/api/embed", &json!({"model": "vectors:latest", "input": ["light", "dark"]})).ok();
    assert_eq!(found["embeddings"], json!([openai["data"][0]["embedding"], openai["data"][1]["embedding"]]));
    assert_eq!(found["prompt_eval_count"], openai["usage"]["prompt_tokens"]);
    let one = server.post("/api/embeddings", &json!({"model": "vectors", "prompt": "light"})).ok();
    assert_eq!(one["embedding"], openai["data"][0]["embedding"]);
}

#[test]
fn errors_have_the_form_of_ollama() {
    let server = Server::start();
    let user = json!([{"role": "user", "content": "a"}]);
    for (path, more, want) in [
        ("/api/chat", json!({"messages": user, "options": {"top_p": 2}}), "options.top_p: expected a number from 0 to 1, found 2"),
        ("/api/chat", json!({"messages": user, "options": {"num_predict": "x"}}), "options.num_predict: expected a whole number"),
        ("/api/chat", json!({"messages": user, "format": "xml"}), "format: expected \"json\""),
        ("/api/chat", json!({"messages": user, "format": {"type": "what"}}), "format"),
        ("/api/chat", json!({"messages": user, "think": 7}), "think: expected true, false"),
        (
            "/api/chat",
            json!({"messages": [{"role": "user", "content": "a", "images": ["aGk="]}]}),
            "messages[0].images: images are not supported",
        ),
        ("/api/chat", json!({"messages": [{"role": "friend", "content": "a"}]}), "messages[0].role: "),
        ("/api/generate", json!({"prompt": "a", "images": ["aGk="]}), "images: images are not supported"),
        ("/api/generate", json!({"prompt": "a", "template": "{{ .Prompt }}"}), "template: templates are not supported"),
        ("/api/generate", json!({"prompt": "a", "context": [1, 2]}), "context: "),
        ("/api/embed", json!({"input": []}), "input: expected 1 to "),
    ] {
        let answer = server.post(path, &body(more.clone()));
        assert_eq!((answer.status, answer.json().as_object().unwrap().len()), (400, 1), "{more}: {}", answer.text);
        assert!(answer.json()["error"].as_str().unwrap().starts_with(want), "{more}: {}", answer.text);
    }
    for path in ["pull", "push", "create", "copy"] {
        let answer = server.post(&format!("/api/{path}"), &json!({"model": "tiny"}));
        assert!(answer.status == 403 && answer.json()["error"].as_str().unwrap().starts_with(path), "{}", answer.text);
    }
    assert_eq!(server.send("DELETE", "/api/delete", &[], b"{\"model\":\"tiny\"}").status, 403);
    assert!(server.get("/api/nothing").json()["error"].as_str().unwrap().contains("unknown path"));
}

#[test]
fn a_key_is_required() {
    let server = Server::with(ServeOptions { keys: keys(), ..ServeOptions::default() });
    for path in ["/api/tags", "/api/ps", "/api/version"] {
        let refused = server.get(path);
        assert!(refused.status == 401 && refused.json()["error"].is_string(), "{path}: {}", refused.text);
        server.as_caller("key-of-ada").get(path).ok();
    }
    assert_eq!(server.post("/api/pull", &json!({})).status, 401);
    let foreign = server.send("GET", "/api/tags", &[("host", "evil.example")], &[]);
    assert!(foreign.status == 403 && foreign.json()["error"].is_string(), "{}", foreign.text);
    let without = |text: &str| server.sent("POST", "/api/chat", &[("authorization", text)], b"{}").status;
    assert_eq!((without("Bearer key-of-eve"), without("Bearer key-of-bob")), (401, 200));
}

#[test]
fn log_probabilities_are_those_of_openai() {
    let server = Server::start();
    let messages = json!([{"role": "user", "content": "light"}]);
    let of_openai = json!({"messages": messages, "max_tokens": 6, "temperature": 0, "logprobs": true, "top_logprobs": 2});
    let expected = server.post("/v1/chat/completions", &of_openai).ok()["choices"][0]["logprobs"]["content"].clone();
    let ask = |stream: bool| {
        let options = json!({"num_predict": 6, "temperature": 0});
        server.post("/api/chat", &json!({"messages": messages, "stream": stream, "logprobs": true, "top_logprobs": 2, "options": options}))
    };
    assert_eq!(ask(false).ok()["logprobs"], expected);
    let lines = ask(true).text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>();
    let all: Vec<Value> = lines.iter().filter_map(|line| line["logprobs"].as_array()).flatten().cloned().collect();
    assert_eq!(json!(all), expected);
}
