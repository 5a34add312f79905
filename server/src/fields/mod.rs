//! Every field that a request for text can have, in every dialect: done, harmless, ignored with a warning, or refused by name. [`table`] lists the
//! fields that several endpoints share; the type of an endpoint's body has its own fields. The parser, `/openapi.json` and the table in
//! docs/server.md are made from both.

mod describe;
mod table;
mod values;
#[cfg(test)]
mod written;

pub use describe::add_settings;

use crate::anthropic::MessagesBody;
use crate::failure::{Answer, Failure};
use crate::llama::{InfillBody, LlamaBody};
use crate::ollama::{GenerateBody, OllamaChatBody, Settings};
use crate::openai::{ChatBody, CompletionBody, ResponseBody};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use utoipa::{PartialSchema, ToSchema};
use wingbeat::engine::Fields;
use wingbeat::error::Error;
use wingbeat::low_level::front_end::short;
use wingbeat::low_level::sample::Setting;

/// The kind of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Dialect {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Text,
    /// `/v1/responses`
    Responses,
    /// `/v1/messages`
    Messages,
    /// `/completion` and `/infill`
    Llama,
    /// `/api/chat` and `/api/generate`
    Ollama,
    /// The object `options` of `/api/chat` and `/api/generate`.
    Options,
}

impl Dialect {
    pub const ALL: [Dialect; 7] =
        [Dialect::Chat, Dialect::Text, Dialect::Responses, Dialect::Messages, Dialect::Llama, Dialect::Ollama, Dialect::Options];

    /// Returns the set with only this dialect.
    const fn bit(self) -> u8 {
        1 << self as usize
    }
}

/// The treatment of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fate {
    /// The engine reads it: the JSON types of its value, and its description.
    Done(&'static [&'static str], &'static str),
    /// The engine reads it under this name.
    Named(&'static str),
    /// [`values`] reads it, together with other fields.
    Together(&'static str),
    /// It changes nothing that an answer says. The text is the reason.
    Harmless(&'static str),
    /// It has no effect, and the answer says so in `warnings`. The text is the reason.
    Ignored(&'static str),
    /// The request is refused, unless the value is empty or one of these, which ask for nothing. The text is the advice.
    Refused(&'static [&'static str], &'static str),
}

/// A row of the table: a field, the set of dialects for which the row is, and what happens.
pub struct Row {
    pub name: &'static str,
    at: u8,
    pub fate: Fate,
}

impl Row {
    fn is_at(&self, at: Dialect) -> bool {
        self.at & at.bit() != 0
    }
}

/// Returns the row of a field.
fn row(at: Dialect, name: &str) -> Option<&'static Row> {
    static BY_NAME: LazyLock<BTreeMap<&'static str, Vec<&'static Row>>> = LazyLock::new(|| {
        let mut by_name = BTreeMap::<_, Vec<_>>::new();
        table::ROWS.iter().for_each(|row| by_name.entry(row.name).or_default().push(row));
        by_name
    });
    BY_NAME.get(name)?.iter().find(|row| row.is_at(at)).copied()
}

/// Returns the fields of the endpoint's own type, with their descriptions.
fn own(at: Dialect) -> &'static BTreeMap<String, String> {
    static OWN: LazyLock<[BTreeMap<String, String>; Dialect::ALL.len()]> = LazyLock::new(|| {
        Dialect::ALL.map(|at| match at {
            Dialect::Chat => properties::<ChatBody>(),
            Dialect::Text => properties::<CompletionBody>(),
            Dialect::Responses => properties::<ResponseBody>(),
            Dialect::Messages => properties::<MessagesBody>(),
            Dialect::Llama => properties::<LlamaBody>().into_iter().chain(properties::<InfillBody>()).collect(),
            Dialect::Ollama => {
                let bodies = properties::<OllamaChatBody>().into_iter().chain(properties::<GenerateBody>());
                bodies.chain(properties::<Settings>()).collect()
            }
            Dialect::Options => BTreeMap::new(),
        })
    });
    &OWN[at as usize]
}

/// Returns the name and the description of each field of a type.
fn properties<T: ToSchema + PartialSchema>() -> BTreeMap<String, String> {
    fn add(schema: &Value, all: &mut BTreeMap<String, String>) {
        let about = |field: &Value| field["description"].as_str().unwrap_or_default().to_owned();
        all.extend(schema["properties"].as_object().into_iter().flatten().map(|(name, field)| (name.clone(), about(field))));
        schema["allOf"].as_array().into_iter().flatten().for_each(|part| add(part, all));
    }
    let mut all = BTreeMap::new();
    add(&serde_json::to_value(T::schema()).unwrap_or_default(), &mut all);
    all
}

/// Returns the sampler setting with this name, in the spelling of JSON.
fn setting(at: Dialect, name: &str) -> Option<&'static Setting> {
    Setting::named(name).ok().filter(|_| at != Dialect::Ollama)
}

/// The largest number of warnings in an answer. A request has at most 100 fields.
const MAX_WARNINGS: usize = 16;

/// The result of [`settle`].
#[derive(Default)]
pub struct Settled {
    /// One line for each field that has no effect.
    pub warnings: Vec<String>,
    /// Fields that were renamed: the engine's name, and the name in the body.
    names: Vec<(&'static str, String)>,
}

impl Settled {
    /// Returns the failure with the name that its field has in the body.
    pub fn as_sent(&self, e: Failure) -> Failure {
        self.names.iter().fold(e, |e, (ours, theirs)| e.renamed(&[ours], theirs))
    }
}

/// Reduces the fields of a body to those that the engine reads, under the engine's names.
///
/// # Errors
/// 400 with the name of a field that is not supported, or that disagrees with another name of the same field.
pub fn settle(at: Dialect, fields: &mut Fields<'_>) -> Answer<Settled> {
    let Settled { mut warnings, names: mut taken } = Settled::default();
    values::replace(fields)?;
    let names: Vec<String> = fields.iter().map(|(name, _)| name.to_owned()).collect();
    for name in &names {
        let value = value_of(fields, name).unwrap_or("null");
        let mut warn = |reason: &str| warnings.push(format!("{}: {reason}; ignored", short(name, 40)));
        match row(at, name).map(|row| row.fate) {
            Some(Fate::Done(..) | Fate::Together(_)) => continue,
            Some(Fate::Named(_)) if values::is_empty(value) => {}
            Some(Fate::Named(ours)) => {
                let before = value_of(fields, ours);
                match before {
                    None => {
                        fields.rename(name, ours);
                        taken.push((ours, name.clone()));
                    }
                    Some(before) if values::same(before, value) => _ = fields.take(name),
                    Some(before) => {
                        let theirs = taken.iter().find(|(known, _)| *known == ours).map_or(ours, |(_, theirs)| theirs);
                        let text = format!("expected the value of `{theirs}`, {}, found {}", short(before, 40), short(value, 40));
                        return Err(Error::input(text).field(name).hint("set only one of the two fields").into());
                    }
                }
                continue;
            }
            Some(Fate::Harmless(_)) => {}
            Some(Fate::Ignored(reason)) => warn(reason),
            Some(Fate::Refused(harmless, advice)) => {
                if !values::is_empty(value) && !harmless.iter().any(|harmless| values::same(harmless, value)) {
                    let e = Error::input(format!("this field is not supported, found {}", short(value, 40))).field(name);
                    return Err(e.hint(advice).into());
                }
            }
            None if own(at).contains_key(name) => {}
            None if setting(at, name).is_some() => continue,
            None if at == Dialect::Ollama && Setting::named(name).is_ok() => warn("a field of `options`"),
            None => warn("unknown field"),
        }
        fields.take(name);
    }
    warnings.truncate(MAX_WARNINGS);
    let settled = Settled { warnings, names: taken };
    values::combine(at, fields).map_err(|e| settled.as_sent(e))?;
    Ok(settled)
}

fn value_of<'a>(fields: &Fields<'a>, name: &str) -> Option<&'a str> {
    fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
}
