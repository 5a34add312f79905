//! Rewords the errors of the JSON and TOML parsers with the terms of JSON and TOML, such as "array" instead of "sequence". Makes JSON text safe for
//! terminals.

use std::borrow::Cow;
use std::fmt::Display;

/// Escapes the control characters in JSON text that JSON allows unescaped: U+007F to U+009F. A terminal takes U+009B for the beginning of a command.
pub fn escaped(json: &str) -> Cow<'_, str> {
    if !json.contains(char::is_control) {
        return Cow::Borrowed(json);
    }
    Cow::Owned(json.chars().map(|c| if c.is_control() { format!("\\u{:04x}", c as u32) } else { c.to_string() }).collect())
}

/// Pairs: the parser's name of a found value, and the text for users. If the text for users is empty or ends with a space, the value itself follows.
const FOUND: &[(&str, &str)] = &[
    ("integer ", "the number "),
    ("floating point ", "the number "),
    ("number ", "the number "),
    ("boolean ", ""),
    ("character ", "the character "),
    ("string ", "the string "),
    ("map", "an object"),
    ("sequence", "an array"),
    ("unit value", "null"),
    ("null", "null"),
];

/// Pairs: the parser's name of an expected type, and the text for users.
const WANTED: &[(&str, &str)] = &[
    ("a sequence", "an array"),
    ("a map", "an object"),
    ("struct ", "an object"),
    ("a boolean", "true or false"),
    ("a borrowed string", "a string"),
    ("variant identifier", "a string"),
    ("field identifier", "a string"),
    ("string or map", "a string"),
    ("internally tagged enum ", "an object with the key `type`"),
    ("adjacently tagged enum ", "an object with the key `type`"),
    ("enum ", "a string"),
    ("u8", BYTE),
    ("u16", COUNT),
    ("u32", COUNT),
    ("u64", COUNT),
    ("usize", COUNT),
    ("i32", "a whole number"),
    ("i64", "a whole number"),
    ("f32", "a number"),
    ("f64", "a number"),
];
const BYTE: &str = "a whole number from 0 to 255";
const COUNT: &str = "a whole number of at least 0";

/// Pairs: the parser's name of a mistake in JSON's syntax, and the text for users.
const SYNTAX: &[(&str, &str)] = &[
    ("EOF while parsing a value", "the JSON ends where a value must follow"),
    ("EOF while parsing an object", "the JSON ends inside an object: a } is missing"),
    ("EOF while parsing a list", "the JSON ends inside an array: a ] is missing"),
    ("EOF while parsing a string", "the JSON ends inside a string: a \" is missing"),
    ("expected value", "no JSON value begins here"),
    ("expected ident", "this is neither true, false nor null"),
    ("trailing characters", "more text follows the JSON value"),
    ("trailing comma", "a comma has no value after it"),
    ("key must be a string", "a key must be a string in double quotes"),
    ("control character", "a string has a control character, which must be escaped, such as \\n"),
    ("invalid escape", "a string has an invalid escape"),
    ("hex escape", "a string has an invalid \\u escape"),
    ("invalid unicode code point", "a string is not UTF-8"),
    ("invalid basic string", "a string is not closed: a \" is missing"),
    ("invalid literal string", "a string is not closed: a ' is missing"),
    ("number out of range", "a number is too large"),
    ("invalid number", "a number is malformed"),
    ("recursion limit exceeded", "values are nested too deep"),
];

/// Describes a parser's error in words for users, without its position.
pub fn in_words(error: &impl Display) -> String {
    let said = error.to_string();
    let said = said.rsplit_once(" at line ").map_or(said.as_str(), |(said, _)| said);
    if let Some((found, wanted)) = said
        .strip_prefix("invalid type: ")
        .or_else(|| said.strip_prefix("invalid value: "))
        .and_then(|rest| rest.rsplit_once(", expected "))
    {
        return format!("found {} instead of {}", renamed(found, FOUND), renamed(wanted, WANTED));
    }
    if let Some((n, wanted)) = said.strip_prefix("invalid length ").and_then(|rest| rest.split_once(", expected ")) {
        return format!("found an array of length {n} instead of {}", renamed(wanted, WANTED));
    }
    if let Some(name) = said.strip_prefix("missing field ") {
        return format!("the key {} is missing", quoted(name));
    }
    if let Some(name) = said.strip_prefix("duplicate field ") {
        return format!("the key {} occurs twice", quoted(name));
    }
    if let Some((name, known)) = said.strip_prefix("unknown field ").and_then(|rest| rest.split_once(", ")) {
        return format!("unknown key {}; known keys: {}", quoted(name), known_names(known));
    }
    if let Some((name, known)) = said.strip_prefix("unknown variant ").and_then(|rest| rest.split_once(", ")) {
        return format!("found {} instead of one of {}", quoted(name), known_names(known));
    }
    SYNTAX.iter().find(|(known, _)| said.contains(known)).map_or_else(|| quoted(said), |(_, meant)| (*meant).into())
}

/// Describes an error of the JSON parser in words for users. Line and column follow if the error has a position.
pub fn with_place(error: &serde_json::Error) -> String {
    match error.line() {
        0 => in_words(error),
        _ if error.column() == 0 => in_words(error),
        line => format!("{} (line {line}, column {})", in_words(error), error.column()),
    }
}

/// Returns the text for users in `names` for the parser's name of a value or a type. A name without an entry is returned with double quotes instead
/// of backticks.
fn renamed(name: &str, names: &[(&str, &str)]) -> String {
    let Some((known, meant)) = names.iter().find(|(known, _)| name.starts_with(known)) else { return quoted(name) };
    let value = name[known.len()..].trim_matches('`');
    // If no value follows the text for users, the rest of `name` is dropped. It can be the name of a Rust type, as in `struct Known`.
    if meant.ends_with(' ') || meant.is_empty() { format!("{meant}{value}") } else { (*meant).into() }
}

/// Puts names between double quotes instead of backticks.
fn quoted(text: &str) -> String {
    text.replace('`', "\"")
}

/// Returns the names in a list such as ``expected one of `a`, `b` ``, joined as `a, b`. Returns `none` if the list has no names.
fn known_names(list: &str) -> String {
    let names: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only errors are read")]
    struct Pair {
        kind: Kind,
        size: [u8; 2],
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Round,
        Flat,
    }

    #[test]
    fn errors_of_the_parser_are_said_in_the_words_of_json() {
        for (json, want) in [
            ("[]", "found an array of length 0 instead of an object"),
            ("7", "found the number 7 instead of an object"),
            ("null", "found null instead of an object"),
            ("true", "found true instead of an object"),
            ("\"a`b\"", "found the string \"a`b\" instead of an object"),
            ("{", "the JSON ends inside an object: a } is missing"),
            ("{\"kind\":", "the JSON ends where a value must follow"),
            ("{}", "the key \"kind\" is missing"),
            ("{\"kind\":\"round\",\"kind\":\"flat\"}", "the key \"kind\" occurs twice"),
            ("{\"colour\":1}", "unknown key \"colour\"; known keys: kind, size"),
            ("{\"kind\":\"long\"}", "found \"long\" instead of one of round, flat"),
            ("{\"size\":[300,1]}", "found the number 300 instead of a whole number from 0 to 255"),
            ("{\"size\":[\"a\",1]}", "found the string \"a\" instead of a whole number from 0 to 255"),
            ("{\"size\":[1.5,1]}", "found the number 1.5 instead of a whole number from 0 to 255"),
            ("{\"size\":{}}", "found an object instead of an array of length 2"),
            ("{size:1}", "a key must be a string in double quotes"),
            ("{} x", "the key \"kind\" is missing"),
            ("x", "no JSON value begins here"),
        ] {
            assert_eq!(in_words(&serde_json::from_str::<Pair>(json).unwrap_err()), want, "{json}");
        }
        let e = serde_json::from_str::<BTreeMap<String, bool>>("{\n\"a\": 1}").unwrap_err();
        assert_eq!(with_place(&e), "found the number 1 instead of true or false (line 2, column 6)");
        let e = toml_like("unknown field `usr`, expected `user` or `bot`");
        assert_eq!(e, "unknown key \"usr\"; known keys: user, bot");
    }

    fn toml_like(said: &str) -> String {
        in_words(&said)
    }
}
