//! The environment that transformers gives a chat template.

use super::super::json::{Style, dumps};
use super::clock;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value};

/// Begins what a template says when it refuses.
pub const RAISED: &str = "raised: ";

/// Instructions that a template may run. A conversation of a thousand messages takes some hundred thousand.
const FUEL: u64 = 20_000_000;

pub fn new() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the delimiters are the usual ones"));
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(format);
    environment.set_fuel(Some(FUEL));
    environment.add_filter("tojson", to_json);
    environment.add_function("raise_exception", raise);
    environment.add_function("strftime_now", |format: &str| clock::now(format).map_err(|e| Error::new(ErrorKind::InvalidOperation, e)));
    environment
}

/// Constants as Python prints them.
fn format(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    let constant = match bool::try_from(value.clone()) {
        Ok(true) if value.kind() == minijinja::value::ValueKind::Bool => "True",
        Ok(false) if value.kind() == minijinja::value::ValueKind::Bool => "False",
        _ if value.is_none() => "None",
        _ => return minijinja::escape_formatter(out, state, value),
    };
    out.write_str(constant).map_err(Error::from)
}

fn raise(message: &str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{message}")))
}

/// `tojson(indent=4, ensure_ascii=False)`, as transformers has it.
fn to_json(value: Value, options: Kwargs) -> Result<String, Error> {
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, "tojson: the value is undefined"));
    }
    let mut style = Style {
        indent: options.get("indent")?,
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        ..Style::default()
    };
    if let Some(separators) = options.get::<Option<Vec<String>>>("separators")? {
        let [item, key] =
            <[String; 2]>::try_from(separators).map_err(|_| Error::new(ErrorKind::InvalidOperation, "tojson: expected two separators"))?;
        (style.item_separator, style.key_separator) = (Some(item), key);
    }
    options.assert_all_used()?;
    if style.indent.is_some_and(|n| n > 64) {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: expected an indent of at most 64"));
    }
    let json = serde_json::to_value(&value).map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))?;
    Ok(dumps(&json, &style))
}
