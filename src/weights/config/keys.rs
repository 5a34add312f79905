//! The keys of a `config.json`, asked for one by one: an error names its key, and no number is believed before it is checked.

use crate::error::{Error, Result, short};
use crate::weights::glm::{MAX_CONTEXT, MAX_EOS, MAX_LABELS};
use serde_json::{Map, Value};

/// Of anything but the context: the largest vocabulary has a quarter of a million words.
const MAX_SIZE: u64 = 1 << 24;

/// An object of a configuration. A key whose value is null counts as missing.
#[derive(Clone, Copy)]
pub(in crate::low_level::weights) struct Keys<'a>(&'a Map<String, Value>);

impl<'a> Keys<'a> {
    pub fn of(map: &'a Map<String, Value>) -> Keys<'a> {
        Keys(map)
    }

    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// Whether the key is there and null, where that is something else than missing.
    pub fn is_null(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(Value::is_null)
    }

    pub fn size(&self, key: &str) -> Result<Option<usize>> {
        self.whole(key, MAX_SIZE)
    }

    pub fn context(&self, key: &str) -> Result<Option<usize>> {
        self.whole(key, MAX_CONTEXT as u64)
    }

    fn whole(&self, key: &str, most: u64) -> Result<Option<usize>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = value.as_u64().filter(|n| (1..=most).contains(n)).and_then(|n| usize::try_from(n).ok());
        number.map(Some).ok_or_else(|| unfit(key, &format!("a whole number from 1 to {most}"), value))
    }

    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_f64().filter(|x| x.is_finite()).map(Some).ok_or_else(|| unfit(key, "a number", value))
    }

    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| unfit(key, "true or false", value))
    }

    pub fn text(&self, key: &str) -> Result<Option<&'a str>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| unfit(key, "a text", value))
    }

    pub fn object(&self, key: &str) -> Result<Option<Keys<'a>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_object().map(|map| Some(Keys(map))).ok_or_else(|| unfit(key, "an object", value))
    }

    /// A token's id, or a list of ids.
    pub fn ids(&self, key: &str) -> Result<Option<Vec<u32>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let list = match value {
            Value::Array(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        let ids: Option<Vec<u32>> = list.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok())).collect();
        let ids = ids.filter(|ids| ids.len() <= MAX_EOS);
        ids.map(Some).ok_or_else(|| unfit(key, &format!("the id of a token, or a list of at most {MAX_EOS}"), value))
    }

    /// Names of classes, `id2label`, as far as they are numbered without a gap.
    pub fn labels(&self) -> Result<Vec<String>> {
        let Some(object) = self.object("id2label")? else { return Ok(vec![]) };
        let name = |i: usize| object.get(&i.to_string()).map(|value| (i, value));
        let text = |(i, value): (usize, &Value)| {
            let text = value.as_str().map(str::to_string);
            text.ok_or_else(|| unfit(&format!("id2label.{i}"), "a text", value))
        };
        (0..MAX_LABELS).map_while(name).map(text).collect()
    }

    /// Switches that run in one position only: key, that position, and the one that it has where nothing is said.
    pub fn switches(&self, all: &[(&str, bool, bool)]) -> Result<()> {
        for &(key, wanted, missing) in all {
            let found = self.flag(key)?;
            if found.unwrap_or(missing) != wanted {
                let found = found.map_or_else(|| format!("no such key, which means {missing}"), |found| found.to_string());
                return Err(unsupported(format!("expected {key} {wanted}, found {found}")));
            }
        }
        Ok(())
    }
}

/// The error of a variant that was never published, or is another model.
pub(super) fn unsupported(message: String) -> Error {
    Error::model(message).hint("this is a variant of GLM that does not run")
}

pub(super) fn missing(key: &str) -> Error {
    Error::model(format!("expected {key}, found no such key")).hint("download config.json again")
}

fn unfit(key: &str, expected: &str, found: &Value) -> Error {
    let found = short(&found.to_string(), 64);
    Error::model(format!("expected {expected} as {key}, found {found}"))
}
