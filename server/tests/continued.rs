//! Answers that the caller has begun, and streams that survive their connection.

use super::{Server, keys};
use serde_json::{Value, json};
use wingbeat_server::ServeOptions;

const CHAT: &str = "/v1/chat/completions";

fn ask(answer: &str, more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "light"}], "max_tokens": 12, "temperature": 0});
    if !answer.is_empty() {
        body["messages"].as_array_mut().unwrap().push(json!({"role": "assistant", "content": answer}));
    }
    more.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
    body
}

fn text(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

#[test]
fn the_last_answer_is_continued() {
    let server = Server::start();
    let whole = server.post(CHAT, &ask("", json!({}))).ok();
    let whole = text(&whole);
    // The request has the beginning of the answer, cut between two words. The model writes the same rest.
    let at = whole.char_indices().filter(|(_, c)| *c == ' ').nth(2).unwrap().0;
    let rest = server.post(CHAT, &ask(&whole[..at], json!({}))).ok();
    assert!(format!("{}{}", &whole[..at], text(&rest)).starts_with(whole), "{whole:?}, continued with {rest}");
    // The prompt ends with the begun answer. The other APIs continue the answer, too.
    let rendered = server.post("/apply-template", &json!({"messages": ask(" And God", json!({}))["messages"]})).ok();
    assert!(rendered["prompt"].as_str().unwrap().ends_with("User: light\n\nAssistant: And God"), "{rendered}");
    let messages = ask("And God", json!({}))["messages"].clone();
    let of_openai = server.post(CHAT, &ask("And God", json!({}))).ok();
    let of_anthropic = json!({"model": "tiny", "messages": messages, "max_tokens": 12, "temperature": 0});
    let of_anthropic = server.post("/v1/messages", &of_anthropic).ok();
    assert_eq!(of_anthropic["content"][0]["text"], text(&of_openai));
    let of_ollama = json!({"model": "tiny", "messages": messages, "stream": false, "options": {"num_predict": 12, "temperature": 0}});
    assert_eq!(server.post("/api/chat", &of_ollama).ok()["message"]["content"], text(&of_openai));
    for (body, field, said) in [
        (ask("And", json!({"continue_final_message": false})), "continue_final_message", "expected true, because the last message"),
        (ask("", json!({"continue_final_message": true})), "continue_final_message", "expected a last message of the role assistant"),
        (json!({"messages": [{"role": "assistant", "content": "a"}]}), "messages", "expected a message of the role user before the answer"),
        (ask("{\"b", json!({"json_schema": {"enum": ["a"]}})), "messages", "the begun answer \"{\\\"b\" breaks the rules"),
    ] {
        let answer = server.post(CHAT, &body);
        let error = &answer.json()["error"];
        assert!(answer.status == 400 && error["param"] == field && error["message"].as_str().unwrap().contains(said), "{}", answer.text);
    }
}

#[test]
fn a_begun_answer_obeys_the_rules_of_the_whole() {
    let server = Server::start();
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false});
    let rest = server.post(CHAT, &ask("{\"a\"", json!({"json_schema": schema, "max_tokens": 40}))).ok();
    let json: Value = serde_json::from_str(&format!("{{\"a\"{}", text(&rest))).unwrap();
    assert!(json["a"].is_number(), "{rest}");
    assert_eq!((&rest["choices"][0]["finish_reason"], &rest["choices"][0]["complete"]), (&json!("stop"), &json!(true)));
}

#[test]
fn a_begun_thought_goes_on_as_a_thought() {
    let server = Server::start();
    let more = json!({"format": "g1-think", "max_tokens": 8});
    let mut body = ask("", more);
    let thinking = json!({"role": "assistant", "content": "", "reasoning_content": "It was"});
    body["messages"].as_array_mut().unwrap().push(thinking);
    let message = server.post(CHAT, &body).ok()["choices"][0]["message"].clone();
    assert!(message["reasoning_content"].as_str().is_some_and(|thought| !thought.is_empty()), "{message}");
    assert_eq!(message["content"].as_str().unwrap_or_default(), "");
    let prompt = server.post("/apply-template", &json!({"messages": body["messages"], "format": "g1-think"})).ok();
    assert!(prompt["prompt"].as_str().unwrap().ends_with("Assistant: <think>It was"), "{prompt}");
    // If the begun answer has content after its thought, the model continues the content.
    body["messages"][1]["content"] = json!("So");
    let prompt = server.post("/apply-template", &json!({"messages": body["messages"], "format": "g1-think"})).ok();
    assert!(prompt["prompt"].as_str().unwrap().ends_with("Assistant: <think>It was</think>\nSo"), "{prompt}");
    let message = server.post(CHAT, &body).ok()["choices"][0]["message"].clone();
    assert!(message["reasoning_content"].is_null() && message["content"] != "", "{message}");
}

#[test]
fn a_resumable_stream_goes_on_without_its_connection() {
    let server = Server::with(ServeOptions { keys: keys(), ..ServeOptions::default() });
    let (ada, bob) = (server.as_caller("key-of-ada"), server.as_caller("key-of-bob"));
    let body = |more: Value| {
        let mut body = ask("", json!({"stream": true, "max_tokens": 60, "ignore_eos": true, "stop": [], "format": "g1"}));
        more.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
        body
    };
    let expected = ada.post(CHAT, &body(json!({}))).events();
    let said = |events: &[Value]| events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect::<String>();
    let whole = ada.post(CHAT, &body(json!({"resumable": true})));
    let (id, events) = (whole.events()[0]["id"].as_str().unwrap().to_string(), whole.events());
    assert_eq!(said(&events), said(&expected));
    let numbers: Vec<usize> = whole.text.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect();
    assert_eq!(numbers, (1..=events.len() + 1).collect::<Vec<_>>(), "the last event is [DONE]");
    // A client that reconnects receives only the events that it has not seen.
    let path = format!("{CHAT}/{id}/events");
    assert_eq!(ada.get(&format!("{path}?after=5")).events(), events[5..]);
    assert_eq!(ada.send("GET", &path, &[("last-event-id", "7")], &[]).events(), events[7..]);
    assert_eq!((bob.get(&path).status, ada.get(&format!("{path}?after=x")).status), (404, 400));
    assert_eq!(bob.send("DELETE", &format!("{CHAT}/{id}"), &[], &[]).status, 404);
    assert_eq!(ada.send("DELETE", &format!("{CHAT}/{id}"), &[], &[]).ok()["deleted"], true);
    assert_eq!(ada.get(&path).status, 404);
    // The connection ends after the first bytes, but the answer continues.
    let mut connection = ada.begin(CHAT, &body(json!({"resumable": true, "max_tokens": 200})));
    let id = super::read_until(&mut connection, "\"id\":\"", "\"");
    drop(connection);
    let events = ada.get(&format!("{CHAT}/{id}/events")).events();
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");
    // A stopped answer frees its slot.
    let mut connection = ada.begin(CHAT, &body(json!({"resumable": true, "max_tokens": 1_000_000})));
    let id = super::read_until(&mut connection, "\"id\":\"", "\"");
    drop(connection);
    ada.until(|model| model["running"] == 1);
    ada.send("DELETE", &format!("{CHAT}/{id}"), &[], &[]).ok();
    ada.until(|model| model["running"] == 0);
}

#[test]
fn a_stream_reports_how_far_its_prompt_is_read() {
    let server = Server::start();
    let long = "And God said, Let there be light. ".repeat(120);
    let body = json!({"messages": [{"role": "user", "content": long}], "max_tokens": 2, "stream": true, "return_progress": true});
    let events = server.post(CHAT, &body).events();
    let steps: Vec<&Value> = events.iter().map(|event| &event["prompt_progress"]).filter(|progress| !progress.is_null()).collect();
    let processed: Vec<u64> = steps.iter().map(|step| step["processed"].as_u64().unwrap()).collect();
    assert!(processed.len() > 1 && processed.is_sorted() && *processed.last().unwrap() <= steps[0]["total"].as_u64().unwrap(), "{steps:?}");
    let is_quiet = |events: &[Value]| events.iter().all(|event| event["prompt_progress"].is_null());
    assert!(is_quiet(
        &server.post(CHAT, &json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "stream": true})).events()
    ));
}
