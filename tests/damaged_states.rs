//! Tests that a session, the prefix cache and the named states of an engine find damaged state files. No text continues from a damaged state, and an
//! engine works again after it has found one.

use crate::support::damage::{attempts, damaged};
use crate::support::{goldens, options, tiny};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use wingbeat::engine::{CacheOptions, Completion, Engine, EngineOptions, Request, StateOptions};
use wingbeat::error::Kind;
use wingbeat::low_level::sample::{Memory, Sampler, Sampling};
use wingbeat::low_level::session::{LoadedState, Model, Session, Snapshot, StateExtras, check_state_file, is_damaged, saved_tokens};

/// Returns a state file of a model, with tokens and a sampler.
fn file(model: &Model, tokens: &[u32]) -> Vec<u8> {
    let mut session = Session::new(model, 1).unwrap();
    let slot = session.open().unwrap();
    session.prefill(slot, tokens).unwrap();
    let mut sampler = Sampler::new(Sampling { presence_penalty: 0.5, ..Sampling::greedy(3) });
    sampler.read(tokens);
    let memory: Memory = sampler.memory();
    let extras = StateExtras { tokens: Some(tokens), sampler: Some(&memory), ..StateExtras::default() };
    session.snapshot(slot).unwrap().bytes(model, extras).unwrap()
}

/// Returns the bytes of a new state file, written from a loaded state.
fn again(model: &Model, (snapshot, loaded): &(Snapshot, LoadedState)) -> Vec<u8> {
    let LoadedState { tokens, sampler, pending, .. } = loaded;
    let extras = StateExtras { tokens: tokens.as_deref(), sampler: sampler.as_ref(), pending, metadata: &[] };
    snapshot.bytes(model, extras).unwrap()
}

#[test]
fn a_damaged_file_is_refused_or_has_the_same_state() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.st");
    let mut refused = 0;
    for golden in goldens().filter(|golden| ["rwkv4", "rwkv7", "glm4"].contains(&golden.name)) {
        let model = golden.load(&options("cpu"));
        let sound = file(&model, &golden.golden().prompt(9, 1));
        fs::write(&path, &sound).unwrap();
        assert!(again(&model, &Snapshot::load(&model, &path, false).unwrap()) == sound, "{}", golden.name);
        for seed in 0..attempts(60) {
            fs::write(&path, damaged(&sound, seed)).unwrap();
            match Snapshot::load(&model, &path, false) {
                Ok(loaded) => assert!(again(&model, &loaded) == sound, "{} {seed}: another state", golden.name),
                Err(e) => {
                    refused += 1;
                    assert!(is_damaged(&e), "{} {seed}: {e}", golden.name);
                    assert!(e.hint.is_some() && !e.to_string().contains('\n'), "{} {seed}: {e}", golden.name);
                }
            }
            // `saved_tokens` reads less of the file, so it can miss damage. It must not panic.
            let _ = saved_tokens(&path);
        }
    }
    assert!(refused >= 40, "{refused}");
}

/// Splits a state file into its header and the data of its tensors.
fn split(file: &[u8]) -> (Value, &[u8]) {
    let (header, data) = file[8..].split_at(u64::from_le_bytes(file[..8].try_into().unwrap()) as usize);
    (serde_json::from_slice(header).unwrap(), data)
}

fn joined(header: &Value, data: &[u8]) -> Vec<u8> {
    let header = header.to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// Computes the checksum of a state file as docs/state-files.md describes it, bit by bit.
fn documented_checksum(file: &[u8]) -> String {
    let (header, data) = split(file);
    let mut content = Vec::new();
    let mut names: Vec<&String> = header["__metadata__"].as_object().unwrap().keys().filter(|key| *key != "checksum").collect();
    names.sort();
    for key in names {
        content.extend(format!("{key}\0{}\0", header["__metadata__"][key].as_str().unwrap()).bytes());
    }
    let mut names: Vec<&String> = header.as_object().unwrap().keys().filter(|name| *name != "__metadata__").collect();
    names.sort();
    for name in names {
        let of = &header[name];
        let shape: Vec<String> = of["shape"].as_array().unwrap().iter().map(Value::to_string).collect();
        content.extend(format!("{name}\0{}\0[{}]\0", of["dtype"].as_str().unwrap(), shape.join(", ")).bytes());
        let at = |i: usize| of["data_offsets"][i].as_u64().unwrap() as usize;
        content.extend(&data[at(0)..at(1)]);
    }
    let mut crc = u32::MAX;
    for byte in content {
        crc ^= u32::from(byte);
        (0..8).for_each(|_| crc = (crc >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(crc & 1)));
    }
    format!("crc32:{:08x}", !crc)
}

#[test]
fn files_of_version_1_are_read_and_newer_ones_are_not_called_damaged() {
    let model = tiny(&options("cpu"));
    let sound = file(&model, &[5, 6, 7, 8]);
    let (header, data) = split(&sound);
    assert_eq!(header["__metadata__"]["checksum"], documented_checksum(&sound));
    let with = |version: &str, checksum: Option<String>| {
        let mut header = header.clone();
        header["__metadata__"]["format_version"] = version.into();
        match checksum {
            Some(checksum) => header["__metadata__"]["checksum"] = checksum.into(),
            None => _ = header["__metadata__"].as_object_mut().unwrap().remove("checksum"),
        }
        joined(&header, data)
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.st");
    let load = |file: &[u8]| {
        fs::write(&path, file).unwrap();
        Snapshot::load(&model, &path, false)
    };
    let old = with("1", None);
    assert!(again(&model, &load(&old).unwrap()) == sound);
    check_state_file(&old).unwrap();
    // Without a checksum, infinity and NaN are still found.
    let mut nan = old.clone();
    let at = nan.len() - data.len() + header["blocks.0.att.wkv"]["data_offsets"][0].as_u64().unwrap() as usize;
    nan[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let e = load(&nan).err().unwrap();
    assert!(is_damaged(&e) && e.to_string().contains("blocks.0.att.wkv"), "{e}");
    // The digit of the version is damaged, or the checksum is lost.
    for file in [with("3", Some(documented_checksum(&sound))), with("2", None), with("2", Some("crc32:".into()))] {
        let e = load(&file).err().unwrap();
        assert!(is_damaged(&e) && is_damaged(&check_state_file(&file).unwrap_err()), "{e}");
    }
    // A file of a newer version is refused, but does not count as damaged.
    let newer = with("3", Some(documented_checksum(&with("3", None))));
    let e = load(&newer).err().unwrap();
    assert!(
        !is_damaged(&e) && e.kind == Kind::File && e.to_string().contains("expected a wingbeat state of format version 1 or 2, found 3"),
        "{e}"
    );
}

/// Returns the state files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn asked(engine: &Engine, request: &Request) -> Completion {
    engine.run(request.clone()).unwrap()
}

#[test]
fn a_damaged_entry_of_the_prefix_cache_is_dropped() {
    let model = tiny(&options("cpu"));
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheOptions {
        device_bytes: 1,
        host_bytes: 0,
        folder: Some(folder.path().into()),
        folder_bytes: 1 << 30,
        ..CacheOptions::default()
    };
    let start = || Engine::start(&model, EngineOptions { slots: 1, cache: cache.clone(), ..EngineOptions::default() }).unwrap();
    let request = Request::text("In the beginning God created the").max_tokens(6).set("seed", 7).set("temperature", 0.0);
    let engine = start();
    let want = asked(&engine, &request).text;
    engine.drain();
    drop(engine);
    let sound: Vec<(PathBuf, Vec<u8>)> = files(folder.path()).into_iter().map(|path| (path.clone(), fs::read(&path).unwrap())).collect();
    assert!(!sound.is_empty());
    let engine = start();
    assert!(asked(&engine, &request).usage.cached_tokens > 0);
    drop(engine);
    for seed in 0..attempts(20) {
        let damage = || sound.iter().for_each(|(path, file)| fs::write(path, damaged(file, seed)).unwrap());
        // An engine finds damaged files when it starts, or when it uses them.
        let engine = if seed / 10 % 2 == 0 {
            damage();
            start()
        } else {
            sound.iter().for_each(|(path, file)| fs::write(path, file).unwrap());
            let engine = start();
            damage();
            engine
        };
        assert_eq!(asked(&engine, &request).text, want, "{seed}");
        let second = asked(&engine, &request);
        assert!(second.text == want && second.usage.cached_tokens > 0, "{seed}: {second:?}");
        engine.drain();
        drop(engine);
        // The entry is written again, and serves the next engine.
        let engine = start();
        let third = asked(&engine, &request);
        assert!(third.text == want && third.usage.cached_tokens > 0, "{seed}: {third:?}");
        drop(engine);
        files(folder.path()).iter().for_each(|path| fs::remove_file(path).unwrap());
    }
}

#[test]
fn a_damaged_named_state_is_set_aside_and_can_be_saved_again() {
    let model = tiny(&options("cpu"));
    let folder = tempfile::tempdir().unwrap();
    let states = StateOptions { folder: Some(folder.path().into()), bytes: 1, ..StateOptions::default() };
    let options = EngineOptions { slots: 1, states, cache: CacheOptions::off(), ..EngineOptions::default() };
    let start = || Engine::start(&model, options.clone()).unwrap();
    let mut save = Request::text("In the beginning").max_tokens(3).set("seed", 1);
    save.save_state = Some("a.b".into());
    let mut request = Request::text(" and").max_tokens(6).set("temperature", 0.0);
    request.state = Some("a.b".into());
    let engine = start();
    asked(&engine, &save);
    let want = asked(&engine, &request).text;
    drop(engine);
    let [path]: [PathBuf; 1] = files(folder.path()).try_into().unwrap();
    let (sound, aside) = (fs::read(&path).unwrap(), path.with_file_name("a.b.state.damaged"));
    for seed in 0..attempts(30) {
        fs::write(&path, damaged(&sound, seed)).unwrap();
        let engine = start();
        if seed % 3 == 0 {
            // Listing the states reads a part of the file, and may already find the damage.
            let _ = engine.states("").unwrap();
        }
        match engine.run(request.clone()) {
            Ok(done) => assert_eq!(done.text, want, "{seed}"),
            Err(e) => {
                assert!(e.kind == Kind::File || seed % 3 == 0 && e.kind == Kind::Input, "{seed}: {e}");
                assert!(aside.exists() && !path.exists(), "{seed}: {e}");
                let e = engine.run(request.clone()).unwrap_err();
                assert!(e.kind == Kind::Input && e.to_string().contains("unknown state"), "{seed}: {e}");
                asked(&engine, &save);
                assert_eq!(asked(&engine, &request).text, want, "{seed}");
                assert!(aside.exists() && path.exists(), "{seed}");
            }
        }
        engine.delete_state("", "a.b").unwrap();
        assert!(files(folder.path()).is_empty(), "{seed}");
    }
}
