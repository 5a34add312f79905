//! Metadata values of a GGUF file that is written.

use super::reader::{ARRAY, BOOL, F32, I32, TEXT, U32};

/// A metadata value of a GGUF file.
#[derive(Debug, Clone, PartialEq)]
pub enum GgufValue {
    /// A 32-bit number without a sign.
    U32(u32),
    /// A 32-bit float.
    F32(f32),
    /// A truth value.
    Bool(bool),
    /// A text.
    Text(String),
    /// An array of texts.
    Texts(Vec<String>),
    /// An array of 32-bit numbers.
    Numbers(Vec<i32>),
    /// The bytes of a type and a value, as another GGUF file has them.
    Copied(Vec<u8>),
}

impl GgufValue {
    /// Appends the type and the value as the file stores them.
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        let array = |out: &mut Vec<u8>, kind: u32, n: usize| {
            out.extend(ARRAY.to_le_bytes());
            out.extend(kind.to_le_bytes());
            out.extend((n as u64).to_le_bytes());
        };
        match self {
            GgufValue::U32(n) => {
                out.extend(U32.to_le_bytes());
                out.extend(n.to_le_bytes());
            }
            GgufValue::F32(x) => {
                out.extend(F32.to_le_bytes());
                out.extend(x.to_le_bytes());
            }
            GgufValue::Bool(is_true) => {
                out.extend(BOOL.to_le_bytes());
                out.push(u8::from(*is_true));
            }
            GgufValue::Text(text) => {
                out.extend(TEXT.to_le_bytes());
                append_text(text, out);
            }
            GgufValue::Texts(texts) => {
                array(out, TEXT, texts.len());
                texts.iter().for_each(|text| append_text(text, out));
            }
            GgufValue::Numbers(numbers) => {
                array(out, I32, numbers.len());
                out.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
            }
            GgufValue::Copied(bytes) => out.extend_from_slice(bytes),
        }
    }
}

/// Appends a text: its length in bytes, then its bytes.
pub(super) fn append_text(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
