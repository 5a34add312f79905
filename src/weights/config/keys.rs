//! Typed access to the keys of a `config.json`. Errors name the key. Every number is checked before it is used.

use crate::error::{Error, Result, short};
use crate::weights::glm::{MAX_CONTEXT, MAX_EOS, MAX_LABELS};
use serde_json::{Map, Value};

/// The largest value of a size, except for the context length. The largest known vocabulary has a quarter of a million tokens.
const MAX_SIZE: u64 = 1 << 24;

/// A JSON object of a configuration. A key with the value null counts as missing, except in `is_null`.
#[derive(Clone, Copy)]
pub(in crate::weights) struct ConfigKeys<'a>(&'a Map<String, Value>);

impl<'a> ConfigKeys<'a> {
    /// Wraps an object.
    pub fn of(map: &'a Map<String, Value>) -> ConfigKeys<'a> {
        ConfigKeys(map)
    }

    /// Returns the value of a key, or `None` if the key is missing or its value is null.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// Returns true if the key is present with the value null. For some keys, null has another meaning than a missing key.
    pub fn is_null(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(Value::is_null)
    }

    /// Returns a size from 1 to 2²⁴, or `None` if the key is missing. This method and the methods below return a `Model` error for a wrong value.
    pub fn size(&self, key: &str) -> Result<Option<usize>> {
        self.whole(key, 1, MAX_SIZE)
    }

    /// Returns a count from 0 to 2²⁴, or `None` if the key is missing.
    pub fn count(&self, key: &str) -> Result<Option<usize>> {
        self.whole(key, 0, MAX_SIZE)
    }

    /// Returns the length of a context in tokens, or `None` if the key is missing.
    pub fn context(&self, key: &str) -> Result<Option<usize>> {
        self.whole(key, 1, MAX_CONTEXT as u64)
    }

    /// Returns a whole number from `least` to `most`, or `None` if the key is missing.
    fn whole(&self, key: &str, least: u64, most: u64) -> Result<Option<usize>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = value.as_u64().filter(|n| (least..=most).contains(n)).and_then(|n| usize::try_from(n).ok());
        number.map(Some).ok_or_else(|| unfit(key, &format!("a whole number from {least} to {most}"), value))
    }

    /// Returns a finite number, or `None` if the key is missing.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_f64().filter(|x| x.is_finite()).map(Some).ok_or_else(|| unfit(key, "a number", value))
    }

    /// Returns a boolean, or `None` if the key is missing.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| unfit(key, "true or false", value))
    }

    /// Returns a string, or `None` if the key is missing.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| unfit(key, "a string", value))
    }

    /// Returns an object, or `None` if the key is missing.
    pub fn object(&self, key: &str) -> Result<Option<ConfigKeys<'a>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_object().map(|map| Some(ConfigKeys(map))).ok_or_else(|| unfit(key, "an object", value))
    }

    /// Returns token ids, or `None` if the key is missing. The value may be one id or a list of ids.
    pub fn ids(&self, key: &str) -> Result<Option<Vec<u32>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let list = match value {
            Value::Array(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        let ids: Option<Vec<u32>> = list.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok())).collect();
        let ids = ids.filter(|ids| ids.len() <= MAX_EOS);
        ids.map(Some).ok_or_else(|| unfit(key, &format!("a token id or a list of at most {MAX_EOS} ids"), value))
    }

    /// Returns the names of classes 0, 1, 2, … from `id2label`, up to the first class without a name. The list is empty if the key is missing.
    pub fn labels(&self) -> Result<Vec<String>> {
        let Some(object) = self.object("id2label")? else { return Ok(vec![]) };
        let name = |i: usize| object.get(&i.to_string()).map(|value| (i, value));
        let text = |(i, value): (usize, &Value)| {
            let text = value.as_str().map(str::to_string);
            text.ok_or_else(|| unfit(&format!("id2label.{i}"), "a string", value))
        };
        (0..MAX_LABELS).map_while(name).map(text).collect()
    }

    /// Checks flags that are supported with one value only. Each entry is (key, supported value, default).
    pub fn switches(&self, all: &[(&str, bool, bool)]) -> Result<()> {
        for &(key, wanted, missing) in all {
            let found = self.flag(key)?;
            if found.unwrap_or(missing) != wanted {
                let found =
                    found.map_or_else(|| format!("lacks {key}, whose default is {missing}"), |found| format!("sets {key} to {found}"));
                return Err(unsupported(format!("the configuration {found}, expected {wanted}")));
            }
        }
        Ok(())
    }
}

pub(super) fn unsupported(message: String) -> Error {
    Error::model(message).hint("this variant of GLM is not supported")
}

pub(super) fn missing(key: &str) -> Error {
    Error::model(format!("the configuration has no {key}")).hint("download config.json again")
}

/// Returns the error for a value of the wrong type or out of range.
fn unfit(key: &str, expected: &str, found: &Value) -> Error {
    let found = short(&found.to_string(), 64);
    Error::model(format!("expected {expected} as {key} of the configuration, found {found}"))
}
