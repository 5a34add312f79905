//! Where results go: a file in which earlier runs left some, or standard output. A line is written whole and at once, so whoever ends the
//! program, however hard, finds whole lines and at most one torn one at the end, which the next run cuts off.

use super::lock::Lock;
use crate::cli::Failure;
use crate::cli::output::Output;
use crate::error::{Error, Result, short};
use crate::weights::{NewFile, Readers};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// How a line of the results says of which line of the input it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    Id(Value),
    /// By its number: it has no id of its own.
    Line(u64),
}

/// Half a sha256 of an id: so many take little memory, and no two have the same.
pub fn key(id: &Value) -> u128 {
    let digest = Sha256::digest(id.to_string());
    u128::from_le_bytes(digest[..16].try_into().expect("a sha256 has 32 bytes"))
}

/// What becomes of errors that earlier runs left. Those that name only a line are taken out in any case: another line may stand there
/// now, and what is wrong with one is cheap to find again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errors {
    Keep,
    /// They are taken out, and their lines done again.
    Retry,
}

/// Whatever takes the lines.
enum Sink {
    File { file: File, path: PathBuf, _lock: Option<Lock> },
    Stdout(Output),
}

/// A file of results that was found and read. Nothing of it has changed yet.
pub struct Found {
    path: PathBuf,
    file: File,
    left: Left,
    /// Where whole lines end. `None` of what is no file: a pipe or a device remembers nothing.
    end: Option<u64>,
    lock: Option<Lock>,
}

/// What a line came to in an earlier run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Was {
    Text,
    Error,
}

/// What earlier runs left: names of lines that need no more work. Some may be of another input.
#[derive(Default)]
struct Left {
    texts: HashSet<u128>,
    errors: HashSet<u128>,
    /// Whether there are errors that name only a line.
    has_unnamed: bool,
}

pub struct Results {
    sink: Sink,
    left: Left,
}

/// A line that an earlier run wrote.
#[derive(Deserialize)]
struct Kept {
    id: Value,
    line: Option<u64>,
    finish: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

impl Found {
    /// Opens a file of results, new or with what earlier runs left, and reads the names of its lines. No other process can write results
    /// there from now on.
    ///
    /// # Errors
    /// `File` where it cannot be read or written, where another run writes it, or where it holds anything else than results.
    pub fn at(path: &Path) -> Result<Found> {
        let io = |e| Error::io(e, path);
        let mut left = Left::default();
        // Whoever could read from a pipe would be its reader, and never hear that there is none left.
        if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
            let file = OpenOptions::new().write(true).open(path).map_err(io)?;
            return Ok(Found { path: path.into(), file, left, end: None, lock: None });
        }
        let lock = Lock::take(path)?;
        let file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(io)?;
        let end = Some(left.read(&file).map_err(|e| e.at(path.display()))?);
        Ok(Found { path: path.into(), file, left, end, lock })
    }

    /// The path of a file that remembers results.
    pub fn kept(&self) -> Option<&Path> {
        self.end.map(|_| self.path.as_path())
    }

    /// Whether earlier runs left whole lines.
    pub fn has_results(&self) -> bool {
        self.end.is_some_and(|end| end > 0)
    }

    /// Lines go to the end of the file: a torn last line is cut off, and blank ones, and errors are taken out as asked.
    pub fn continued(self, errors: Errors) -> Result<Results> {
        let Found { path, mut file, mut left, end, lock } = self;
        let io = |e| Error::io(e, &path);
        if let Some(end) = end.filter(|&end| file.metadata().is_ok_and(|m| end < m.len())) {
            // Whoever may only append may not cut off, on Windows.
            OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(end)).map_err(io)?;
        }
        let is_retried = errors == Errors::Retry && !left.errors.is_empty();
        if is_retried || left.has_unnamed {
            file = without_errors(&path, file, errors)?;
        }
        if is_retried {
            left.errors.clear();
        }
        Ok(Results { sink: Sink::File { file, path, _lock: lock }, left })
    }
}

impl Results {
    /// Lines go to standard output.
    pub fn to_stdout() -> Results {
        Results { sink: Sink::Stdout(Output::new(true)), left: Left::default() }
    }

    /// What the line of that id was, by its key, where it is there.
    pub fn was(&self, key: u128) -> Option<Was> {
        let Left { texts, errors, .. } = &self.left;
        if texts.contains(&key) { Some(Was::Text) } else { errors.contains(&key).then_some(Was::Error) }
    }

    /// Writes a line, at once.
    pub fn write(&mut self, line: &impl Serialize) -> std::result::Result<(), Failure> {
        match &mut self.sink {
            Sink::Stdout(out) => {
                out.json(line)?;
                out.bytes(b"")
            }
            Sink::File { file, path, .. } => {
                let mut bytes = serde_json::to_vec(line).map_err(|e| Error::input(format!("cannot write JSON: {e}")))?;
                bytes.push(b'\n');
                file.write_all(&bytes).map_err(|e| match e.kind() {
                    ErrorKind::BrokenPipe => Failure::ClosedPipe,
                    _ => Error::io(e, path).into(),
                })
            }
        }
    }
}

impl Left {
    /// Reads the names of all whole lines; gives where these end.
    fn read(&mut self, file: &File) -> Result<u64> {
        let (mut reader, mut end, mut line) = (BufReader::new(file), 0, Vec::new());
        for number in 1.. {
            line.clear();
            let n = reader.read_until(b'\n', &mut line).map_err(|e| Error::file(e.to_string()))?;
            // Behind results: what a loss of power may leave in the place of lines that did not reach the disk.
            if end > 0 && line.iter().copied().all(is_blank) && reader.by_ref().bytes().all(|b| b.is_ok_and(is_blank)) {
                break;
            }
            if line.last() != Some(&b'\n') {
                line.truncate(line.iter().rposition(|b| *b != 0).map_or(line.len(), |last| last + 1));
                // Nothing, or a torn line: it is ours to cut off only if it is the beginning of one of ours.
                let begins = br#"{"id":"#;
                // Whole JSON that is no result was never written here.
                let is_other = serde_json::from_slice::<IgnoredAny>(&line).is_ok() && result(&line).is_none();
                if is_other || !begins.starts_with(&line) && !line.starts_with(begins) {
                    return Err(no_results(number, &line));
                }
                break;
            }
            end += n as u64;
            let Some(Kept { id, line, error, .. }) = result(&line) else { return Err(no_results(number, &line)) };
            self.has_unnamed |= line.is_some();
            let names = if error.is_some() { &mut self.errors } else { &mut self.texts };
            names.extend(line.is_none().then(|| key(&id)));
        }
        Ok(end)
    }
}

fn is_blank(byte: u8) -> bool {
    byte == 0 || byte.is_ascii_whitespace()
}

/// A line that was written here.
fn result(line: &[u8]) -> Option<Kept> {
    serde_json::from_slice::<Kept>(line).ok().filter(|k| k.finish.is_some() || k.error.is_some())
}

/// The same file without the errors that are taken out: written beside it, then put in its place.
fn without_errors(path: &Path, mut old: File, errors: Errors) -> Result<File> {
    let path = &path.canonicalize().map_err(|e| Error::io(e, path))?;
    let io = |e| Error::io(e, path);
    let new = NewFile::create(path, Readers::Umask)?;
    old.seek(SeekFrom::Start(0)).map_err(io)?;
    let (mut reader, mut writer, mut line) = (BufReader::new(old), BufWriter::new(new.file()), Vec::new());
    while reader.read_until(b'\n', &mut line).map_err(io)? > 0 {
        if serde_json::from_slice::<Kept>(&line).is_ok_and(|k| k.error.is_none() || errors == Errors::Keep && k.line.is_none()) {
            writer.write_all(&line).map_err(io)?;
        }
        line.clear();
    }
    writer.flush().map_err(io)?;
    drop((reader, writer));
    new.finish()?;
    OpenOptions::new().append(true).open(path).map_err(io)
}

fn no_results(number: u64, line: &[u8]) -> Error {
    let shown = String::from_utf8_lossy(&line[..line.len().min(160)]).trim_end().to_string();
    Error::file(format!("expected results of batch, found {:?}", short(&shown, 40)))
        .at(format!("line {number}"))
        .hint("give a new file with -o, or the one of the run that is to go on")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path, errors: Errors) -> Result<Results> {
        Found::at(path)?.continued(errors)
    }

    const TEXT: &str = r#"{"id":"a","text":null,"tokens":[],"finish":"eos","seed":1,"usage":{}}"#;
    const ERROR: &str = r#"{"id":7,"error":{"kind":"input"}}"#;
    const UNNAMED: &str = r#"{"id":null,"line":3,"error":{"kind":"input"}}"#;

    fn name(id: impl Into<Value>) -> u128 {
        key(&id.into())
    }

    #[test]
    fn a_file_of_results_is_gone_on_with_behind_its_last_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let whole = format!("{TEXT}\n{ERROR}\n{UNNAMED}\n");
        for torn in ["", "{", r#"{"i"#, &TEXT[..TEXT.len() / 2], TEXT, "\0\0\0", "\n\n", "\0\n \0", "{\"id\0\0"] {
            std::fs::write(&path, format!("{whole}{torn}")).unwrap();
            let mut results = open(&path, Errors::Keep).unwrap();
            let was = |names: &[u128]| names.iter().map(|name| results.was(*name)).collect::<Vec<_>>();
            assert_eq!(was(&[name("a"), name(7)]), [Some(Was::Text), Some(Was::Error)], "{torn:?}");
            assert_eq!(was(&[name("7"), name(3)]), [None, None], "a text is no number, a number no line");
            assert!(results.write(&serde_json::json!({"id": 8})).is_ok());
            // An error of a line without an id is looked for again.
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{TEXT}\n{ERROR}\n{{\"id\":8}}\n"));
        }
    }

    #[test]
    fn errors_are_taken_out_to_be_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        std::fs::write(&path, format!("{ERROR}\n{TEXT}\n{UNNAMED}\n{{\"id")).unwrap();
        let mut results = open(&path, Errors::Retry).unwrap();
        assert_eq!([name("a"), name(7)].map(|name| results.was(name)), [Some(Was::Text), None]);
        assert!(results.write(&8).is_ok());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{TEXT}\n8\n"));
    }

    #[test]
    fn any_other_file_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let prompts = r#"{"id":"a","prompt":"x"}"#;
        for text in [
            format!("{TEXT}\n{prompts}\n"),
            prompts.into(),
            "words".into(),
            "words\n".into(),
            format!("{TEXT}\n\n{TEXT}\n"),
            "[1]\n".into(),
            "\0\0".into(),
        ] {
            std::fs::write(&path, &text).unwrap();
            let said = open(&path, Errors::Retry).err().unwrap().to_string();
            assert!(said.contains("out.jsonl: line ") && said.contains("expected results of batch"), "{said}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
