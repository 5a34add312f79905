//! `/v1/chat/completions`.

use super::Server;
use serde_json::{Value, json};

fn ask(text: &str) -> Value {
    json!({"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 12, "seed": 3})
}

fn with(mut body: Value, more: Value) -> Value {
    more.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
    body
}

#[test]
fn a_stream_has_the_text_of_the_whole_answer() {
    let server = Server::start();
    let whole = server.post("/v1/chat/completions", &ask("light")).ok();
    let choice = &whole["choices"][0];
    assert_eq!(
        (&whole["object"], &whole["model"], &choice["message"]["role"]),
        (&json!("chat.completion"), &json!("tiny"), &json!("assistant"))
    );
    assert_eq!(
        (&choice["finish_reason"], &choice["seed"], &whole["usage"]["completion_tokens"]),
        (&json!("length"), &json!(3), &json!(12))
    );
    let body = with(ask("light"), json!({"stream": true, "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 2}));
    let events = server.post("/v1/chat/completions", &body).events();
    let text: String = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, choice["message"]["content"].as_str().unwrap());
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    assert!(
        whole["system_fingerprint"].is_string() && events.iter().all(|event| event["system_fingerprint"] == whole["system_fingerprint"])
    );
    let entries: Vec<&Value> = events.iter().filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array()).flatten().collect();
    assert!(entries.len() == 12 && entries.iter().all(|entry| entry["top_logprobs"].as_array().unwrap().len() == 2), "{entries:?}");
    let (usage, finish) = (&events[events.len() - 1], &events[events.len() - 2]["choices"][0]["finish_reason"]);
    assert_eq!((&usage["choices"], finish), (&json!([]), &json!("length")));
    assert_eq!(usage["usage"]["prompt_tokens"], whole["usage"]["prompt_tokens"]);
}

#[test]
fn several_answers_and_a_schema() {
    let server = Server::start();
    let several = server.post("/v1/chat/completions", &with(ask("a"), json!({"n": 3}))).ok();
    let seeds: Vec<u64> = several["choices"].as_array().unwrap().iter().map(|choice| choice["seed"].as_u64().unwrap()).collect();
    assert_eq!((seeds, &several["usage"]["completion_tokens"]), (vec![3, 4, 5], &json!(36)));
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false});
    let format = json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema}}, "max_tokens": 40});
    let answer = server.post("/v1/chat/completions", &with(ask("a"), format)).ok();
    let json: Value = serde_json::from_str(answer["choices"][0]["message"]["content"].as_str().unwrap()).unwrap();
    assert!(json["ok"].is_boolean() && answer["choices"][0]["finish_reason"] == "stop", "{answer}");
}

#[test]
fn usage_counts_the_tokens_of_the_thought() {
    let server = Server::start();
    let ask = |more: Value| with(with(ask("a"), json!({"format": "g1", "max_tokens": 9})), more);
    // The tiny RWKV-7 does not end its thought.
    for (more, want) in [(json!({"thinking": "off"}), 0), (json!({"thinking": "on"}), 9)] {
        let answer = server.post("/v1/chat/completions", &ask(more.clone())).ok();
        let n = answer["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap();
        assert_eq!(n, want, "{more}: {answer}");
        let thought = &answer["choices"][0]["message"]["reasoning_content"];
        assert_eq!(thought.is_string(), n > 0, "{more}: {answer}");
        let body = with(json!({"input": "a", "format": "g1", "max_tokens": 9, "seed": 3}), more.clone());
        let answer = server.post("/v1/responses", &body).ok();
        assert_eq!(answer["usage"]["output_tokens_details"]["reasoning_tokens"], n, "{more}: {answer}");
    }
}

#[test]
fn a_demanded_tool_is_called() {
    let server = Server::start();
    let parameters =
        json!({"type": "object", "properties": {"city": {"enum": ["Rome", "Ur"]}}, "required": ["city"], "additionalProperties": false});
    let tools = json!({"tools": [{"type": "function", "function": {"name": "weather", "parameters": parameters}}], "tool_choice": "required", "format": "g1", "max_tokens": 60});
    let answer = server.post("/v1/chat/completions", &with(ask("a"), tools.clone())).ok();
    let (choice, call) = (&answer["choices"][0], &answer["choices"][0]["message"]["tool_calls"][0]);
    assert_eq!((&choice["finish_reason"], &call["function"]["name"]), (&json!("tool_calls"), &json!("weather")), "{answer}");
    let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    assert!(["Rome", "Ur"].contains(&arguments["city"].as_str().unwrap()));
    let stream = server.post("/v1/chat/completions", &with(with(ask("a"), tools.clone()), json!({"stream": true}))).events();
    let calls: Vec<&Value> = stream.iter().filter_map(|event| event["choices"][0]["delta"]["tool_calls"].get(0)).collect();
    let joined: String = calls.iter().filter_map(|call| call["function"]["arguments"].as_str()).collect();
    assert_eq!(
        (calls[0]["function"]["name"].as_str(), joined.as_str()),
        (Some("weather"), call["function"]["arguments"].as_str().unwrap())
    );
    // A call that is cut has incomplete arguments.
    let cut = server.post("/v1/chat/completions", &with(with(ask("a"), tools.clone()), json!({"max_tokens": 14, "close": false}))).ok();
    assert_eq!(cut["choices"][0]["finish_reason"], "length", "{cut}");
    // The result of a call goes back to the model.
    let messages = json!({"format": "g1", "messages": [
        {"role": "developer", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": null, "refusal": null, "tool_calls": [call]}, {"role": "tool", "tool_call_id": call["id"], "content": "7"},
    ]});
    let n_prompt = |answer: Value| answer["usage"]["prompt_tokens"].clone();
    let n_newer = n_prompt(server.post("/v1/chat/completions", &with(ask("a"), messages.clone())).ok());
    // OpenAI's former form of a call.
    let mut former = messages;
    former["messages"][2] = json!({"role": "assistant", "content": null, "function_call": call["function"]});
    former["messages"][3] = json!({"role": "function", "name": "weather", "content": "7"});
    assert_eq!(n_prompt(server.post("/v1/chat/completions", &with(ask("a"), former)).ok()), n_newer);
}

#[test]
fn errors_name_the_path_of_the_field() {
    let server = Server::start();
    for (more, param, want) in [
        (json!({"messages": [{"role": "user", "content": 7}]}), "messages[0].content", "instead of a string or an array of text parts"),
        (json!({"messages": [{"role": "robot", "content": "a"}]}), "messages[0].role", "robot"),
        (json!({"messages": "a"}), "messages", "found"),
        (json!({"messages": []}), "messages", "expected at least 1 message"),
        (json!({"temperature": "hot"}), "temperature", "hot"),
        (json!({"top_p": 2}), "top_p", "0 to 1"),
        (json!({"n": 0}), "n", "expected a whole number from 1"),
        (json!({"n": 99}), "n", "found 99"),
        (json!({"top_logprobs": 3}), "top_logprobs", "logprobs = true"),
        (json!({"stop": [""]}), "stop", "empty"),
        (json!({"session_id": "../x"}), "session_id", "expected a state's name"),
        (json!({"response_format": {"type": "xml"}}), "response_format", "xml"),
        (json!({"stream": "yes"}), "stream", "found"),
        (json!({"json_schema": {"type": "nonsense"}}), "json_schema", ""),
        (json!({"grammar": "x".repeat(300 << 10)}), "grammar", "expected at most 262144 bytes"),
    ] {
        let answer = server.post("/v1/chat/completions", &with(ask("a"), more.clone()));
        let error = &answer.json()["error"];
        assert_eq!((answer.status, error["type"].as_str()), (400, Some("invalid_request_error")), "{more}: {}", answer.text);
        assert!(error["param"].as_str().is_some_and(|found| found.starts_with(param)), "{more}: {error}");
        assert!(error["message"].as_str().unwrap().contains(want), "{more}: {error}");
        assert_eq!(error["request_id"], answer.header("x-request-id"));
    }
    // Unknown fields are ignored, and so is the name of the only model.
    server.post("/v1/chat/completions", &with(ask("a"), json!({"user": "me", "model": "gpt-4o", "service_tier": 7}))).ok();
    assert_eq!(server.send("POST", "/v1/chat/completions", &[], b"{\"messages\": [").status, 400);
    assert_eq!(server.send("POST", "/v1/chat/completions", &[], b"[]").status, 400);
}
