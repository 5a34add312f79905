//! Finds the members of a `.pth` file, which is a zip archive.
//!
//! Members are read in place, so they must be stored without compression. Compressed, encrypted, duplicate or overlapping members are
//! refused. This module does not know torch.

use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::ops::Range;
use zip::read::{ArchiveOffset, Config};
use zip::{CompressionMethod, ZipArchive};

/// The size of the largest central directory of an archive, in bytes. A model of 10 000 tensors has a directory of 2 MB.
const MAX_DIRECTORY_BYTES: usize = 32 << 20;
const MAX_MEMBERS: usize = 100_000;
const DAMAGED: &str = "the file is hostile or damaged: download the file again";
const AGAIN: &str = "the download may be incomplete: download the file again";

/// Returns the byte range of each member in the file, by the member's name.
///
/// # Errors
///
/// `File` if the archive is damaged, too large, or has members that cannot be read in place.
pub(super) fn members(file: &[u8]) -> Result<BTreeMap<String, Range<usize>>> {
    let config = Config { archive_offset: ArchiveOffset::Known(0) };
    let reader = Frugal { cursor: Cursor::new(file), left_bytes: MAX_DIRECTORY_BYTES };
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
            (end <= file.len()).then_some(start..end)
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
    cursor: Cursor<&'a [u8]>,
    left_bytes: usize,
}

impl Read for Frugal<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.cursor.read(out)?;
        self.left_bytes = self.left_bytes.checked_sub(n).ok_or_else(|| io::Error::other("the directory is too large"))?;
        Ok(n)
    }
}

impl Seek for Frugal<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.cursor.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Zip, zip};
    use super::*;

    fn refusal(file: &[u8]) -> String {
        members(file).unwrap_err().to_string()
    }

    #[test]
    fn members_are_found_in_place() {
        let file = zip(&[("r/data.pkl", b"abc"), ("r/data/0", b"de"), ("r/empty", b"")]);
        let found = members(&file).unwrap();
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
        members(&build(|_| ())).unwrap();
        assert!(
            refusal(&build(|z| z.directory[1].method = 8))
                .contains("b: expected an uncompressed file in the zip archive, found compression Deflate")
        );
        assert!(refusal(&build(|z| z.directory[0].size = u32::MAX - 1)).contains("uncompressed file"), "a ratio bomb");
        assert!(refusal(&build(|z| z.directory[0].flags = 1)).contains("encrypted"));
        assert!(refusal(&build(|z| z.directory[1].offset = 0)).contains("share the same bytes"));
        assert!(refusal(&build(|z| z.directory[1].name = "a".into())).contains("same name"));
        let long = |z: &mut Zip| (z.directory[1].size, z.directory[1].packed) = (1 << 30, 1 << 30);
        assert!(members(&build(long)).is_err());
        assert!(members(&build(|z| z.directory[1].offset = 1 << 30)).is_err());
        assert!(members(&build(|z| z.claimed_members = 65534)).is_err());
    }
}
