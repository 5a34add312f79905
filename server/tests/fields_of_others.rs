//! Sends every field of other programs' requests, as their public documentation lists them, and finds each one done, harmless or refused by name.

use super::Server;
use serde_json::{Map, Value, json};

/// Sends `body` with one field of `fields` at a time. An answer must have the status 200 without a warning about an unknown field, or 400 and the
/// field's name. Returns a line for each other answer.
fn send_each(server: &Server, path: &str, body: &Value, fields: &Value, prefix: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, value) in fields.as_object().unwrap() {
        let mut body = body.clone();
        match prefix {
            "" => body[name] = value.clone(),
            object => body[object][name] = value.clone(),
        }
        let answer = server.post(path, &body);
        let is_right = match answer.status {
            200 => !answer.text.contains("unknown field"),
            400 => names(&answer.json(), name),
            _ => false,
        };
        if !is_right {
            wrong.push(format!("{path} {prefix} {name}: {value}: {} {}", answer.status, answer.text));
        }
    }
    wrong
}

/// Returns whether an error names the field. `error` can have the form of any API.
fn names(error: &Value, field: &str) -> bool {
    let said = [&error["error"]["param"], &error["error"]["message"], &error["error"]];
    said.iter().filter_map(|text| text.as_str()).any(|text| text.contains(field))
}

fn all(parts: &[&Value]) -> Value {
    let fields = parts.iter().flat_map(|part| part.as_object().unwrap().clone());
    Value::Object(fields.collect::<Map<_, _>>())
}

/// The fields of a program, each with a value that asks for something: `vllm`, `llama` (llama-server), `silly_tavern` (its text completions), `chat` (OpenAI's
/// chat completions, and Open WebUI's parameters), `completions`, `responses`, `messages` (Anthropic), `ollama` and its `options`.
fn fields_of(program: &str) -> Value {
    let all: Value = serde_json::from_str(include_str!("fields_of_others.json")).unwrap();
    assert!(all[program].is_object(), "{program}");
    all[program].clone()
}

#[test]
fn every_field_of_other_programs_is_done_harmless_or_refused() {
    let server = Server::start();
    let [vllm, llama, silly, chat, completions] = ["vllm", "llama", "silly_tavern", "chat", "completions"].map(fields_of);
    let messages = json!([{"role": "user", "content": "a"}]);
    let mut wrong = Vec::new();
    let of_chat = json!({"messages": messages, "max_completion_tokens": 2});
    wrong.extend(send_each(&server, "/v1/chat/completions", &of_chat, &all(&[&vllm, &llama, &silly, &chat]), ""));
    wrong.extend(send_each(&server, "/v1/completions", &json!({"prompt": "a"}), &all(&[&vllm, &llama, &silly, &completions]), ""));
    wrong.extend(send_each(&server, "/completion", &json!({"prompt": "a", "n_predict": 2}), &all(&[&llama, &silly]), ""));
    wrong.extend(send_each(&server, "/v1/responses", &json!({"input": "a", "max_tokens": 2}), &fields_of("responses"), ""));
    wrong.extend(send_each(&server, "/v1/messages", &json!({"messages": messages, "max_tokens": 2}), &fields_of("messages"), ""));
    for (path, base) in [
        ("/api/generate", json!({"prompt": "a", "stream": false, "options": {"num_predict": 2}})),
        ("/api/chat", json!({"messages": [{"role": "user", "content": "a"}], "stream": false, "options": {"num_predict": 2}})),
    ] {
        wrong.extend(send_each(&server, path, &base, &fields_of("ollama"), ""));
        wrong.extend(send_each(&server, path, &base, &fields_of("options"), "options"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn fields_without_an_effect_are_warnings_in_every_dialect() {
    let server = Server::start();
    let messages = json!([{"role": "user", "content": "a"}]);
    let warned = |path: &str, body: Value| server.post(path, &body).ok()["warnings"].clone();
    for (path, body) in [
        ("/v1/chat/completions", json!({"messages": messages, "max_tokens": 2, "temprature": 1})),
        ("/v1/completions", json!({"prompt": "a", "max_tokens": 2, "temprature": 1})),
        ("/v1/responses", json!({"input": "a", "max_tokens": 2, "temprature": 1})),
        ("/v1/messages", json!({"messages": messages, "max_tokens": 2, "temprature": 1})),
        ("/completion", json!({"prompt": "a", "n_predict": 2, "temprature": 1})),
        ("/api/chat", json!({"messages": messages, "stream": false, "options": {"num_predict": 2}, "temprature": 1})),
    ] {
        assert_eq!(warned(path, body), json!(["temprature: unknown field; ignored"]), "{path}");
    }
    let of_options = warned("/api/generate", json!({"prompt": "a", "stream": false, "options": {"num_predict": 2, "num_ctx": 4096}}));
    assert!(of_options[0].as_str().unwrap().starts_with("options.num_ctx: the operator chooses the context"), "{of_options}");
    let stream = server.post("/v1/chat/completions", &json!({"messages": messages, "max_tokens": 3, "stream": true, "num_ctx": 5}));
    let with: Vec<bool> = stream.events().iter().map(|chunk| chunk.get("warnings").is_some()).collect();
    assert!(with[0] && !with[1..].contains(&true), "only the first chunk has warnings: {with:?}");
    let lines = server.post("/api/generate", &json!({"prompt": "a", "options": {"num_predict": 2, "num_ctx": 4096}}));
    let last: Value = serde_json::from_str(lines.text.lines().last().unwrap()).unwrap();
    assert_eq!(last["warnings"].as_array().map(Vec::len), Some(1), "{last}");
}

#[test]
fn texts_are_narrowed_as_asked() {
    let server = Server::start();
    let ask = |more: Value| {
        let body = all(&[&json!({"prompt": "In the beginning God", "max_tokens": 24, "seed": 1, "temperature": 0}), &more]);
        server.post("/v1/completions", &body)
    };
    let text = |more: Value| ask(more).ok()["choices"][0]["text"].as_str().unwrap().to_owned();
    let plain = text(json!({}));
    let word = plain.split_whitespace().find(|word| word.len() > 2).unwrap().to_owned();
    let other = text(json!({"bad_words": [word]}));
    assert!(!other.contains(&word) && !other.is_empty(), "{word}: {other}");
    // A part of a word can be banned, too, even if it is not a token.
    let part = &word[1..3];
    assert!(!text(json!({"bad_words": [part]})).contains(part));
    let ids = server.post("/tokenize", &json!({"content": " the"})).ok()["tokens"].clone();
    let only = text(json!({"allowed_token_ids": ids, "max_tokens": 3}));
    assert_eq!(only, " the the the");
    let first = plain.chars().next().unwrap().to_string();
    let stopped = text(json!({"stop": [first]}));
    let late = text(json!({"stop": [first], "min_tokens": 4}));
    assert!(stopped.is_empty() && plain.starts_with(&late) && late.len() > 1, "{late:?}");
    let answer = ask(json!({"min_tokens": 2})).ok();
    assert!(answer["choices"][0].get("complete").is_none(), "a text without rules is neither complete nor cut: {answer}");
    let both = text(json!({"choice": ["north", "south"], "bad_words": ["n"], "max_tokens": 40}));
    assert_eq!(both, "south");
    for (more, field) in [
        (json!({"bad_words": [""]}), "bad_words"),
        (json!({"allowed_token_ids": [99999999]}), "allowed_token_ids"),
        (json!({"min_tokens": 30}), "min_tokens"),
    ] {
        let refused = ask(more);
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(field)), "{}", refused.text);
    }
}
