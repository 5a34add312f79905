//! Tests that a damaged file of a state or of a response changes no text, and causes an error only once.

use super::Server;
use crate::support::damage::{attempts, damaged};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use wingbeat_server::ServeOptions;

fn start(folder: &Path) -> Server {
    Server::with(ServeOptions { states: Some(folder.display().to_string()), ..ServeOptions::default() })
}

/// Returns the path of the first file below a folder whose path ends with `end`, or `None`.
fn find(folder: &Path, end: &str) -> Option<PathBuf> {
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.filter_map(|path| if path.is_dir() { find(&path, end) } else { Some(path) }).find(|path| path.to_str().unwrap().ends_with(end))
}

#[test]
fn a_damaged_named_state_is_an_error_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let save = || server.post("/v1/states", &json!({"action": "save", "name": "intro", "prompt": "In the beginning God created"})).ok();
    save();
    let ask = || server.post("/v1/completions", &json!({"prompt": " the", "state": "intro", "max_tokens": 6, "temperature": 0}));
    let text = |answer: &Value| answer["choices"][0]["text"].clone();
    let want = text(&ask().ok());
    let path = find(folder.path(), "intro.state").unwrap();
    let (sound, aside) = (fs::read(&path).unwrap(), path.with_extension("state.damaged"));
    for seed in 0..attempts(30) {
        fs::write(&path, damaged(&sound, seed)).unwrap();
        // Each request that reads the file finds the damage.
        let found = match seed / 10 % 3 {
            0 => ask(),
            1 => server.get("/v1/states/intro/content"),
            _ => server.post("/v1/states", &json!({"action": "fork", "from": "intro", "name": "copy"})),
        };
        if found.status == 200 {
            assert_eq!(text(&ask().ok()), want, "{seed}");
            continue;
        }
        assert_eq!((found.status, &found.json()["error"]["code"]), (500, &Value::Null), "{seed}: {}", found.text);
        let message = found.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("the state \"intro\" cannot be read: ") && message.contains("intro.state.damaged"), "{seed}: {message}");
        assert!(!message.contains("loading-") && !message.contains(folder.path().to_str().unwrap()), "{seed}: {message}");
        let gone = ask();
        assert_eq!((gone.status, &gone.json()["error"]["code"]), (404, &json!("state_not_found")), "{seed}: {}", gone.text);
        assert!(aside.exists() && server.get("/v1/states").ok()["data"].as_array().unwrap().is_empty(), "{seed}");
        save();
        assert_eq!(text(&ask().ok()), want, "{seed}");
        assert!(aside.exists(), "a saved state deletes no damaged file");
    }
    // After a power loss, a file can be empty.
    fs::write(&path, b"").unwrap();
    server.get("/v1/states").ok();
    assert_eq!((ask().status, ask().status), (500, 404));
    fs::write(&aside, b"x").unwrap();
    server.send("DELETE", "/v1/states/intro", &[], &[]).ok();
    assert!(!aside.exists() && !path.exists());
}

#[test]
fn a_damaged_session_or_response_makes_no_other_text() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let mut messages = vec![json!({"role": "user", "content": "light"})];
    let talk = |messages: &[Value]| {
        let body = json!({"messages": messages, "max_tokens": 6, "temperature": 0, "session_id": "talk"});
        server.post("/v1/chat/completions", &body).ok()["choices"][0]["message"].clone()
    };
    let answer = talk(&messages);
    messages.extend([answer, json!({"role": "user", "content": "darkness"})]);
    let session = find(folder.path(), "talk.state").unwrap();
    let session = (session.clone(), fs::read(session).unwrap());
    let want = talk(&messages);

    let first = server.post("/v1/responses", &json!({"input": "light", "max_output_tokens": 6, "temperature": 0})).ok();
    let (id, get) = (first["id"].clone(), format!("/v1/responses/{}", first["id"].as_str().unwrap()));
    let follow = || {
        let body = json!({"input": "darkness", "max_output_tokens": 6, "temperature": 0, "previous_response_id": id, "store": false});
        server.post("/v1/responses", &body)
    };
    let text = |answer: &Value| answer["output"].clone().as_array().unwrap().iter().map(|item| item["content"].clone()).collect::<Vec<_>>();
    let said = text(&follow().ok());
    let read = |end: &str| find(folder.path(), end).map(|path| (path.clone(), fs::read(path).unwrap())).unwrap();
    let (state, record) = (read(&format!("{}.state", id.as_str().unwrap())), read(".json"));
    for seed in 0..attempts(20) {
        fs::write(&session.0, damaged(&session.1, seed)).unwrap();
        assert_eq!(talk(&messages), want, "{seed}");
        fs::write(&state.0, damaged(&state.1, seed)).unwrap();
        assert_eq!(text(&follow().ok()), said, "{seed}");
        assert_eq!(text(&follow().ok()), said, "{seed}");
        fs::write(&record.0, damaged(&record.1, seed)).unwrap();
        let found = follow();
        if found.status == 200 {
            assert_eq!((text(&found.json()), server.get(&get).ok()), (said.clone(), first.clone()), "{seed}");
        } else {
            assert_eq!(found.status, 500, "{seed}: {}", found.text);
            assert!(found.text.contains("is damaged") && !found.text.contains(folder.path().to_str().unwrap()), "{seed}: {}", found.text);
            assert_eq!((follow().status, server.get(&get).status), (404, 404), "{seed}");
        }
        fs::write(&record.0, &record.1).unwrap();
        assert_eq!(server.get(&get).ok(), first, "{seed}");
    }
    // A record of an older server has no checksum.
    let line = record.1.iter().rposition(|&byte| byte == b'\n').unwrap();
    fs::write(&record.0, &record.1[..line]).unwrap();
    assert_eq!((server.get(&get).ok(), text(&follow().ok())), (first, said));
    let other = String::from_utf8(record.1[..line].to_vec()).unwrap().replacen("\"messages\"", "\"lessages\"", 1);
    fs::write(&record.0, other).unwrap();
    assert_eq!((server.get(&get).status, server.get(&get).status), (500, 404));
    assert!(find(folder.path(), ".json.damaged").is_some());
    server.send("DELETE", &get, &[], &[]).ok();
    assert!(find(folder.path(), ".json.damaged").is_none());
}
