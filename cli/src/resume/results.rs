//! Writes results to standard output, or to a file that may contain results of earlier runs.
//!
//! Each line is written with one call. After a kill, the file has complete lines and at most one incomplete line at its end. The next run
//! removes the incomplete line.

use super::id::Id;
use super::lock::Lock;
use crate::Failure;
use crate::output::Output;
use crate::target::check_folder;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::front_end::short;
use wingbeat::low_level::weights::{NewFile, Readers};

/// Determines what happens to the error lines of earlier runs.
///
/// An error line without an id has the number of its input line instead. Such a line is always removed: the input may now have another line
/// there, and a line that is still wrong is quickly reported again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errors {
    Keep,
    /// Removes the error lines, so that their prompts are run again.
    Retry,
}

/// The destination of the results.
enum ResultSink {
    File { file: File, path: PathBuf, _lock: Option<Lock> },
    Stdout(Output),
}

/// A file of results that was locked and read, but not changed yet.
pub struct FoundResults {
    path: PathBuf,
    file: File,
    left: EarlierIds,
    /// The length of all complete lines in bytes. `None` for a pipe or a device, which keeps no results.
    end: Option<u64>,
    lock: Option<Lock>,
}

/// The kind of result that an earlier run wrote for a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlierResult {
    Text,
    Error,
}

/// The keys (hashes, `Id::key`) of the ids in the results of earlier runs. Some of these ids may come from another input.
#[derive(Default)]
struct EarlierIds {
    texts: HashSet<u128>,
    errors: HashSet<u128>,
    /// True if the file has error lines without an id.
    has_unnamed: bool,
}

/// An open destination for results. Also has the keys of the ids whose results earlier runs wrote there.
pub struct Results {
    sink: ResultSink,
    left: EarlierIds,
}

/// The fields that a later run reads in a line of the results.
#[derive(Deserialize)]
struct KeptLine {
    id: Id,
    line: Option<u64>,
    finish: Option<IgnoredAny>,
    /// The continuations, if the line asked for several continuations.
    choices: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

impl FoundResults {
    /// Opens and locks a file of results, new or existing, and reads the ids of its results. `input` is the file of the prompts. While the
    /// lock is held, other runs cannot write results to the file.
    ///
    /// # Errors
    /// `Usage` if `path` and `input` are the same file. `File` if the file cannot be read or written, if another run writes to the file,
    /// or if the file has lines that are not results.
    pub fn at(path: &Path, input: &Path) -> Result<FoundResults> {
        check_folder(path)?;
        if path.canonicalize().is_ok_and(|path| input.canonicalize().is_ok_and(|input| input == path)) {
            return Err(Error::usage("the results cannot go to the file of the prompts")
                .at("--output")
                .hint("choose another file for the results"));
        }
        let io = |e| Error::io(e, path);
        let mut left = EarlierIds::default();
        // Open a pipe for writing only: a process that can also read from it gets no error after the last reader has ended.
        if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
            let file = OpenOptions::new().write(true).open(path).map_err(io)?;
            return Ok(FoundResults { path: path.into(), file, left, end: None, lock: None });
        }
        let lock = Lock::take(path)?;
        let file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(io)?;
        let end = Some(left.read(&file).map_err(|e| e.at(path.display()))?);
        Ok(FoundResults { path: path.into(), file, left, end, lock })
    }

    /// Returns the path of the file, or `None` for a pipe or a device.
    pub fn kept(&self) -> Option<&Path> {
        self.end.map(|_| self.path.as_path())
    }

    /// Returns whether the file has at least one complete line from earlier runs.
    pub fn has_results(&self) -> bool {
        self.end.is_some_and(|end| end > 0)
    }

    /// Removes an incomplete last line, blank lines at the end, and the error lines that `errors` selects. Returns the file, ready for
    /// appending.
    ///
    /// # Errors
    /// `File` if the file cannot be written.
    pub fn continued(self, errors: Errors) -> Result<Results> {
        let FoundResults { path, mut file, mut left, end, lock } = self;
        let io = |e| Error::io(e, &path);
        if let Some(end) = end.filter(|&end| file.metadata().is_ok_and(|m| end < m.len())) {
            // Windows does not shorten a file that is open for appending, so open the file again.
            OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(end)).map_err(io)?;
        }
        let is_retried = errors == Errors::Retry && !left.errors.is_empty();
        if is_retried || left.has_unnamed {
            file = without_errors(&path, file, errors)?;
        }
        if is_retried {
            left.errors.clear();
        }
        Ok(Results { sink: ResultSink::File { file, path, _lock: lock }, left })
    }
}

impl Results {
    /// Returns standard output as the destination of results. Standard output has no earlier results.
    pub fn to_stdout() -> Results {
        Results { sink: ResultSink::Stdout(Output::new(true)), left: EarlierIds::default() }
    }

    /// Returns the kind of result that an earlier run wrote for the id with this key, or `None` if no earlier run has a result.
    pub fn was(&self, key: u128) -> Option<EarlierResult> {
        let EarlierIds { texts, errors, .. } = &self.left;
        if texts.contains(&key) { Some(EarlierResult::Text) } else { errors.contains(&key).then_some(EarlierResult::Error) }
    }

    /// Writes a result as one line of JSON, without buffering.
    pub fn write(&mut self, line: &impl Serialize) -> std::result::Result<(), Failure> {
        match &mut self.sink {
            ResultSink::Stdout(out) => {
                out.json(line)?;
                out.bytes(b"")
            }
            ResultSink::File { file, path, .. } => {
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

impl EarlierIds {
    /// Adds the keys of all complete lines' ids. Returns the length of these lines in bytes.
    ///
    /// # Errors
    /// `File` if a line is not a result. The error names the first such line.
    fn read(&mut self, file: &File) -> Result<u64> {
        let (mut reader, mut end, mut line) = (BufReader::new(file), 0, Vec::new());
        for number in 1.. {
            line.clear();
            let n = reader.read_until(b'\n', &mut line).map_err(|e| Error::file(e.to_string()))?;
            // After a loss of power, the file may end with zeros in place of lines that did not reach the disk.
            if end > 0 && line.iter().copied().all(is_blank) && reader.by_ref().bytes().all(|b| b.is_ok_and(is_blank)) {
                break;
            }
            if line.last() != Some(&b'\n') {
                line.truncate(line.iter().rposition(|b| *b != 0).map_or(line.len(), |last| last + 1));
                // The last line has no newline, so it is incomplete. If it is not the beginning of a result, another program has written the file.
                let begins = br#"{"id":"#;
                // A line of complete JSON that is not a result was not written by this program.
                let is_other = serde_json::from_slice::<IgnoredAny>(&line).is_ok() && result(&line).is_none();
                if is_other || !begins.starts_with(&line) && !line.starts_with(begins) {
                    return Err(no_results(number, &line));
                }
                break;
            }
            end += n as u64;
            let Some(KeptLine { id, line, error, .. }) = result(&line) else { return Err(no_results(number, &line)) };
            self.has_unnamed |= line.is_some();
            let names = if error.is_some() { &mut self.errors } else { &mut self.texts };
            names.extend(line.is_none().then(|| id.key()));
        }
        Ok(end)
    }
}

fn is_blank(byte: u8) -> bool {
    byte == 0 || byte.is_ascii_whitespace()
}

/// Returns the fields of a line, or `None` if the line is not a result.
fn result(line: &[u8]) -> Option<KeptLine> {
    serde_json::from_slice::<KeptLine>(line).ok().filter(|k| k.finish.is_some() || k.choices.is_some() || k.error.is_some())
}

/// Replaces the file by a copy without the error lines that `errors` removes. Returns the copy, open for appending.
fn without_errors(path: &Path, mut old: File, errors: Errors) -> Result<File> {
    let path = &path.canonicalize().map_err(|e| Error::io(e, path))?;
    let io = |e| Error::io(e, path);
    let new = NewFile::create(path, Readers::Umask)?;
    old.seek(SeekFrom::Start(0)).map_err(io)?;
    let (mut reader, mut writer, mut line) = (BufReader::new(old), BufWriter::new(new.file()), Vec::new());
    while reader.read_until(b'\n', &mut line).map_err(io)? > 0 {
        if serde_json::from_slice::<KeptLine>(&line).is_ok_and(|k| k.error.is_none() || errors == Errors::Keep && k.line.is_none()) {
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
    Error::file(format!("expected a file of batch results, found {:?}", short(&shown, 40)))
        .at(format!("line {number}"))
        .hint("name a new file with -o, or the result file of the run to continue")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path, errors: Errors) -> Result<Results> {
        FoundResults::at(path, Path::new("in.jsonl"))?.continued(errors)
    }

    const TEXT: &str = r#"{"id":"a","text":null,"tokens":[],"finish":"eos","seed":1,"usage":{}}"#;
    const ERROR: &str = r#"{"id":7,"error":{"kind":"input"}}"#;
    const UNNAMED: &str = r#"{"id":null,"line":3,"error":{"kind":"input"}}"#;

    fn key(id: &str) -> u128 {
        Id::read(id).unwrap().key()
    }

    #[test]
    fn results_are_appended_after_the_last_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let whole = format!("{TEXT}\n{ERROR}\n{UNNAMED}\n");
        for torn in ["", "{", r#"{"i"#, &TEXT[..TEXT.len() / 2], TEXT, "\0\0\0", "\n\n", "\0\n \0", "{\"id\0\0"] {
            std::fs::write(&path, format!("{whole}{torn}")).unwrap();
            let mut results = open(&path, Errors::Keep).unwrap();
            let was = |keys: &[u128]| keys.iter().map(|key| results.was(*key)).collect::<Vec<_>>();
            assert_eq!(was(&[key("\"a\""), key("7")]), [Some(EarlierResult::Text), Some(EarlierResult::Error)], "{torn:?}");
            assert_eq!(was(&[key("\"7\""), key("3")]), [None, None], "a text is no number, a number no line");
            assert!(results.write(&serde_json::json!({"id": 8})).is_ok());
            // Errors of lines without an id are removed.
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{TEXT}\n{ERROR}\n{{\"id\":8}}\n"));
        }
    }

    #[test]
    fn a_result_with_several_choices_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        std::fs::write(&path, "{\"id\":\"b\",\"choices\":[{\"text\":\"x\",\"finish\":\"eos\"}],\"usage\":{}}\n").unwrap();
        assert_eq!(open(&path, Errors::Keep).unwrap().was(key("\"b\"")), Some(EarlierResult::Text));
    }

    #[test]
    fn errors_are_removed_before_a_retry() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        std::fs::write(&path, format!("{ERROR}\n{TEXT}\n{UNNAMED}\n{{\"id")).unwrap();
        let mut results = open(&path, Errors::Retry).unwrap();
        assert_eq!([key("\"a\""), key("7")].map(|key| results.was(key)), [Some(EarlierResult::Text), None]);
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
            assert!(said.contains("out.jsonl: line ") && said.contains("expected a file of batch results"), "{said}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
