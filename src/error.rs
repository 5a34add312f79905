//! The crate's error type. The kind of an error names what is at fault: the input, a file, an option, the device, and so on.
//!
//! `Display` prints an error as one line: where, what is wrong, and what to do. JSON has these parts as fields. If the fault is in a line
//! of text, an excerpt shows the line.
//!
//! The library does not know the command line's flags. [`Error::field_name`] returns an option's library name, and hints put such names between
//! backticks (`` `context` ``, `` `device=cpu` ``). [`Error::with_names`] replaces the names in the hint with the names of a front end.

pub(crate) mod json;
mod names;
pub(crate) mod texts;
pub(crate) mod try_alloc;

pub(crate) use json::{in_words, with_place};
pub use names::renamed;
pub(crate) use texts::{short, size};
pub(crate) use try_alloc::{filled, try_alloc};

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The result type of the library.
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of an error: what is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Wrong input of the caller: a token out of range, an empty prompt, text that is not UTF-8.
    Input,
    /// A wrong file: missing, truncated, hostile, or with content that does not match its name.
    File,
    /// A valid file of a model that cannot run: unknown architecture, wrong shapes.
    Model,
    /// A wrong option, or options that cannot be combined.
    Usage,
    /// The device: no adapter was found, the device was lost, or a kernel computed wrong results.
    Device,
    /// Not enough memory, on the host or on the device.
    Memory,
    /// The user stopped the work.
    Interrupted,
    /// The queue of requests is full. The same request may be accepted later.
    Busy,
}

impl Kind {
    /// Returns the exit code of a process that ends with an error of this kind.
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::Input | Kind::File | Kind::Model => 1,
            Kind::Usage => 2,
            Kind::Device => 3,
            Kind::Memory | Kind::Busy => 4,
            Kind::Interrupted => 130,
        }
    }

    /// Returns the name of the kind in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Input => "input",
            Kind::File => "file",
            Kind::Model => "model",
            Kind::Usage => "usage",
            Kind::Device => "device",
            Kind::Memory => "memory",
            Kind::Interrupted => "interrupted",
            Kind::Busy => "busy",
        }
    }
}

/// An error: what is wrong, where, and what to do.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Error {
    /// The kind of the error: what is at fault.
    pub kind: Kind,
    /// The description of the fault, often with the expected and the found value. Does not include `place`, `field` and `hint`.
    pub message: String,
    /// The place of the fault: a path, a tensor, a line, a shader and its binding. `None` if the place is unknown.
    pub place: Option<String>,
    /// The wrong option, or the wrong field of a request, by its library name: `top_p`. A place in the value of the field may follow, as in `grammar:
    /// line 1, column 12`. [`field_name`](Self::field_name) returns the name alone.
    pub field: Option<Box<str>>,
    /// Advice on what the user can do, or `None`. Options and items of the library are between backticks.
    pub hint: Option<String>,
    /// Two lines: the text with the fault, and carets under the faulty part. `None` if the fault is not in a line of text. `Display` omits the
    /// excerpt.
    pub excerpt: Option<Box<str>>,
    /// The underlying error, which `source()` returns, or `None`. `message` describes the fault without this error.
    pub(crate) cause: Option<Arc<Cause>>,
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

impl Error {
    /// Creates an error of this kind. Control characters of `message` are escaped, and a very long message is shortened.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        let message = one_line(message.into(), MAX_MESSAGE);
        Error { kind, message, place: None, field: None, hint: None, excerpt: None, cause: None }
    }
    /// Creates an error of kind [`Kind::Input`].
    pub fn input(message: impl Into<String>) -> Self {
        Self::new(Kind::Input, message)
    }
    /// Creates an error of kind [`Kind::File`].
    pub fn file(message: impl Into<String>) -> Self {
        Self::new(Kind::File, message)
    }
    /// Creates an error of kind [`Kind::Model`].
    pub fn model(message: impl Into<String>) -> Self {
        Self::new(Kind::Model, message)
    }
    /// Creates an error of kind [`Kind::Usage`].
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }
    /// Creates the error for work that the user or the caller stopped after `read` of `total` tokens.
    pub fn interrupted(read: usize, total: usize) -> Self {
        Self::new(Kind::Interrupted, format!("interrupted after {read} of {total} tokens"))
    }
    /// Creates an error of kind [`Kind::Device`].
    pub fn device(message: impl Into<String>) -> Self {
        Self::new(Kind::Device, message)
    }
    /// Creates an error of kind [`Kind::Memory`].
    pub fn memory(message: impl Into<String>) -> Self {
        Self::new(Kind::Memory, message)
    }

    /// Replaces the kind.
    pub fn with_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Adds a place before the earlier places: `model.pth` before `tensor w1` gives `model.pth: tensor w1`. An empty place, or a place that is
    /// already first, is not added.
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        let place = one_line(place.to_string(), MAX_PLACE);
        if place.is_empty() {
            return self;
        }
        self.place = Some(match self.place.take() {
            Some(inner) if inner.strip_prefix(&place).is_some_and(|rest| rest.is_empty() || rest.starts_with(": ")) => inner,
            Some(inner) => format!("{place}: {inner}"),
            None => place,
        });
        self
    }

    /// Sets the wrong option or field to `name`. An earlier field becomes a part of the new field: `content`, then `messages[2]` gives
    /// `messages[2].content`. An earlier place becomes a place in the value of the field: `grammar: line 1`. A field that already has this name stays
    /// unchanged.
    pub fn field(mut self, name: &str) -> Self {
        let name = one_line(name.to_string(), MAX_PLACE);
        let path = match (self.field.take(), self.place.take()) {
            (Some(inner), place) => {
                self.place = place;
                if names::name(&inner) == name { inner.into_string() } else { format!("{name}.{inner}") }
            }
            (None, Some(place)) => format!("{name}: {place}"),
            (None, None) => name,
        };
        self.field = Some(path.into());
        self
    }

    /// Returns the name of the wrong option or field, without a place in its value. Returns `None` if the error names no option or field.
    pub fn field_name(&self) -> Option<&str> {
        self.field.as_deref().map(names::name)
    }

    /// Returns the place and the field as one text, as `Display` prints them. Returns `None` if the error has neither a place nor a field.
    pub fn location(&self) -> Option<String> {
        match (&self.place, &self.field) {
            (Some(place), Some(field)) => Some(format!("{place}: {field}")),
            (Some(place), None) => Some(place.clone()),
            (None, field) => field.as_deref().map(str::to_owned),
        }
    }

    /// Sets the underlying error, which `source()` returns. An earlier cause is kept.
    pub fn caused_by(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.cause.get_or_insert_with(|| Arc::new(Box::new(cause)));
        self
    }

    /// Adds advice, with options and items of the library between backticks. An earlier hint stays, because it is nearer to the cause.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint.get_or_insert(one_line(hint.into(), MAX_MESSAGE));
        self
    }

    /// Adds an excerpt: the one-line text `text`, and carets under its byte range `part` (one caret if `part` is empty). Shows at most 60 characters
    /// each of the text before the part, of the part, and of the text after it.
    pub fn within(mut self, text: &str, part: Range<usize>) -> Self {
        const NEAR: usize = 60;
        let shown =
            |s: &str, skipped: usize| s.chars().skip(skipped).take(NEAR).map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
        let skipped = text[..part.start].chars().count().saturating_sub(NEAR);
        let before = shown(&text[..part.start], skipped);
        let (found, after) = (shown(&text[part.clone()], 0), shown(&text[part.end..], 0));
        let marks = "^".repeat(found.chars().count().max(1));
        self.excerpt = Some(format!("{before}{found}{after}\n{}{marks}", " ".repeat(before.chars().count())).into());
        self
    }

    /// Converts the error of an operation on the file `path`. The kind is `File`, or `Memory` if memory ran out.
    pub fn io(error: std::io::Error, path: &std::path::Path) -> Self {
        Self::of_io(error).at(path.display())
    }

    /// Converts the error of an operation on a file, without a place. The kind is `File`, or `Memory` if memory ran out.
    pub fn of_io(error: std::io::Error) -> Self {
        use std::io::ErrorKind as E;
        let hint = match error.kind() {
            E::StorageFull | E::QuotaExceeded => Some("free some space or write to another disk"),
            E::FileTooLarge => Some("raise the limit on file sizes, ulimit -f, or write less"),
            E::ReadOnlyFilesystem => Some("write to another disk"),
            E::PermissionDenied => Some("check the permissions of the file and its folder"),
            E::NotFound => Some("check the path"),
            E::OutOfMemory => Some("close other programs, or raise the limit on memory, ulimit -v"),
            E::IsADirectory => Some("this is a folder: give a file"),
            _ => None,
        };
        let kind = if error.kind() == E::OutOfMemory { Kind::Memory } else { Kind::File };
        // Drops the system's error number, as in `(os error 2)`: it does not help a user.
        let text = error.to_string();
        let text = text.split_once(" (os error ").map_or(text.as_str(), |(text, _)| text).to_string();
        let e = Error::new(kind, text).caused_by(error);
        match hint {
            Some(h) => e.hint(h),
            None => e,
        }
    }
}

/// The maximum length of a message or a hint, in bytes.
const MAX_MESSAGE: usize = 1000;
/// The maximum length of one place or one field name, in bytes. This is enough for the longest path that a file system allows, followed by a
/// place in the file.
const MAX_PLACE: usize = 5000;

/// Returns `s` with control characters escaped, because a message may quote a hostile file. If the result is longer than `most` bytes, its middle is
/// removed. Parsers quote names of any length and print the expected names at the end, so the end is kept.
fn one_line(s: String, most: usize) -> String {
    let s = if s.chars().any(char::is_control) {
        s.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
    } else {
        s
    };
    if s.len() <= most {
        return s;
    }
    let boundary = |from: usize| (from..s.len()).find(|at| s.is_char_boundary(*at)).unwrap_or(s.len());
    format!("{} … {}", &s[..boundary(most * 3 / 4)], &s[boundary(s.len() - most / 5)..])
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for at in [self.place.as_deref(), self.field.as_deref()].into_iter().flatten() {
            write!(f, "{at}: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| -> &(dyn std::error::Error + 'static) { &***cause })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_named_once() {
        let at = |places: &[&str]| places.iter().fold(Error::file("x"), |e, place| e.at(place)).to_string();
        assert_eq!(at(&["a", "b"]), "b: a: x");
        assert_eq!(at(&["a", "a"]), "a: x");
        assert_eq!(at(&["a", "b", "b"]), "b: a: x");
        assert_eq!(at(&["ab", "a"]), "a: ab: x");
    }

    #[test]
    fn a_field_is_kept_apart_from_its_place() {
        let e = Error::input("x").field("content").field("messages[2]").at("line 7");
        assert_eq!((e.to_string().as_str(), e.place.as_deref()), ("line 7: messages[2].content: x", Some("line 7")));
        assert_eq!((e.field_name(), e.location().as_deref()), (Some("messages[2].content"), Some("line 7: messages[2].content")));
        let e = Error::input("x").at("line 1, column 12").field("grammar");
        assert_eq!((e.to_string().as_str(), e.field_name(), &e.place), ("grammar: line 1, column 12: x", Some("grammar"), &None));
        assert_eq!(Error::usage("x").field("strategy, column 5").field_name(), Some("strategy"));
    }

    #[test]
    fn the_cause_is_the_source() {
        use std::error::Error as _;
        let e = Error::io(std::io::Error::from(std::io::ErrorKind::StorageFull), "f".as_ref()).at("g").clone();
        let cause = e.source().and_then(|cause| cause.downcast_ref::<std::io::Error>()).unwrap();
        assert_eq!(cause.kind(), std::io::ErrorKind::StorageFull);
        assert!(Error::input("x").source().is_none());
    }

    #[test]
    fn a_quoted_text_of_any_length_makes_a_short_message() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Known {}
        for name in ["n".repeat(1 << 20), "\u{1}é".repeat(1 << 18)] {
            let json = serde_json::json!({ name: 1 }).to_string();
            let e = Error::input(serde_json::from_str::<Known>(&json).unwrap_err().to_string()).at("é".repeat(9000)).hint("ü".repeat(9000));
            assert!(e.message.len() <= MAX_MESSAGE && e.to_string().len() <= MAX_PLACE + 2 * MAX_MESSAGE, "{e}");
            assert!(e.message.starts_with("unknown field `") && e.message.contains(" there are no fields"), "{e}");
        }
        let whole = "x".repeat(MAX_MESSAGE);
        assert_eq!(Error::input(whole.clone()).message, whole);
    }

    #[test]
    fn an_excerpt_marks_its_part() {
        let excerpt = |text: &str, part: Range<usize>| Error::usage("x").within(text, part).excerpt.unwrap().into_string();
        assert_eq!(excerpt("gpu fp17 *3", 4..8), "gpu fp17 *3\n    ^^^^");
        assert_eq!(excerpt("gpu", 3..3), "gpu\n   ^");
        assert_eq!(excerpt("a\t\u{1b}é", 3..5), "a  é\n   ^");
        let long = "x".repeat(1000);
        let (shown, marks) = (excerpt(&long, 500..700), format!("{}{}", " ".repeat(60), "^".repeat(60)));
        assert_eq!(shown, format!("{}\n{marks}", "x".repeat(180)));
        assert_eq!(Error::usage("x").within("gpu", 0..1).to_string(), "x", "a message stays one line");
    }
}
