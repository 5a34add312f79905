//! Fields of a JSON object, read one by one: a hostile field costs no more than its own bytes until its type is known.

use crate::error::{Error, Result, short};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Number, Value};
use std::fmt;

/// Fields of an object, at most.
const MAX_FIELDS: usize = 100;

/// Fields by name, as they were written. Of two fields with one name the second counts, as for most readers of JSON.
#[derive(Debug)]
pub struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// Reads an object. A mark of byte order before it is skipped.
    ///
    /// # Errors
    /// `Input`: it is no object in JSON, or has more than 100 fields.
    pub fn read(json: &'a [u8]) -> Result<Fields<'a>> {
        let json = json.strip_prefix(b"\xef\xbb\xbf").unwrap_or(json);
        serde_json::from_slice(json).map_err(|e| {
            let text = format!("expected an object of JSON, found {:?}: {e}", short(&String::from_utf8_lossy(json), 40));
            Error::input(text).caused_by(e)
        })
    }

    /// Removes a field and returns its value in JSON.
    pub fn take(&mut self, name: &str) -> Option<&'a str> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1.get())
    }

    /// Names and values in JSON. A `null` is left out: it is as good as nothing, as with OpenAI.
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
                    found.retain(|(known, _)| *known != name);
                    found.push((name, value));
                    if found.len() > MAX_FIELDS {
                        return Err(serde::de::Error::custom(format_args!("more than {MAX_FIELDS} fields")));
                    }
                }
                Ok(Fields(found))
            }
        }
        from.deserialize_map(Object)
    }
}

/// The value of a field, of a type.
///
/// # Errors
/// `Input`, at the field: the type that was expected and what is wrong.
pub(super) fn of<T: DeserializeOwned>(name: &str, value: &str, expected: &str) -> Result<T> {
    serde_json::from_str(value).map_err(|e| {
        // The place in the value is not that in the line.
        let said = e.to_string();
        let said = said.rsplit_once(" at line ").map_or(said.as_str(), |(said, _)| said);
        Error::input(format!("expected {expected}: {said}")).field(name).caused_by(e)
    })
}

/// Whether a value is a JSON string.
pub(super) fn is_text(value: &str) -> bool {
    value.starts_with('"')
}

/// A whole number as text. `40.0` is 40.
pub(super) fn whole_number(value: &str) -> Option<String> {
    serde_json::from_str::<Number>(value).ok().map(|number| whole(&Value::Number(number)).to_string())
}

/// A number or a text as text.
pub(super) fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) => Some(whole(value).to_string()),
        _ => None,
    }
}

/// A number that is whole without its point: some write 40.0, and a count takes only 40. Beyond 2^53 nobody knows what was meant.
fn whole(value: &Value) -> Value {
    let number = value.as_f64().filter(|x| value.is_f64() && x.fract() == 0.0 && x.abs() < (1u64 << 53) as f64);
    number.map_or_else(|| value.clone(), |x| Value::from(x as i64))
}
