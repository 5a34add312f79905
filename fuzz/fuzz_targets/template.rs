//! Parses a chat template in Jinja and renders a conversation.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::template::{self, Family, Jinja, Message, Template};
use wingbeat_fuzz::count;

fn read(bytes: &[u8]) -> Result<()> {
    let source = std::str::from_utf8(bytes).map_err(|_| Error::input("no text"))?;
    let messages =
        [Message::system("Be brief."), Message::user("Who are you | what?]"), Message::assistant("A model."), Message::user("Why?")];
    let parts = Jinja::parse(source, Family::Glm4)?.render(&messages)?;
    // a template that renders 64 MiB from about 400 bytes of messages is a bomb
    assert!(template::whole(&parts).len() < 64 << 20);
    Ok(())
}

fuzz_target!(|bytes: &[u8]| count(read(bytes)));
