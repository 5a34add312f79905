//! Tests of the prefix cache: its tiers, its entries within prompts, and its files.

use super::*;

fn options(device: u64, host: u64, folder: Option<&std::path::Path>) -> EngineOptions {
    let folder_bytes = if folder.is_some() { 1 << 30 } else { 0 };
    let cache =
        CacheOptions { device_bytes: device, host_bytes: host, folder: folder.map(Into::into), folder_bytes, ..CacheOptions::default() };
    EngineOptions { slots: 2, cache, ..EngineOptions::default() }
}

fn tokens(model: &Model, text: &str) -> Vec<u32> {
    model.vocab().unwrap().encode_prompt(text.as_bytes()).unwrap()
}

fn ask(tokens: &[u32]) -> Request {
    Request::tokens(tokens).max_tokens(4).set("seed", 7)
}

#[test]
fn entries_move_from_the_device_to_the_host_to_files_and_still_serve() {
    let model = model();
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let prompts: Vec<Vec<u32>> = ["In the beginning God", "And Moses said unto them", "Thou shalt not steal, thou"]
        .iter()
        .map(|text| tokens(&model, text))
        .collect();
    let off = Engine::start(&model, EngineOptions { cache: CacheOptions::off(), ..options(0, 0, None) }).unwrap();
    let want: Vec<String> = prompts.iter().map(|prompt| asked(&off, &ask(prompt)).1.text).collect();
    let mib = 1 << 20;
    for (device, host, path) in [(1, 64 * mib, None), (1, 1, Some(folder.path())), (1, 0, Some(other.path()))] {
        for round in 0..2 {
            let engine = Engine::start(&model, options(device, host, path)).unwrap();
            for again in 0..2 {
                for (prompt, want) in prompts.iter().zip(&want) {
                    let (cached, done) = asked(&engine, &ask(prompt));
                    let is_known = again > 0 || round > 0 && path.is_some();
                    assert_eq!(cached > 0, is_known, "{device} {host} {path:?}, round {round}, {again}");
                    assert_eq!(&done.text, want);
                }
            }
            engine.drain();
        }
    }
    // Requests with another namespace or another prompt find no entry, even in files.
    let engine = Engine::start(&model, options(1, 1, Some(folder.path()))).unwrap();
    assert!(engine.stats().cached > 3);
    assert_eq!(asked(&engine, &Request { namespace: "other".into(), ..ask(&prompts[0]) }).0, 0);
    assert_eq!(asked(&engine, &ask(&prompts[0][1..])).0, 0);
    engine.drain();
    // A request that finds a damaged file gets no cached tokens, and the file is removed.
    let inner = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let engine = Engine::start(&model, options(1, 1, Some(folder.path()))).unwrap();
    for file in std::fs::read_dir(&inner).unwrap().flatten() {
        std::fs::write(file.path(), "no state").unwrap();
    }
    let (cached, done) = asked(&engine, &ask(&prompts[1]));
    assert_eq!((cached, &done.text), (0, &want[1]));
    let n_damaged = |file: &std::fs::DirEntry| std::fs::read(file.path()).unwrap() == b"no state";
    let damaged = std::fs::read_dir(&inner).unwrap().flatten().filter(n_damaged).count();
    assert!(damaged < engine.stats().cached, "the file that was read is removed");
    drop(engine);
}

#[test]
fn the_folder_keeps_its_limit_of_bytes() {
    let model = model();
    let folder = tempfile::tempdir().unwrap();
    let two_files = 2 * (model.state_bytes() + 40_000);
    let mut options = options(1, 1, Some(folder.path()));
    options.cache.folder_bytes = two_files;
    let engine = Engine::start(&model, options).unwrap();
    for i in 0..6 {
        asked(&engine, &ask(&tokens(&model, &format!("{i} begat {i} and {i} begat"))));
    }
    engine.drain();
    let inner = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let sizes: Vec<u64> = std::fs::read_dir(inner).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).collect();
    assert!(!sizes.is_empty() && sizes.iter().sum::<u64>() <= two_files, "{sizes:?} {two_files}");
}

#[test]
fn a_long_prompt_leaves_snapshots_at_regular_positions() {
    let model = model();
    let mut options = options(1 << 30, 0, None);
    options.cache.every = 8;
    let engine = Engine::start(&model, options).unwrap();
    let prompt: Vec<u32> = (0..30).map(|i| 100 + i * 7).collect();
    let off = |request: Request| Request { no_cache: true, ..request };
    assert_eq!(asked(&engine, &ask(&prompt)).0, 0);
    for (n, want) in [(29, 24), (23, 16), (16, 16), (9, 8), (7, 0)] {
        let other = [&prompt[..n], &[3, 4, 5]].concat();
        let (cached, done) = asked(&engine, &ask(&other));
        assert_eq!((cached, done.text), (want, asked(&engine, &off(ask(&other))).1.text), "{n}");
    }
}

#[test]
fn a_conversation_with_thoughts_continues_from_the_end_of_its_last_message() {
    let model = model();
    let engine = Engine::start(&model, options(1 << 30, 0, None)).unwrap();
    let mut messages = Vec::new();
    let mut before = 0;
    for turn in 0..4 {
        messages.push(Message::user(format!("Tell me of the light, and of the {turn} waters")));
        let request = Request { format: Some("g1-think".into()), ..Request::chat(messages.clone()).max_tokens(4).set("seed", 1) };
        let (cached, done) = asked(&engine, &request);
        let (_, want) = asked(&engine, &Request { no_cache: true, ..request.clone() });
        assert_eq!((&done.tokens, &done.text, &done.thought), (&want.tokens, &want.text, &want.thought));
        // The previous prompt is cached up to the thought at its end. In this vocabulary, the thought has at most 6 tokens.
        assert!(turn == 0 || cached + 6 >= before, "{cached} of {before}");
        before = done.usage.prompt_tokens;
        // If the last message is edited, the tokens before it are not prefilled again.
        if turn > 0 {
            let mut edited = messages.clone();
            edited.last_mut().unwrap().content = "Never mind".into();
            let (cached, _) = asked(&engine, &Request { input: Input::Messages(edited), ..request });
            assert!(cached > before / 2, "{cached} of {before}");
        }
        messages.push(Message::assistant("There was light."));
    }
}
