//! Finds the file of a checkpoint, or the index of its files, for a path. Detects the format by the file's first bytes.
//!
//! The content of a file determines its format. The name has no influence.

use super::folder::{self, EXTENSIONS};
use super::kinds;
use crate::error::{Error, Result};
use crate::files;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The supported file formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileKind {
    Pth,
    Safetensors,
    Gguf,
}

impl FileKind {
    /// Returns the name in reports, such as `pth`.
    pub fn name(self) -> &'static str {
        match self {
            FileKind::Pth => "pth",
            FileKind::Safetensors => "safetensors",
            FileKind::Gguf => "gguf",
        }
    }
}

/// Returns the path of the checkpoint's file, or of its index if the checkpoint has several files.
///
/// # Errors
///
/// `File` if `path` does not exist, or if it is a folder that does not hold exactly one checkpoint.
pub(super) fn resolve(path: &Path) -> Result<PathBuf> {
    if files::is_file(path) {
        return folder::whole(path);
    }
    if files::is_folder(path) {
        return folder::checkpoint_in(path);
    }
    match std::fs::metadata(path) {
        Ok(_) => Err(Error::file("expected a file, found a device or a pipe").at(path.display())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound || files::is_handed(path) => with_extension(path),
        Err(e) => Err(Error::io(e, path)),
    }
}

/// Tries `path` followed by each of [`EXTENSIONS`] in turn, and returns the first file that exists. The path's own extension is never replaced,
/// because names such as `model-1.5B` contain a dot.
fn with_extension(path: &Path) -> Result<PathBuf> {
    let tried = EXTENSIONS.map(|extension| {
        let mut longer = OsString::from(path);
        longer.push(".");
        longer.push(extension);
        PathBuf::from(longer)
    });
    match tried.into_iter().find(|p| files::is_file(p)) {
        Some(found) => Ok(found),
        None => Err(Error::file(format!("no such file or folder, and no such file with the extension .{}", EXTENSIONS.join(", .")))
            .at(path.display())
            .hint("check the path")),
    }
}

/// Returns the format that the first bytes of a file show.
///
/// # Errors
///
/// `File` if the file has another format. The error names this format and has a hint.
pub(super) fn sniff(bytes: &[u8]) -> Result<FileKind> {
    match bytes {
        [b'P', b'K', 3, 4, ..] => Ok(FileKind::Pth),
        [b'G', b'G', b'U', b'F', ..] => Ok(FileKind::Gguf),
        [b'f', b'm', b'g', b'g', ..] => Err(kinds::refusal(bytes)),
        [_, _, _, _, _, _, _, _, b'{', ..] => Ok(FileKind::Safetensors),
        _ => Err(kinds::refusal(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::put;
    use super::*;

    fn refusal(path: &Path) -> String {
        resolve(path).unwrap_err().to_string()
    }

    #[test]
    fn a_name_a_stem_or_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path();
        assert!(refusal(here).contains("the folder has no checkpoint"));
        assert!(refusal(&here.join("absent")).contains("no such file"));
        let pth = put(&dir, "m-1.5B.pth", b"x");
        assert_eq!(resolve(&here.join("m-1.5B")).unwrap(), pth);
        assert_eq!(resolve(here).unwrap(), pth);
        put(&dir, "notes.txt", b"x");
        let st = put(&dir, "m-1.5B.st", b"x");
        assert_eq!(resolve(&here.join("m-1.5B")).unwrap(), st);
        assert!(refusal(here).contains("found 2: m-1.5B.pth, m-1.5B.st"), "{}", refusal(here));
        let best = put(&dir, "m-1.5B.safetensors", b"x");
        assert_eq!(resolve(&here.join("m-1.5B")).unwrap(), best);
        assert_eq!(resolve(&pth).unwrap(), pth);
    }

    #[test]
    fn the_content_determines_the_format() {
        let text = |b: &[u8]| sniff(b).unwrap_err().to_string();
        assert_eq!(sniff(b"PK\x03\x04....").unwrap(), FileKind::Pth);
        assert_eq!(sniff(b"\x80\x02\0\0\0\0\0\0{").unwrap(), FileKind::Safetensors);
        assert_eq!(sniff(b"GGUF\x03\0\0\0{").unwrap(), FileKind::Gguf, "123 tensors");
        assert!(text(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.").contains("before 2020"));
        assert!(text(b"version https://git-lfs.github.com/spec/v1\noid").contains("git lfs pull"));
        assert!(text(b"\n<!DOCTYPE html>").contains("web page"));
        assert!(text(b"").contains("empty"));
        assert!(text(b"abcdefghijkl").contains("text that begins with"));
    }
}
