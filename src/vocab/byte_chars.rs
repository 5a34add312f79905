//! The characters that byte-level BPE files spell bytes with, after GPT-2.
//!
//! A byte that prints in Latin-1 is its own character; the other 68 are U+0100 and up, in order. So a space is `Ġ` and a
//! newline `Ċ`.

/// The character of a byte.
pub(super) fn char(byte: u8) -> char {
    let code = match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => byte as u32,
        0x00..=0x20 => 0x100 + byte as u32,
        0x7f..=0xa0 => 0x121 + (byte - 0x7f) as u32,
        0xad => 0x143,
    };
    char::from_u32(code).expect("every code is below the surrogates")
}

/// The byte of a character.
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

/// The bytes that a token spells, if it has no other character in it.
pub(super) fn spelt(token: &str) -> Option<Vec<u8>> {
    token.chars().map(byte).collect()
}

/// The bytes that a token stands for. A token with any other character in it stands for its own text.
pub(super) fn bytes(token: &str) -> Vec<u8> {
    spelt(token).unwrap_or_else(|| token.as_bytes().to_vec())
}
