//! Anthropic's API.

use super::{Answer, Server, keys};
use serde_json::{Value, json};
use wingbeat_server::ServeOptions;

/// Returns a body with settings that make answers short and repeatable.
fn body(more: Value) -> Value {
    let mut body = json!({"model": "claude", "max_tokens": 12, "seed": 3, "messages": [{"role": "user", "content": "light"}]});
    more.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
    body
}

/// Returns the events of a stream. The name of each event must be its type.
fn events(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let named = |text: &str| {
        let (name, data) = text.split_once('\n').unwrap();
        let event: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: "), event["type"].as_str(), "{text}");
        event
    };
    answer.text.split("\n\n").filter(|text| !text.is_empty()).map(named).collect()
}

/// Returns the message that a client assembles from a stream's events.
fn gathered(events: &[Value]) -> Value {
    let mut message = events[0]["message"].clone();
    assert_eq!((events[0]["type"].as_str(), events.last().unwrap()["type"].as_str()), (Some("message_start"), Some("message_stop")));
    let mut json = String::new();
    for event in events {
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!(event["index"], message["content"].as_array().unwrap().len());
                message["content"].as_array_mut().unwrap().push(event["content_block"].clone());
                json.clear();
            }
            "content_block_delta" => {
                let (delta, block) = (&event["delta"], &mut message["content"][event["index"].as_u64().unwrap() as usize]);
                match delta["type"].as_str().unwrap() {
                    "input_json_delta" => json += delta["partial_json"].as_str().unwrap(),
                    kind => {
                        let key = kind.strip_suffix("_delta").unwrap();
                        block[key] = format!("{}{}", block[key].as_str().unwrap(), delta[key].as_str().unwrap()).into();
                    }
                }
            }
            "content_block_stop" if !json.is_empty() => {
                message["content"][event["index"].as_u64().unwrap() as usize]["input"] = serde_json::from_str(&json).unwrap();
            }
            "message_delta" => {
                for key in ["stop_reason", "stop_sequence"] {
                    message[key] = event["delta"][key].clone();
                }
                message["usage"] = event["usage"].clone();
            }
            _ => {}
        }
    }
    message
}

/// Sends a request whole and as a stream. Returns the message, which must be the same both times except for ids and cached tokens.
fn both(server: &Server, more: Value) -> Value {
    let whole = server.post("/v1/messages", &body(more.clone())).ok();
    let mut streamed = body(more);
    streamed["stream"] = true.into();
    let mut stream = gathered(&events(&server.post("/v1/messages?beta=true", &streamed)));
    let mut expected = whole.clone();
    for message in [&mut stream, &mut expected] {
        message["id"] = Value::Null;
        let usage = &message["usage"];
        message["usage"] =
            json!([usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap(), usage["output_tokens"]]);
        message["content"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .filter(|block| block["id"].is_string())
            .for_each(|block| block["id"] = Value::Null);
    }
    assert_eq!(stream, expected);
    whole
}

#[test]
fn texts_equal_those_of_openai() {
    let server = Server::start();
    let messages = json!([{"role": "system", "content": "Be short."}, {"role": "user", "content": "light"}]);
    let openai = server.post("/v1/chat/completions", &json!({"messages": messages, "seed": 3, "max_tokens": 12})).ok();
    let blocks = json!([{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}]);
    for system in [json!("Be short."), blocks] {
        let message = both(&server, json!({"system": system}));
        assert_eq!(message["content"], json!([{"type": "text", "text": openai["choices"][0]["message"]["content"]}]));
        assert_eq!((&message["type"], &message["role"], &message["model"]), (&json!("message"), &json!("assistant"), &json!("tiny")));
        assert_eq!((&message["stop_reason"], &message["usage"]["output_tokens"]), (&json!("max_tokens"), &json!(12)));
        let counted = server.post("/v1/messages/count_tokens?beta=true", &body(json!({"system": system}))).ok();
        assert_eq!(counted["input_tokens"], openai["usage"]["prompt_tokens"]);
    }
}

#[test]
fn a_stop_sequence_is_reported() {
    let server = Server::start();
    let whole = server.post("/v1/messages", &body(json!({"max_tokens": 40}))).ok();
    let text = whole["content"][0]["text"].as_str().unwrap();
    let word = text.split(' ').nth(3).unwrap();
    let stopped = both(&server, json!({"max_tokens": 40, "stop_sequences": ["\u{1}", word]}));
    assert_eq!((&stopped["stop_reason"], &stopped["stop_sequence"]), (&json!("stop_sequence"), &json!(word)), "{stopped}");
    assert!(text.starts_with(stopped["content"][0]["text"].as_str().unwrap()));
}

#[test]
fn thoughts_are_blocks() {
    let server = Server::start();
    let enabled = json!({"type": "enabled", "budget_tokens": 1024});
    let message = both(&server, json!({"format": "g1", "thinking": enabled, "max_tokens": 9}));
    assert_eq!(message["content"][0]["type"], "thinking", "{message}");
    let message = both(&server, json!({"format": "g1", "thinking": {"type": "disabled"}, "max_tokens": 9}));
    assert_eq!(message["content"][0]["type"], "text", "{message}");
    // The format `tiny` has no thoughts.
    both(&server, json!({"thinking": enabled}));
}

#[test]
fn tools_are_called_and_answered() {
    let server = Server::start();
    let schema =
        json!({"type": "object", "properties": {"city": {"enum": ["Rome", "Ur"]}}, "required": ["city"], "additionalProperties": false});
    let tools =
        json!([{"name": "weather", "description": "Returns the weather", "input_schema": schema, "cache_control": {"type": "ephemeral"}}]);
    for choice in [json!({"type": "any"}), json!({"type": "tool", "name": "weather", "disable_parallel_tool_use": true})] {
        let message = both(&server, json!({"tools": tools, "tool_choice": choice, "format": "g1", "max_tokens": 60}));
        let call = message["content"].as_array().unwrap().last().unwrap();
        assert_eq!((&message["stop_reason"], &call["type"], &call["name"]), (&json!("tool_use"), &json!("tool_use"), &json!("weather")));
        assert!(["Rome", "Ur"].contains(&call["input"]["city"].as_str().unwrap()), "{message}");
        assert!(call["id"].as_str().unwrap().starts_with("toolu_"));
    }
    let id = "toolu_1";
    let result = |content: Value| json!({"type": "tool_result", "tool_use_id": id, "content": content, "is_error": false});
    let mut openai = Value::Null;
    for result in [result(json!("21 degrees")), result(json!([{"type": "text", "text": "21 degrees"}]))] {
        let messages = json!([{"role": "user", "content": "a"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "text", "text": "Let me see."}, {"type": "tool_use", "id": id, "name": "weather", "input": {"city": "Rome"}}]},
            {"role": "user", "content": [result, {"type": "text", "text": "And now?"}]}]);
        let message = both(&server, json!({"messages": messages, "tools": tools, "tool_choice": {"type": "none"}, "format": "g1"}));
        let messages = json!([{"role": "user", "content": "a"},
            {"role": "assistant", "content": "Let me see.", "tool_calls": [{"function": {"name": "weather", "arguments": "{\"city\":\"Rome\"}"}}]},
            {"role": "tool", "content": "21 degrees"}, {"role": "user", "content": "And now?"}]);
        let ask = json!({"messages": messages, "format": "g1", "seed": 3, "max_tokens": 12});
        openai = if openai.is_null() { server.post("/v1/chat/completions", &ask).ok() } else { openai };
        assert_eq!(message["content"][0]["text"], openai["choices"][0]["message"]["content"]);
    }
}

#[test]
fn an_answer_matches_a_schema() {
    let server = Server::start();
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false});
    let message = both(&server, json!({"output_config": {"format": {"type": "json_schema", "schema": schema}}, "max_tokens": 40}));
    let found: Value = serde_json::from_str(message["content"][0]["text"].as_str().unwrap()).unwrap();
    assert!(found["ok"].is_boolean() && message["stop_reason"] == "end_turn", "{message}");
}

/// Claude Code's requests have all of these fields and headers.
#[test]
fn requests_of_claude_code_are_answered() {
    let server = Server::start();
    let cached = json!({"type": "ephemeral", "ttl": "1h"});
    let ask = body(json!({
        "system": [{"type": "text", "text": "You help."}, {"type": "text", "text": "Be short.", "cache_control": cached}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "<system-reminder>none</system-reminder>"},
            {"type": "text", "text": "light", "cache_control": cached}]}],
        "metadata": {"user_id": "user_1"}, "temperature": 1, "tools": [], "stream": true, "thinking": {"type": "adaptive"},
        "context_management": {"edits": []}, "output_config": {"effort": "medium"},
    }));
    let headers = [("anthropic-version", "2023-06-01"), ("anthropic-beta", "claude-code-20250219,interleaved-thinking-2025-05-14")];
    let answer = server.send("POST", "/v1/messages?beta=true", &headers, ask.to_string().as_bytes());
    let found = events(&answer);
    assert!(found.iter().any(|event| event["type"] == "ping"));
    assert_eq!(gathered(&found)["usage"]["output_tokens"], 12);
    assert_eq!(answer.header("request-id"), answer.header("x-request-id"));
}

#[test]
fn errors_have_the_form_of_anthropic() {
    let server = Server::start();
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}});
    for (more, want) in [
        (json!({"temperature": "hot"}), "temperature: "),
        (json!({"messages": []}), "messages: expected at least one message"),
        (json!({"messages": [{"role": "user", "content": [image]}]}), "messages[0].content[0]: images are not supported"),
        (json!({"messages": [{"role": "user", "content": [{"type": "song"}]}]}), "messages[0].content[0]"),
        (json!({"messages": [{"role": "user", "content": 7}]}), "messages[0].content: "),
        (json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}), "tools[0]: expected a tool with input_schema"),
        (json!({"tool_choice": {"type": "tool"}}), "tool_choice.name: "),
        (json!({"thinking": {"type": "maybe"}}), "thinking"),
    ] {
        for path in ["/v1/messages", "/v1/messages/count_tokens"] {
            let answer = server.post(path, &body(more.clone()));
            // Counting does not read the temperature.
            if path == "/v1/messages/count_tokens" && answer.status == 200 {
                continue;
            }
            let found = answer.json();
            assert_eq!((answer.status, &found["type"], &found["error"]["type"]), (400, &json!("error"), &json!("invalid_request_error")));
            assert!(found["error"]["message"].as_str().unwrap().starts_with(want), "{more}: {found}");
            assert_eq!(found["request_id"], answer.header("request-id"));
        }
    }
    assert_eq!(server.get("/v1/messages/batches").json()["error"]["type"], "not_found_error");
}

#[test]
fn a_key_is_required() {
    let server = Server::with(ServeOptions { keys: keys(), ..ServeOptions::default() });
    let status = |headers: &[(&str, &str)]| server.send("POST", "/v1/messages", headers, body(json!({})).to_string().as_bytes());
    for wrong in [status(&[]), status(&[("x-api-key", "key-of-eve")])] {
        assert_eq!((wrong.status, &wrong.json()["error"]["type"]), (401, &json!("authentication_error")));
    }
    assert_eq!((status(&[("x-api-key", "key-of-ada")]).status, status(&[("authorization", "Bearer key-of-bob")]).status), (200, 200));
}
