//! The values of a GGUF header, one after another: nothing is read that is not there, and no length is believed.

use crate::error::{Error, Result};

/// A vocabulary of 150 000 words with its merges has 10 MB.
const MAX_HEADER_BYTES: usize = 64 << 20;
/// Of a key or the name of a tensor, for which ggml has 64.
const MAX_NAME_BYTES: u64 = 256;
/// Longer texts (templates, licences) are no facts of the model.
const MAX_TEXT_BYTES: usize = 4 << 10;
/// Arrays in arrays.
const MAX_DEPTH: usize = 4;
pub const AGAIN: &str = "the download may be incomplete: download it again";
const TEXT: u32 = 8;
const ARRAY: u32 = 9;

/// A place in the header.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    pub file: &'a [u8],
    pub at: usize,
}

impl<'a> Reader<'a> {
    pub fn take(&mut self, n: u64) -> Result<&'a [u8]> {
        let rest = &self.file[self.at..];
        let Some(taken) = usize::try_from(n).ok().and_then(|n| rest.get(..n)) else {
            let text = format!("the GGUF header goes on for {n} bytes at byte {}, the file has {} more", self.at, rest.len());
            return Err(Error::file(text).hint(AGAIN));
        };
        self.at += taken.len();
        if self.at > MAX_HEADER_BYTES {
            return Err(Error::file(format!("expected a GGUF header of at most {MAX_HEADER_BYTES} bytes, found a longer one")));
        }
        Ok(taken)
    }

    pub fn number<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N as u64)?.try_into().expect("take gives what it is asked for"))
    }

    pub fn u32(&mut self) -> Result<u32> {
        self.number().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64> {
        self.number().map(u64::from_le_bytes)
    }

    pub fn name(&mut self) -> Result<&'a str> {
        match self.u64()? {
            0 => Err(Error::file("expected a name, found an empty one")),
            n if n > MAX_NAME_BYTES => Err(Error::file(format!("expected a name of at most {MAX_NAME_BYTES} bytes, found {n}"))),
            n => std::str::from_utf8(self.take(n)?).map_err(|e| Error::file(format!("expected UTF-8: {e}")).caused_by(e)),
        }
    }

    /// A value as text; `None` of an array or a long text.
    pub fn value(&mut self, kind: u32) -> Result<Option<String>> {
        Ok(Some(match kind {
            0 => self.number().map(u8::from_le_bytes)?.to_string(),
            1 => self.number().map(i8::from_le_bytes)?.to_string(),
            2 => self.number().map(u16::from_le_bytes)?.to_string(),
            3 => self.number().map(i16::from_le_bytes)?.to_string(),
            4 => self.u32()?.to_string(),
            5 => self.number().map(i32::from_le_bytes)?.to_string(),
            6 => self.number().map(f32::from_le_bytes)?.to_string(),
            7 => (self.number::<1>()? != [0]).to_string(),
            TEXT => {
                let n = self.u64()?;
                let text = self.take(n)?;
                return Ok((text.len() <= MAX_TEXT_BYTES).then(|| String::from_utf8_lossy(text).into_owned()));
            }
            10 => self.u64()?.to_string(),
            11 => self.number().map(i64::from_le_bytes)?.to_string(),
            12 => self.number().map(f64::from_le_bytes)?.to_string(),
            _ => return self.skip(kind, 1, 0).map(|()| None),
        }))
    }

    /// Passes over `n` values of a kind. Each takes bytes, so a length that lies soon meets the end of the file.
    fn skip(&mut self, kind: u32, n: u64, depth: usize) -> Result<()> {
        let size = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            10..=12 => 8,
            _ => 0,
        };
        if size > 0 {
            return self.take(n.saturating_mul(size)).map(|_| ());
        }
        for _ in 0..n {
            match kind {
                TEXT => {
                    let n = self.u64()?;
                    self.take(n)?;
                }
                ARRAY if depth < MAX_DEPTH => {
                    let (kind, n) = (self.u32()?, self.u64()?);
                    self.skip(kind, n, depth + 1)?;
                }
                ARRAY => return Err(Error::file(format!("expected arrays at most {MAX_DEPTH} deep, found deeper ones"))),
                _ => return Err(Error::file(format!("expected a type of value from 0 to 12, found {kind}"))),
            }
        }
        Ok(())
    }
}
