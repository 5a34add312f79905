//! Fields of other servers' clients: rules of vLLM, strict schemas, thoughts and tools that a model lacks, parts that are not text.

use super::Server;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

fn ask(more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "light"}], "max_tokens": 12, "seed": 1});
    more.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
    body
}

fn choice(server: &Server, more: Value) -> Value {
    server.post(CHAT, &ask(more)).ok()["choices"][0].clone()
}

#[test]
fn rules_of_vllm_determine_the_text() {
    let server = Server::start();
    for (more, is_right) in [
        (json!({"guided_choice": ["north", "south"]}), (|text| ["north", "south"].contains(&text)) as fn(&str) -> bool),
        (json!({"structured_outputs": {"choice": ["a/b", "\"c\""]}}), |text| ["a/b", "\"c\""].contains(&text)),
        (json!({"guided_regex": "^[0-9]{2}/[0-9]{2}$"}), |text| text.len() == 5 && text.as_bytes()[2] == b'/'),
        (json!({"guided_grammar": "root ::= \"yes\" | \"no\""}), |text| ["yes", "no"].contains(&text)),
        (json!({"structured_outputs": {"json": {"type": "boolean"}}}), |text| ["true", "false"].contains(&text)),
    ] {
        let choice = choice(&server, more.clone());
        let text = choice["message"]["content"].as_str().unwrap();
        assert!(is_right(text), "{more}: {text}");
        assert_eq!((&choice["finish_reason"], &choice["complete"]), (&json!("stop"), &json!(true)), "{choice}");
    }
    let wrong = server.post(CHAT, &ask(json!({"guided_regex": "a("})));
    assert!(wrong.status == 400 && wrong.json()["error"]["message"].as_str().unwrap().starts_with("regex: "), "{}", wrong.text);
}

#[test]
fn the_reason_tells_a_complete_text_from_a_cut_one() {
    let server = Server::start();
    // The limit has room for the shortest list only, so the server closes the list before the limit.
    let closed = choice(&server, json!({"json_schema": {"type": "array", "items": {"type": "string"}}, "max_tokens": 8}));
    assert_eq!((&closed["finish_reason"], &closed["complete"]), (&json!("stop"), &json!(true)), "{closed}");
    assert!(serde_json::from_str::<Value>(closed["message"]["content"].as_str().unwrap()).unwrap().is_array());
    let cut = choice(&server, json!({"grammar": "root ::= \"a\" [b-z ]+ \"!\"", "max_tokens": 4}));
    assert_eq!((&cut["finish_reason"], &cut["complete"]), (&json!("length"), &json!(false)), "{cut}");
    assert!(choice(&server, json!({})).get("complete").is_none(), "a text without rules is neither");
}

#[test]
fn a_schema_is_strict_unless_it_says_otherwise() {
    let server = Server::start();
    let schema = json!({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]});
    let of = |strict: Value| json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": strict}}, "max_tokens": 60, "temperature": 2.0, "top_p": 1.0});
    for strict in [json!(null), json!(true)] {
        let choice = choice(&server, of(strict));
        let keys: Value = serde_json::from_str(choice["message"]["content"].as_str().unwrap()).unwrap();
        assert_eq!(keys.as_object().unwrap().keys().collect::<Vec<_>>(), ["a"]);
    }
    // With `strict: false`, other keys may follow: a begun answer with another key obeys only the open schema.
    let begun = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "{\"a\": true, \"b\": 1"}]);
    let status = |strict: Value| {
        let mut body = ask(of(strict));
        body["messages"] = begun.clone();
        server.post(CHAT, &body).status
    };
    assert_eq!((status(json!(false)), status(json!(true))), (200, 400));
}

#[test]
fn thoughts_and_tools_work_with_every_format() {
    let server = Server::start();
    let plain = choice(&server, json!({}));
    for more in [json!({"reasoning_effort": "high"}), json!({"chat_template_kwargs": {"enable_thinking": true}})] {
        assert_eq!(choice(&server, more)["message"], plain["message"]);
    }
    assert_eq!(server.post(CHAT, &ask(json!({"thinking": "on"}))).status, 400, "wingbeat's own field asks for something that must happen");
    let tools = json!([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"enum": ["Ur"]}}, "required": ["city"]}}}]);
    let called = choice(&server, json!({"tools": tools, "tool_choice": "required", "max_tokens": 60}));
    let call = &called["message"]["tool_calls"][0]["function"];
    assert_eq!((&call["name"], &called["finish_reason"]), (&json!("weather"), &json!("tool_calls")), "{called}");
    let result = json!([{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": called["message"]["tool_calls"]}, {"role": "tool", "content": "Sun", "tool_call_id": called["message"]["tool_calls"][0]["id"]}]);
    assert!(choice(&server, json!({"messages": result, "tools": tools}))["message"]["content"].is_string());
}

#[test]
fn parts_that_are_not_text_are_refused_in_words() {
    let server = Server::start();
    let of = |part: Value| json!([{"role": "user", "content": [{"type": "text", "text": "a"}, part]}]);
    for (part, said) in [
        (json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}), "images are not supported"),
        (json!({"type": "input_audio", "input_audio": {}}), "sounds are not supported"),
        (json!({"type": "file", "file": {}}), "files are not supported"),
    ] {
        let answer = server.post(CHAT, &ask(json!({"messages": of(part.clone())})));
        let message = answer.json()["error"]["message"].as_str().unwrap().to_string();
        assert!(answer.status == 400 && message.contains(said) && message.contains("messages[0].content"), "{message}");
    }
    let image = json!({"type": "input_image", "image_url": "data:image/png;base64,AAAA"});
    let answer = server.post("/v1/responses", &json!({"input": of(image)}));
    assert!(answer.status == 400 && answer.text.contains("images are not supported"), "{}", answer.text);
}

#[test]
fn fields_that_would_change_an_answer_are_refused() {
    let server = Server::start();
    for (more, field) in [
        (json!({"best_of": 3}), "best_of"),
        (json!({"functions": [{"name": "f"}]}), "functions"),
        (json!({"modalities": ["audio"]}), "modalities"),
    ] {
        let answer = server.post(CHAT, &ask(more));
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!(field)), "{}", answer.text);
    }
    let harmless = json!({"user": "a", "store": false, "service_tier": "auto", "best_of": 1, "top_k": -1, "repetition_penalty": 1.1, "prediction": null});
    assert_eq!(choice(&server, harmless)["finish_reason"], "length");
    // The third token of the greedy answer becomes a stop token, which then ends the answer.
    let first = server.post(CHAT, &ask(json!({"temperature": 0, "max_tokens": 3, "logprobs": true}))).ok();
    let text = first["choices"][0]["logprobs"]["content"][2]["token"].as_str().unwrap();
    let ids = server.post("/tokenize", &json!({"content": text})).ok()["tokens"].clone();
    let stopped = choice(&server, json!({"temperature": 0, "stop_token_ids": ids}));
    assert_eq!(stopped["finish_reason"], "stop", "{stopped}");
}

#[test]
fn names_of_the_speakers_are_the_callers() {
    let server = Server::start();
    let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]);
    let render = |more: Value| {
        let mut body = json!({"messages": messages, "format": "world"});
        more.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
        server.post("/apply-template", &body)
    };
    let named = render(json!({"user_name": "Bob", "assistant_name": "Alice"})).ok();
    assert_eq!(named["prompt"], "Bob: a\n\nAlice: b\n\nBob: c\n\nAlice:");
    for (more, field) in [
        (json!({"user_name": ""}), "user_name"),
        (json!({"assistant_name": "a\nb"}), "assistant_name"),
        (json!({"user_name": "B", "format": "g1-bot"}), "user_name"),
    ] {
        let refused = render(more);
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(field)), "{}", refused.text);
    }
}
