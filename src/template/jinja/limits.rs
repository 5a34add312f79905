//! Limits of one rendering: memory, output and time.
//!
//! The template engine counts instructions, but one instruction can double a text. So `metered.rs` passes the result of each instruction that
//! makes a text or a list to [`RenderLimits::made`], and all output goes through [`RenderLimits::written`].

use super::range::Range;
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use web_time::Instant;

/// The prefix of the error messages in this file.
pub const PREFIX: &str = "limit: ";

/// The message for a template that exceeds a limit on time or work.
pub const ENDLESS: &str = "the template runs too long";

/// The time limit. Published templates need milliseconds.
const TIME: std::time::Duration = std::time::Duration::from_secs(if cfg!(test) { 8 } else { 20 });

/// The maximum depth of nested values. serde_json reads JSON to a depth of 128.
const MAX_DEPTH: usize = 256;
/// Bytes that are counted for each element of a list or entry of a mapping, in addition to its content.
const ENTRY: usize = 32;
/// Bytes that are counted for each number in a `range`, because output writes the number as text.
const NUMBER: usize = 20;
/// Bytes that are counted for a macro.
const CLOSURE: usize = 512;

/// The limits of one rendering, and how much of each limit remains.
#[derive(Debug)]
pub struct RenderLimits {
    /// The maximum size of one value, in bytes. A shared inner value counts once per reference.
    max_value: usize,
    /// The maximum number of values inside one value, at all depths together.
    max_nodes: usize,
    all_memory: usize,
    /// The bytes of `all_memory` that remain.
    memory: AtomicUsize,
    all_output: usize,
    /// The bytes of `all_output` that remain.
    output: AtomicUsize,
    /// The number of values that [`size`](RenderLimits::size) may still visit.
    work: AtomicUsize,
    end: Instant,
}

/// The size of one value in a template.
#[derive(Debug, Default, Clone, Copy)]
pub struct ValueSize {
    /// The bytes of the value and all inner values.
    pub bytes: usize,
    /// The number of values, the value itself included.
    pub nodes: usize,
    /// The sum of the nesting depths of all values: the number of indents in indented JSON.
    pub depths: usize,
    /// The bytes of the value without inner values.
    own: usize,
}

impl RenderLimits {
    /// Returns the limits for a conversation and a template of `input` bytes together.
    pub fn new(input: usize) -> RenderLimits {
        let (all_memory, all_output) = ((256 << 20) + 64 * input, (16 << 20) + 16 * input);
        RenderLimits {
            max_value: (8 << 20) + 4 * input,
            max_nodes: (1 << 20) + input,
            all_memory,
            memory: AtomicUsize::new(all_memory),
            all_output,
            output: AtomicUsize::new(all_output),
            work: AtomicUsize::new((50 << 20) + 64 * input),
            end: Instant::now() + TIME,
        }
    }

    /// Checks a new value, counts its memory and returns the value. `is_copy` is true if all inner values are new, too, so that their memory
    /// counts. A lazy iterable becomes a list, so that its elements are made only once.
    pub fn made(&self, value: Value, is_copy: bool) -> Result<Value, Error> {
        self.in_time()?;
        let value = if value.kind() == ValueKind::Iterable && value.downcast_object_ref::<Range>().is_none() {
            let items: Vec<Value> = value.try_iter()?.take(self.max_nodes + 1).collect();
            Value::from(items)
        } else {
            value
        };
        let size = self.size(&value)?;
        take(&self.memory, if is_copy { size.bytes + size.nodes * ENTRY } else { size.own }, || {
            format!("the template uses more than {} MB", self.all_memory >> 20)
        })?;
        Ok(value)
    }

    /// Fails if a text or list of `bytes` bytes would be too large. Called before an instruction creates the text or list.
    pub fn may_make(&self, bytes: usize) -> Result<(), Error> {
        if bytes > self.max_value { Err(self.too_large()) } else { Ok(()) }
    }

    /// Counts `bytes` bytes of output. Fails if all output together exceeds the output limit.
    pub fn written(&self, bytes: usize) -> Result<(), Error> {
        take(&self.output, bytes, || format!("the template writes more than {} MB", self.all_output >> 20))
    }

    /// Fails if the time limit has passed.
    pub fn in_time(&self) -> Result<(), Error> {
        if Instant::now() > self.end {
            return Err(limit(ENDLESS));
        }
        Ok(())
    }

    /// Returns the size of a value. Fails if the value is too large or too deep, or if all calls together have visited too many values.
    pub fn size(&self, value: &Value) -> Result<ValueSize, Error> {
        let mut size = ValueSize::default();
        self.add(value, 0, &mut size)?;
        take(&self.work, size.nodes, || ENDLESS.into())?;
        Ok(size)
    }

    fn add(&self, value: &Value, depth: usize, size: &mut ValueSize) -> Result<(), Error> {
        size.nodes += 1;
        size.depths += depth;
        let own = match value.kind() {
            ValueKind::String => value.as_str().map_or(0, str::len),
            ValueKind::Bytes => value.as_bytes().map_or(0, <[u8]>::len),
            // A range makes its numbers only when they are needed, but output and JSON write all numbers.
            ValueKind::Iterable if value.downcast_object_ref::<Range>().is_some() => {
                let n = value.len().unwrap_or_default();
                size.nodes += n;
                size.bytes += n * NUMBER;
                ENTRY
            }
            // Plain values are macros with their closures, and loop objects. A loop object in a namespace could contain this namespace: a cycle.
            ValueKind::Plain if depth > 0 && type_name(value).contains("loop_object") => {
                return Err(limit("the template stores a loop in another value"));
            }
            ValueKind::Plain => CLOSURE,
            ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => {
                // A namespace could contain itself.
                if depth > 0 && is_namespace(value) {
                    return Err(limit("the template stores a namespace in another value"));
                }
                if depth == MAX_DEPTH {
                    return Err(limit(&format!("the template's values are nested more than {MAX_DEPTH} deep")));
                }
                let is_map = value.kind() == ValueKind::Map;
                let mut n = 0;
                for item in value.try_iter()? {
                    self.add(&item, depth + 1, size)?;
                    if is_map {
                        self.add(&value.get_item(&item)?, depth + 1, size)?;
                    }
                    n += 1 + usize::from(is_map);
                }
                n * ENTRY
            }
            _ => 0,
        };
        if depth == 0 {
            size.own = own;
        }
        size.bytes += own;
        if size.bytes > self.max_value || size.nodes > self.max_nodes { Err(self.too_large()) } else { Ok(()) }
    }

    /// Checks a value that is about to be assigned to an attribute of a namespace, and returns the value. Fails if the value is or contains a
    /// namespace.
    pub fn assigned(&self, value: Value) -> Result<Value, Error> {
        self.add(&value, 1, &mut ValueSize::default())?;
        Ok(value)
    }

    fn too_large(&self) -> Error {
        limit(&format!("a value of the template has more than {} MB", self.max_value >> 20))
    }
}

/// Returns the error for a limit that the template exceeds.
pub fn limit(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{PREFIX}{message}"))
}

/// Returns the error for an invalid template source. The error names the line if `line` is set.
pub fn broken(message: &str, line: Option<usize>) -> Error {
    let line = line.map_or(String::new(), |line| format!(" (in chat_template:{line})"));
    Error::new(ErrorKind::SyntaxError, format!("{message}{line}"))
}

/// Subtracts `n` from `allowance`. If `allowance` is less than `n`, returns an error with `message`.
fn take(allowance: &AtomicUsize, n: usize, message: impl Fn() -> String) -> Result<(), Error> {
    let left = allowance.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(n));
    left.map(drop).map_err(|_| limit(&message()))
}

fn is_namespace(value: &Value) -> bool {
    type_name(value).ends_with("::Namespace")
}

fn type_name(value: &Value) -> &'static str {
    value.as_object().map_or("", |object| object.type_name())
}
