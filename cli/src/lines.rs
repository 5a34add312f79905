//! Reads lines of input on a separate thread, so that the main thread can generate texts while a slow pipe has no new line.

use crate::prompt::{is_utf16, utf16};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::front_end::without_mark;

/// The maximum length of a line in bytes. A longer line is skipped and reported as too long.
pub const MAX_BYTES: usize = 16 << 20;

/// The maximum number of lines that are read in advance.
const MAX_WAITING: usize = 64;

/// The maximum size in bytes of all lines that wait or are being processed. Without a limit, long lines would fill the memory.
const MAX_HELD: usize = 64 << 20;

/// A line of the input, and its number in the input, from 1.
pub struct NumberedLine {
    pub number: u64,
    /// The line without its newline. `None` if the line is longer than [`MAX_BYTES`].
    pub bytes: Option<Vec<u8>>,
    /// Counts the line's bytes against [`MAX_HELD`]. Drop this value when the line has been processed.
    pub held: HeldBytes,
}

/// The bytes of one line, counted against [`MAX_HELD`] until this value is dropped.
pub struct HeldBytes {
    bytes: usize,
    of: Arc<LineBudget>,
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        *self.of.used() -= self.bytes;
        self.of.freed.notify_one();
    }
}

#[derive(Default)]
struct LineBudget {
    used: Mutex<usize>,
    freed: Condvar,
}

impl LineBudget {
    fn used(&self) -> MutexGuard<'_, usize> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `bytes` more bytes fit into [`MAX_HELD`], and counts these bytes. A line of any length fits if no other line is counted.
    fn hold(self: &Arc<Self>, bytes: usize) -> HeldBytes {
        let is_full = |used: &mut usize| *used > 0 && *used + bytes > MAX_HELD;
        let mut used = self.freed.wait_while(self.used(), is_full).unwrap_or_else(PoisonError::into_inner);
        *used += bytes;
        HeldBytes { bytes, of: self.clone() }
    }
}

/// The result of [`LineReader::next`].
pub enum NextLine {
    Line(NumberedLine),
    /// No line arrived in time.
    Wait,
    /// The input has ended.
    End,
}

/// A reader of lines from a file or from standard input.
pub struct LineReader {
    from: Receiver<Result<NumberedLine>>,
}

impl LineReader {
    /// Opens a file, or standard input if the path is `-`.
    ///
    /// # Errors
    /// `File` if the file cannot be opened, `Memory` if the system has no thread left.
    pub fn open(path: &Path) -> Result<LineReader> {
        let (to, from) = sync_channel(MAX_WAITING);
        let place = path.to_path_buf();
        if is_standard(path) {
            reader().spawn(move || send(std::io::stdin().lock(), &place, &to))
        } else {
            let file = File::open(path).map_err(|e| Error::io(e, path))?;
            reader().spawn(move || send(BufReader::new(file), &place, &to))
        }
        .map_err(|e| {
            Error::memory(format!("cannot start the thread that reads lines: {e}")).hint("raise the limit on threads (ulimit -u)")
        })?;
        Ok(LineReader { from })
    }

    /// Waits for the next line, at most as long as `patience`.
    ///
    /// # Errors
    /// `File` if the input cannot be read.
    pub fn next(&self, patience: Duration) -> Result<NextLine> {
        match self.from.recv_timeout(patience) {
            Ok(line) => line.map(NextLine::Line),
            Err(RecvTimeoutError::Timeout) => Ok(NextLine::Wait),
            Err(RecvTimeoutError::Disconnected) => Ok(NextLine::End),
        }
    }
}

fn reader() -> std::thread::Builder {
    std::thread::Builder::new().name("lines".into())
}

/// The path that means standard input or standard output.
pub const STANDARD: &str = "-";

pub fn is_standard(path: &Path) -> bool {
    path == Path::new(STANDARD)
}

/// Returns the number of non-blank lines of a file. Returns `None` for a pipe and for standard input.
pub fn count(path: &Path) -> Option<u64> {
    // Do not open a pipe a second time: opening it would wait for another writer.
    let is_file = !is_standard(path) && std::fs::metadata(path).is_ok_and(|m| m.is_file());
    let file = is_file.then(|| File::open(path).ok())??;
    let (mut reader, mut n, mut is_empty) = (BufReader::with_capacity(1 << 20, file), 0, true);
    loop {
        let bytes = reader.fill_buf().ok()?;
        if bytes.is_empty() {
            return Some(n + u64::from(!is_empty));
        }
        for byte in bytes {
            if *byte == b'\n' {
                n += u64::from(!is_empty);
                is_empty = true;
            } else {
                is_empty &= byte.is_ascii_whitespace();
            }
        }
        let read = bytes.len();
        reader.consume(read);
    }
}

/// Reads lines and sends them to `to`, until the input ends or the receiver is dropped.
fn send(mut from: impl BufRead, place: &Path, to: &SyncSender<Result<NumberedLine>>) {
    let budget = Arc::<LineBudget>::default();
    for number in 1.. {
        let line = read(&mut from).map_err(|e| Error::io(e, place)).transpose();
        let Some(line) = line else { return };
        let line = match line {
            Ok(Some(bytes)) if number == 1 && is_utf16(&bytes) => Err(utf16().at(place.display())),
            line => line,
        };
        let is_last = line.is_err();
        // Editors on Windows put a byte order mark before a text.
        let line = line.map(|bytes| bytes.map(|bytes| if number == 1 { without_mark(bytes) } else { bytes }));
        let numbered = |bytes: Option<Vec<u8>>| {
            let held = budget.hold(bytes.as_ref().map_or(0, Vec::len));
            NumberedLine { number, bytes, held }
        };
        if to.send(line.map(numbered)).is_err() || is_last {
            return;
        }
    }
}

/// Reads a line and removes its newline. Returns `None` at the end of the input, and `Some(None)` for a line that is longer than
/// [`MAX_BYTES`].
fn read(from: &mut impl BufRead) -> std::io::Result<Option<Option<Vec<u8>>>> {
    let mut line = Vec::new();
    from.by_ref().take(MAX_BYTES as u64 + 1).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() > MAX_BYTES {
        from.skip_until(b'\n')?;
        return Ok(Some(None));
    }
    Ok(Some(Some(line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_at_their_ends() {
        let long = vec![b'x'; MAX_BYTES + 1];
        let text = [b"a\n\n".as_slice(), &long, b"\nb\r\n", &long[1..], b"\nlast"].concat();
        let mut from = text.as_slice();
        let mut lines = std::iter::from_fn(|| read(&mut from).unwrap());
        let short = |line: Option<Vec<u8>>| line.map(|l| String::from_utf8(l).unwrap());
        assert_eq!(short(lines.next().unwrap()).unwrap(), "a");
        assert_eq!(short(lines.next().unwrap()).unwrap(), "");
        assert!(lines.next().unwrap().is_none(), "too long by a byte");
        assert_eq!(short(lines.next().unwrap()).unwrap(), "b\r");
        assert_eq!(lines.next().unwrap().unwrap().len(), MAX_BYTES);
        assert_eq!(short(lines.next().unwrap()).unwrap(), "last");
        assert!(lines.next().is_none());
    }

    #[test]
    fn long_lines_wait_for_room() {
        let budget = Arc::<LineBudget>::default();
        let first = budget.hold(MAX_HELD + 1);
        let (to, from) = sync_channel(1);
        let waiting = budget.clone();
        std::thread::spawn(move || to.send(waiting.hold(1).bytes));
        assert!(from.recv_timeout(Duration::from_millis(50)).is_err(), "there is no room");
        drop(first);
        assert_eq!(from.recv_timeout(Duration::from_secs(20)), Ok(1));
        let all = [budget.hold(MAX_HELD / 2), budget.hold(MAX_HELD / 2), budget.hold(0)];
        drop(all);
        assert_eq!(*budget.used(), 0);
    }

    #[test]
    fn empty_lines_are_not_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.jsonl");
        for (text, n) in [("", 0), ("a", 1), ("a\n", 1), ("a\n\n \t\r\nb", 2), ("\n\n", 0)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(count(&path), Some(n), "{text:?}");
        }
        assert_eq!(count(Path::new("-")), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_not_opened_to_count_its_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (to, from) = sync_channel(1);
        std::thread::spawn(move || to.send(count(&path)));
        assert_eq!(from.recv_timeout(Duration::from_secs(20)), Ok(None));
    }
}
