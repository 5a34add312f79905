//! Stop texts end generated text, even if a stop text arrives in several pieces.
//!
//! Each stop text has its own Knuth-Morris-Pratt state, so the work per byte does not depend on the length of the stop texts. Tokens and models play
//! no part here: the input is text.

/// A filter that ends text at a stop text, and holds back text that could be the beginning of a stop text.
///
/// The stop text that is complete first ends the text. If several stop texts are complete at the same byte, the longest of them counts. So the result
/// does not depend on how the text was cut into pieces.
#[derive(Debug, Clone)]
pub struct StopTexts {
    matchers: Vec<Matcher>,
    /// Text that could be the beginning of a stop text: a suffix of the text so far.
    held: String,
    /// The text that the last `push` returned.
    certain: String,
    stopped: bool,
}

impl StopTexts {
    /// Creates a filter for the stop texts `texts`. Ignores empty texts. Without stop texts, all text passes.
    pub fn new(texts: Vec<String>) -> Self {
        let matchers = texts.into_iter().filter(|t| !t.is_empty()).map(Matcher::new).collect();
        StopTexts { matchers, held: String::new(), certain: String::new(), stopped: false }
    }

    /// Takes the next piece. Returns the text that can no longer be part of a stop text, and whether a stop text was found. After a stop text,
    /// returns no more text.
    pub fn push(&mut self, piece: &str) -> (&str, bool) {
        self.certain.clear();
        if self.stopped {
            return ("", true);
        }
        let n_held = self.held.len();
        self.held.push_str(piece);
        for (i, byte) in piece.bytes().enumerate() {
            let mut longest = None;
            for m in &mut self.matchers {
                if m.step(byte) {
                    longest = longest.max(Some(m.text.len()));
                }
            }
            if let Some(len) = longest {
                // a stop text begins at a character boundary within the held text
                self.certain.push_str(&self.held[..n_held + i + 1 - len]);
                self.held.clear();
                self.stopped = true;
                return (&self.certain, true);
            }
        }
        let n_undecided = self.matchers.iter().map(|m| m.n_matched).max().unwrap_or(0);
        self.certain.extend(self.held.drain(..self.held.len() - n_undecided));
        (&self.certain, false)
    }

    /// Returns the text that is held back. To continue this text with a new filter, create it with the same stop texts and push the held text first.
    pub fn held(&self) -> &str {
        &self.held
    }

    /// Ends the text. Returns the text that was held back. This text is empty after a stop text.
    pub fn finish(&mut self) -> String {
        for m in &mut self.matchers {
            m.n_matched = 0;
        }
        std::mem::take(&mut self.held)
    }
}

/// A stop text, and how much of its beginning matches the end of the text so far.
#[derive(Debug, Clone)]
struct Matcher {
    text: Vec<u8>,
    /// `border[i]`: the length of the longest proper prefix of `text[..=i]` that is also a suffix of `text[..=i]`. One element per byte
    /// of `text`.
    border: Vec<usize>,
    /// The number of bytes at the beginning of `text` that match the end of the text so far. Below `text.len()` after each call of `step`.
    n_matched: usize,
}

impl Matcher {
    fn new(text: String) -> Self {
        let text = text.into_bytes();
        let mut border = vec![0; text.len()];
        for i in 1..text.len() {
            let n = extend(&text, &border, border[i - 1], text[i]);
            border[i] = n;
        }
        Matcher { text, border, n_matched: 0 }
    }

    /// Takes one byte. Returns whether the stop text is complete.
    fn step(&mut self, byte: u8) -> bool {
        self.n_matched = extend(&self.text, &self.border, self.n_matched, byte);
        let complete = self.n_matched == self.text.len();
        if complete {
            self.n_matched = 0; // the caller stops here, so overlaps do not matter
        }
        complete
    }
}

/// Returns how many bytes at the beginning of the stop text `text` match the end of the generated text after `byte` is appended. Before `byte`,
/// `n` bytes match.
fn extend(text: &[u8], border: &[usize], mut n: usize, byte: u8) -> usize {
    while n > 0 && text[n] != byte {
        n = border[n - 1];
    }
    n + usize::from(text[n] == byte)
}
