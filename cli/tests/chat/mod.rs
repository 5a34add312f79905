//! Tests `chat` through a pipe and at a terminal.

mod piped;
#[cfg(unix)]
mod terminal;

use wingbeat::vocab::Vocab;

/// Returns the token ids of the texts. Each text is encoded separately.
fn encoded(texts: &[&str]) -> Vec<u32> {
    texts.iter().flat_map(|text| Vocab::small_world().encode(text.as_bytes()).unwrap()).collect()
}

/// Returns a user's message as a prompt in the embedded model's format.
fn asked(text: &str) -> String {
    format!("User: {text}\n\nAssistant:")
}
