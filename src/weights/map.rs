//! Read-only bytes: a memory map of a file, or bytes that are part of the program.
//!
//! This module knows no format. A map is only safe while no other process truncates the file. Readers call `check_uncut` to detect this.

use crate::error::{Error, Result};
use memmap2::Mmap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Read-only bytes with their origin.
pub(super) enum Map {
    Mapped { map: Mmap, file: File, path: PathBuf },
    Fixed(&'static [u8]),
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
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.len() == 0 {
            return Err(super::kinds::refusal(&[]).at(path.display()));
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

    /// Returns all bytes of the file or of the program's data.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Map::Mapped { map, .. } => map,
            Map::Fixed(bytes) => bytes,
        }
    }

    /// Returns the path of the file, or `None` if the bytes are part of the program.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Map::Mapped { path, .. } => Some(path),
            Map::Fixed(_) => None,
        }
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
