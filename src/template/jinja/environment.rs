//! The filters, functions and settings with which a chat template runs, as in transformers.

use super::super::json::{JsonStyle, dumps};
use super::limits::RenderLimits;
use super::range::Range;
use jiff::Timestamp;
use jiff::fmt::strtime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value, filters};
use std::borrow::Cow;
use std::fmt::{self, Write};
use std::sync::Arc;

/// The prefix of the messages of errors that a template raises with `raise_exception`.
pub const RAISED: &str = "raised: ";

// `metered.rs` inserts these filters before or after instructions of a template. Their names begin with a zero byte, so that no template uses them by
// accident.
/// Inserted after each instruction that makes a text, or a list or mapping of existing values. Checks the size of the result and counts its memory
/// without inner values.
pub const MADE: &str = "\0made";
/// Inserted after each instruction whose result contains new inner values. Checks the size of the result and counts its memory with all inner values.
pub const COPIED: &str = "\0copied";
/// Inserted before each multiplication. Receives both factors as a pair, and refuses a product that would be too large.
pub const GUARD_MUL: &str = "\0guard_mul";
/// Inserted before each assignment to an attribute of a namespace. Refuses a value that is or contains a namespace.
pub const ASSIGNED: &str = "\0assigned";
/// Inserted before each slice. Receives the step. Replaces the smallest integer, at which minijinja fails, by the next larger integer. A slice with
/// either step takes one element.
pub const STEP: &str = "\0step";
/// Inserted after each step of a loop. Fails if the rendering's time limit has passed.
pub const TICK: &str = "\0tick";

/// The maximum number of instructions in one rendering, checks included. The engine counts 64 bytes of a new text as one instruction. 1000 messages
/// need some 100 000 instructions.
const FUEL: u64 = 40_000_000;

/// The maximum length in bytes of an attribute path, such as `a.b.c`. A long path would be slow, because filters such as `sort` parse it again for
/// each item of a list.
const MAX_PATH: usize = 256;

/// The maximum length in bytes of the argument of `strip` and similar methods. Each character of the text is compared with all characters of the
/// argument.
const MAX_STRIPPED: usize = 256;

/// The maximum number of digits in a field width in `format`: a large width makes megabytes of blanks.
const MAX_WIDTH_DIGITS: usize = 3;

/// Returns the syntax of chat templates.
pub fn syntax() -> SyntaxConfig {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    syntax.expect("the default delimiters are valid")
}

/// Returns minijinja's environment for one rendering, whose memory, output and time count against `limits`.
pub fn new(limits: &Arc<RenderLimits>) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_syntax(syntax());
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    let l = limits.clone();
    environment.set_formatter(move |out, _, value| format(out, &l, value));
    let l = limits.clone();
    environment.set_unknown_method_callback(move |state, value, method, args| {
        if value.kind() == ValueKind::String {
            may_grow(&l, method, value, args)?;
        }
        minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
    });
    checks(&mut environment, limits);
    for (name, builtin) in growing() {
        let l = limits.clone();
        environment.add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            if let Some((value, rest)) = args.split_first() {
                may_grow(&l, name, value, rest)?;
            }
            l.made(builtin.call(state, &args)?, true)
        });
    }
    for (name, builtin) in choosing() {
        let l = limits.clone();
        environment.add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            let Some((list, rest)) = args.split_first().filter(|(list, _)| !list.is_undefined() && !list.is_none()) else {
                return builtin.call(state, &args);
            };
            // The test of one item can take long, such as `in` with a large list. So the time limit is checked before each test.
            let mut chosen = Vec::new();
            for item in list.try_iter()? {
                l.in_time()?;
                let one = [&[Value::from(vec![item])], rest].concat();
                chosen.extend(builtin.call(state, &one)?.try_iter()?);
            }
            Ok(Value::from(chosen))
        });
    }
    // Chat templates do not need these filters. They are removed, because their results have no predictable size.
    for name in ["batch", "slice", "pprint"] {
        environment.remove_filter(name);
    }
    environment.remove_global("debug");
    let l = limits.clone();
    environment.add_filter("tojson", move |value: Value, options: Kwargs| to_json(&l, &value, &options));
    environment.add_function("range", Range::value);
    environment.add_function("raise_exception", raise);
    environment.add_function("strftime_now", |format: &str| {
        let now = strtime::format(format, Timestamp::now());
        now.map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {e}")))
    });
    environment
}

/// Adds the filters that `metered.rs` inserts between instructions.
fn checks(environment: &mut Environment<'static>, limits: &Arc<RenderLimits>) {
    let l = limits.clone();
    environment.add_filter(MADE, move |value: Value| l.made(value, false));
    let l = limits.clone();
    environment.add_filter(COPIED, move |value: Value| l.made(value, true));
    let l = limits.clone();
    environment.add_filter(ASSIGNED, move |value: Value| l.assigned(value));
    environment.add_filter(STEP, |step: Value| {
        if i64::try_from(step.clone()).is_ok_and(|step| step == i64::MIN) { Value::from(-i64::MAX) } else { step }
    });
    let l = limits.clone();
    environment.add_filter(TICK, move |value: Value| l.in_time().map(|()| value));
    let l = limits.clone();
    environment.add_filter(GUARD_MUL, move |pair: Value| {
        let factors = [pair.get_item_by_index(0)?, pair.get_item_by_index(1)?];
        // A product of two numbers is a number and needs no check.
        for (value, n) in [(&factors[0], &factors[1]), (&factors[1], &factors[0])] {
            if let (false, Some(n)) = (value.is_number(), n.as_usize()) {
                let size = l.size(value)?;
                l.may_make((size.bytes + size.nodes).saturating_mul(n))?;
            }
        }
        Ok(pair)
    });
}

/// Returns the filters of minijinja that test each item of a list.
fn choosing() -> [(&'static str, Value); 4] {
    [
        ("select", Value::from_function(filters::select)),
        ("reject", Value::from_function(filters::reject)),
        ("selectattr", Value::from_function(filters::selectattr)),
        ("rejectattr", Value::from_function(filters::rejectattr)),
    ]
}

/// Returns the filters of minijinja whose results can be much larger than their arguments.
fn growing() -> [(&'static str, Value); 15] {
    [
        ("replace", Value::from_function(filters::replace)),
        ("join", Value::from_function(filters::join)),
        ("indent", Value::from_function(filters::indent)),
        ("format", Value::from_function(filters::format)),
        ("split", Value::from_function(filters::split)),
        ("lines", Value::from_function(filters::lines)),
        ("list", Value::from_function(filters::list)),
        ("sort", Value::from_function(filters::sort)),
        ("unique", Value::from_function(filters::unique)),
        ("groupby", Value::from_function(filters::groupby)),
        ("min", Value::from_function(filters::min)),
        ("max", Value::from_function(filters::max)),
        ("map", Value::from_function(filters::map)),
        ("trim", Value::from_function(filters::trim)),
        ("sum", Value::from_function(filters::sum)),
    ]
}

/// Fails if the filter or method `name`, applied to `value`, could return a value that is too large for `limits`. Called before the filter or method
/// runs.
fn may_grow(limits: &RenderLimits, name: &str, value: &Value, args: &[Value]) -> Result<(), Error> {
    let named = args.last().filter(|last| last.is_kwargs());
    let by_name = |name: &str| named.and_then(|named| named.get_attr(name).ok()).filter(|value| !value.is_undefined());
    let arg = |at: usize| args.get(at).map_or(Cow::Borrowed(""), text);
    let whole = text(value);
    // The engine would convert a list to a text of any length.
    let wants_texts = matches!(name, "replace" | "join" | "split" | "indent" | "trim" | "strip" | "lstrip" | "rstrip");
    let is_list = |value: &Value| matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable) && !value.is_kwargs();
    if wants_texts && args.iter().skip(usize::from(name == "join" && value.kind() == ValueKind::String)).any(is_list) {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("{name}: expected strings, found a list")));
    }
    // The argument is a path of attributes.
    let path = by_name("attribute").or_else(|| args.first().filter(|_| matches!(name, "groupby")).cloned());
    if path.is_some_and(|path| text(&path).len() > MAX_PATH) {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("{name}: expected an attribute of at most {MAX_PATH} bytes")));
    }
    let bytes = match name {
        "replace" => {
            let n = if arg(0).is_empty() { whole.len() + 1 } else { whole.matches(&*arg(0)).count() };
            whole.len().saturating_add(n.saturating_mul(arg(1).len()))
        }
        // The filter is applied to the list, the method to the separator.
        "join" => {
            let by_name = by_name("d").map_or(0, |d| text(&d).len());
            let (list, between) = if value.kind() == ValueKind::String && args.first().is_some_and(|v| v.kind() != ValueKind::String) {
                (args[0].clone(), whole.len())
            } else {
                (value.clone(), arg(0).len().max(by_name))
            };
            let size = limits.size(&list)?;
            let n = if list.kind() == ValueKind::String { size.bytes } else { size.nodes };
            size.bytes.saturating_add(n.saturating_mul(between))
        }
        "indent" => {
            let named = by_name("width");
            let width = args.iter().chain(&named).filter_map(Value::as_usize).max().unwrap_or(4);
            whole.len().saturating_add((whole.matches('\n').count() + 1).saturating_mul(width))
        }
        "format" => {
            let mut digits = whole.split(|c: char| !c.is_ascii_digit()).map(str::len);
            if whole.contains('*') || whole.contains(":{") || digits.any(|n| n > MAX_WIDTH_DIGITS) {
                return Err(Error::new(ErrorKind::InvalidOperation, "format: expected widths of at most three digits"));
            }
            let mut given = 1000usize;
            for value in args {
                given = given.saturating_add(limits.size(value)?.bytes);
            }
            whole.len().saturating_add(whole.matches(['%', '{']).count().saturating_mul(given))
        }
        "trim" | "strip" | "lstrip" | "rstrip" if arg(0).len() > MAX_STRIPPED => {
            return Err(Error::new(ErrorKind::InvalidOperation, format!("{name}: expected at most {MAX_STRIPPED} characters")));
        }
        // A sum of texts would copy all earlier text at each step, so only numbers are allowed.
        "sum" => {
            let is_number = |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool);
            let start = by_name("start").or_else(|| args.first().filter(|value| !value.is_kwargs()).cloned());
            if start.is_some_and(|start| !is_number(&start))
                || !value.try_iter()?.all(|item| is_number(&item) || by_name("attribute").is_some())
            {
                return Err(Error::new(ErrorKind::InvalidOperation, "sum: expected numbers"));
            }
            return Ok(());
        }
        // Each part is a separate value.
        "split" | "lines" | "splitlines" | "list" | "sort" | "unique" if value.kind() == ValueKind::String => {
            let n = match name {
                "split" if arg(0).is_empty() => whole.split_ascii_whitespace().count(),
                "split" => whole.matches(&*arg(0)).count(),
                "lines" | "splitlines" => whole.lines().count(),
                _ => whole.len(),
            };
            whole.len().saturating_add(n.saturating_mul(16))
        }
        _ => return Ok(()),
    };
    limits.may_make(bytes)
}

/// Returns a text, a number or a truth value as text. Returns an empty text for all other values, because no caller needs their text.
fn text(value: &Value) -> Cow<'_, str> {
    match value.kind() {
        ValueKind::String => value.as_str().map_or(Cow::Borrowed(""), Cow::Borrowed),
        ValueKind::Number | ValueKind::Bool => Cow::Owned(value.to_string()),
        _ => Cow::Borrowed(""),
    }
}

/// Writes a value, with Python's constants: `True`, `False` and `None`.
fn format(out: &mut Output<'_>, limits: &RenderLimits, value: &Value) -> Result<(), Error> {
    let mut out = CountedOutput { out, limits, refused: None };
    let written = match value.kind() {
        ValueKind::Bool if value.is_true() => out.write_str("True"),
        ValueKind::Bool => out.write_str("False"),
        ValueKind::None => out.write_str("None"),
        ValueKind::Undefined => Ok(()),
        ValueKind::String => out.write_str(value.as_str().unwrap_or_default()),
        _ => write!(out, "{value}"),
    };
    match out.refused {
        Some(refused) => Err(refused),
        None => written.map_err(Error::from),
    }
}

/// A writer that fails at the output limit.
struct CountedOutput<'a, 'o> {
    out: &'a mut Output<'o>,
    limits: &'a RenderLimits,
    refused: Option<Error>,
}

impl fmt::Write for CountedOutput<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        match self.limits.written(text.len()) {
            Ok(()) => self.out.write_str(text),
            Err(e) => {
                self.refused.get_or_insert(e);
                Err(fmt::Error)
            }
        }
    }
}

fn raise(message: &str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{message}")))
}

/// The filter `tojson`, with the options of transformers, such as `tojson(indent=4, ensure_ascii=False)`.
fn to_json(limits: &RenderLimits, value: &Value, options: &Kwargs) -> Result<Value, Error> {
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, "tojson: the value is undefined"));
    }
    let separators = options.get::<Option<Vec<String>>>("separators")?;
    let between: usize = separators.iter().flatten().map(String::len).sum();
    let mut style = JsonStyle {
        indent: options.get("indent")?,
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        ..JsonStyle::default()
    };
    if let Some(separators) = separators {
        let [item, key] =
            <[String; 2]>::try_from(separators).map_err(|_| Error::new(ErrorKind::InvalidOperation, "tojson: expected two separators"))?;
        (style.item_separator, style.key_separator) = (Some(item), key);
    }
    options.assert_all_used()?;
    if style.indent.is_some_and(|n| n > 64) {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: expected an indent of at most 64"));
    }
    let size = limits.size(value)?;
    let around = size.depths.saturating_mul(style.indent.unwrap_or(0)).saturating_add(size.nodes.saturating_mul(between));
    limits.may_make(size.bytes.saturating_add(around))?;
    let json = serde_json::to_value(value).map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))?;
    limits.made(Value::from(dumps(&json, &style)), true)
}
