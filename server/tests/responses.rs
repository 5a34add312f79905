//! `/v1/responses`.

use super::Server;
use serde_json::{Value, json};
use wingbeat_server::ServeOptions;

#[test]
fn a_response_continues_an_earlier_one() {
    let server = Server::start();
    let one = server.post("/v1/responses", &json!({"input": "light", "max_output_tokens": 8, "seed": 1, "instructions": "Speak."})).ok();
    assert_eq!(
        (&one["object"], &one["status"], &one["incomplete_details"]["reason"]),
        (&json!("response"), &json!("incomplete"), &json!("max_output_tokens"))
    );
    let text = one["output"][0]["content"][0]["text"].as_str().unwrap();
    assert!(!text.is_empty());
    assert_eq!(one["output"][0]["status"], "incomplete");
    let whole = server.post("/v1/responses", &json!({"input": "a", "json_schema": {"enum": ["x"]}, "max_output_tokens": 40})).ok();
    assert_eq!((&whole["status"], &whole["output"][0]["status"]), (&json!("completed"), &json!("completed")), "{whole}");
    let two = json!({"input": [{"role": "user", "content": "darkness"}], "max_output_tokens": 4, "seed": 1, "previous_response_id": one["id"], "instructions": "Speak."});
    let two = server.post("/v1/responses", &two).ok();
    assert!(two["usage"]["input_tokens_details"]["cached_tokens"].as_u64() >= one["usage"]["total_tokens"].as_u64(), "{two}");
    let path = format!("/v1/responses/{}", one["id"].as_str().unwrap());
    assert_eq!(server.get(&path).ok(), one);
    assert_eq!(server.send("DELETE", &path, &[], &[]).ok()["deleted"], true);
    assert_eq!(server.get(&path).status, 404);
    let lost = server.post("/v1/responses", &json!({"input": "a", "previous_response_id": one["id"]}));
    assert_eq!((lost.status, &lost.json()["error"]["param"]), (404, &json!("previous_response_id")));
    let unkept = server.post("/v1/responses", &json!({"input": "a", "max_output_tokens": 1, "store": false, "metadata": {"a": "b"}})).ok();
    assert_eq!((&unkept["metadata"], &one["metadata"]), (&json!({"a": "b"}), &json!({})));
    assert_eq!(server.get(&format!("/v1/responses/{}", unkept["id"].as_str().unwrap())).status, 404);
    assert_eq!(server.post("/v1/responses", &json!({"input": []})).json()["error"]["param"], "input");
    let wrong = server.post("/v1/responses", &json!({"input": "a", "reasoning": {"effort": "endless"}}));
    assert_eq!((wrong.status, &wrong.json()["error"]["param"]), (400, &json!("reasoning.effort")));
    assert_eq!(server.post("/v1/responses", &json!({"input": "a", "tools": [{"type": "other"}]})).json()["error"]["param"], "tools[0]");
    // States of responses are not in the list of saved states.
    assert_eq!(server.get("/v1/states").ok()["data"], json!([]));
}

#[test]
fn events_of_a_stream_are_in_order() {
    let server = Server::start();
    let answer = server.post("/v1/responses", &json!({"input": "light", "max_output_tokens": 8, "seed": 1, "stream": true}));
    let events: Vec<Value> = answer.text.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[..4], ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]);
    let last = ["response.output_text.done", "response.content_part.done", "response.output_item.done", "response.incomplete"];
    assert_eq!(kinds[kinds.len() - 4..], last);
    assert!(events.iter().enumerate().all(|(i, event)| event["sequence_number"] == i));
    let text: String =
        events.iter().filter(|event| event["type"] == "response.output_text.delta").filter_map(|event| event["delta"].as_str()).collect();
    let response = &events[events.len() - 1]["response"];
    assert_eq!(response["output"][0]["content"][0]["text"], text);
    assert_eq!((&response["status"], &response["output"][0]["status"]), (&json!("incomplete"), &json!("incomplete")));
    let id = response["id"].as_str().unwrap();
    assert_eq!(&server.get(&format!("/v1/responses/{id}")).ok(), response);
}

#[test]
fn an_answer_that_cannot_be_stored_is_sent_with_the_reason() {
    let server = Server::with(ServeOptions { state_quota: Some(100), ..ServeOptions::default() });
    let answer = server.post("/v1/responses", &json!({"input": "light", "max_output_tokens": 2, "stream": true}));
    let last = answer.text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap();
    let event: Value = serde_json::from_str(last).unwrap();
    assert_eq!(event["type"], "response.incomplete", "{event}");
    let whole = server.post("/v1/responses", &json!({"input": "light", "max_output_tokens": 2})).ok();
    for response in [&event["response"], &whole] {
        let (text, error) = (&response["output"][0]["content"][0]["text"], &response["store_error"]);
        assert!(text.as_str().is_some_and(|text| !text.is_empty()) && response["store"] == false, "{response}");
        assert_eq!(error["code"], "rate_limit_exceeded", "{response}");
        assert!(error["message"].as_str().unwrap().contains("the quota of"), "{error}");
        let id = response["id"].as_str().unwrap();
        assert_eq!(server.get(&format!("/v1/responses/{id}")).status, 404);
    }
}

#[test]
fn an_error_about_a_schema_names_the_field_of_the_schema() {
    let server = Server::start();
    let wrong = json!({"type": "nonsense"});
    for (body, param) in [
        (json!({"text": {"format": {"type": "json_schema", "name": "x", "schema": wrong}}}), "text.format.schema"),
        (json!({"json_schema": wrong}), "json_schema"),
        (json!({"text": {"format": {"type": "json_object"}}, "json_schema": {"type": "null"}}), "text.format"),
        (json!({"text": {"format": {"type": "json_schema", "schema": {"enum": ["x".repeat(300 << 10)]}}}}), "text"),
    ] {
        let mut asked = json!({"input": "a"});
        body.as_object().unwrap().iter().for_each(|(name, value)| asked[name] = value.clone());
        let answer = server.post("/v1/responses", &asked);
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!(param)), "{}", answer.text);
    }
}

#[test]
fn input_items_are_listed_in_pages() {
    let server = Server::start();
    let one = json!({"input": [{"role": "user", "content": "a"}, {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "1"},
        {"type": "function_call_output", "call_id": "1", "output": "7"}], "max_output_tokens": 2});
    let one = server.post("/v1/responses", &one).ok();
    let two = json!({"input": "b", "max_output_tokens": 2, "previous_response_id": one["id"]});
    let two = server.post("/v1/responses", &two).ok();
    let path = format!("/v1/responses/{}/input_items", two["id"].as_str().unwrap());
    let items = server.get(&format!("{path}?order=asc")).ok();
    let kinds: Vec<&str> = items["data"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "function_call", "function_call_output", "message", "message"], "{items}");
    assert_eq!(items["data"][1]["call_id"], items["data"][2]["call_id"]);
    assert_eq!((&items["data"][4]["content"][0]["text"], &items["has_more"]), (&json!("b"), &json!(false)));
    // The newest item comes first by default, and `after` names the last item of the previous page.
    let first = server.get(&format!("{path}?limit=2")).ok();
    assert_eq!((&first["data"][0], &first["has_more"]), (&items["data"][4], &json!(true)));
    let next = server.get(&format!("{path}?limit=2&after={}", first["last_id"].as_str().unwrap())).ok();
    assert_eq!(next["data"][0], items["data"][2]);
    for (query, field) in [("limit=0", "limit"), ("order=up", "order"), ("after=x", "after")] {
        assert_eq!(server.get(&format!("{path}?{query}")).json()["error"]["param"], field);
    }
    assert_eq!(server.get("/v1/responses/resp_none/input_items").status, 404);
    let cancel = server.post(&format!("/v1/responses/{}/cancel", two["id"].as_str().unwrap()), &json!({}));
    assert!(cancel.status == 400 && cancel.text.contains("in the background"), "{}", cancel.text);
}

#[test]
fn foreign_tools_are_left_out_with_a_warning() {
    let server = Server::start();
    let ask = json!({"input": "a", "max_output_tokens": 2, "temperature": 0.5, "parallel_tool_calls": false, "tools": [
        {"type": "web_search_2025_08_26"}, {"type": "custom", "name": "x"}]});
    let answer = server.post("/v1/responses", &ask).ok();
    let warnings = answer["warnings"].as_array().unwrap();
    assert!(warnings.len() == 2 && warnings[0].as_str().unwrap().starts_with("tools[0]: the tool web_search_2025_08_26 is left out"));
    assert_eq!((&answer["temperature"], &answer["parallel_tool_calls"]), (&json!(0.5), &json!(false)));
    assert!(answer["top_p"].as_f64().is_some_and(|p| p > 0.0));
    let refused = server.post("/v1/responses", &json!({"input": "a", "background": true}));
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("background")));
}

#[test]
fn a_continued_response_is_one_message() {
    let server = Server::start();
    let ask = json!({"input": [{"role": "user", "content": "light"}, {"role": "assistant", "content": "And God"}], "max_output_tokens": 4, "temperature": 0});
    let one = server.post("/v1/responses", &ask).ok();
    let text = one["output"][0]["content"][0]["text"].as_str().unwrap();
    let two = server.post("/v1/responses", &json!({"input": "b", "max_output_tokens": 1, "previous_response_id": one["id"]})).ok();
    let items = server.get(&format!("/v1/responses/{}/input_items?order=asc", two["id"].as_str().unwrap())).ok();
    let texts: Vec<&str> = items["data"].as_array().unwrap().iter().map(|item| item["content"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["light", &format!("And God{text}"), "b"]);
    assert!(two["usage"]["input_tokens_details"]["cached_tokens"].as_u64().unwrap() > 0, "the state goes on: {two}");
}
