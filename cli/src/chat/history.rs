//! The file of messages typed in earlier chats. Each message is appended at once, because a signal can end the program.
//!
//! The format is rustyline's: a line `#V2`, then one message per line with `\` written as `\\` and a newline as `\n`. The whole file is rewritten
//! only if it is damaged or has grown too long. The new file replaces the old file only when complete, so a crash loses no messages.

use std::fs::OpenOptions;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::weights::{NewFile, Readers};

const HEADER: &str = "#V2";

/// A file with the messages of earlier chats.
pub struct History {
    path: PathBuf,
}

impl History {
    /// Opens or creates the file, and returns it with its last `n` messages, oldest first.
    ///
    /// # Errors
    /// `File` if the file cannot be read or written.
    pub fn open(path: PathBuf, n: usize) -> Result<(History, Vec<String>)> {
        let io = |e| Error::io(e, &path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(io)?;
        }
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(io(e)),
        };
        let (mut messages, is_sound) = parse(&bytes);
        let n_stored = messages.len();
        messages.drain(..n_stored.saturating_sub(n));
        // The file may have up to `2 * n` messages, so that it is seldom rewritten.
        if !is_sound || n_stored > 2 * n {
            write(&path, &messages)?;
        }
        Ok((History { path }, messages))
    }

    /// Appends a message with one write call, so that several chats can append to the same file.
    ///
    /// # Errors
    /// `File` if the file cannot be written.
    pub fn append(&self, message: &str) -> Result<()> {
        let io = |e| Error::io(e, &self.path);
        if !self.path.exists() {
            write(&self.path, &[])?;
        }
        let mut file = OpenOptions::new().append(true).open(&self.path).map_err(io)?;
        file.write_all(escaped(message).as_bytes()).map_err(io)
    }
}

/// Returns the messages in the bytes of a history file, and whether messages can be appended to the file without rewriting it.
fn parse(bytes: &[u8]) -> (Vec<String>, bool) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines().peekable();
    let is_versioned = lines.next_if_eq(&HEADER).is_some();
    let messages = lines.filter(|line| !line.is_empty()).map(|line| if is_versioned { unescaped(line) } else { line.to_string() });
    (messages.collect(), is_versioned && text.ends_with('\n'))
}

fn write(path: &Path, messages: &[String]) -> Result<()> {
    let new = NewFile::create(path, Readers::Owner)?;
    let mut out = BufWriter::new(new.file());
    let written = writeln!(out, "{HEADER}")
        .and_then(|()| messages.iter().try_for_each(|message| out.write_all(escaped(message).as_bytes())))
        .and_then(|()| out.flush());
    drop(out);
    written.map_err(|e| Error::io(e, path))?;
    new.finish()
}

/// Returns a message as one escaped line with a newline at its end.
fn escaped(message: &str) -> String {
    message.replace('\\', r"\\").replace('\n', r"\n") + "\n"
}

fn unescaped(line: &str) -> String {
    let mut message = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        message.push(match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                other => other.unwrap_or('\\'),
            },
            c => c,
        });
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep").join("history");
        let typed = ["light", r"a \ b \n c", "two\nlines\\", "é"];
        let (history, before) = History::open(path.clone(), 3).unwrap();
        assert_eq!(before, [""; 0]);
        typed.iter().for_each(|message| history.append(message).unwrap());
        assert_eq!(History::open(path.clone(), 10).unwrap().1, typed);
        assert_eq!(History::open(path.clone(), 3).unwrap().1, typed[1..]);
        assert_eq!(History::open(path.clone(), 10).unwrap().1, typed, "a few too many stay");
        History::open(path.clone(), 1).unwrap();
        assert_eq!(History::open(path.clone(), 10).unwrap().1, typed[3..]);
        std::fs::remove_file(&path).unwrap();
        history.append("again").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "#V2\nagain\n");
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_the_file_and_a_torn_line_is_ended() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        History::open(path.clone(), 3).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        for torn in ["#V2\nlight\nwat", "light\nwat", "#V2\nlight\nwat\n"] {
            std::fs::write(&path, torn).unwrap();
            let (history, before) = History::open(path.clone(), 3).unwrap();
            history.append("more").unwrap();
            assert_eq!((before.len(), History::open(path.clone(), 9).unwrap().1), (2, vec!["light".into(), "wat".into(), "more".into()]));
        }
    }
}
