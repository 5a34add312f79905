use super::super::testing::{Answer, COMMIT, Hub, Request, described, hub_answer, model_and_cache, sha256};
use super::*;

/// Returns a content of more than three blocks, so that a cut can fall inside a block.
fn content() -> Vec<u8> {
    (0..3 * BLOCK + 7).map(|i| (i * i % 251) as u8).collect()
}

/// Pulls `m.pth` from the hub `hub`.
fn pulled(hub: &Hub, cache: &Cache, address: &Address) -> Result<PathBuf> {
    let client = hub.client();
    let found = client.metadata(address, COMMIT)?;
    pull(&client, cache, address, COMMIT, &found, &mut |_| ())
}

/// Starts a hub that answers downloads of `m.pth` with `answer`.
fn hub(answer: impl Fn(&Request, usize, &[u8]) -> Answer + Send + Sync + 'static) -> Hub {
    let content = content();
    Hub::start(move |request, earlier| match request.method.as_str() {
        "GET" => answer(request, earlier, &content),
        _ => hub_answer(request, &[("m.pth".into(), content.clone())]),
    })
}

/// Returns whether the cache has neither the blob nor a link to it.
fn is_empty(cache: &Cache, address: &Address) -> bool {
    cache.find(address).unwrap().is_none() && !cache.folder(address).join("blobs").join(sha256(&content())).exists()
}

#[test]
fn a_file_is_stored_as_python_stores_it() {
    let hub = Hub::with_files(&[("sub/m.pth", &content())]);
    let (address, cache, _folder) = model_and_cache("sub/m.pth");
    let path = pulled(&hub, &cache, &address).unwrap();
    let folder = cache.folder(&address);
    assert_eq!(path, folder.join("snapshots").join(COMMIT).join("sub/m.pth"));
    assert_eq!(fs::read(&path).unwrap(), content());
    assert_eq!(fs::read_link(&path).unwrap(), Path::new("../../../blobs").join(sha256(&content())));
    assert!(!partial(&folder.join("blobs").join(sha256(&content()))).exists());
    let n = hub.requests().len();
    pulled(&hub, &cache, &address).unwrap();
    assert_eq!(hub.requests()[n..].iter().map(|r| r.method.as_str()).collect::<Vec<_>>(), ["HEAD"], "a second pull downloads nothing");
}

#[test]
fn a_small_file_is_checked_with_gits_hash() {
    let answer = |etag: &'static str| {
        move |request: &Request, _: usize| match request.method.as_str() {
            "HEAD" => Answer::new(200, "hello\n").with("etag", etag).with("x-repo-commit", COMMIT),
            _ => Answer::part(request, b"hello\n").with("etag", etag),
        }
    };
    let (address, cache, _folder) = model_and_cache("config.json");
    let path = pulled(&Hub::start(answer("\"ce013625030ba8dba906f756967f9e9ca394464a\"")), &cache, &address).unwrap();
    assert_eq!(fs::read_to_string(path).unwrap(), "hello\n");
    let (address, cache, _folder) = model_and_cache("config.json");
    let e = pulled(&Hub::start(answer("\"ce013625030ba8dba906f756967f9e9ca394464b\"")), &cache, &address).unwrap_err();
    assert!(e.message.contains("found ce013625030ba8dba906f756967f9e9ca394464a"), "{e}");
}

#[test]
fn a_cut_download_goes_on() {
    let hub = hub(|request, earlier, content| {
        let mut answer = described(Answer::part(request, content), content);
        answer.cut = (earlier < 2).then_some(BLOCK + 11);
        answer
    });
    let (address, cache, _folder) = model_and_cache("m.pth");
    let path = pulled(&hub, &cache, &address).unwrap();
    assert_eq!(fs::read(path).unwrap(), content());
    let requests = hub.requests();
    let ranges: Vec<Option<&str>> =
        requests.iter().filter(|r| r.method == "GET").map(|r| r.headers.get("range").map(String::as_str)).collect();
    let starts = [BLOCK + 11, 2 * (BLOCK + 11)].map(|start| format!("bytes={start}-"));
    assert_eq!(ranges, [None, Some(starts[0].as_str()), Some(starts[1].as_str())]);
}

#[test]
fn a_killed_download_goes_on_and_a_wrong_part_is_found() {
    let (address, cache, _folder) = model_and_cache("m.pth");
    let (blobs, content) = (cache.folder(&address).join("blobs"), content());
    let part = partial(&blobs.join(sha256(&content)));
    fs::create_dir_all(&blobs).unwrap();
    let hub = Hub::with_files(&[("m.pth", &content)]);
    fs::write(&part, vec![9; 1000]).unwrap();
    let e = pulled(&hub, &cache, &address).unwrap_err();
    assert!(e.message.contains("the downloaded file is removed") && !part.exists() && is_empty(&cache, &address), "{e}");
    fs::write(&part, &content[..1000]).unwrap();
    assert_eq!(remaining(&cache, &address, COMMIT, &hub.client().metadata(&address, COMMIT).unwrap()), content.len() as u64 - 1000);
    assert_eq!(fs::read(pulled(&hub, &cache, &address).unwrap()).unwrap(), content);
    assert_eq!(hub.requests().last().unwrap().headers["range"], "bytes=1000-");
    fs::remove_file(blobs.join(sha256(&content))).unwrap();
    fs::write(&part, vec![9; content.len() + 1]).unwrap();
    assert_eq!(fs::read(pulled(&hub, &cache, &address).unwrap()).unwrap(), content, "a part that is too long is dropped");
}

#[test]
fn a_server_without_ranges_begins_anew() {
    let hub = hub(|_, earlier, content| {
        let mut answer = Answer::new(200, content);
        answer.cut = (earlier == 0).then_some(BLOCK);
        answer
    });
    let (address, cache, _folder) = model_and_cache("m.pth");
    assert_eq!(fs::read(pulled(&hub, &cache, &address).unwrap()).unwrap(), content());
}

#[test]
fn a_download_that_always_stops_ends() {
    let hub = hub(|request, _, content| {
        let mut answer = Answer::part(request, content);
        answer.cut = Some(usize::from(!request.headers.contains_key("range")));
        answer
    });
    let (address, cache, _folder) = model_and_cache("m.pth");
    let e = pulled(&hub, &cache, &address).unwrap_err();
    assert!(e.message.contains("ends after 1 of") && e.hint.as_ref().unwrap().contains("goes on where it stopped"), "{e}");
    assert!(is_empty(&cache, &address));
}

#[test]
fn wrong_bytes_lengths_and_ranges_are_refused() {
    type Wrong = fn(&Request, &[u8]) -> Answer;
    let cases: [(&str, Wrong); 5] = [
        ("expected a file with the hash", |_, content| Answer::new(200, vec![7; content.len()])),
        ("found 393224", |_, content| Answer::new(200, [content, b"!"].concat())),
        ("found more: the download is dropped", |_, content| {
            let body = [format!("{:x}\r\n", content.len() + 1).as_bytes(), content, b"!\r\n0\r\n\r\n"].concat();
            Answer::new(200, body).with("transfer-encoding", "chunked")
        }),
        ("found other bytes", |_, content| {
            Answer::new(206, &content[5..]).with("content-range", format!("bytes 5-{}/{}", content.len() - 1, content.len()))
        }),
        ("expected the file with the hash", |request, content| described(Answer::part(request, content), b"another file")),
    ];
    for (want, wrong) in cases {
        let hub = hub(move |request, _, content| wrong(request, content));
        let (address, cache, _folder) = model_and_cache("m.pth");
        let e = pulled(&hub, &cache, &address).unwrap_err().to_string();
        assert!(e.contains(want) && e.starts_with("hf:me/models/m.pth"), "{want}: {e}");
        assert!(is_empty(&cache, &address), "{want}");
    }
}

#[test]
fn the_token_stays_with_the_hub() {
    let cdn = Hub::start(|request, _| Answer::part(request, &content()));
    let to = format!("{}/blob?signature=1", cdn.address);
    let hub = hub(move |_, _, content| described(Answer::new(302, "moved").with("location", &to), content));
    let (address, cache, _folder) = model_and_cache("m.pth");
    assert_eq!(fs::read(pulled(&hub, &cache, &address).unwrap()).unwrap(), content());
    assert!(hub.requests().iter().all(|r| r.headers["authorization"] == "Bearer hf_secret"));
    assert_eq!(cdn.requests().len(), 1);
    assert!(!cdn.requests()[0].headers.contains_key("authorization"), "{:?}", cdn.requests());
}

#[test]
fn another_process_is_waited_for() {
    let hub = Hub::with_files(&[("m.pth", &content())]);
    let (address, cache, _folder) = model_and_cache("m.pth");
    let found = hub.client().metadata(&address, COMMIT).unwrap();
    let path = cache.lock(&address, &found.etag);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let held = opened(&path).unwrap();
    assert_eq!(try_lock(&held), Lock::Taken);
    std::thread::scope(|scope| {
        let puller = scope.spawn(|| pulled(&hub, &cache, &address));
        sleep(2 * LOOK);
        assert!(!puller.is_finished() && is_empty(&cache, &address));
        drop(held);
        puller.join().unwrap().unwrap();
    });
}

#[test]
fn links_in_the_cache_are_not_written_through() {
    let hub = Hub::with_files(&[("m.pth", &content())]);
    let outside = tempfile::tempdir().unwrap();
    let victim = outside.path().join("victim");
    fs::write(&victim, "mine").unwrap();
    let link = |target: &Path, path: &Path| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    };
    for place in ["partial", "blob", "blobs", "snapshot", "lock"] {
        let (address, cache, _folder) = model_and_cache("m.pth");
        let folder = cache.folder(&address);
        let blob = folder.join("blobs").join(sha256(&content()));
        match place {
            "partial" => link(&victim, &partial(&blob)),
            "blob" => link(&victim, &blob),
            "blobs" => link(outside.path(), &folder.join("blobs")),
            "snapshot" => link(outside.path(), &folder.join("snapshots").join(COMMIT)),
            _ => link(outside.path(), cache.lock(&address, &hub.client().metadata(&address, COMMIT).unwrap().etag).parent().unwrap()),
        }
        let e = pulled(&hub, &cache, &address).expect_err(place).to_string();
        assert!(e.contains("link"), "{place}: {e}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine", "{place}");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1, "{place}");
    }
}

#[test]
fn a_full_disk_is_noticed_before_the_download() {
    let hub = Hub::start(|_, _| Answer::new(200, "").with("content-length", 1u64 << 60).with("etag", "0".repeat(64)));
    let (address, cache, _folder) = model_and_cache("m.pth");
    let e = pulled(&hub, &cache, &address).unwrap_err();
    assert!(e.message.contains("the download needs 1048576.00 TiB, but the disk has only"), "{e}");
    assert!(hub.requests().iter().all(|r| r.method == "HEAD"));
}
