//! Cuts text into pieces that are merged separately: words, up to three digits, punctuation, white space.
//!
//! GLM-4's pattern ends with `\s+(?!\S)|\s+`: the last character of a run of white space belongs to the piece after the run. The `regex` crate has
//! no look-ahead, but takes linear time on any text. So the pattern here matches the whole run, and code cuts off the last character.

use regex::Regex;
use std::sync::LazyLock;

/// The regular expression in the model's files that cuts text into pieces.
pub(super) const PUBLISHED: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

static PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = PUBLISHED.replace(r"|\s+(?!\S)", "");
    Regex::new(&pattern).expect("the pattern is a constant that the tests compile")
});

/// An iterator over the pieces of a text. The concatenated pieces are the text.
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
        // some alternative matches at every character, so the match begins at `start`
        let end = PATTERN.find_at(self.text, start).map_or(self.text.len(), |found| found.end());
        let piece = &self.text[start..end];
        self.start = if end == self.text.len() { end } else { start + without_last_space(piece).len() };
        Some(&self.text[start..self.start])
    }
}

/// Removes the last character of a piece that has several characters and ends with white space other than a line break. Such a piece consists only
/// of white space, and its last character belongs to the next piece. Do not pass the last piece of a text: with no next piece, GLM-4's pattern keeps
/// the whole run.
fn without_last_space(piece: &str) -> &str {
    let mut chars = piece.chars();
    match chars.next_back() {
        Some(last) if last.is_whitespace() && !matches!(last, '\r' | '\n') && !chars.as_str().is_empty() => chars.as_str(),
        _ => piece,
    }
}
