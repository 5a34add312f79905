//! `/v1/completions`, tokens, and the server's descriptions of itself.

use super::Server;
use serde_json::{Value, json};
use wingbeat::engine::EngineOptions;
use wingbeat::{Speculate, Speculation};
use wingbeat_server::ServeOptions;

#[test]
fn texts_continue_prompts() {
    let server = Server::start();
    let body = json!({"prompt": ["In the beginning", "And God"], "max_tokens": 4, "temperature": 0, "echo": true, "logprobs": 2});
    let whole = server.post("/v1/completions", &body).ok();
    let choices = whole["choices"].as_array().unwrap();
    assert_eq!(choices.iter().map(|choice| choice["index"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1]);
    for (choice, prompt) in choices.iter().zip(["In the beginning", "And God"]) {
        let text = choice["text"].as_str().unwrap();
        let logprobs = &choice["logprobs"];
        let tokens: String = logprobs["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect();
        assert!(text.starts_with(prompt) && text == tokens, "{text} {tokens}");
        let values = logprobs["token_logprobs"].as_array().unwrap();
        assert!(values[0].is_null() && values[1..].iter().all(|value| value.as_f64().unwrap() <= 0.0));
        assert_eq!(
            (values.len(), logprobs["top_logprobs"][1].as_object().unwrap().len()),
            (logprobs["text_offset"].as_array().unwrap().len(), 2)
        );
    }
    // An empty prompt after a state has no log-probabilities, so only the three generated tokens have entries.
    server.post("/v1/states", &json!({"action": "save", "name": "s", "prompt": "In the beginning"})).ok();
    for stream in [false, true] {
        let body = json!({"prompt": "", "state": "s", "max_tokens": 3, "echo": true, "logprobs": 0, "stream": stream});
        let answer = server.post("/v1/completions", &body);
        let events = if stream { answer.events() } else { vec![answer.ok()] };
        let n: usize = events.iter().filter_map(|event| Some(event["choices"][0]["logprobs"]["tokens"].as_array()?.len())).sum();
        assert_eq!(n, 3, "{events:?}");
    }
    // A prompt of tokens and a prompt of their text have the same continuation, streamed or not.
    let tokens = server.post("/tokenize", &json!({"content": "In the beginning"})).ok()["tokens"].clone();
    let stream = json!({"prompt": tokens, "max_tokens": 4, "temperature": 0, "echo": true, "logprobs": 2, "stream": true});
    let events = server.post("/v1/completions", &stream).events();
    let text: String = events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
    assert_eq!(text, choices[0]["text"].as_str().unwrap());
    let streamed: Vec<_> =
        events.iter().filter_map(|event| event["choices"][0]["logprobs"]["token_logprobs"].as_array()).flatten().collect();
    assert_eq!(streamed, choices[0]["logprobs"]["token_logprobs"].as_array().unwrap().iter().collect::<Vec<_>>());
    assert_eq!(server.post("/v1/completions", &json!({"prompt": [[1, 2], [3, 70000]]})).json()["error"]["param"], "prompt[1][1]");
    assert_eq!(server.post("/v1/completions", &json!({"prompt": []})).json()["error"]["param"], "prompt");
}

#[test]
fn tokens_and_templates() {
    let server = Server::start();
    let tokens = server.post("/tokenize", &json!({"content": "In the beginning", "with_pieces": true})).ok()["tokens"].clone();
    let pieces: String = tokens.as_array().unwrap().iter().map(|token| token["piece"].as_str().unwrap()).collect();
    assert_eq!(pieces, "In the beginning");
    // A long response is written in parts.
    for n in [0, 1, 4095, 4096, 4097, 9000] {
        let text = "\u{1f600}".repeat(n);
        let tokenized = |with_pieces: bool| {
            let body = json!({"content": text, "with_pieces": with_pieces, "add_special": false});
            server.post("/tokenize", &body).ok()["tokens"].as_array().unwrap().clone()
        };
        let (ids, pieces) = (tokenized(false), tokenized(true));
        assert!(ids.len() >= n && pieces.iter().map(|piece| &piece["id"]).eq(&ids), "{n}");
    }
    let ids: Vec<_> = tokens.as_array().unwrap().iter().map(|token| token["id"].clone()).collect();
    assert_eq!(server.post("/detokenize", &json!({"tokens": ids})).ok()["content"], "In the beginning");
    let messages = json!({"messages": [{"role": "user", "content": "light"}]});
    assert_eq!(server.post("/apply-template", &messages).ok()["prompt"], "User: light\n\nAssistant:");
    let n = server.post("/v1/tokens/count", &messages).ok()["tokens"].as_u64().unwrap();
    let used = server.post("/v1/chat/completions", &json!({"messages": messages["messages"], "max_tokens": 1})).ok();
    assert_eq!(used["usage"]["prompt_tokens"], n);
    assert_eq!(server.post("/tokenize", &json!({})).status, 400);
    assert_eq!(server.post("/detokenize", &json!({"tokens": [1, 99999]})).json()["error"]["param"], "tokens[1]");
}

#[test]
fn requests_choose_how_to_guess() {
    let plain = Server::start();
    let guessing = Server::with_engine(
        ServeOptions::default(),
        EngineOptions::new().slots(2).speculation(Speculation { by: Speculate::Ngram, n_guesses: Some(4) }),
    );
    let prompt = "And God said, Let there be light: and there was light. And God said, Let there be";
    let body = |more: Value| {
        let mut body = json!({"prompt": prompt, "max_tokens": 40, "seed": 5, "temperature": 0});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let known = plain.post("/v1/completions", &body(json!({}))).ok();
    assert!(known["timings"]["drafted"].is_null());
    for more in [json!({}), json!({"speculate": "auto", "draft_tokens": 3}), json!({"speculate": "off"})] {
        let is_off = more["speculate"] == "off";
        let found = guessing.post("/v1/completions", &body(more)).ok();
        assert_eq!(found["choices"][0]["text"], known["choices"][0]["text"]);
        let [drafted, accepted] = ["drafted", "accepted"].map(|name| found["timings"][name].as_u64());
        assert!(if is_off { drafted.is_none() } else { drafted > Some(0) && accepted <= drafted }, "{found}");
    }
    let completion = guessing.post("/completion", &body(json!({"n_predict": 40}))).ok();
    assert!(completion["timings"]["draft_n"].as_u64() > Some(0), "{completion}");
    let metrics = guessing.get("/metrics").text;
    assert!(
        metrics.contains("wingbeat_drafted_tokens_total{model=\"tiny\"} ") && metrics.contains("wingbeat_accepted_tokens_total"),
        "{metrics}"
    );
    for (more, field) in [
        (json!({"speculate": "magic"}), "speculate"),
        (json!({"speculate": "draft"}), "speculate"),
        (json!({"draft": "other"}), "draft"),
        (json!({"draft_tokens": 0}), "draft_tokens"),
    ] {
        let refused = guessing.post("/v1/completions", &body(more));
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(field)));
    }
    let refused = plain.post("/v1/completions", &body(json!({"speculate": "ngram"})));
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("speculate")));
}

#[test]
fn the_server_describes_itself() {
    let server = Server::start();
    let models = server.get("/v1/models").ok();
    assert_eq!((&models["data"][0]["id"], &models["data"][0]["status"]), (&json!("tiny"), &json!("ready")));
    assert_eq!((server.get("/v1/models/tiny").ok()["architecture"].clone(), server.get("/v1/models/x").status), (json!("rwkv7"), 404));
    server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 3})).ok();
    let metrics = server.get("/metrics").text;
    assert!(metrics.contains("wingbeat_generated_tokens_total{model=\"tiny\"} 3") && metrics.ends_with("# EOF\n"), "{metrics}");
    assert_eq!(server.get("/v1/health").ok(), server.get("/health").ok());
    let slots = server.get("/slots").ok();
    assert_eq!((&slots[0]["free_slots"], &slots[0]["requests"]), (&json!(4), &json!([])));
    let api = server.get("/openapi.json").ok();
    assert!(
        api["paths"]["/v1/chat/completions"]["post"].is_object()
            && api["components"]["schemas"]["ChatBody"]["properties"]["top_k"].is_object()
    );
    let page = server.send("GET", "/", &[("accept", "text/html,*/*")], &[]);
    assert!(page.header("content-type").starts_with("text/html") && page.header("content-security-policy").contains("default-src 'none'"));
    let library = server.get("/page/lib/markdown.js");
    assert!(library.status == 200 && library.header("content-type").starts_with("text/javascript"));
    assert!(page.header("content-security-policy").contains("font-src 'self'"));
    assert_eq!(server.get("/page/lib/maths.woff2").header("content-type"), "font/woff2");
    let known = [("if-none-match", library.header("etag"))];
    assert_eq!(server.send("GET", "/page/lib/markdown.js", &known, &[]).status, 304);
    assert_eq!((server.get("/page/none.js").status, server.get("/nothing").status, server.get("/v1/completions").status), (404, 404, 405));
}
