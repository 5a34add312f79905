//! Reads the wire format of protobuf: a message is a list of fields, each with a number and a value.
//!
//! The reader returns slices of the message and copies nothing. The caller gives the fields their meaning. Groups, a deprecated kind of field, are
//! errors.

use crate::error::{Error, Result};

/// The value of a field, by wire type.
pub(super) enum FieldValue<'f> {
    /// An integer, a bool or an enum.
    Int(u64),
    /// A text, bytes or a message.
    Bytes(&'f [u8]),
    /// Four bytes, such as a float.
    Fixed32([u8; 4]),
    /// Eight bytes, which no supported field uses.
    Fixed64,
}

/// An iterator over the fields of a message, in the order of the file. Ends after the first error.
pub(super) struct ProtobufFields<'f> {
    rest: &'f [u8],
}

impl<'f> ProtobufFields<'f> {
    pub(super) fn of(message: &'f [u8]) -> Self {
        ProtobufFields { rest: message }
    }

    fn field(&mut self) -> Option<(u64, FieldValue<'f>)> {
        let tag = self.int()?;
        let value = match tag & 7 {
            0 => FieldValue::Int(self.int()?),
            1 => {
                self.bytes(8)?;
                FieldValue::Fixed64
            }
            2 => {
                let len = self.int()?;
                FieldValue::Bytes(self.bytes(usize::try_from(len).ok()?)?)
            }
            5 => FieldValue::Fixed32(self.bytes(4)?.try_into().ok()?),
            _ => return None,
        };
        Some((tag >> 3, value))
    }

    /// Reads a varint: seven bits per byte, the lowest bits first; the last byte has its high bit clear.
    fn int(&mut self) -> Option<u64> {
        let mut int = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            int |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(int);
            }
        }
        None
    }

    fn bytes(&mut self, n: usize) -> Option<&'f [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(bytes)
    }
}

impl<'f> Iterator for ProtobufFields<'f> {
    /// The number of a field and the field's value.
    type Item = Result<(u64, FieldValue<'f>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let n_left = self.rest.len();
        let field = self.field();
        if field.is_none() {
            self.rest = &[];
        }
        let unit = if n_left == 1 { "byte" } else { "bytes" };
        Some(field.ok_or_else(|| Error::file(format!("invalid data {n_left} {unit} before the end of the SentencePiece model"))))
    }
}
