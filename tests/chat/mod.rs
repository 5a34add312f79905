//! `chat` as its users see it: through a pipe, and at a terminal.

mod piped;
#[cfg(unix)]
mod terminal;

use wingbeat::vocab::Vocab;

/// What the embedded model reads before the first turn.
const BEGINNING: &str = "\nUser: light\n\nAssistant: And God said, Let there be light: and there was light.\n\n";

/// The ids of texts that are read one after the other.
fn encoded(texts: &[&str]) -> Vec<u32> {
    texts.iter().flat_map(|text| Vocab::tiny().encode(text.as_bytes()).unwrap()).collect()
}

/// A message as the embedded model reads it.
fn asked(text: &str) -> String {
    format!("User: {text}\n\nAssistant:")
}
