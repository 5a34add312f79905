//! Loads a saved chat: the input is the record of the conversation in the metadata of the state file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use std::cell::RefCell;
use wingbeat::chat::Format;
use wingbeat::conversation::Conversation;
use wingbeat::error::{Error, Result};
use wingbeat_fuzz::{count, model, with_file};

/// A conversation and its file: the header, and the numbers after it.
struct Chat {
    conversation: Conversation,
    header: Value,
    numbers: Vec<u8>,
}

fn begin() -> Result<Chat> {
    let model = model();
    let format = Format::of(&model)?;
    let settings = format.settings();
    let mut conversation = Conversation::new(&model, format, settings, Box::new(|_, _| ()))?;
    let folder = tempfile::tempdir().map_err(|e| Error::file(e.to_string()))?;
    let path = folder.path().join("first.state");
    conversation.save(&path)?;
    let file = std::fs::read(&path).map_err(|e| Error::io(e, &path))?;
    let (length, rest) = file.split_at(8);
    let n = u64::from_le_bytes(length.try_into().expect("eight bytes")) as usize;
    let header = serde_json::from_slice(&rest[..n]).map_err(|e| Error::file(e.to_string()))?;
    Ok(Chat { conversation, header, numbers: rest[n..].to_vec() })
}

fn load(chat: &mut Chat, record: &[u8]) -> Result<()> {
    let record = std::str::from_utf8(record).map_err(|_| Error::input("no text"))?;
    chat.header["__metadata__"]["chat"] = record.into();
    let header = chat.header.to_string();
    let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &chat.numbers].concat();
    with_file(&file, |path| chat.conversation.load(path))
}

fuzz_target!(|bytes: &[u8]| {
    thread_local!(static CHAT: RefCell<Chat> = RefCell::new(begin().expect("a conversation")));
    count(CHAT.with_borrow_mut(|chat| load(chat, bytes)));
});
