//! Reads the values of a GGUF header one after another. Every length is compared with the size of the file before it is used.

use crate::error::{Error, Result};

/// The maximum size of a header, in bytes. A vocabulary of 150 000 tokens with its merges takes 10 MB.
pub const MAX_HEADER_BYTES: usize = 64 << 20;
/// The maximum length of a key or tensor name, in bytes. ggml allows 64.
const MAX_NAME_BYTES: u64 = 256;
/// The maximum length of a metadata text that is kept, in bytes. Longer texts are skipped, such as chat templates and licences.
const MAX_TEXT_BYTES: usize = 4 << 10;
/// The maximum depth of nested arrays.
const MAX_DEPTH: usize = 4;
/// The hint for a header with an impossible or unknown value.
pub const DAMAGED: &str = "the file is damaged, or needs a newer version of wingbeat: download the file again";
/// The hint for a truncated file.
pub const AGAIN: &str = "the download may be incomplete: download the file again";
/// The maximum number of items in an array whose items are read. The largest published vocabulary has 152 000 tokens and 318 000 merges.
const MAX_ITEMS: u64 = 1 << 20;
pub const U32: u32 = 4;
pub const I32: u32 = 5;
pub const F32: u32 = 6;
pub const TEXT: u32 = 8;
pub const ARRAY: u32 = 9;
pub const BOOL: u32 = 7;

/// A GGUF file, and the position of the next byte to read.
#[derive(Clone, Copy)]
pub struct GgufReader<'a> {
    pub file: &'a [u8],
    pub at: usize,
}

impl<'a> GgufReader<'a> {
    /// Reads `n` bytes.
    ///
    /// # Errors
    ///
    /// `File` if the file has fewer than `n` bytes left, or if the header is too long.
    pub fn take(&mut self, n: u64) -> Result<&'a [u8]> {
        let rest = &self.file[self.at..];
        let Some(taken) = usize::try_from(n).ok().and_then(|n| rest.get(..n)) else {
            let text =
                format!("the GGUF file ends early: the header needs {n} bytes at byte {}, but only {} bytes follow", self.at, rest.len());
            return Err(Error::file(text).hint(AGAIN));
        };
        self.at += taken.len();
        if self.at > MAX_HEADER_BYTES {
            return Err(Error::file(format!("expected a GGUF header of at most {MAX_HEADER_BYTES} bytes, found a longer header")));
        }
        Ok(taken)
    }

    /// Reads the `N` bytes of a number.
    pub fn number<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N as u64)?.try_into().expect("take returns n bytes"))
    }

    /// Reads a u32.
    pub fn u32(&mut self) -> Result<u32> {
        self.number().map(u32::from_le_bytes)
    }

    /// Reads a u64.
    pub fn u64(&mut self) -> Result<u64> {
        self.number().map(u64::from_le_bytes)
    }

    /// Reads a key or a name, of 1 to [`MAX_NAME_BYTES`] bytes.
    pub fn name(&mut self) -> Result<&'a str> {
        match self.u64()? {
            0 => Err(Error::file("expected a name of at least 1 byte, found an empty name").hint(DAMAGED)),
            n if n > MAX_NAME_BYTES => {
                Err(Error::file(format!("expected a name of at most {MAX_NAME_BYTES} bytes, found {n} bytes")).hint(DAMAGED))
            }
            n => std::str::from_utf8(self.take(n)?)
                .map_err(|e| Error::file("the GGUF header has a name that is not UTF-8").hint(DAMAGED).caused_by(e)),
        }
    }

    /// Reads a metadata value of the type `kind` and formats it as text. Skips an array or a long text and returns `None`.
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

    /// Reads an array of texts. The reader must be positioned at the type of the value.
    ///
    /// # Errors
    ///
    /// `File` if the value is not an array of texts, has too many items, or has a text that is not UTF-8.
    pub fn texts(&mut self) -> Result<Vec<&'a str>> {
        let n = self.items(&[TEXT], "texts")?;
        let text = |i: u64| {
            let n = self.u64()?;
            std::str::from_utf8(self.take(n)?).map_err(|e| Error::file(format!("text {i} of the array is not UTF-8: {e}")).caused_by(e))
        };
        (0..n).map(text).collect()
    }

    /// Reads an array of 32-bit integers. The reader must be positioned at the type of the value.
    ///
    /// # Errors
    ///
    /// `File` if the value is not an array of 32-bit integers, or has too many items.
    pub fn whole_numbers(&mut self) -> Result<Vec<i32>> {
        let n = self.items(&[I32, U32], "32-bit whole numbers")?;
        (0..n).map(|_| self.number().map(i32::from_le_bytes)).collect()
    }

    /// Reads an array of 32-bit floats. The reader must be positioned at the type of the value.
    ///
    /// # Errors
    ///
    /// `File` if the value is not an array of 32-bit floats, or has too many items.
    pub fn floats(&mut self) -> Result<Vec<f32>> {
        let n = self.items(&[F32], "32-bit floats")?;
        (0..n).map(|_| self.number().map(f32::from_le_bytes)).collect()
    }

    /// Reads the types and the length at the beginning of an array. Returns the number of items. `kinds` are the types that an item may have,
    /// and `what` names these types.
    fn items(&mut self, kinds: &[u32], what: &str) -> Result<u64> {
        let found = self.u32()?;
        let inner = if found == ARRAY { self.u32()? } else { found };
        if found != ARRAY || !kinds.contains(&inner) {
            let of = if found == ARRAY { "an array of GGUF type" } else { "a value of GGUF type" };
            return Err(Error::file(format!("expected an array of {what}, found {of} {inner}")));
        }
        match self.u64()? {
            n if n > MAX_ITEMS => Err(Error::file(format!("expected an array of at most {MAX_ITEMS} items, found {n} items"))),
            n => Ok(n),
        }
    }

    /// Skips `n` values of the type `kind`, which are nested in `depth` arrays. Every value takes at least one byte, so a wrong `n` soon
    /// reaches the end of the file and fails.
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
                ARRAY => return Err(Error::file(format!("arrays of metadata are nested more than {MAX_DEPTH} deep")).hint(DAMAGED)),
                _ => {
                    return Err(Error::file(format!("the value has the unknown type {kind}; GGUF has the types 0 to 12")).hint(DAMAGED));
                }
            }
        }
        Ok(())
    }
}
