//! Read-only bytes: a memory map of a file, bytes that are part of the program, or a file that the caller handed over.
//!
//! This module knows no format. A map is only safe while no other process truncates the file. Readers call `check_uncut` to detect this.

use super::image::Image;
use crate::error::{Error, Result};
use crate::files::{self, Handed, RangedFile};
use memmap2::Mmap;
#[cfg(unix)]
use memmap2::UncheckedAdvice;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Read-only bytes with their origin.
pub(super) enum Map {
    Mapped { map: Mmap, file: File, path: PathBuf },
    Fixed(&'static [u8]),
    Handed { file: Handed, path: PathBuf },
}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl Map {
    /// Maps a whole file.
    ///
    /// # Errors
    ///
    /// `File` if the file cannot be opened or is empty.
    pub fn open(path: &Path) -> Result<Map> {
        let io = |e| Error::io(e, path);
        let empty = || super::kinds::refusal(&[]).at(path.display());
        if let Some(file) = files::handed(path).transpose().map_err(io)? {
            let map = Map::Handed { file, path: path.to_path_buf() };
            return if map.len() == 0 { Err(empty()) } else { Ok(map) };
        }
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.len() == 0 {
            return Err(empty());
        }
        // SAFETY: the map is read-only and private to this process. If another process writes to the file, the bytes change, which every reader
        // tolerates: names and sizes are copied before they are checked. If another process truncates the file, a read faults. `check_uncut`
        // makes this unlikely, but nothing can exclude it.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        Ok(Map::Mapped { map, file, path: path.to_path_buf() })
    }

    /// Wraps bytes that are part of the program.
    pub fn fixed(bytes: &'static [u8]) -> Map {
        Map::Fixed(bytes)
    }

    /// Returns all bytes. Of a file that is read by ranges, returns the first bytes, which hold the header.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Map::Mapped { map, .. } => map,
            Map::Fixed(bytes) => bytes,
            Map::Handed { file: Handed::Whole(bytes), .. } => bytes,
            Map::Handed { file: Handed::Ranged(file), .. } => file.parts.head(),
        }
    }

    /// Returns the number of bytes of the file.
    pub fn len(&self) -> u64 {
        self.ranged().map_or(self.bytes().len() as u64, |file| file.parts.size)
    }

    /// Returns the file if its bytes are read by ranges.
    pub fn ranged(&self) -> Option<&Arc<RangedFile>> {
        match self {
            Map::Handed { file: Handed::Ranged(file), .. } => Some(file),
            _ => None,
        }
    }

    /// Returns the bytes of the file that are in memory.
    pub fn image(&self) -> Image<'_> {
        self.ranged().map_or(Image::Whole(self.bytes()), |file| Image::Parts(&file.parts))
    }

    /// Returns the path of the file, or `None` if the bytes are part of the program.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Map::Mapped { path, .. } | Map::Handed { path, .. } => Some(path),
            Map::Fixed(_) => None,
        }
    }

    /// Lets pages of a mapped file leave the process's memory. The system reads them again from the file when they are needed.
    pub fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Map::Mapped { map, .. } = self
            && range.end <= map.len()
        {
            // SAFETY: the map is read-only and of a file, so a page that leaves comes back with the same bytes.
            // A refusal only means that the pages stay.
            let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len()) };
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    /// Checks that the open file is still at least as long as its map. A new file under the same path does not matter.
    ///
    /// # Errors
    ///
    /// `File` if the file became shorter.
    pub fn check_uncut(&self) -> Result<()> {
        let Map::Mapped { map, file, path } = self else { return Ok(()) };
        let now = file.metadata().map_err(|e| Error::io(e, path))?.len();
        if now < map.len() as u64 {
            let message = format!("the file became shorter while in use: {} bytes when opened, {now} now", map.len());
            return Err(Error::file(message).at(path.display()).hint("restore the file and start again"));
        }
        Ok(())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Returns how many bytes of the mapped file `path` are in the process's memory.
    fn resident(path: &Path) -> usize {
        let all = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let of_file = all.lines().skip_while(|line| !line.ends_with(path.to_str().unwrap()));
        let rss = of_file.skip(1).find_map(|line| line.strip_prefix("Rss:")).unwrap();
        rss.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    #[test]
    fn released_pages_leave_memory_and_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights");
        let bytes: Vec<u8> = (0..1 << 20).map(|i| (i / 4096) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let map = Map::open(&path).unwrap();
        assert!(map.bytes() == bytes);
        assert_eq!(resident(&path), bytes.len());
        map.release(1 << 19..1 << 20);
        assert_eq!(resident(&path), bytes.len() / 2);
        map.release(0..usize::MAX);
        assert_eq!(resident(&path), bytes.len() / 2, "a range beyond the file is ignored");
        assert!(map.bytes() == bytes);
    }
}
