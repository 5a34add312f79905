//! The keyed form of tool calls of newer GLMs: a name, then keys and values in tags,
//! `<tool_call>f<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>`.
//!
//! The model writes texts without quotes, and all other values as JSON. So only the tool's schema decides whether `7` is a text or a number. The
//! closing tag is required, because without the tag arguments may be missing.

use super::json::{MAX_BYTES, after};
use super::{Declared, Form, FormReading};
use crate::template::ToolCall;
use serde_json::Value;

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
const KEY: [&str; 2] = ["<arg_key>", "</arg_key>"];
const VALUE: [&str; 2] = ["<arg_value>", "</arg_value>"];

pub struct KeyedForm;

impl Form for KeyedForm {
    fn read(&self, text: &str, is_end: bool, declared: &Declared) -> FormReading {
        let more = if is_end || text.len() > MAX_BYTES { FormReading::Text } else { FormReading::More };
        match call(text, is_end, declared) {
            Ok((call, n)) if n <= MAX_BYTES => FormReading::Calls(vec![call], n),
            Ok(_) => FormReading::Text,
            Err(FormReading::More) => more,
            Err(reading) => reading,
        }
    }
}

/// Reads the call at the beginning of a text. Also returns the number of bytes of the call.
fn call(text: &str, is_end: bool, declared: &Declared) -> Result<(ToolCall, usize), FormReading> {
    let rest = after(text, OPEN, is_end)?;
    let Some((name, _)) = rest.split_once('<') else {
        let begun = rest.trim();
        let may_go_on = declared.has_beginning(rest.trim_start()) || declared.has(begun);
        return Err(if may_go_on { FormReading::More } else { FormReading::Text });
    };
    let (name, mut rest) = (name.trim(), &rest[name.len()..]);
    if !declared.has(name) {
        return Err(FormReading::Text);
    }
    let mut arguments: Vec<(&str, String)> = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(end) = rest.strip_prefix(CLOSE) {
            let call = ToolCall { name: name.into(), arguments: object(&arguments) };
            return Ok((call, text.len() - end.len()));
        }
        if CLOSE.starts_with(rest) {
            return Err(FormReading::More);
        }
        let (key, tail) = until(after(rest, KEY[0], is_end)?, "<")?;
        let key = key.trim();
        // The key ends at the first `<`, so that a broken call is seen at once.
        let tail = after(&rest[rest.len() - tail.len() - 1..], KEY[1], is_end)?.trim_start();
        if key.is_empty() {
            return Err(FormReading::Text);
        }
        let (value, tail) = until(after(tail, VALUE[0], is_end)?, VALUE[1])?;
        let value = json(value, declared.parameter(name, key));
        // A key that is written twice has its last value, as in JSON.
        match arguments.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) => *old = value,
            None => arguments.push((key, value)),
        }
        rest = tail;
    }
}

/// Returns the texts before and after the first `mark`.
fn until<'a>(text: &'a str, mark: &str) -> Result<(&'a str, &'a str), FormReading> {
    text.split_once(mark).ok_or(FormReading::More)
}

/// Returns the JSON object of these keys and values. The values are JSON already.
fn object(arguments: &[(&str, String)]) -> String {
    let all: Vec<String> = arguments.iter().map(|(key, value)| format!("{}: {value}", Value::from(*key))).collect();
    format!("{{{}}}", all.join(", "))
}

/// Returns a value as JSON. If the parameter's schema allows texts, the value is a text unless another allowed type fits. Otherwise the value is JSON
/// if it can be parsed. JSON keeps the model's spelling, because parsing would drop digits of a large number.
fn json(text: &str, schema: Option<&Value>) -> String {
    let is_json = match (serde_json::from_str::<Value>(text), schema.and_then(types)) {
        (Err(_), _) => false,
        (Ok(_), None) => true,
        (Ok(value), Some(types)) => !types.contains(&"string") || (!value.is_string() && allow(&types, &value)),
    };
    if is_json { text.trim().into() } else { Value::from(text).to_string() }
}

/// Returns the types that a schema allows, or `None` if the schema does not restrict the type.
fn types(schema: &Value) -> Option<Vec<&str>> {
    match (schema.get("type"), schema.get("enum"), schema.get("const")) {
        (Some(Value::String(one)), ..) => Some(vec![one]),
        (Some(Value::Array(some)), ..) => Some(some.iter().filter_map(Value::as_str).collect()),
        (_, Some(Value::Array(values)), _) => Some(values.iter().map(type_of).collect()),
        (_, _, Some(value)) => Some(vec![type_of(value)]),
        _ => {
            let choices = schema.get("anyOf").or_else(|| schema.get("oneOf"))?.as_array()?;
            choices.iter().map(types).collect::<Option<Vec<_>>>().map(|all| all.concat())
        }
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn allow(types: &[&str], value: &Value) -> bool {
    let is_whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    types.contains(&type_of(value)) || (is_whole && types.contains(&"integer"))
}
