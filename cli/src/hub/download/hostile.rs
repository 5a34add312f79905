//! Tests that a hostile hub cannot keep a download running for ever.

use super::super::plan::Plan;
use super::super::testing::{Answer, COMMIT, Hub, Request, described, hub_answer, model_and_cache, sha256};
use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// A chunked body: a chunk of 3 bytes and the last chunk. The trailers after it have no end.
const SHORT: &str = "3\r\nabc\r\n0\r\n";

fn content() -> Vec<u8> {
    (0..3 * BLOCK + 7).map(|i| (i * i % 251) as u8).collect()
}

/// Starts a hub that answers downloads with `answer`, pulls `m.pth` from it, and returns the error and the hub.
fn refused(answer: impl Fn(&Request, usize, &[u8]) -> Answer + Send + Sync + 'static) -> (String, Hub) {
    let content = content();
    let files = vec![("m.pth".to_string(), content.clone())];
    let hub = Hub::start(move |request, earlier| match request.method.as_str() {
        "GET" if request.path.contains("/resolve/") => answer(request, earlier, &content),
        _ => hub_answer(request, &files),
    });
    let (address, cache, _folder) = model_and_cache("m.pth");
    let client = hub.impatient_client();
    let start = Instant::now();
    let result = Plan::make(&client, &address).and_then(|plan| plan.run(&client, &cache, &mut |_, _| ()));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    (result.unwrap_err().to_string(), hub)
}

/// Returns the number of downloads.
fn n_downloads(hub: &Hub) -> usize {
    hub.requests().iter().filter(|request| request.method == "GET" && request.path.contains("/resolve/")).count()
}

#[test]
fn a_hub_that_begins_again_and_stops_at_the_same_byte_is_left() {
    let (e, hub) = refused(|_, _, content| {
        let mut answer = Answer::new(200, content);
        answer.cut = Some(2 * BLOCK);
        answer
    });
    assert!(e.contains("ends after 262144 of 393223 bytes"), "{e}");
    assert_eq!(n_downloads(&hub), 2 + RETRIES as usize, "the tries after the first brought nothing new");
}

#[test]
fn a_hub_that_begins_again_and_adds_a_little_is_left() {
    let (e, hub) = refused(|_, earlier, content| {
        let mut answer = Answer::new(200, content);
        answer.cut = Some(BLOCK + earlier);
        answer
    });
    assert!(e.contains("ends after") && n_downloads(&hub) == 2 + RETRIES as usize, "{e}: {}", n_downloads(&hub));
    let (e, hub) = refused(|request, earlier, content| {
        let mut answer = Answer::part(request, content);
        answer.cut = Some(1 + earlier % 2);
        answer
    });
    assert!(e.contains("ends after") && n_downloads(&hub) == 1 + RETRIES as usize, "{e}: {}", n_downloads(&hub));
}

#[test]
fn endless_trailers_end() {
    let (e, hub) = refused(|_, _, _| Answer::new(200, SHORT).with("transfer-encoding", "chunked").then("x: y\r\n", 0));
    assert!(e.contains("less than") && n_downloads(&hub) == 1 + RETRIES as usize, "{e}");
    let (e, _) = refused(|_, _, _| Answer::new(200, SHORT).with("transfer-encoding", "chunked").then("x: y\r\n", 20));
    assert!(e.contains("less than"), "{e}");
    let (e, _) = refused(|_, _, _| Answer::new(200, SHORT).with("transfer-encoding", "chunked").then("xxxxxxxxxxxxxxxx", 0));
    assert!(e.contains("ends after 3 of"), "{e}");
}

#[test]
fn trailers_of_a_complete_file_are_not_read() {
    let content = content();
    let hub = Hub::start(move |request, _| match request.method.as_str() {
        "GET" => {
            let body = [format!("{:x}\r\n", content.len()).as_bytes(), &content, b"\r\n0\r\n"].concat();
            described(Answer::new(200, body), &content).with("transfer-encoding", "chunked").then("x: y\r\n", 0)
        }
        _ => hub_answer(request, &[("m.pth".into(), content.clone())]),
    });
    let (address, cache, _folder) = model_and_cache("m.pth");
    let client = hub.impatient_client();
    let found = client.metadata(&address, COMMIT).unwrap();
    assert!(pull(&client, &cache, &address, COMMIT, &found, &mut |_| ()).is_ok());
}

#[test]
fn a_drip_ends() {
    let (e, hub) = refused(|_, _, content| Answer::new(200, "").with("content-length", content.len()).then("x", 1));
    assert!(e.contains("less than") && n_downloads(&hub) == 1 + RETRIES as usize, "{e}");
    assert!(e.contains("goes on where it stopped"), "{e}");
}

#[test]
fn endless_heads_end() {
    for (bytes, pause) in [("x: y\r\n", 0), ("x", 5), ("HTTP/1.1 103 Early\r\n\r\n", 0), ("HTTP/1.1 200 OK\r\nx: ", 1)] {
        let (e, _) = refused(move |_, _, _| Answer::new(200, "").after(bytes, pause));
        assert!(e.contains("cannot reach the hub"), "{bytes:?}: {e}");
    }
    let (e, _) =
        refused(|_, _, content| (0..3000).fold(Answer::new(200, content), |answer, i| answer.with(&format!("x-{i}"), "y".repeat(40))));
    assert!(e.contains("cannot reach the hub"), "{e}");
}

#[test]
fn endless_lists_end() {
    for (bytes, pause) in [(" ", 1), ("{\"siblings\": [", 0)] {
        let hub = Hub::start(move |_, _| Answer::new(200, "{").with("content-length", 1u64 << 40).then(bytes, pause));
        let start = Instant::now();
        let e = hub.impatient_client().list(&model_and_cache("m.pth").0).unwrap_err().to_string();
        assert!(start.elapsed() < Duration::from_secs(20) && e.contains("cannot reach the hub"), "{e}");
    }
    let names: Vec<String> = (0..2000).map(|i| format!("{i}.json")).chain(["config.json".into(), "m.safetensors".into()]).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"{}"[..])).collect();
    let hub = Hub::with_files(&files);
    let (mut address, ..) = model_and_cache("x");
    address.file = None;
    let e = Plan::make(&hub.client(), &address).unwrap_err().to_string();
    assert!(e.contains("2002 files") && hub.requests().len() == 1, "{e}");
}

#[test]
fn a_server_without_ranges_costs_no_bytes_that_are_there() {
    let n = AtomicUsize::new(0);
    let content = content();
    let hub = Hub::start(move |request, _| match request.method.as_str() {
        "GET" => {
            let mut answer = Answer::new(200, content.as_slice());
            answer.cut = (n.fetch_add(1, Ordering::SeqCst) == 0).then_some(2 * BLOCK);
            answer
        }
        _ => hub_answer(request, &[("m.pth".into(), content.clone())]),
    });
    let (address, cache, _folder) = model_and_cache("m.pth");
    let found = hub.client().metadata(&address, COMMIT).unwrap();
    let mut counts = Vec::new();
    let path = pull(&hub.client(), &cache, &address, COMMIT, &found, &mut |done| counts.push(done)).unwrap();
    assert_eq!(sha256(&fs::read(path).unwrap()), found.etag.as_str());
    assert!(counts.is_sorted(), "the count never goes back: {counts:?}");
}
