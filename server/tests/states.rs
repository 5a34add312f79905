//! States: sessions, saved states, uploads, quotas, and who can see them.

use super::{Server, keys};
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use wingbeat_server::ServeOptions;

fn in_folder(folder: &std::path::Path) -> ServeOptions {
    ServeOptions { states: Some(folder.display().to_string()), ..ServeOptions::default() }
}

#[test]
fn a_session_reads_only_new_words() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::with(in_folder(folder.path()));
    let mut messages = vec![json!({"role": "user", "content": "light"})];
    let ask = |server: &Server, messages: &[Value]| {
        server.post("/v1/chat/completions", &json!({"messages": messages, "max_tokens": 8, "seed": 1, "session_id": "talk"})).ok()
    };
    let answer = ask(&server, &messages);
    messages.extend([answer["choices"][0]["message"].clone(), json!({"role": "user", "content": "darkness"})]);
    drop(server);
    // The next server has no prefix cache of this conversation, only the folder.
    let server = Server::with(in_folder(folder.path()));
    let usage = ask(&server, &messages)["usage"].clone();
    let (prompt, cached) = (usage["prompt_tokens"].as_u64().unwrap(), usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap());
    assert!(cached >= answer["usage"]["total_tokens"].as_u64().unwrap() && cached < prompt, "{usage}");
    assert_eq!(server.get("/v1/states").ok()["data"][0]["name"], "talk");
    // After an edit of the first message, the server prefills from an earlier state or from the beginning.
    messages[0]["content"] = "water".into();
    let edited = ask(&server, &messages)["usage"].clone();
    assert!(edited["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() < cached, "{edited}");
    // The header `x-session-id` does the same as the field `session_id`.
    let body = json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}).to_string();
    server.send("POST", "/v1/chat/completions", &[("x-session-id", "by-header")], body.as_bytes()).ok();
    server.get("/v1/states/by-header").ok();
}

#[test]
fn a_state_is_saved_copied_and_carried_to_another_server() {
    let server = Server::start();
    let saved = server.post("/v1/states", &json!({"action": "save", "name": "intro", "prompt": "In the beginning God created"})).ok();
    assert_eq!((&saved["name"], saved["tokens"].as_u64().unwrap() > 3), (&json!("intro"), true));
    let continued = |server: &Server, name: &str| {
        let body = json!({"prompt": " the heaven", "state": name, "max_tokens": 8, "seed": 1});
        server.post("/v1/completions", &body).ok()["choices"][0]["text"].clone()
    };
    let text = continued(&server, "intro");
    let whole = json!({"prompt": "In the beginning God created the heaven", "max_tokens": 8, "seed": 1});
    assert_eq!(server.post("/v1/completions", &whole).ok()["choices"][0]["text"], text);
    server.post("/v1/states", &json!({"action": "fork", "from": "intro", "name": "copy"})).ok();
    server.post("/v1/states", &json!({"action": "rename", "from": "copy", "name": "other"})).ok();
    let names = |server: &Server| {
        server.get("/v1/states").ok()["data"].as_array().unwrap().iter().map(|state| state["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&server), ["intro", "other"]);
    // After a state is replaced, requests continue from the new state.
    server.post("/v1/states", &json!({"action": "save", "name": "old", "prompt": "Thou shalt not"})).ok();
    assert_ne!(continued(&server, "old"), text);
    server.post("/v1/states", &json!({"action": "fork", "from": "intro", "name": "old"})).ok();
    assert_eq!(continued(&server, "old"), text);
    server.post("/v1/states", &json!({"action": "delete", "name": "old"})).ok();
    let file = server.download("/v1/states/intro/content");
    let other = Server::start();
    assert_eq!(other.send("PUT", "/v1/states/mine/content", &[], &file).status, 201);
    assert_eq!(continued(&other, "mine"), text);
    assert_eq!(server.send("DELETE", "/v1/states/intro", &[], &[]).status, 200);
    assert_eq!((names(&server), server.send("DELETE", "/v1/states/intro", &[], &[]).status), (vec![json!("other")], 404));
    let gone = server.post("/v1/states", &json!({"action": "save", "name": "x", "prompt": "a", "from": "intro"}));
    assert_eq!((gone.status, &gone.json()["error"]["param"]), (404, &json!("from")));
    let gone = server.post("/v1/completions", &json!({"prompt": "a", "state": "intro"}));
    assert_eq!(
        (gone.status, &gone.json()["error"]["code"], &gone.json()["error"]["param"]),
        (404, &json!("state_not_found"), &json!("state"))
    );
    // If the request names no state, the server chooses the name, and the answer has this name.
    let returned = server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 1, "return_state": true})).ok();
    assert!(names(&server).contains(&returned["state"]["name"]));
}

#[test]
fn a_server_reads_only_states_that_others_have_written() {
    let folder = tempfile::tempdir().unwrap();
    let (server, other) = (Server::with(in_folder(folder.path())), Server::with(in_folder(folder.path())));
    let save = |server: &Server, prompt: &str| {
        server.post("/v1/completions", &json!({"prompt": prompt, "max_tokens": 2, "seed": 1, "save_state": "x"})).ok()
    };
    let ask = |server: &Server| server.post("/v1/completions", &json!({"prompt": " the", "state": "x", "max_tokens": 8, "seed": 1}));
    let continued = |server: &Server| ask(server).ok()["choices"][0]["text"].clone();
    save(&server, "In the beginning");
    let text = continued(&other);
    // Damages the file, but keeps its version. The server that wrote the state has a copy in memory, so only the other server reads the file.
    let entries = |path: &std::path::Path| std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).next().unwrap();
    let path = entries(&entries(&entries(folder.path())));
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let (modified, n_bytes) = (file.metadata().unwrap().modified().unwrap(), file.metadata().unwrap().len());
    (&file).write_all(&vec![0; n_bytes as usize]).unwrap();
    file.set_modified(modified).unwrap();
    assert_eq!(continued(&server), text);
    let metrics = server.get("/metrics").text;
    assert!(metrics.contains("wingbeat_state_reads_total 0\n") && metrics.contains("wingbeat_state_writes_total 1\n"), "{metrics}");
    let damaged = ask(&Server::with(in_folder(folder.path())));
    assert_eq!((damaged.status, &damaged.json()["error"]["param"]), (500, &json!("state")), "{}", damaged.text);
    // The other server's state replaces the first server's.
    save(&other, "Thou shalt not");
    assert_eq!(continued(&server), continued(&other));
    assert_ne!(continued(&server), text);
}

#[test]
fn a_hostile_upload_is_refused() {
    let server = Server::start();
    server.post("/v1/states", &json!({"action": "save", "name": "good", "prompt": "a"})).ok();
    let file = server.download("/v1/states/good/content");
    let put = |name: &str, content: &[u8]| server.send("PUT", &format!("/v1/states/{name}/content"), &[], content);
    // Changes a number of the first layer, in the file itself and in a file of format version 1, which has no checksum.
    let n_header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let (header, data) = file[8..].split_at(n_header);
    let mut header: Value = serde_json::from_slice(header).unwrap();
    let at = header["blocks.0.att.wkv"]["data_offsets"][0].as_u64().unwrap() as usize;
    header["__metadata__"]["format_version"] = "1".into();
    header["__metadata__"].as_object_mut().unwrap().remove("checksum").unwrap();
    let header = header.to_string();
    let old = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat();
    let with = |file: &[u8], number: f32| {
        let (mut file, at) = (file.to_vec(), file.len() - data.len() + at);
        file[at..at + 4].copy_from_slice(&number.to_le_bytes());
        file
    };
    for (content, what) in [
        (&with(&file, 1.5)[..], "expected the checksum"),
        (&with(&old, f32::NAN), "infinity or NaN"),
        (&with(&old, 3e38), "found larger numbers"),
        (&file[..file.len() / 2], ""),
        (b"nonsense", ""),
        (b"", ""),
    ] {
        let answer = put("bad", content);
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &json!("invalid_state")), "{}", answer.text);
        assert!(answer.text.contains(what) && !answer.text.contains("/tmp"), "{}", answer.text);
    }
    assert_eq!((put("old", &old).status, server.send("DELETE", "/v1/states/old", &[], &[]).status), (201, 200));
    for name in ["..%2Fx", "%2e%2e%2fx", ".x", "a%20b", "a%00"] {
        assert_eq!(put(name, &file).status, 400, "{name}");
    }
    assert_eq!(server.get("/v1/states").ok()["data"].as_array().unwrap().len(), 1);
    let small = Server::with(ServeOptions { state_quota: Some(file.len() as u64 * 3 / 2), ..ServeOptions::default() });
    assert_eq!(small.send("PUT", "/v1/states/a/content", &[], &file).status, 201);
    let full = small.send("PUT", "/v1/states/b/content", &[], &file);
    assert_eq!((full.status, &full.json()["error"]["code"]), (413, &json!("quota_exceeded")), "{}", full.text);
    // A refused upload deletes no response, and a refused save replaces nothing.
    let kept = small.post("/v1/responses", &json!({"input": "a", "max_output_tokens": 1})).ok();
    assert!(kept["state"]["error"]["message"].as_str().unwrap().contains("quota"), "{kept}");
    let path = format!("/v1/responses/{}", kept["id"].as_str().unwrap());
    assert_eq!((small.send("PUT", "/v1/states/b/content", &[], &file).status, small.get(&path).status), (413, 200));
    let before = small.get("/v1/states/a").ok();
    let refused = small.post("/v1/states", &json!({"action": "save", "name": "b", "prompt": "And it came to pass"}));
    assert_eq!((refused.status, small.get("/v1/states/a").ok()), (413, before));
    // An upload with the name of an existing state replaces this state, and needs no further room.
    assert_eq!(small.send("PUT", "/v1/states/a/content", &[], &file).status, 201);
}

#[test]
fn a_failing_storage_is_not_the_fault_of_the_request() {
    let folder = tempfile::tempdir().unwrap();
    let states = folder.path().join("states");
    let server = Server::with(in_folder(&states));
    server.post("/v1/states", &json!({"action": "save", "name": "a", "prompt": "a"})).ok();
    std::fs::remove_dir_all(&states).unwrap();
    std::fs::write(&states, b"a file instead of the folder").unwrap();
    let save = server.post("/v1/states", &json!({"action": "save", "name": "a", "prompt": "a"}));
    let answer = server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 1, "save_state": "b"}));
    assert_eq!((save.status, &save.json()["error"]["code"]), (507, &json!("storage_failed")), "{}", save.text);
    assert!(answer.ok()["state"]["error"]["message"].as_str().unwrap().contains("could not store the file"), "{}", answer.text);
    for text in [save.text, answer.text, server.get("/v1/states").text] {
        assert!(!text.contains(folder.path().to_str().unwrap()), "{text}");
    }
}

#[test]
fn callers_do_not_see_each_other() {
    let server = Server::with(ServeOptions { keys: keys(), ..ServeOptions::default() });
    let (ada, bob) = (server.as_caller("key-of-ada"), server.as_caller("key-of-bob"));
    let prompt = "And it came to pass in those days, that there went out a decree".repeat(3);
    ada.post("/v1/states", &json!({"action": "save", "name": "secret", "prompt": prompt})).ok();
    assert_eq!(bob.get("/v1/states").ok()["data"], json!([]));
    for path in ["/v1/states/secret", "/v1/states/secret/content"] {
        assert_eq!((bob.get(path).status, ada.get(path).status), (404, 200), "{path}");
    }
    assert_eq!(bob.send("DELETE", "/v1/states/secret", &[], &[]).status, 404);
    assert_eq!(bob.post("/v1/completions", &json!({"prompt": "a", "state": "secret"})).status, 404);
    let cached = |caller: &Server| {
        caller.post("/v1/completions", &json!({"prompt": prompt, "max_tokens": 1})).ok()["usage"]["prompt_tokens_details"].clone()
    };
    cached(&ada);
    assert_eq!((cached(&bob)["cached_tokens"].as_u64(), cached(&ada)["cached_tokens"].as_u64() > Some(0)), (Some(0), true));
    let kept = ada.post("/v1/responses", &json!({"input": "a", "max_output_tokens": 1})).ok()["id"].clone();
    let path = format!("/v1/responses/{}", kept.as_str().unwrap());
    assert_eq!((bob.get(&path).status, ada.get(&path).status), (404, 200));
}

#[test]
fn uploads_do_not_wait_for_slow_ones_and_end_at_the_size_of_a_state() {
    let server = Server::start();
    server.post("/v1/states", &json!({"action": "save", "name": "good", "prompt": "a"})).ok();
    let file = server.download("/v1/states/good/content");
    let address = server.url.strip_prefix("http://").unwrap();
    let slow = ["x", "y", "z"].map(|name| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "PUT /v1/states/{name}/content HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", 8 << 20).unwrap();
        stream
    });
    let began = Instant::now();
    assert_eq!(server.send("PUT", "/v1/states/other/content", &[], &file).status, 201);
    assert!(began.elapsed() < Duration::from_secs(10), "the upload waited for slow ones");
    drop(slow);
    // The quota has room for a gigabyte, but no state of this model is so large.
    let huge = format!("PUT /v1/states/huge/content HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", 900 << 20);
    let answer = server.exchange(huge.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("body_too_large"), "{answer}");
}
