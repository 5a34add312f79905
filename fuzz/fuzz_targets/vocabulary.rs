//! Parses a vocabulary of any kind, encodes some texts, decodes the ids.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wingbeat::error::Result;
use wingbeat::vocab::Vocab;
use wingbeat_fuzz::count;

const TEXTS: [&str; 4] = ["", "In the beginning", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!", "é 1234567\n\n  \u{1f600}\t<|user|>"];

fn read(bytes: &[u8]) -> Result<()> {
    let vocab = Vocab::parse(bytes)?;
    for text in TEXTS {
        if let Ok(ids) = vocab.encode_prompt(text.as_bytes()) {
            vocab.decode(&ids);
        }
    }
    Ok(())
}

fuzz_target!(|bytes: &[u8]| count(read(bytes)));
