//! The fields of a JSON object. Each value stays text until it is parsed with its expected type, because a general JSON tree can take many times the
//! memory of its text.

use crate::error::{Error, Result, in_words, short, with_place};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;
use serde_json::{Number, Value};
use std::fmt;

/// Fields that count as unset if their value is an empty text, list or object. Clients send such values from forms that nobody filled in.
const UNSET_IF_EMPTY: [&str; 25] = [
    "grammar",
    "json_schema",
    "regex",
    "choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "structured_outputs",
    "response_format",
    "preset",
    "format",
    "thinking",
    "reasoning_effort",
    "state",
    "save_state",
    "session_id",
    "speculate",
    "draft",
    "tool_choice",
    "chat_template",
    "web_search_options",
    "logit_bias",
    "dry_sequence_breakers",
    "modalities",
];

/// Returns whether a value, given as JSON text, is an empty text, list or object.
pub fn is_empty_value(value: &str) -> bool {
    match value.as_bytes() {
        br#""""# => true,
        [b'[', inner @ .., b']'] | [b'{', inner @ .., b'}'] => inner.trim_ascii().is_empty(),
        _ => false,
    }
}

/// Returns whether a field with this value is not set.
fn is_unset(name: &str, value: &str) -> bool {
    is_empty_value(value) && (UNSET_IF_EMPTY.contains(&name) || name == "stop" && is_text(value))
}

/// The maximum number of fields in an object.
const MAX_FIELDS: usize = 100;

/// The fields of an object: names, and values as JSON text. Every name occurs once.
#[derive(Debug)]
pub struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// Reads a JSON object. Skips a byte order mark at the beginning.
    ///
    /// # Errors
    /// `Input` if the bytes are not a JSON object, or if the object has more than 100 fields or a field twice.
    pub fn read(json: &'a [u8]) -> Result<Fields<'a>> {
        let json = json.strip_prefix(b"\xef\xbb\xbf").unwrap_or(json);
        serde_json::from_slice(json).map_err(|e| {
            let found = short(&String::from_utf8_lossy(json), 40);
            let text = match e.classify() {
                Category::Data if !found.trim_start().starts_with('{') => format!("expected a JSON object, found {found}"),
                Category::Data => in_words(&e),
                _ => format!("invalid JSON, found {found:?}: {}", with_place(&e)),
            };
            Error::input(text).caused_by(e)
        })
    }

    /// Removes a field and returns its value as JSON text, or `None` if the object lacks the field.
    pub fn take(&mut self, name: &str) -> Option<&'a str> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1.get())
    }

    /// Returns a field's value as JSON text, or `None` if the object lacks the field or the value is `null`.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Gives a field another name, if the object has the field.
    pub fn rename(&mut self, name: &str, to: &str) {
        self.0.iter_mut().filter(|(known, _)| known == name).for_each(|(known, _)| *known = to.into());
    }

    /// Adds a field.
    pub fn add(&mut self, name: &str, value: &'a RawValue) {
        self.0.push((name.into(), value));
    }

    /// Returns the object as the source of a serde type. Each value is parsed when the type asks for it.
    pub fn deserializer(&self) -> impl Deserializer<'a, Error = serde_json::Error> {
        let fields = self.0.iter().map(|(name, value)| (name.clone(), *value)).collect::<Vec<_>>();
        serde::de::value::MapDeserializer::new(fields.into_iter())
    }

    /// Returns the name of each field and its value as JSON text. Leaves out fields that are `null`: as in OpenAI's API, `null` means unset.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.get())).filter(|(_, value)| *value != "null")
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Fields<'de>, A::Error> {
                let mut found: Vec<(String, &RawValue)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    if found.iter().any(|(known, _)| *known == name) {
                        return Err(serde::de::Error::custom(format_args!("the field {:?} is given twice", short(&name, 40))));
                    }
                    found.push((name, value));
                    if found.len() > MAX_FIELDS {
                        return Err(serde::de::Error::custom(format_args!("the object has more than {MAX_FIELDS} fields")));
                    }
                }
                found.retain(|(name, value)| !is_unset(name, value.get()));
                Ok(Fields(found))
            }
        }
        from.deserialize_map(Object)
    }
}

/// Parses the value of a field: a scalar or a flat list.
///
/// # Errors
/// An `Input` error with the name of the field, the expected type and the found value. If the value is not valid JSON, the error describes the
/// mistake instead.
pub(super) fn of<T: DeserializeOwned>(name: &str, value: &str, expected: &str) -> Result<T> {
    serde_json::from_str(value).map_err(|e| match e.classify() {
        Category::Data => Error::input(format!("expected {expected}, found {}", short(value, 40))).field(name).caused_by(e),
        _ => mistaken(name, expected, e),
    })
}

/// Parses the value of a field that contains objects, such as a list of messages.
///
/// # Errors
/// An `Input` error with the name of the field, the expected type and the mistake. The mistake may be deep in the value.
pub(super) fn nested<T: DeserializeOwned>(name: &str, value: &str, expected: &str) -> Result<T> {
    serde_json::from_str(value).map_err(|e| mistaken(name, expected, e))
}

fn mistaken(name: &str, expected: &str, e: serde_json::Error) -> Error {
    // The position in serde's message counts from the start of the field's value, not from the start of the line. This would mislead a user, so
    // `in_words` removes the position.
    Error::input(format!("expected {expected}: {}", in_words(&e))).field(name).caused_by(e)
}

/// Returns true if a value, given as JSON text, is a string.
pub(super) fn is_text(value: &str) -> bool {
    value.starts_with('"')
}

/// Returns a JSON number as text. A whole number loses its fraction: `40.0` becomes `40`. Returns `None` if the value is not a number.
pub(super) fn whole_number(value: &str) -> Option<String> {
    serde_json::from_str::<Number>(value).ok().map(|number| whole(&Value::Number(number)).to_string())
}

/// Returns a JSON number or string as text, or `None` for other values.
pub(super) fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) => Some(whole(value).to_string()),
        _ => None,
    }
}

/// Removes the fraction of a whole number, because some clients write 40.0 for the count 40. Does not change numbers of 2^53 or more, because such
/// floats cannot represent every whole number.
fn whole(value: &Value) -> Value {
    let number = value.as_f64().filter(|x| value.is_f64() && x.fract() == 0.0 && x.abs() < (1u64 << 53) as f64);
    number.map_or_else(|| value.clone(), |x| Value::from(x as i64))
}
