//! Prepares names from the hub, the cache or a web page for display, so that no character hides or reorders others.

use std::borrow::Cow;

/// Returns whether a character is invisible, or changes the order or the place of other characters on a screen. `U+202E` shows `hdr.pth` where the
/// name ends in `htp.rdh`.
fn hides(c: char) -> bool {
    let formats = matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}');
    c.is_control() || formats || matches!(c, '\u{2060}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns whether all characters of a name are shown as they are.
pub fn is_plain(name: &str) -> bool {
    !name.contains(hides)
}

/// Returns the name with hidden characters escaped: `\u{202e}`.
pub fn shown(name: &str) -> Cow<'_, str> {
    if is_plain(name) {
        return Cow::Borrowed(name);
    }
    let mut text = String::with_capacity(name.len() + 8);
    for c in name.chars() {
        if hides(c) { text.extend(c.escape_unicode()) } else { text.push(c) }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_characters_that_hide_or_reorder_are_escaped() {
        for plain in ["m.pth", "größe-模型.pth", "e\u{301}.gguf", "שלום.pth", "a b"] {
            assert_eq!(shown(plain), plain);
        }
        for (name, want) in [
            ("a\u{202e}htp.gpj", "a\\u{202e}htp.gpj"),
            ("\u{2066}x\u{2069}", "\\u{2066}x\\u{2069}"),
            ("\u{1b}[2J\u{200b}\u{feff}", "\\u{1b}[2J\\u{200b}\\u{feff}"),
            ("a\u{2028}b\u{e0041}", "a\\u{2028}b\\u{e0041}"),
        ] {
            assert_eq!(shown(name), want);
        }
    }
}
