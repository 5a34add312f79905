//! Breaks lines between words on a terminal, while text arrives in pieces.
//!
//! Each piece is shown at once. If a word does not fit on its line, the beginning of the word is erased and the word begins the next line.

use unicode_width::UnicodeWidthChar;

/// The minimum width in columns. A narrower terminal breaks lines itself.
const LEAST: usize = 20;
const TAB: usize = 8;

/// The place of the cursor on its line.
#[derive(Debug, Default)]
pub struct WordWrap {
    /// The number of columns of the line that are used.
    column: usize,
    /// The beginning of a word at the end of the line, and the number of its columns.
    word: String,
    word_columns: usize,
}

impl WordWrap {
    /// Notes that the next text begins a line.
    pub fn at_line_start(&mut self) {
        *self = WordWrap::default();
    }

    /// Returns what to print for a piece of text on a terminal with this number of columns.
    pub fn wrapped(&mut self, text: &str, columns: usize) -> String {
        if columns < LEAST {
            self.at_line_start();
            return text.into();
        }
        let mut shown = String::with_capacity(text.len() + 16);
        for c in text.chars() {
            match c {
                '\n' => self.at_line_start(),
                '\t' => {
                    self.column = (self.column / TAB + 1) * TAB;
                    self.end_word();
                }
                ' ' if self.column >= columns => {
                    // A blank at the end of a line is not shown, so that no line begins with one.
                    self.end_word();
                    continue;
                }
                ' ' => {
                    self.column += 1;
                    self.end_word();
                }
                c => self.in_word(c, columns, &mut shown),
            }
            shown.push(c);
        }
        shown
    }

    /// Moves the cursor for a character that is not a blank. If the character does not fit, first appends a line break and the beginning of its word.
    fn in_word(&mut self, c: char, columns: usize, shown: &mut String) {
        let width = c.width().unwrap_or(0);
        // A text of wide characters, such as Chinese, has no blanks: a line may break before each of them. Terminals differ in the width of emoji
        // that are joined or have a modifier, so these emoji are never erased.
        if width == 2 || self.word.ends_with(is_modifier) {
            self.end_word();
        }
        // The last column stays free: a terminal that has filled it moves the cursor only with the next character.
        if self.column + width >= columns && width > 0 {
            let kept = self.word_columns;
            if kept < self.column {
                if kept > 0 {
                    shown.push_str(&format!("\x1b[{kept}D\x1b[K"));
                }
                shown.push('\n');
                shown.push_str(&self.word);
                self.column = kept;
            } else {
                // The word is as long as the line.
                shown.push('\n');
                self.at_line_start();
            }
        }
        self.column += width;
        self.word.push(c);
        self.word_columns += width;
    }

    fn end_word(&mut self) {
        self.word.clear();
        self.word_columns = 0;
    }
}

/// Returns whether a character changes the character before it: a joiner, a selector of an emoji's form, or a tone of skin.
fn is_modifier(c: char) -> bool {
    matches!(c, '\u{200d}' | '\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use unicode_width::UnicodeWidthStr;

    /// Returns the lines of a terminal after a text that came in pieces of `n` characters.
    fn lines(text: &str, columns: u16, n: usize) -> Vec<String> {
        let mut parser = vt100::Parser::new(50.try_into().unwrap(), columns.try_into().unwrap(), 0);
        let mut wrap = WordWrap::default();
        let all: Vec<char> = text.chars().collect();
        for piece in all.chunks(n) {
            let shown = wrap.wrapped(&piece.iter().collect::<String>(), columns.into());
            parser.process(shown.replace('\n', "\r\n").as_bytes());
        }
        parser.screen().contents().lines().map(|line| line.trim_end().to_string()).collect()
    }

    #[test]
    fn lines_break_between_words_however_the_text_is_cut() {
        let cases: [(&str, &[&str]); 8] = [
            ("one two three four five six", &["one two three four", "five six"]),
            ("a bbbbbbbbbbbbbbbbbbbbbbbbbbb c", &["a", "bbbbbbbbbbbbbbbbbbb", "bbbbbbbb c"]),
            ("abcdefghi abcdefghi x", &["abcdefghi abcdefghi", "x"]),
            ("abcdefghi abcdefghij x", &["abcdefghi", "abcdefghij x"]),
            ("one\n\n  two three four five", &["one", "", "  two three four", "five"]),
            ("太初有道太初有道太初有道太初", &["太初有道太初有道太", "初有道太初"]),
            ("light光light光 darkness", &["light光light光", "darkness"]),
            (
                "e\u{301}te\u{301} e\u{301}te\u{301} e\u{301}te\u{301} e\u{301}te\u{301} e\u{301}te\u{301}x",
                &["e\u{301}te\u{301} e\u{301}te\u{301} e\u{301}te\u{301} e\u{301}te\u{301}", "e\u{301}te\u{301}x"],
            ),
        ];
        for (text, want) in cases {
            for n in 1..=text.chars().count() {
                assert_eq!(lines(text, 20, n), want, "{text:?} in pieces of {n}");
            }
        }
        let mut wrap = WordWrap::default();
        assert_eq!(wrap.wrapped("one two three", 10), "one two three", "a narrow terminal breaks lines itself");
    }

    #[test]
    fn every_character_is_shown() {
        let text =
            "In the beginning 神 created the heaven and the 地球. https://example.com/a/very/long/address/without/blanks 👩\u{200d}🔬 end";
        for columns in 20..60 {
            let joined: String = lines(text, columns, 3).concat();
            let plain = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            assert_eq!(plain(&joined), plain(text), "{columns}");
            assert!(lines(text, columns, 1).iter().all(|line| line.width() < columns.into()), "{columns}");
        }
    }
}
