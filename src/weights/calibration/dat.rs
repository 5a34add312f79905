//! The older format of importance matrices, from before llama.cpp used GGUF. All numbers are little-endian:
//!
//! ```text
//! n i32
//! n times  length i32  name  calls i32  n_values i32  values f32[n_values], means times calls
//! last chunk i32               may be missing
//! length i32  name of the text may be missing
//! ```

use super::{Calibration, ColumnSums};
use crate::error::{Error, Result};

/// The maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 4096;
const AGAIN: &str = "the file is damaged or incomplete: make it again, or download it again";

/// The bytes that are not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or_else(|| {
            let text = format!("the importance matrix ends early: expected {n} more bytes, found {}", self.0.len());
            Error::file(text).hint(AGAIN)
        })?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<i32> {
        Ok(i32::from_le_bytes(self.take(4)?.try_into().expect("take returns n bytes")))
    }

    /// Reads a number from `least` to `most`.
    fn count(&mut self, what: &str, least: usize, most: usize) -> Result<usize> {
        let n = self.number()?;
        let good = usize::try_from(n).ok().filter(|n| (least..=most).contains(n));
        good.ok_or_else(|| Error::file(format!("expected {least} to {most} {what} in an importance matrix, found {n}")).hint(AGAIN))
    }

    fn text(&mut self, least: usize) -> Result<&'a str> {
        let n = self.count("bytes of a name", least, MAX_NAME_BYTES)?;
        let text = std::str::from_utf8(self.take(n)?);
        text.map_err(|e| Error::file("a name in the importance matrix is not UTF-8").hint(AGAIN).caused_by(e))
    }
}

pub fn parse(bytes: &[u8]) -> Result<Calibration> {
    let mut rest = Rest(bytes);
    // An entry takes at least 17 bytes, so a larger count is damage.
    let n = rest.count("entries", 1, (bytes.len() / 17).max(1))?;
    let mut sums = Vec::new();
    for _ in 0..n {
        let name = rest.text(1)?;
        let at = |e: Error| e.at(format!("matrix {name}"));
        let calls = rest.number().map_err(at)?;
        let most = (rest.0.len() / 4).max(1);
        let n = rest.count("values", 1, most).map_err(at)?;
        let values = rest.take(4 * n).map_err(at)?.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
        sums.push((name.to_string(), ColumnSums { squares: values, counts: vec![calls as f32] }));
    }
    let mut found = Calibration::new(sums)?;
    if !rest.0.is_empty() {
        found.n_chunks = u32::try_from(rest.number()?).unwrap_or(0);
    }
    if !rest.0.is_empty() {
        found.datasets.push(rest.text(0)?.to_string());
    }
    match rest.0.len() {
        0 => Ok(found),
        n => Err(Error::file(format!("expected the end of the importance matrix, found {n} more bytes")).hint(AGAIN)),
    }
}
