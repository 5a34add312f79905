//! Finds the members of a `.pth` file, which is a zip archive.
//!
//! Members are read in place, so they must be stored without compression. Compressed, encrypted, duplicate or overlapping members are
//! refused. This module does not know torch.

use super::image::{Image, ImageReader};
use crate::error::{Error, Result};
use crate::files::Parts;
use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use zip::read::{ArchiveOffset, Config};
use zip::{CompressionMethod, ZipArchive};

/// The maximum size of an archive's central directory, in bytes. A model of 10 000 tensors has a directory of 2 MB.
const MAX_DIRECTORY_BYTES: usize = 32 << 20;
const MAX_MEMBERS: usize = 100_000;
const DAMAGED: &str = "the file is hostile or damaged: download the file again";
const AGAIN: &str = "the download may be incomplete: download the file again";

/// Returns the byte range of each member in the file, by the member's name.
///
/// # Errors
///
/// `File` if the archive is damaged, too large, or has members that cannot be read in place.
pub(super) fn members(file: Image<'_>) -> Result<BTreeMap<String, Range<usize>>> {
    let config = Config { archive_offset: ArchiveOffset::Known(0) };
    let reader = Frugal { reader: file.reader(), left_bytes: MAX_DIRECTORY_BYTES };
    let mut archive = ZipArchive::with_config(config, reader).map_err(unreadable)?;
    if archive.len() > MAX_MEMBERS {
        return Err(
            Error::file(format!("expected a zip archive of at most {MAX_MEMBERS} files, found {} files", archive.len())).hint(DAMAGED)
        );
    }
    if archive.has_duplicate_names() {
        return Err(Error::file("two files in the zip archive have the same name").hint(DAMAGED));
    }
    if archive.has_overlapping_entries().map_err(unreadable)? {
        return Err(Error::file("two files in the zip archive share the same bytes").hint(DAMAGED));
    }
    let mut members = BTreeMap::new();
    for i in 0..archive.len() {
        let member = archive.by_index_raw(i).map_err(unreadable)?;
        let name = member.name().map_err(unreadable)?.into_owned();
        if name.ends_with('/') {
            continue;
        }
        let refuse = |found: String| {
            Error::file(format!("expected an uncompressed file in the zip archive, found {found}"))
                .at(&name)
                .hint("save the checkpoint again with torch.save")
        };
        if member.encrypted() {
            return Err(refuse("an encrypted file".into()));
        }
        if member.compression() != CompressionMethod::Stored || member.compressed_size() != member.size() {
            let (packed, size) = (member.compressed_size(), member.size());
            return Err(refuse(format!("compression {} ({size} bytes are stored as {packed} bytes)", member.compression())));
        }
        let range = (|| {
            let start = usize::try_from(member.data_start()?).ok()?;
            let end = start.checked_add(usize::try_from(member.size()).ok()?)?;
            (end as u64 <= file.len()).then_some(start..end)
        })();
        let range = range.ok_or_else(|| {
            Error::file(format!("expected {} bytes of this file in the zip archive, but the checkpoint ends earlier", member.size()))
                .at(&name)
                .hint(AGAIN)
        })?;
        members.insert(name, range);
    }
    Ok(members)
}

/// How many bytes at the end of an archive are searched for the end record: a comment of 64 KiB, and the records.
const END_BYTES: u64 = (64 << 10) + 1024;
/// The number of bytes to read for a local header, in addition to the name: the fixed fields, and the padding that torch adds to align the elements.
const HEADER_BYTES: u64 = 30 + 512;

/// Returns the byte ranges of an archive that [`members`] reads. If the name of a member ends with one of `whole`, its range includes its content.
/// While `parts` lacks the central directory, returns only the ranges that are needed to find it. Fields are not checked here, because [`members`]
/// checks them.
pub(super) fn needed(parts: &Parts, whole: &[&str]) -> Vec<Range<u64>> {
    let mut ranges = vec![0..16, parts.size.saturating_sub(END_BYTES)..parts.size];
    let Some(end) = ranges.last().and_then(|range| parts.get(range.clone())) else { return ranges };
    let Some(directory) = directory(parts, end) else { return ranges };
    ranges.push(directory.clone());
    let mut left = parts.get(directory.clone()).unwrap_or_default();
    while let Some((name, header, size, rest)) = listed(left) {
        let is_whole = whole.iter().any(|ending| name.ends_with(ending.as_bytes()));
        ranges.push(header..header + HEADER_BYTES + name.len() as u64 + if is_whole { size } else { 0 });
        left = rest;
    }
    ranges
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    Some(bytes.get(at..at + N)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Returns the range of the central directory. `end` are the last bytes of the archive.
fn directory(parts: &Parts, end: &[u8]) -> Option<Range<u64>> {
    let at = end.windows(4).rposition(|four| four == b"PK\x05\x06")?;
    let (mut size, mut start) = (number::<4>(end, at + 12)?, number::<4>(end, at + 16)?);
    // An archive that is larger than 4 GiB, or that torch wrote, has a second end record with 64-bit numbers (zip64).
    if let Some(long) = end[..at].windows(4).rposition(|four| four == b"PK\x06\x06") {
        (size, start) = (number::<8>(end, long + 40)?, number::<8>(end, long + 48)?);
    }
    let is_inside = size <= MAX_DIRECTORY_BYTES as u64 && start.checked_add(size).is_some_and(|end| end <= parts.size);
    is_inside.then_some(start..start.saturating_add(size))
}

/// Splits off the first entry of a central directory. Returns its name, the position of its local header, the size of the member, and the remaining
/// entries. Returns `None` if the directory ends or the entry is damaged.
fn listed(directory: &[u8]) -> Option<(&[u8], u64, u64, &[u8])> {
    let length = |at| number::<2>(directory, at).map(|n| n as usize);
    if directory.get(..4)? != b"PK\x01\x02" {
        return None;
    }
    let (mut size, mut header) = (number::<4>(directory, 24)?, number::<4>(directory, 42)?);
    let packed = number::<4>(directory, 20)?;
    let (name, extra, comment) = (length(28)?, length(30)?, length(32)?);
    let mut fields = directory.get(46 + name..46 + name + extra)?;
    while let (Some(id), Some(n)) = (number::<2>(fields, 0), number::<2>(fields, 2)) {
        let field = fields.get(4..4 + n as usize)?;
        if id == 1 {
            // The zip64 field holds a 64-bit number for each of these 32-bit numbers whose bits are all 1, in this order.
            let mut at = 0;
            for short in [&mut size, &mut packed.clone(), &mut header] {
                if *short == u64::from(u32::MAX) {
                    *short = number::<8>(field, at)?;
                    at += 8;
                }
            }
        }
        fields = &fields[4 + n as usize..];
    }
    Some((&directory[46..46 + name], header, size, directory.get(46 + name + extra + comment..)?))
}

/// Describes an error of the zip reader in words for users.
fn meaning(error: &zip::result::ZipError) -> String {
    let said = error.to_string();
    match said.contains("EOCD") || said.contains("end of central directory") {
        true => "the list of files at the end of the archive is missing".into(),
        false => said,
    }
}

fn unreadable(error: zip::result::ZipError) -> Error {
    Error::file(format!("the zip archive of the checkpoint cannot be read: {}", meaning(&error))).hint(AGAIN).caused_by(error)
}

/// A reader that fails after `left_bytes` bytes, because a directory of gigabytes would fill the memory.
struct Frugal<'a> {
    reader: ImageReader<'a>,
    left_bytes: usize,
}

impl Read for Frugal<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(out)?;
        self.left_bytes = self.left_bytes.checked_sub(n).ok_or_else(|| io::Error::other("the directory is too large"))?;
        Ok(n)
    }
}

impl Seek for Frugal<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.reader.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Zip, zip};
    use super::*;

    fn refusal(file: &[u8]) -> String {
        members(Image::Whole(file)).unwrap_err().to_string()
    }

    #[test]
    fn members_are_found_in_place() {
        let file = zip(&[("r/data.pkl", b"abc"), ("r/data/0", b"de"), ("r/empty", b"")]);
        let found = members(Image::Whole(&file)).unwrap();
        assert_eq!(found.len(), 3);
        assert_eq!(&file[found["r/data/0"].clone()], b"de");
        assert_eq!(&file[found["r/data.pkl"].clone()], b"abc");
        assert!(found["r/empty"].is_empty());
    }

    #[test]
    fn members_that_are_not_plain_are_refused() {
        let build = |change: fn(&mut Zip)| {
            let mut z = Zip::default();
            z.add("a", b"0123456789");
            z.add("b", b"0123456789");
            change(&mut z);
            z.finish()
        };
        members(Image::Whole(&build(|_| ()))).unwrap();
        assert!(
            refusal(&build(|z| z.directory[1].method = 8))
                .contains("b: expected an uncompressed file in the zip archive, found compression Deflate")
        );
        assert!(refusal(&build(|z| z.directory[0].size = u32::MAX - 1)).contains("uncompressed file"), "a ratio bomb");
        assert!(refusal(&build(|z| z.directory[0].flags = 1)).contains("encrypted"));
        assert!(refusal(&build(|z| z.directory[1].offset = 0)).contains("share the same bytes"));
        assert!(refusal(&build(|z| z.directory[1].name = "a".into())).contains("same name"));
        let long = |z: &mut Zip| (z.directory[1].size, z.directory[1].packed) = (1 << 30, 1 << 30);
        assert!(members(Image::Whole(&build(long))).is_err());
        assert!(members(Image::Whole(&build(|z| z.directory[1].offset = 1 << 30))).is_err());
        assert!(members(Image::Whole(&build(|z| z.claimed_members = 65534))).is_err());
    }
}
