//! The bytes of a file, for readers that seek: all bytes, or only the parts that are in memory.

use crate::error::{Error, Result};
use crate::files::Parts;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

/// The bytes of a file.
#[derive(Clone, Copy)]
pub enum Image<'a> {
    Whole(&'a [u8]),
    Parts(&'a Parts),
}

impl<'a> Image<'a> {
    /// Returns the number of bytes of the file.
    pub fn len(self) -> u64 {
        match self {
            Image::Whole(bytes) => bytes.len() as u64,
            Image::Parts(parts) => parts.size,
        }
    }

    /// Returns a range of bytes.
    ///
    /// # Errors
    ///
    /// `File` if the range is outside of the file, or not in memory.
    pub fn slice(self, range: Range<usize>) -> Result<&'a [u8]> {
        let found = match self {
            Image::Whole(bytes) => bytes.get(range.clone()),
            Image::Parts(parts) => parts.get(range.start as u64..range.end as u64),
        };
        found.ok_or_else(|| Error::file(format!("the bytes {} to {} of the file cannot be read", range.start, range.end)))
    }

    /// Returns a reader that can seek.
    pub fn reader(self) -> ImageReader<'a> {
        ImageReader { image: self, at: 0 }
    }
}

/// Reads the bytes of an image. Fails at bytes that are not in memory.
pub struct ImageReader<'a> {
    image: Image<'a>,
    at: u64,
}

impl Read for ImageReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.image.len() || out.is_empty() {
            return Ok(0);
        }
        let rest = match self.image {
            Image::Whole(bytes) => bytes.get(self.at as usize..),
            Image::Parts(parts) => parts.from(self.at),
        };
        let rest = rest.ok_or_else(|| io::Error::other(format!("byte {} of the file is not in memory", self.at)))?;
        let n = rest.len().min(out.len());
        out[..n].copy_from_slice(&rest[..n]);
        self.at += n as u64;
        Ok(n)
    }
}

impl Seek for ImageReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.image.len().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
