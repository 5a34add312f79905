//! Checks single keywords of a JSON schema.

use super::QUOTED;
use crate::error::{Error, Result, short};
use serde_json::{Map, Value};

const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];
const FORMATS: [&str; 10] = ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];
/// Unsupported keywords of JSON Schema, each with a hint on what to use instead.
const UNSUPPORTED: [(&str, &str); 18] = [
    ("not", REMOVE),
    ("if", "write the cases under \"anyOf\""),
    ("then", "write the cases under \"anyOf\""),
    ("else", "write the cases under \"anyOf\""),
    ("uniqueItems", "remove the keyword; items may repeat"),
    ("contains", REMOVE),
    ("minContains", REMOVE),
    ("maxContains", REMOVE),
    ("propertyNames", "use \"patternProperties\" with \"additionalProperties\": false"),
    ("dependencies", REMOVE),
    ("dependentRequired", REMOVE),
    ("dependentSchemas", REMOVE),
    ("unevaluatedItems", REMOVE),
    ("unevaluatedProperties", "use \"additionalProperties\""),
    ("$dynamicRef", "use \"$ref\""),
    ("$dynamicAnchor", REMOVE),
    ("$recursiveRef", "use \"$ref\""),
    ("$recursiveAnchor", REMOVE),
];
const REMOVE: &str = "remove the keyword";
/// The largest value of keywords such as `maxLength`, `minItems` or `maxProperties`. llguidance's compiler has the same limit for repetitions.
const MAX_COUNT: u64 = 1_000_000_000;
/// The largest length of a pattern in bytes.
const MAX_PATTERN: usize = 64 << 10;
/// The largest magnitude of `minimum`, `maximum` and similar bounds. The smallest magnitude other than 0 is 1 / `MAX_NUMBER`.
const MAX_NUMBER: f64 = 1e15;
/// The largest divisor (`multipleOf`), read without its decimal point: 25 for 0.25. llguidance's lexer has one state per remainder.
pub const MAX_DIVISOR: u64 = 10_000;
/// The largest length in bytes of a text in `x-guidance`.
const MAX_SETTING: usize = 100;

/// Checks one keyword and its value. `all` holds all keywords of the same subschema. `is_root` is true at the root of the schema.
pub fn check(name: &str, value: &Value, all: &Map<String, Value>, is_root: bool) -> Result<()> {
    if let Some((_, instead)) = UNSUPPORTED.iter().find(|(known, _)| *known == name) {
        return Err(Error::input(format!("the keyword \"{name}\" of JSON schemas is unsupported")).hint(*instead));
    }
    let is_ok = match name {
        "type" => return kind(value),
        "format" => return format(value),
        "pattern" => return value.as_str().map_or_else(|| expected(name, "a string", value), |text| pattern(name, text)),
        "patternProperties" => return patterns(name, value),
        "multipleOf" => return divisor(value).map(|_| ()),
        "x-guidance" if is_root => return settings(value),
        "properties" => return expected_if(!value.is_object(), name, "an object of schemas", value),
        "required" => return names(name, value),
        "anyOf" | "oneOf" | "allOf" | "prefixItems" => return expected_if(!value.is_array(), name, "a list of schemas", value),
        "enum" => {
            let is_list = value.as_array().is_some_and(|all| !all.is_empty());
            return expected_if(!is_list, name, "a list of at least one value", value);
        }
        "$ref" => return expected_if(!value.is_string(), name, "a text such as #/$defs/name", value),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => is_count(value),
        "exclusiveMinimum" | "exclusiveMaximum" if value.is_boolean() => true,
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => return bound(name, value, all),
        _ => true,
    };
    expected_if(!is_ok, name, &format!("a whole number from 0 to {MAX_COUNT}"), value)
}

fn is_count(value: &Value) -> bool {
    value.as_u64().is_some_and(|n| n <= MAX_COUNT)
}

fn expected_if(is_wrong: bool, name: &str, what: &str, value: &Value) -> Result<()> {
    if is_wrong { expected(name, what, value) } else { Ok(()) }
}

fn expected(name: &str, what: &str, found: &Value) -> Result<()> {
    let found = match found {
        Value::Array(all) if all.is_empty() => "an empty list".into(),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        Value::String(text) => format!("\"{}\"", short(text, QUOTED)),
        other => short(&other.to_string(), QUOTED),
    };
    Err(Error::input(format!("\"{name}\" must be {what}, found {found}")))
}

fn kind(value: &Value) -> Result<()> {
    let all = match value {
        Value::Array(all) if !all.is_empty() => all.as_slice(),
        Value::String(_) => std::slice::from_ref(value),
        _ => return expected("type", "a type or a list of types", value),
    };
    all.iter().try_for_each(|one| {
        let is_known = one.as_str().is_some_and(|text| TYPES.contains(&text));
        expected_if(!is_known, "type", &format!("one of {}", TYPES.join(", ")), one)
    })
}

fn format(value: &Value) -> Result<()> {
    let Some(name) = value.as_str() else { return expected("format", "a string", value) };
    if FORMATS.contains(&name) || name == "unknown" {
        return Ok(());
    }
    let e = Error::input(format!("format \"{}\" is unsupported", short(name, QUOTED)));
    Err(e.hint(format!("use {}, or \"pattern\"; or remove the keyword", FORMATS.join(", "))))
}

fn names(name: &str, value: &Value) -> Result<()> {
    let is_ok = value.as_array().is_some_and(|all| all.iter().all(Value::is_string));
    expected_if(!is_ok, name, "a list of names", value)
}

fn patterns(name: &str, value: &Value) -> Result<()> {
    let Some(all) = value.as_object() else { return expected(name, "an object of schemas", value) };
    all.keys().try_for_each(|text| pattern(name, text))
}

/// Checks that `text` is a supported regular expression.
fn pattern(name: &str, text: &str) -> Result<()> {
    let shown = short(text, QUOTED);
    if text.len() > MAX_PATTERN {
        return Err(Error::input(format!("a \"{name}\" of {} bytes is too long, at most {MAX_PATTERN} are supported", text.len())));
    }
    if ["(?=", "(?!", "(?<=", "(?<!"].iter().any(|look| text.contains(look)) {
        let e = Error::input(format!("\"{name}\" uses look-around, which is unsupported: {shown}"));
        return Err(e.hint("remove (?=, (?!, (?<= and (?<!"));
    }
    let lark = llguidance::regex_to_lark(text, "dw");
    match llguidance::derivre::RegexBuilder::new().mk_regex_for_serach(&lark) {
        Ok(_) => Ok(()),
        Err(e) => {
            // the last line of the parser's message that begins with "error: " has the reason; other lines show the pattern
            let said = e.to_string();
            let why = said.lines().rev().find_map(|line| line.strip_prefix("error: ")).unwrap_or("it is unsupported");
            Err(Error::input(format!("\"{name}\" is not a valid regular expression: {}: {shown}", short(why, 100))))
        }
    }
}

fn bound(name: &str, value: &Value, all: &Map<String, Value>) -> Result<()> {
    let Some(number) = value.as_f64() else { return expected(name, "a number", value) };
    if number.abs() > MAX_NUMBER || number != 0.0 && number.abs() < 1.0 / MAX_NUMBER {
        let is_whole = all.get("type").is_some_and(|t| t == "integer");
        if !(is_whole && value.is_i64()) {
            let e = Error::input(format!("\"{name}\" is {}, which is out of range", short(&value.to_string(), QUOTED)));
            return Err(e.hint(format!(
                "use 0 or a number whose absolute value is between {:e} and {MAX_NUMBER:e}, or remove the keyword",
                1.0 / MAX_NUMBER
            )));
        }
    }
    Ok(())
}

/// Returns the value of `multipleOf`, read without its decimal point: 25 for 0.25.
pub fn divisor(value: &Value) -> Result<u64> {
    let number = value.as_f64().filter(|n| *n > 0.0 && n.is_finite());
    let Some(number) = number else { return expected("multipleOf", "a number larger than 0", value).map(|()| 1) };
    // Rust writes floats without an exponent, with the fewest digits that read back as the same number
    let digits: String = number.to_string().chars().filter(char::is_ascii_digit).collect();
    match digits.parse() {
        Ok(n) if n <= MAX_DIVISOR && digits.len() <= 9 => Ok(n),
        _ => {
            let e = Error::input(format!("the number {} of \"multipleOf\" has too many digits", short(&value.to_string(), QUOTED)));
            Err(e.hint("use a number of at most 4 digits, such as 0.25 or 1000, or remove the keyword"))
        }
    }
}

/// Checks the settings in `x-guidance`, which are llguidance's options for spacing and compiling.
fn settings(value: &Value) -> Result<()> {
    const TEXTS: [&str; 4] = ["item_separator", "key_separator", "whitespace_pattern", "json_allowed_escapes"];
    const FLAGS: [&str; 4] = ["whitespace_flexible", "coerce_one_of", "lenient", "json_allow_general_unicode_escapes"];
    let Some(all) = value.as_object() else { return expected("x-guidance", "an object", value) };
    for (name, value) in all {
        let is_text = value.as_str().is_some_and(|text| text.len() <= MAX_SETTING);
        match name.as_str() {
            n if TEXTS.contains(&n) => expected_if(!is_text, n, &format!("a text of at most {MAX_SETTING} bytes"), value)?,
            n if FLAGS.contains(&n) => expected_if(!value.is_boolean(), n, "true or false", value)?,
            other => {
                let e = Error::input(format!("\"x-guidance\" has an unknown setting \"{}\"", short(other, QUOTED)));
                return Err(e.hint(format!("use {} or {}", TEXTS.join(", "), FLAGS.join(", "))));
            }
        }
    }
    Ok(())
}
