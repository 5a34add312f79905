//! Decodes UTF-8 that arrives in pieces. A character is returned as soon as all its bytes have arrived.
//!
//! Bytes that cannot become a character are replaced by U+FFFD at once, so the stream never stalls.

/// A streaming UTF-8 decoder.
///
/// The concatenated results equal `String::from_utf8_lossy` of all bytes, wherever the bytes are split. At most three bytes wait for the rest of
/// their character. The decoder reuses its buffers.
#[derive(Debug, Clone, Default)]
pub struct Utf8Stream {
    /// The bytes of an incomplete character at the end of the text; empty if all characters are complete. During `push`, also holds the bytes of
    /// the new piece.
    pub(super) pending: Vec<u8>,
    text: String,
}

impl Utf8Stream {
    /// Creates a decoder without pending bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes. Returns the characters that are now complete.
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

    /// Creates a decoder for the continuation of `text`. If `text` ends within a character, the bytes of this character are pending.
    pub fn after(text: &[u8]) -> Self {
        let begins = |end: &[u8]| std::str::from_utf8(end).is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none());
        let begun = (1..=text.len().min(3)).map(|n| &text[text.len() - n..]).find(|end| begins(end));
        Utf8Stream { pending: begun.unwrap_or_default().to_vec(), text: String::new() }
    }

    /// Creates a decoder for the continuation of a text. The text ends with `pending`, the bytes of an incomplete character, followed by the
    /// bytes of `tokens`.
    pub fn after_tokens(pending: &[u8], tokens: &[u32], vocab: Option<&super::Vocab>) -> Self {
        let mut bytes = Utf8Stream::after(pending).pending;
        // A character has at most four bytes. So its beginning is in the last four tokens, unless some of these tokens have no bytes.
        let last = &tokens[tokens.len().saturating_sub(char::MAX.len_utf8())..];
        bytes.extend(last.iter().flat_map(|&id| vocab.map_or(&[] as &[u8], |vocab| vocab.token(id))));
        Utf8Stream::after(&bytes)
    }

    /// Returns the bytes of the incomplete character, empty if all characters are complete.
    pub fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// Returns true if all characters are complete.
    pub fn is_complete(&self) -> bool {
        self.pending.is_empty()
    }

    /// Ends the text: returns one U+FFFD for an incomplete character. The decoder can be used again.
    pub fn finish(&mut self) -> String {
        let rest = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        rest
    }
}

/// Returns whether the bytes are the beginning of a valid character.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_none())
}
