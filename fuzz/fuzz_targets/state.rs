//! Loads a state file into a slot of the embedded model and decodes one token.
//!
//! A state has 200 KB, most of them numbers. So an input that begins with `{` is only the header of a file; the target adds the length
//! and the numbers. Any other input is the file itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use wingbeat::low_level::session::Session;
use wingbeat_fuzz::{count, with_file, with_session};

const MOST: usize = 1 << 20;

/// Returns the file of a header: adds zeros for the header's tensors, up to `MOST` bytes.
fn file(header: &[u8]) -> Vec<u8> {
    let end = |tensor: &Value| tensor["data_offsets"][1].as_u64();
    let json: Value = serde_json::from_slice(header).unwrap_or_default();
    let n = json.as_object().and_then(|all| all.values().filter_map(end).max()).unwrap_or(0);
    let mut file = [&(header.len() as u64).to_le_bytes(), header].concat();
    file.resize(file.len() + n.min(MOST as u64) as usize, 0);
    file
}

fuzz_target!(|bytes: &[u8]| {
    let read = |session: &mut Session, path: &std::path::Path| {
        let (slot, _) = session.load(path, true)?;
        let decoded = session.decode(slot, 1).map(drop);
        session.close(slot)?;
        decoded
    };
    let made = bytes.starts_with(b"{").then(|| file(bytes));
    let bytes = made.as_deref().unwrap_or(bytes);
    count(with_session(|session| with_file(bytes, |path| read(session, path))));
});
