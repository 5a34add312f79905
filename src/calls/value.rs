//! Finds the end of a JSON object or list in text that comes in parts.

/// A JSON object or list that is being read. It checks brackets, commas, colons and strings, but not the spelling of numbers and words.
#[derive(Debug, Clone)]
pub struct JsonValue {
    /// The closing brackets that are still missing, the outermost first.
    open: Vec<u8>,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the first key or item, or the closing bracket.
    First,
    Key,
    Colon,
    Value,
    /// Within a number or a word such as `true`.
    Word,
    /// Within a string.
    String {
        is_key: bool,
        is_escaped: bool,
    },
    /// After a value: before a comma or the closing bracket.
    After,
}

/// How far a text continues a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The whole text belongs to the value, which is not complete.
    All,
    /// This number of bytes belongs to the value. After them, the value is complete or the text is not JSON.
    To(usize),
}

impl JsonValue {
    /// Returns a reader for a value that begins with `bracket`, or `None` if this byte is neither `{` nor `[`. The first text to read must begin with
    /// the bracket.
    pub fn new(bracket: u8) -> Option<JsonValue> {
        matches!(bracket, b'{' | b'[').then_some(JsonValue { open: Vec::new(), place: Place::Value })
    }

    /// Reads the next text, and returns how much of it belongs to the value.
    pub fn read(&mut self, text: &str) -> Extent {
        for (i, byte) in text.bytes().enumerate() {
            let Some(place) = self.next(byte) else { return Extent::To(i) };
            self.place = place;
            if self.open.is_empty() {
                return Extent::To(i + 1);
            }
        }
        Extent::All
    }

    /// Returns the place after this byte, or `None` if the byte cannot follow.
    fn next(&mut self, byte: u8) -> Option<Place> {
        let is_object = self.open.last() == Some(&b'}');
        match (self.place, byte) {
            // A string may contain control characters, such as line breaks, only as escapes.
            (Place::String { .. }, 0..0x20) => None,
            (Place::String { is_key, is_escaped }, _) => Some(match (byte, is_escaped) {
                (b'"', false) => {
                    if is_key {
                        Place::Colon
                    } else {
                        Place::After
                    }
                }
                _ => Place::String { is_key, is_escaped: !is_escaped && byte == b'\\' },
            }),
            (Place::Word, b'a'..=b'z' | b'0'..=b'9' | b'E' | b'+' | b'-' | b'.') => Some(Place::Word),
            (Place::Word, b' ' | b'\t' | b'\n' | b'\r') => Some(Place::After),
            (place, b' ' | b'\t' | b'\n' | b'\r') => Some(place),
            (Place::First | Place::Word | Place::After, _) if self.open.last() == Some(&byte) => {
                self.open.pop();
                Some(Place::After)
            }
            (Place::Word | Place::After, b',') => Some(if is_object { Place::Key } else { Place::Value }),
            (Place::First, b'"') if is_object => Some(Place::String { is_key: true, is_escaped: false }),
            (Place::Key, b'"') => Some(Place::String { is_key: true, is_escaped: false }),
            (Place::Colon, b':') => Some(Place::Value),
            (Place::First, _) if is_object => None,
            (Place::First | Place::Value, b'"') => Some(Place::String { is_key: false, is_escaped: false }),
            (Place::First | Place::Value, b'{' | b'[') => {
                self.open.push(if byte == b'{' { b'}' } else { b']' });
                Some(Place::First)
            }
            (Place::First | Place::Value, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => Some(Place::Word),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_value_is_found_however_the_text_is_cut() {
        for (text, n) in [
            (r#"{} x"#, Some(2)),
            (r#"[] x"#, Some(2)),
            (r#"{"a": [1, -2.5e+3, {"b": "}\"]"}], "c": null} {"#, Some(45)),
            ("[ true , \"é\" ] ]", Some(15)),
            ("[word](x)", Some(1)),
            ("[1 and", Some(3)),
            ("[1, ]", Some(4)),
            ("{a", Some(1)),
            ("{{", Some(1)),
            ("{\"a\" 1}", Some(5)),
            ("{\"a\": 1 \"", Some(8)),
            ("[1}", Some(2)),
            ("{\" opens\n\"", Some(8)),
            ("[[1], {\"a\": \"b", None),
            ("{\"a\":", None),
        ] {
            let want = n.map_or(Extent::All, Extent::To);
            assert_eq!(JsonValue::new(text.as_bytes()[0]).unwrap().read(text), want, "{text}");
            for at in (0..=text.len()).filter(|&at| text.is_char_boundary(at)) {
                let mut value = JsonValue::new(text.as_bytes()[0]).unwrap();
                let found = match value.read(&text[..at]) {
                    Extent::To(n) => Extent::To(n),
                    Extent::All => match value.read(&text[at..]) {
                        Extent::To(n) => Extent::To(at + n),
                        Extent::All => Extent::All,
                    },
                };
                assert_eq!(found, want, "{text} cut at {at}");
            }
        }
        assert!(JsonValue::new(b'x').is_none());
    }
}
