//! Bytes that arrive in pieces, as text: a character is passed on once it is complete.
//!
//! Knows no tokens. Never stalls: what can no longer become a character turns into U+FFFD at once.

/// A streaming UTF-8 decoder. The pieces together equal `String::from_utf8_lossy` of all bytes together, wherever they are
/// split; at most three bytes wait. Once its buffers have grown it allocates nothing.
#[derive(Debug, Clone, Default)]
pub struct Utf8Stream {
    /// The beginning of a character: empty, or a proper prefix of a valid sequence. While a piece is read, all its bytes.
    pub(super) pending: Vec<u8>,
    text: String,
}

impl Utf8Stream {
    /// A decoder with nothing pending.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes and returns the text that they complete.
    pub fn push(&mut self, bytes: &[u8]) -> &str {
        self.pending.extend_from_slice(bytes);
        self.text.clear();
        let (mut n_read, mut n_left) = (0, 0);
        for chunk in self.pending.utf8_chunks() {
            self.text.push_str(chunk.valid());
            n_read += chunk.valid().len() + chunk.invalid().len();
            if chunk.invalid().is_empty() {
                continue;
            }
            if n_read == self.pending.len() && is_incomplete(chunk.invalid()) {
                n_left = chunk.invalid().len();
            } else {
                self.text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.pending.drain(..n_read - n_left);
        &self.text
    }

    /// A decoder after a text that may end within a character: this character is completed by what is pushed.
    pub fn after(text: &[u8]) -> Self {
        let begins = |end: &[u8]| std::str::from_utf8(end).is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none());
        let begun = (1..=text.len().min(3)).map(|n| &text[text.len() - n..]).find(|end| begins(end));
        Utf8Stream { pending: begun.unwrap_or_default().to_vec(), text: String::new() }
    }

    /// A decoder after `pending`, the bytes of a character that is not complete, and tokens that were read since.
    pub fn after_tokens(pending: &[u8], tokens: &[u32], vocab: Option<&super::Vocab>) -> Self {
        let mut bytes = Utf8Stream::after(pending).pending;
        // A token may have no bytes, but the last tokens hold the character, if there is one.
        let last = &tokens[tokens.len().saturating_sub(char::MAX.len_utf8())..];
        bytes.extend(last.iter().flat_map(|&id| vocab.map_or(&[] as &[u8], |vocab| vocab.token(id))));
        Utf8Stream::after(&bytes)
    }

    /// The bytes of the character that is not complete; empty if there is none.
    pub fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// Whether no character waits for the rest of its bytes.
    pub fn is_complete(&self) -> bool {
        self.pending.is_empty()
    }

    /// Ends the text: an incomplete character becomes one U+FFFD. The decoder can be used again.
    pub fn finish(&mut self) -> String {
        let rest = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        rest
    }
}

/// Whether more bytes could make a character of these.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_none())
}
