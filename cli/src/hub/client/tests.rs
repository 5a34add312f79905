use super::super::testing::{Answer, COMMIT, Hub, Request, described, hub_answer, model_and_cache, sha256};
use super::*;

fn model() -> Address {
    model_and_cache("m.pth").0
}

#[test]
fn a_listing_has_only_names_that_are_safe_below_the_cache() {
    let names = [
        "m.pth",
        "sub/n.gguf",
        "../../x.pth",
        "/etc/passwd",
        "a\\..\\b.pth",
        "a/../../b.pth",
        "c\u{1b}[2J.pth",
        "",
        "C:x.pth",
        "m\u{202e}htp.gpj.pth",
    ];
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (*name, &b"x"[..])).collect();
    let listing = Hub::with_files(&files).client().list(&model()).unwrap();
    assert_eq!((listing.commit.as_str(), listing.files), (COMMIT, vec!["m.pth".into(), "sub/n.gguf".into()]));
    for body in ["<html>", "{\"sha\": \"../../..\", \"siblings\": []}", "{}"] {
        let hub = Hub::start(move |_, _| Answer::new(200, body));
        assert!(hub.client().list(&model()).unwrap_err().message.starts_with("expected "), "{body}");
    }
}

#[test]
fn metadata_are_those_of_the_hub_and_not_of_a_redirect() {
    let relative = |request: &Request, _: usize| match request.path.as_str() {
        "/cached" => Answer::new(200, "hello\n").with("etag", "\"ce013625030ba8dba906f756967f9e9ca394464a\""),
        _ => Answer::new(307, "x").with("location", "/cached").with("etag", "\"nonsense\""),
    };
    let found = Hub::start(relative).client().metadata(&model(), COMMIT).unwrap();
    assert_eq!((found.etag.as_str(), found.size_bytes), ("ce013625030ba8dba906f756967f9e9ca394464a", 6));
    let cdn = Hub::start(|_, _| Answer::new(200, "evil").with("etag", "0".repeat(64)));
    let to = cdn.address.clone();
    let hub = Hub::start(move |_, _| described(Answer::new(302, "moved").with("location", &to), b"content").with("etag", "\"x\""));
    let found = hub.client().metadata(&model(), COMMIT).unwrap();
    assert_eq!((found.etag.as_str(), found.size_bytes), (sha256(b"content").as_str(), 7));
    assert!(cdn.requests().is_empty(), "another host is not asked for metadata");
    let to = cdn.address.clone();
    let bare = Hub::start(move |_, _| Answer::new(302, "").with("location", &to));
    assert!(bare.client().metadata(&model(), COMMIT).unwrap_err().message.contains("announces no size and hash"));
    let circle = Hub::start(|_, _| Answer::new(302, "").with("location", "/again"));
    assert!(circle.client().metadata(&model(), COMMIT).unwrap_err().message.contains("too many redirects"));
}

#[test]
fn hostile_metadata_are_refused() {
    let cases: [(&str, &[(&str, &str)]); 4] = [
        ("../../../../x", &[("etag", "\"../../../../x\"")]),
        ("announces no size", &[("x-linked-size", "-1"), ("etag", "0")]),
        ("announces no size", &[("x-linked-size", "99999999999999999999999"), ("etag", "0")]),
        ("found something else", &[("x-repo-commit", "../../..")]),
    ];
    for (want, headers) in cases {
        let hub = Hub::start(move |_, _| headers.iter().fold(Answer::new(200, "x"), |answer, (name, value)| answer.with(name, value)));
        let e = hub.client().metadata(&model(), COMMIT).unwrap_err().to_string();
        assert!(e.contains(want), "{want}: {e}");
    }
}

#[test]
fn busy_servers_are_asked_again() {
    let hub = Hub::start(|request, earlier| match earlier {
        0 => Answer::new(429, "").with("retry-after", "0"),
        1 => Answer::new(503, ""),
        _ => hub_answer(request, &[("m.pth".into(), b"x".to_vec())]),
    });
    assert_eq!(hub.client().list(&model()).unwrap().files, ["m.pth"]);
    assert_eq!(hub.requests().len(), 3);
    let busy = Hub::start(|_, _| Answer::new(429, ""));
    let e = busy.client().list(&model()).unwrap_err();
    assert!(e.message.contains("refuses more requests") && busy.requests().len() == 1 + RETRIES as usize, "{e}");
    let slow = Hub::start(|_, _| Answer::new(429, "").with("retry-after", "86400"));
    let e = slow.client().list(&model()).unwrap_err();
    assert!(e.message.contains("asks to wait 86400 s") && slow.requests().len() == 1, "{e}");
}

#[test]
fn a_refused_connection_is_tried_again() {
    // The port is free after this line, so that the first connections are refused.
    let at = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut client = Client::new(HubSettings::for_test(&[("HF_ENDPOINT", &format!("http://{at}")), ("HF_HOME", "/x")]));
    client.pause = Duration::from_millis(100);
    let opens = std::thread::spawn(move || {
        sleep(Duration::from_millis(50));
        Hub::on(std::net::TcpListener::bind(at).unwrap(), |request, _| hub_answer(request, &[("m.pth".into(), b"x".to_vec())]))
    });
    assert_eq!(client.list(&model()).unwrap().files, ["m.pth"]);
    assert_eq!(opens.join().unwrap().requests().len(), 1);
}

#[test]
fn errors_say_what_to_do_and_never_the_token() {
    for (status, code, want) in [
        (401, "RepoNotFound", "HF_TOKEN may not read it"),
        (403, "GatedRepo", "terms must be accepted"),
        (404, "EntryNotFound", "has no such file"),
        (404, "RevisionNotFound", "has no such revision"),
        (404, "", "no such repository or file"),
        (418, "", "the server cannot answer (HTTP status 418)"),
    ] {
        let hub = Hub::start(move |_, _| Answer::new(status, "").with("x-error-code", code));
        let e = hub.client().list(&model()).unwrap_err();
        let all = format!("{e} {e:?}");
        assert!(all.contains(want) && e.hint.is_some() && !all.contains("secret"), "{want}: {all}");
    }
    let mut closed =
        Client::new(HubSettings::for_test(&[("HF_ENDPOINT", "http://127.0.0.1:1"), ("HF_TOKEN", "hf_secret"), ("HF_HOME", "/x")]));
    closed.pause = Duration::from_millis(1);
    let e = format!("{:?}", closed.list(&model()).unwrap_err());
    assert!(e.contains("cannot reach the hub") && !e.contains("secret"), "{e}");
    let offline = Client::new(HubSettings::for_test(&[("HF_HUB_OFFLINE", "1"), ("HF_HOME", "/x")]));
    assert!(offline.list(&model()).unwrap_err().message.contains("HF_HUB_OFFLINE"));
}
