//! A state file: loads it into a slot of the embedded model and decodes one token.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wingbeat::session::Session;
use wingbeat_fuzz::{count, with_file, with_session};

fuzz_target!(|bytes: &[u8]| {
    let read = |session: &mut Session, path: &std::path::Path| {
        let (slot, _) = session.load(path, true)?;
        let decoded = session.decode(slot, 1).map(drop);
        session.close(slot)?;
        decoded
    };
    count(with_session(|session| with_file(bytes, |path| read(session, path))));
});
