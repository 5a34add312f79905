//! `/v1/responses`.

use super::Server;
use serde_json::{Value, json};
use wingbeat::serve::ServeOptions;

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
    assert_eq!(
        server.post("/v1/responses", &json!({"input": "a", "tools": [{"type": "web_search"}]})).json()["error"]["param"],
        "tools[0]"
    );
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
    let server = Server::with(ServeOptions { state_quota: 100, ..ServeOptions::default() });
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
        (json!({"text": {"format": {"type": "json_object"}}, "json_schema": {}}), "text.format"),
        (json!({"text": {"format": {"type": "json_schema", "schema": {"enum": ["x".repeat(300 << 10)]}}}}), "text"),
    ] {
        let mut asked = json!({"input": "a"});
        body.as_object().unwrap().iter().for_each(|(name, value)| asked[name] = value.clone());
        let answer = server.post("/v1/responses", &asked);
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!(param)), "{}", answer.text);
    }
}
