//! What a template may use while it renders: memory for the values that it makes, text that it writes, and time.
//!
//! The engine of templates counts instructions, and one instruction can double a text. So each instruction that makes a text or a
//! list is followed by one that hands the new value to [`RenderLimits::made`] (see `metered.rs`), and all that is written goes through
//! [`RenderLimits::written`].

use super::range::Range;
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Begins the errors of this file.
pub const PREFIX: &str = "limit: ";

/// What is said of a template that takes too long.
pub const ENDLESS: &str = "expected a template that ends, found one that goes on and on";

/// How long a template may run. Real ones take milliseconds.
#[cfg(not(target_arch = "wasm32"))]
const TIME: std::time::Duration = std::time::Duration::from_secs(if cfg!(test) { 8 } else { 20 });

/// A value within a value, and so on, at most so deep. JSON is read to a depth of 128.
const MAX_DEPTH: usize = 256;
/// What a list's element or a mapping's entry takes.
const ENTRY: usize = 32;
/// What a number takes when it is written.
const NUMBER: usize = 20;
/// What a macro takes.
const CLOSURE: usize = 512;

/// One rendering's allowance.
#[derive(Debug)]
pub struct RenderLimits {
    /// Bytes of one value with all that is in it, as often as it is in it.
    max_value: usize,
    /// Values within one value.
    max_nodes: usize,
    all_memory: usize,
    /// Bytes that may still be made.
    memory: AtomicUsize,
    all_output: usize,
    /// Bytes that may still be written.
    output: AtomicUsize,
    /// Values that may still be looked at.
    work: AtomicUsize,
    end: Clock,
}

/// What there is in a value.
#[derive(Debug, Default, Clone, Copy)]
pub struct Size {
    pub bytes: usize,
    pub nodes: usize,
    /// The depths of all nodes together: an indent writes so many of its units.
    pub depths: usize,
    /// Bytes of the value itself, without what it refers to.
    own: usize,
}

impl RenderLimits {
    /// For a conversation and a template of so many bytes together.
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
            end: Clock::new(),
        }
    }

    /// Checks a new value and takes its memory from the allowance. `is_copy` says that all within it is new; else only the list or
    /// the text itself is. A value that makes its elements when asked becomes a list, so that it cannot make them twice.
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
            format!("expected a template that uses at most {} MB, found one that uses more", self.all_memory >> 20)
        })?;
        Ok(value)
    }

    /// Checks that a text or a list of this size may be made.
    pub fn may_make(&self, bytes: usize) -> Result<(), Error> {
        if bytes > self.max_value { Err(self.too_large()) } else { Ok(()) }
    }

    /// Takes what is written from the allowance.
    pub fn written(&self, bytes: usize) -> Result<(), Error> {
        take(&self.output, bytes, || {
            format!("expected a template that writes at most {} MB, found one that writes more", self.all_output >> 20)
        })
    }

    /// # Errors
    /// When the time is up.
    pub fn in_time(&self) -> Result<(), Error> {
        if self.end.is_over() {
            return Err(limit(ENDLESS));
        }
        Ok(())
    }

    /// Looks at a value and all that is in it.
    pub fn size(&self, value: &Value) -> Result<Size, Error> {
        let mut size = Size::default();
        self.add(value, 0, &mut size)?;
        take(&self.work, size.nodes, || ENDLESS.into())?;
        Ok(size)
    }

    fn add(&self, value: &Value, depth: usize, size: &mut Size) -> Result<(), Error> {
        size.nodes += 1;
        size.depths += depth;
        let own = match value.kind() {
            ValueKind::String => value.as_str().map_or(0, str::len),
            ValueKind::Bytes => value.as_bytes().map_or(0, <[u8]>::len),
            // Its numbers are made when asked, all of them where it is written.
            ValueKind::Iterable if value.downcast_object_ref::<Range>().is_some() => {
                let n = value.len().unwrap_or_default();
                size.nodes += n;
                size.bytes += n * NUMBER;
                ENTRY
            }
            // A macro and its closure. A loop that a namespace held would hold the namespace.
            ValueKind::Plain if depth > 0 && type_name(value).contains("loop_object") => {
                return Err(limit("expected a template that keeps a loop in no other value, found one that does"));
            }
            ValueKind::Plain => CLOSURE,
            ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => {
                // Mappings for assignments could hold themselves.
                if depth > 0 && is_namespace(value) {
                    return Err(limit("expected a template that keeps a namespace in a variable, found one within another value"));
                }
                if depth == MAX_DEPTH {
                    return Err(limit(&format!("expected a template whose values are nested at most {MAX_DEPTH} deep, found deeper ones")));
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

    /// The value of an assignment to a namespace: none that has a namespace in it, or is one.
    pub fn assigned(&self, value: Value) -> Result<Value, Error> {
        self.add(&value, 1, &mut Size::default())?;
        Ok(value)
    }

    fn too_large(&self) -> Error {
        limit(&format!("expected a template whose values have at most {} MB, found a larger one", self.max_value >> 20))
    }
}

/// An error of a limit.
pub fn limit(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{PREFIX}{message}"))
}

/// An error in the source, with its line.
pub fn broken(message: &str, line: Option<usize>) -> Error {
    let line = line.map_or(String::new(), |line| format!(" (in chat_template:{line})"));
    Error::new(ErrorKind::SyntaxError, format!("{message}{line}"))
}

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

/// A time limit, where there is a clock: a browser has none here.
#[derive(Debug)]
struct Clock {
    #[cfg(not(target_arch = "wasm32"))]
    end: std::time::Instant,
}

impl Clock {
    fn new() -> Clock {
        Clock {
            #[cfg(not(target_arch = "wasm32"))]
            end: std::time::Instant::now() + TIME,
        }
    }

    fn is_over(&self) -> bool {
        #[cfg(not(target_arch = "wasm32"))]
        return std::time::Instant::now() > self.end;
        #[cfg(target_arch = "wasm32")]
        return false;
    }
}
