//! Tests `chat` through a pipe and at a terminal.

mod piped;
#[cfg(unix)]
mod terminal;

use wingbeat::vocab::Vocab;

/// The first prompt of a chat with the embedded model.
const BEGINNING: &str = "\nUser: light\n\nAssistant: And God said, Let there be light: and there was light.\n\n";

/// Returns the token ids of the texts. Each text is encoded separately.
fn encoded(texts: &[&str]) -> Vec<u32> {
    texts.iter().flat_map(|text| Vocab::tiny().encode(text.as_bytes()).unwrap()).collect()
}

/// Returns a user's message as a prompt in the embedded model's format.
fn asked(text: &str) -> String {
    format!("User: {text}\n\nAssistant:")
}
