//! Writes safetensors files under a temporary name and renames them when they are complete. Also reads small safetensors files.
//!
//! Tensors are streamed in blocks. `write_file` also writes files of other formats, whose header the caller makes. This module knows neither
//! checkpoints nor states.

use super::new_file::{NewFile, Readers};
use super::safetensors;
use crate::error::{Error, Result, try_alloc};
use crate::tensor::{DType, n_elements};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// A function that writes the data of one tensor.
pub type WriteData<'a> = Box<dyn FnMut(&mut dyn Write) -> Result<()> + 'a>;

/// A tensor to write to a file.
pub struct NewTensor<'a> {
    /// The name in the file.
    pub name: String,
    /// The type of the elements.
    pub dtype: DType,
    /// The shape. The data are row-major: the last dimension is contiguous.
    pub shape: Vec<usize>,
    /// Writes the elements in little-endian order. The number of bytes must agree with the shape and the type.
    pub data: WriteData<'a>,
}

/// Writes a safetensors file under a temporary name, then renames it to `path`. After an error, no new file remains.
///
/// Tensors with more bytes per element are written first; otherwise, the order of the entries is kept. `progress` is called with the bytes written so
/// far and the bytes in total. The umask determines the permissions of a new file.
///
/// # Errors
///
/// `Input` if two entries have the same name, or if a type has no fixed size per element. `Input` if a shape or the header is too large. `File` if
/// the disk is full, if the file cannot be written, or if an entry writes a wrong number of bytes. The error of an entry names the entry's tensor.
pub fn write_safetensors(
    path: &Path,
    metadata: &BTreeMap<String, String>,
    entries: Vec<NewTensor<'_>>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    write_for(Readers::Umask, path, metadata, entries, progress)
}

/// Writes a safetensors file as [`write_safetensors`] does. `readers` determines which users may read a new file.
pub(crate) fn write_for(
    readers: Readers,
    path: &Path,
    metadata: &BTreeMap<String, String>,
    mut entries: Vec<NewTensor<'_>>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let head = begin(metadata, &mut entries).map_err(|e| e.at(path.display()))?;
    write_file(readers, path, &head, entries, progress)
}

/// The beginning of a file, and the positions of the tensors after it.
pub(super) struct FileHead {
    /// The bytes before the first tensor.
    pub bytes: Vec<u8>,
    /// The data of each tensor end with zeros up to a multiple of this number of bytes.
    pub alignment: u64,
    /// The number of bytes of the whole file.
    pub total: u64,
}

/// Writes `head` and then the tensors, in the order of the entries, under a temporary name, and renames the file to `path`. [`write_for`]
/// describes the other arguments.
///
/// # Errors
///
/// `File` if the disk is full, if the file cannot be written, or if an entry writes a wrong number of bytes. The error of an entry names the entry's
/// tensor.
pub(super) fn write_file(
    readers: Readers,
    path: &Path,
    head: &FileHead,
    entries: Vec<NewTensor<'_>>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let new = NewFile::create(path, readers)?;
    new.check_room(head.total)?;
    write_all(BufWriter::with_capacity(1 << 20, new.file()), path, head, entries, progress)?;
    new.finish()
}

/// Returns the bytes of a safetensors file.
///
/// # Errors
///
/// `Input` if two entries have the same name, or if a shape or the header is too large; `Memory` if there is too little memory.
pub(crate) fn safetensors_bytes(metadata: &BTreeMap<String, String>, mut entries: Vec<NewTensor<'_>>) -> Result<Vec<u8>> {
    let head = begin(metadata, &mut entries)?;
    let mut bytes = try_alloc(usize::try_from(head.total).unwrap_or(usize::MAX), "a file in memory")?;
    write_all(&mut bytes, Path::new("memory"), &head, entries, &mut |_, _| ())?;
    Ok(bytes)
}

/// Brings the entries into the order of the file. Returns the file's beginning: the length of the JSON, and the JSON.
fn begin(metadata: &BTreeMap<String, String>, entries: &mut [NewTensor<'_>]) -> Result<FileHead> {
    entries.sort_by_key(|e| std::cmp::Reverse(e.dtype.size_bytes().unwrap_or(0))); // every tensor is then aligned
    let (json, total) = header(metadata, entries)?;
    Ok(FileHead { bytes: [&(json.len() as u64).to_le_bytes()[..], &json].concat(), alignment: 1, total })
}

/// Writes the head and all tensors to `out`. `path` is the place in errors.
fn write_all(
    out: impl Write,
    path: &Path,
    head: &FileHead,
    mut entries: Vec<NewTensor<'_>>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let mut sink = TensorSink { out, left: 0, done: 0, shown: 0, total: head.total, failed: None, progress };
    sink.raw(&head.bytes).map_err(|e| Error::io(e, path))?;
    for entry in &mut entries {
        let expected = data_bytes(entry).unwrap_or_default();
        sink.left = expected;
        let written = (entry.data)(&mut sink);
        if let Some(e) = sink.failed.take() {
            return Err(Error::io(e, path));
        }
        let at = |e: Error| e.at(format!("tensor {}", entry.name)).at(path.display());
        written.map_err(at)?;
        if sink.left != 0 {
            return Err(at(Error::file(format!(
                "expected {expected} bytes of data for this tensor, but {} bytes were written",
                expected - sink.left
            ))));
        }
        let padding = expected.next_multiple_of(head.alignment) - expected;
        sink.raw(&vec![0; padding as usize]).map_err(|e| Error::io(e, path))?;
    }
    sink.finish().map_err(|e| Error::io(e, path))
}

/// Returns how many bytes an entry's elements take, in whole blocks. Returns `None` if this size overflows.
pub(super) fn data_bytes(entry: &NewTensor) -> Option<u64> {
    entry.dtype.bytes_of(n_elements(&entry.shape)?)?.try_into().ok()
}

/// Returns the header's JSON and the size of the whole file in bytes. The JSON is padded so that the data begin at a multiple of 8.
fn header(metadata: &BTreeMap<String, String>, entries: &[NewTensor]) -> Result<(Vec<u8>, u64)> {
    let mut fields = Vec::new();
    if !metadata.is_empty() {
        fields.push(format!("\"__metadata__\":{}", serde_json::json!(metadata)));
    }
    let mut names = BTreeSet::from(["__metadata__"]);
    let mut end = 0u64;
    for e in entries {
        let at = |error: Error| error.at(format!("tensor {}", e.name));
        if !names.insert(&e.name) {
            return Err(at(Error::input("two tensors to write have this name")));
        }
        if e.dtype.size_bytes().is_none() {
            return Err(at(Error::input(format!("expected a type with a whole number of bytes per value, found {}", e.dtype))));
        }
        let (start, bytes) = (end, data_bytes(e));
        end = bytes.and_then(|n| end.checked_add(n)).ok_or_else(|| at(Error::input(format!("the shape {:?} is too large", e.shape))))?;
        let (name, dtype) = (serde_json::json!(e.name), e.dtype.name());
        fields.push(format!("{name}:{{\"dtype\":\"{dtype}\",\"shape\":{:?},\"data_offsets\":[{start},{end}]}}", e.shape));
    }
    let mut json = format!("{{{}}}", fields.join(",")).into_bytes();
    json.resize(json.len().next_multiple_of(8), b' ');
    if json.len() as u64 > safetensors::MAX_HEADER_BYTES {
        let most = safetensors::MAX_HEADER_BYTES;
        return Err(Error::input(format!("expected a safetensors header of at most {most} bytes, found {} bytes", json.len())));
    }
    let total = end.checked_add(8 + json.len() as u64).ok_or_else(|| Error::input("the sum of all tensors is too large"))?;
    Ok((json, total))
}

/// A writer that counts the current tensor's bytes, and separates errors of the disk from errors of the tensor.
struct TensorSink<'a, W: Write> {
    out: W,
    /// The number of bytes that the current tensor must still write.
    left: u64,
    /// The number of bytes that were written so far.
    done: u64,
    /// The number of bytes that the last call of `progress` reported.
    shown: u64,
    total: u64,
    /// The first error of the disk.
    failed: Option<io::Error>,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl<W: Write> TensorSink<'_, W> {
    /// Writes bytes. Reports progress if at least 4 MiB were written since the last report.
    fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.done += bytes.len() as u64;
        if self.done - self.shown >= 4 << 20 {
            self.show();
        }
        Ok(())
    }

    fn show(&mut self) {
        self.shown = self.done;
        (self.progress)(self.done, self.total);
    }

    fn finish(mut self) -> io::Result<()> {
        self.out.flush()?;
        self.show();
        Ok(())
    }
}

impl<W: Write> Write for TensorSink<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.ok_or_else(|| io::Error::other("the tensor wrote more bytes than its shape and type need"))?;
        self.raw(bytes).map_err(|e| {
            let copy = io::Error::new(e.kind(), e.to_string());
            self.failed.get_or_insert(e);
            copy
        })?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The tensors of a file, by name: type, shape and bytes.
pub type Tensors<'a> = BTreeMap<String, (DType, Vec<usize>, &'a [u8])>;

/// Parses a safetensors file that is in memory. Returns its tensors and its metadata.
///
/// # Errors
///
/// `File` if the header is damaged or hostile.
pub fn read_safetensors(bytes: &[u8]) -> Result<(Tensors<'_>, BTreeMap<String, String>)> {
    let (tensors, metadata) = safetensors::parse(bytes, bytes.len() as u64)?;
    let tensors = tensors.into_iter().map(|t| (t.name, (t.dtype, t.shape, &bytes[t.bytes])));
    Ok((tensors.collect(), metadata))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry<'a>(name: &str, dtype: DType, shape: &[usize], bytes: &'a [u8]) -> NewTensor<'a> {
        NewTensor {
            name: name.into(),
            dtype,
            shape: shape.to_vec(),
            data: Box::new(move |out| out.write_all(bytes).map_err(|e| Error::file(e.to_string()))),
        }
    }

    #[test]
    fn a_file_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.safetensors");
        let metadata = BTreeMap::from([("a \"quoted\" \u{7f}key\n".to_string(), "ü\\".to_string())]);
        let entries = vec![
            entry("small", DType::U8, &[3], b"abc"),
            entry("t\"1", DType::F16, &[1, 2], b"1234"),
            entry("none", DType::F32, &[0], b""),
        ];
        let mut seen = (0, 0);
        write_safetensors(&path, &metadata, entries, &mut |done, total| seen = (done, total)).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(seen, (bytes.len() as u64, bytes.len() as u64));
        assert_eq!(u64::from_le_bytes(bytes[..8].try_into().unwrap()) % 8, 0);
        let (tensors, back) = read_safetensors(&bytes).unwrap();
        assert_eq!(back, metadata);
        assert_eq!(tensors["t\"1"], (DType::F16, vec![1, 2], &b"1234"[..]));
        assert_eq!(tensors["small"], (DType::U8, vec![3], &b"abc"[..]));
        assert_eq!(tensors.len(), 3);
        write_safetensors(&path, &BTreeMap::new(), vec![], &mut |_, _| ()).unwrap();
        assert!(read_safetensors(&std::fs::read(&path).unwrap()).unwrap().0.is_empty());
    }

    #[test]
    fn an_error_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.safetensors");
        let none = BTreeMap::new();
        let fails = |entries| write_safetensors(&path, &none, entries, &mut |_, _| ()).unwrap_err().to_string();
        assert!(fails(vec![entry("a", DType::U8, &[2], b"abc")]).contains("more bytes than its shape"));
        assert!(
            fails(vec![entry("a", DType::U8, &[4], b"abc")])
                .contains("tensor a: expected 4 bytes of data for this tensor, but 3 bytes were written")
        );
        assert!(fails(vec![entry("a", DType::U8, &[1], b"a"), entry("a", DType::U8, &[1], b"a")]).contains("two tensors"));
        assert!(fails(vec![entry("__metadata__", DType::U8, &[1], b"a")]).contains("two tensors"));
        assert!(fails(vec![entry("a", DType::F32, &[usize::MAX, 2], b"")]).contains("too large"));
        assert!(
            fails(vec![entry("a", DType::Q4K, &[256], &[0; 144])])
                .contains("tensor a: expected a type with a whole number of bytes per value")
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let absent = dir.path().join("no/such/folder/x");
        let e = write_safetensors(&absent, &none, vec![], &mut |_, _| ()).unwrap_err();
        assert!(e.hint.is_some() && e.to_string().contains("no/such/folder"), "{e}");
        assert!(write_safetensors(dir.path(), &none, vec![], &mut |_, _| ()).unwrap_err().to_string().contains("a folder or a device"));
    }

    #[test]
    fn an_existing_file_survives_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = super::super::testing::put(&dir, "x", b"precious");
        write_safetensors(&path, &BTreeMap::new(), vec![entry("a", DType::U8, &[4], b"abc")], &mut |_, _| ()).unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_an_io_error() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut ignore = |_, _| ();
        let mut sink = TensorSink {
            out: BufWriter::with_capacity(16, &full),
            left: 99,
            done: 0,
            shown: 0,
            total: 99,
            failed: None,
            progress: &mut ignore,
        };
        assert!(sink.write_all(&[0; 99]).is_err());
        let e = Error::io(sink.failed.take().unwrap(), Path::new("x"));
        assert!(e.hint.unwrap().contains("free some space"));
    }
}
