//! The characters that byte-level BPE files use for bytes, as in GPT-2.
//!
//! A byte that is a visible Latin-1 character is written as this character. The other 68 bytes are written as the characters from U+0100 on, in
//! order: a space is `Ġ`, a newline `Ċ`.

/// Returns the character that represents a byte in the files of byte-level BPE vocabularies, as in GPT-2.
pub(super) fn char(byte: u8) -> char {
    let code = match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => byte as u32,
        0x00..=0x20 => 0x100 + byte as u32,
        0x7f..=0xa0 => 0x121 + (byte - 0x7f) as u32,
        0xad => 0x143,
    };
    char::from_u32(code).expect("every code is below the surrogates")
}

/// Returns the byte that a character represents, or `None` if the character represents no byte.
fn byte(c: char) -> Option<u8> {
    let byte = match c as u32 {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => code,
        code @ 0x100..=0x120 => code - 0x100,
        code @ 0x121..=0x142 => code - 0x121 + 0x7f,
        0x143 => 0xad,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

/// Decodes a token that is written with one character per byte, as in GPT-2's files. Returns `None` if a character represents no byte.
pub(super) fn spelt(token: &str) -> Option<Vec<u8>> {
    token.chars().map(byte).collect()
}

/// Decodes a token like [`spelt`], but returns the token's UTF-8 if a character represents no byte.
pub(super) fn bytes(token: &str) -> Vec<u8> {
    spelt(token).unwrap_or_else(|| token.as_bytes().to_vec())
}
