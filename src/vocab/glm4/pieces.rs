//! Text cut into the pieces that are merged on their own: words, up to three digits, punctuation, white space.
//!
//! GLM-4's pattern has `\s+(?!\S)|\s+` at its end: a run of white space leaves its last character to what follows. The `regex`
//! crate has no look-ahead, and in return takes linear time on any text; so the run is matched whole and cut here.

use regex::Regex;
use std::sync::LazyLock;

/// The pattern as the model's own files have it.
pub(super) const PUBLISHED: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

static PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = PUBLISHED.replace(r"|\s+(?!\S)", "");
    Regex::new(&pattern).expect("the pattern is a constant; every test here compiles it")
});

/// The pieces of a text, in order; together they are the text.
pub(super) struct Pieces<'t> {
    text: &'t str,
    start: usize,
}

impl<'t> Pieces<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        Pieces { text, start: 0 }
    }
}

impl<'t> Iterator for Pieces<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        let start = self.start;
        if start == self.text.len() {
            return None;
        }
        // each character begins a match of some alternative, so this is where the last piece ended
        let end = PATTERN.find_at(self.text, start).map_or(self.text.len(), |found| found.end());
        let piece = &self.text[start..end];
        self.start = if end == self.text.len() { end } else { start + without_last_space(piece).len() };
        Some(&self.text[start..self.start])
    }
}

/// A piece with something after it. Only a run of white space ends in white space that is no line break; if there is more to
/// it, its last character goes to what follows.
fn without_last_space(piece: &str) -> &str {
    let mut chars = piece.chars();
    match chars.next_back() {
        Some(last) if last.is_whitespace() && !matches!(last, '\r' | '\n') && !chars.as_str().is_empty() => chars.as_str(),
        _ => piece,
    }
}
