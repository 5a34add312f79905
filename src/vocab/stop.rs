//! Stop texts: where generated text must end, when the end may be spread over several pieces.
//!
//! Each stop text keeps its own Knuth-Morris-Pratt state, so every byte is looked at once however long the stop texts are.
//! Knows no tokens and no models.

/// Holds back text that could be the beginning of a stop text.
///
/// The stop text that is complete first wins, the longest of those that end together; so what comes out does not depend on
/// how the text was cut into pieces.
#[derive(Debug, Clone)]
pub struct StopTexts {
    matchers: Vec<Matcher>,
    /// Text that came in and has not been decided: a suffix of the text so far.
    held: String,
    /// What came out last.
    certain: String,
    stopped: bool,
}

impl StopTexts {
    /// Stops at the first of `texts`. Empty ones are ignored; none at all lets everything through.
    pub fn new(texts: Vec<String>) -> Self {
        let matchers = texts.into_iter().filter(|t| !t.is_empty()).map(Matcher::new).collect();
        StopTexts { matchers, held: String::new(), certain: String::new(), stopped: false }
    }

    /// Takes the next piece. Returns the text that is certain, which ends before the stop text, and whether it has come;
    /// from then on nothing comes out.
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
                // a stop text begins where a character begins, and nothing before the held text belongs to one
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

    /// The text that is held back. Pushed into a new one with the same stop texts, it is held back again.
    pub fn held(&self) -> &str {
        &self.held
    }

    /// Ends the text: returns what was held back. Empty after a stop text.
    pub fn finish(&mut self) -> String {
        for m in &mut self.matchers {
            m.n_matched = 0;
        }
        std::mem::take(&mut self.held)
    }
}

/// One stop text and how much of it the text so far ends with.
#[derive(Debug, Clone)]
struct Matcher {
    text: Vec<u8>,
    /// `border[i]`: the length of the longest proper prefix of `text[..=i]` that is also its suffix. `[text.len()]`
    border: Vec<usize>,
    /// Always below `text.len()` between steps.
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

    /// Takes one byte; whether the whole text has now come.
    fn step(&mut self, byte: u8) -> bool {
        self.n_matched = extend(&self.text, &self.border, self.n_matched, byte);
        let complete = self.n_matched == self.text.len();
        if complete {
            self.n_matched = 0; // the caller stops here, so overlaps do not matter
        }
        complete
    }
}

/// From `n` matched bytes, how many are matched after `byte`.
fn extend(text: &[u8], border: &[usize], mut n: usize, byte: u8) -> usize {
    while n > 0 && text[n] != byte {
        n = border[n - 1];
    }
    n + usize::from(text[n] == byte)
}
