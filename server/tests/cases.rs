//! Regression tests: request bodies that once got a wrong answer with status 200, or an error although they are valid. Each test also sends related
//! bodies.

use super::Server;
use serde_json::{Value, json};

fn content(server: &Server, body: &Value) -> String {
    server.post("/v1/chat/completions", body).ok()["choices"][0]["message"]["content"].as_str().unwrap().into()
}

fn prompt(server: &Server, messages: Value) -> String {
    server.post("/apply-template", &json!({"messages": messages})).ok()["prompt"].as_str().unwrap().into()
}

#[test]
fn results_of_tools_have_the_order_of_their_calls() {
    let server = Server::start();
    let calls = json!([
        {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\":\"Rome\"}"}},
        {"id": "c2", "type": "function", "function": {"name": "get_time", "arguments": "{\"city\":\"Rome\"}"}},
    ]);
    let of = |ids: [&str; 2]| {
        let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": if id == "c1" { "WEATHER" } else { "TIME" }});
        json!({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": null, "tool_calls": calls}, result(ids[0]), result(ids[1])]})
    };
    let right = server.post("/apply-template", &of(["c1", "c2"])).ok()["prompt"].clone();
    let text = right.as_str().unwrap();
    assert!(text.find("WEATHER").unwrap() < text.find("TIME").unwrap(), "{text}");
    assert_eq!(server.post("/apply-template", &of(["c2", "c1"])).ok()["prompt"], right);
    for (ids, place) in [(["c2", "c3"], "messages[3].tool_call_id: no earlier"), (["c2", "c2"], "messages[3].tool_call_id: an earlier")] {
        let refused = server.post("/v1/chat/completions", &of(ids));
        assert!(refused.status == 400 && refused.json()["error"]["message"].as_str().unwrap().starts_with(place), "{}", refused.text);
    }
    // After a state, a result without its call is accepted, because the state may contain the call.
    server.post("/v1/states", &json!({"action": "save", "name": "called", "prompt": "light"})).ok();
    let body = json!({"state": "called", "messages": [{"role": "tool", "tool_call_id": "c1", "content": "42"}], "max_tokens": 1});
    server.post("/v1/chat/completions", &body).ok();
    let blocks = json!([
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}, {"type": "tool_use", "id": "b", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b", "content": "B"}, {"type": "tool_result", "tool_use_id": "z", "content": "A"}]},
    ]);
    let refused = server.post("/v1/messages", &json!({"model": "x", "max_tokens": 1, "messages": blocks}));
    assert!(refused.status == 400 && refused.text.contains("messages[2].tool_use_id: no earlier message"), "{}", refused.text);
    let items = json!([
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "q", "output": "A"},
    ]);
    let refused = server.post("/v1/responses", &json!({"input": items, "max_output_tokens": 1}));
    assert!(refused.status == 400 && refused.text.contains("input[1].call_id: no earlier message"), "{}", refused.text);
}

#[test]
fn offsets_count_the_characters_of_the_text() {
    let server = Server::start();
    for (text, streamed) in [("café light", false), ("a€b😀c", false), ("café light", true)] {
        let body = json!({"prompt": text, "max_tokens": 0, "logprobs": 1, "echo": true, "stream": streamed});
        let answer = server.post("/v1/completions", &body);
        let offsets: Vec<usize> = match streamed {
            false => {
                let choice = answer.ok()["choices"][0].clone();
                assert_eq!(choice["text"], text);
                serde_json::from_value(choice["logprobs"]["text_offset"].clone()).unwrap()
            }
            true => {
                let lines = answer.text.lines().filter_map(|line| line.strip_prefix("data: {")).map(|line| format!("{{{line}"));
                let chunks = lines.map(|line| serde_json::from_str::<Value>(&line).unwrap());
                chunks
                    .flat_map(|chunk| chunk["choices"][0]["logprobs"]["text_offset"].as_array().cloned().unwrap_or_default())
                    .map(|n| n.as_u64().unwrap() as usize)
                    .collect()
            }
        };
        let end = text.chars().count();
        assert!(offsets.is_sorted() && offsets[0] == 0 && offsets.iter().all(|at| *at < end), "{text}: {offsets:?}");
        // Several tokens of one character have the same position.
        assert!(offsets.windows(2).all(|pair| pair[1] - pair[0] <= end) && offsets.len() > end / 2);
    }
    // The tokens of a stop text are not in the text, so they are at its end.
    let body = json!({"prompt": "In the beginning", "max_tokens": 20, "temperature": 0, "logprobs": 0, "stop": [" the"]});
    let choice = server.post("/v1/completions", &body).ok()["choices"][0].clone();
    let end = choice["text"].as_str().unwrap().chars().count() as u64;
    assert!(choice["logprobs"]["text_offset"].as_array().unwrap().iter().all(|at| at.as_u64().unwrap() <= end), "{choice}");
}

#[test]
fn empty_values_are_not_set() {
    let server = Server::start();
    let plain = json!({"prompt": "In the beginning", "n_predict": 4, "max_tokens": 4, "temperature": 0});
    for path in ["/completion", "/v1/completions"] {
        let text = |body: &Value| {
            let answer = server.post(path, body).ok();
            answer.get("content").or_else(|| answer["choices"][0].get("text")).unwrap().clone()
        };
        let expected = text(&plain);
        for field in [
            "grammar",
            "guided_json",
            "guided_regex",
            "guided_choice",
            "regex",
            "choice",
            "json_schema",
            "stop",
            "preset",
            "format",
            "state",
            "session_id",
            "thinking",
            "reasoning_effort",
            "chat_template",
            "web_search_options",
        ] {
            for empty in [json!(""), json!([]), json!({})] {
                if field == "stop" && !empty.is_string() {
                    continue;
                }
                let mut body = plain.clone();
                body[field] = empty.clone();
                assert_eq!(text(&body), expected, "{path} {field} {empty}");
            }
        }
        // As in llama-server, `logit_bias` can have pairs, texts in place of ids, and `false` for a ban.
        let mut body = plain.clone();
        body["logit_bias"] = json!([[1014, false], [1276, -1.0]]);
        assert_ne!(text(&body), expected);
        body["logit_bias"] = json!({" of": false, " the": -1.0});
        assert_ne!(text(&body), expected);
    }
}

#[test]
fn a_response_format_is_a_rule_or_refused() {
    let server = Server::start();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let format = json!({"type": "json_object", "schema": schema});
    let body = json!({"messages": [{"role": "user", "content": "light"}], "max_tokens": 40, "seed": 1, "response_format": format});
    let is_right = |text: &str| {
        let value: Value = serde_json::from_str(text).unwrap();
        value.as_object().unwrap().keys().eq(["n"]) && value["n"].is_number()
    };
    let text = content(&server, &body);
    assert!(is_right(&text), "{text}");
    for path in ["/v1/completions", "/completion"] {
        let answer =
            server.post(path, &json!({"prompt": "light", "max_tokens": 40, "n_predict": 40, "seed": 1, "response_format": format})).ok();
        let text = answer.get("content").or_else(|| answer["choices"][0].get("text")).unwrap().as_str().unwrap();
        assert!(is_right(text), "{path} {text}");
    }
    // A schema without its wrapper and unknown keys are refused: ignoring them would allow any answer.
    for wrong in [
        json!({"type": "json_schema", "json_schema": schema}),
        json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "grammar": "x"}}),
        json!({"type": "json_object", "shema": schema}),
        json!({"type": "text", "schema": schema}),
    ] {
        let mut body = body.clone();
        body["response_format"] = wrong.clone();
        let refused = server.post("/v1/chat/completions", &body);
        assert!(
            refused.status == 400 && refused.json()["error"]["message"].as_str().unwrap().starts_with("response_format"),
            "{wrong}: {}",
            refused.text
        );
    }
}

#[test]
fn objects_are_closed_unless_their_schema_opens_them() {
    let server = Server::start();
    let parameters = json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"]});
    let messages = json!([{"role": "user", "content": "light"}]);
    let closed = |keys: &Value| keys.as_object().is_some_and(|keys| keys.keys().eq(["a"]));
    for (strict, seed) in [(json!(true), 1), (json!(false), 2), (json!(null), 3)] {
        let tool = json!({"type": "function", "function": {"name": "f", "strict": strict, "parameters": parameters}});
        let body = json!({"messages": messages, "max_tokens": 60, "seed": seed, "tools": [tool], "tool_choice": "required", "temperature": 2.0, "top_p": 1.0});
        let answer = server.post("/v1/chat/completions", &body).ok();
        let arguments = answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
        assert!(closed(&serde_json::from_str(arguments).unwrap()), "{arguments}");
    }
    for seed in 1..4 {
        let of_field =
            json!({"messages": messages, "max_tokens": 60, "seed": seed, "json_schema": parameters, "temperature": 2.0, "top_p": 1.0});
        let text = content(&server, &of_field);
        assert!(closed(&serde_json::from_str(&text).unwrap()), "{text}");
        let of_ollama = json!({"messages": messages, "stream": false, "format": parameters, "options": {"seed": seed, "num_predict": 60, "temperature": 2.0, "top_p": 1.0}});
        let answer = server.post("/api/chat", &of_ollama).ok();
        assert!(closed(&serde_json::from_str(answer["message"]["content"].as_str().unwrap()).unwrap()), "{answer}");
    }
}

#[test]
fn an_empty_answer_at_the_end_is_no_turn() {
    let server = Server::start();
    let expected = prompt(&server, json!([{"role": "user", "content": "light"}]));
    for empty in [json!(""), json!(null), json!(" \n"), json!([]), json!([{"type": "text", "text": ""}])] {
        let messages = json!([{"role": "user", "content": "light"}, {"role": "assistant", "content": empty}]);
        assert_eq!(prompt(&server, messages), expected, "{empty}");
    }
    let n_tokens = |content: Option<&str>| {
        let mut messages = vec![json!({"role": "user", "content": "light"})];
        messages.extend(content.map(|content| json!({"role": "assistant", "content": content})));
        server.post("/v1/messages/count_tokens", &json!({"messages": messages})).ok()["input_tokens"].clone()
    };
    assert_eq!(n_tokens(Some("")), n_tokens(None));
}
