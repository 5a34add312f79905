//! A saved chat: the input is what the metadata of the state file say of the conversation.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use std::collections::BTreeMap;
use wingbeat::chat::{Format, Talk};
use wingbeat::error::{Error, Result};
use wingbeat::session::Session;
use wingbeat::weights::{Entry, read_safetensors, write_safetensors};
use wingbeat_fuzz::{count, model};

/// A conversation, and the file of its state.
struct Chat {
    talk: Talk,
    folder: tempfile::TempDir,
    state: Vec<u8>,
}

fn begin() -> Result<Chat> {
    let model = model();
    let format = Format::of(&model)?;
    let settings = format.settings();
    let mut talk = Talk::new(Session::new(&model, Talk::slots(&model))?, format, settings, &mut |_, _| ())?;
    let folder = tempfile::tempdir().map_err(|e| Error::file(e.to_string()))?;
    let path = folder.path().join("first.state");
    talk.save(&path)?;
    let state = std::fs::read(&path).map_err(|e| Error::io(e, &path))?;
    Ok(Chat { talk, folder, state })
}

fn load(chat: &mut Chat, record: &[u8]) -> Result<()> {
    let record = std::str::from_utf8(record).map_err(|_| Error::input("no text"))?;
    let (tensors, mut metadata) = read_safetensors(&chat.state)?;
    metadata.insert("chat".into(), record.into());
    let path = chat.folder.path().join("next.state");
    let entry = |(name, (dtype, shape, bytes)): (String, (_, Vec<usize>, &[u8]))| {
        let bytes = bytes.to_vec();
        let data = move |out: &mut dyn std::io::Write| out.write_all(&bytes).map_err(|e| Error::file(e.to_string()));
        Entry { name, dtype, shape, data: Box::new(data) }
    };
    let metadata: BTreeMap<_, _> = metadata;
    let _ = std::fs::remove_file(&path);
    write_safetensors(&path, &metadata, tensors.into_iter().map(entry).collect(), &mut |_, _| ())?;
    chat.talk.load(&path)
}

fuzz_target!(|bytes: &[u8]| {
    thread_local!(static CHAT: RefCell<Chat> = RefCell::new(begin().expect("a conversation")));
    count(CHAT.with_borrow_mut(|chat| load(chat, bytes)));
});
