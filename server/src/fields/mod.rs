//! Every field that a request for text can have, in every dialect: done, harmless, ignored with a warning, or refused by name. [`table`] lists the
//! fields that several endpoints share; the type of an endpoint's body has its own fields. The parser, `/openapi.json` and the table in
//! `server/fields.md` are made from both.

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
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use utoipa::PartialSchema;
use wingbeat::engine::Fields;
use wingbeat::error::Error;
use wingbeat::low_level::front_end::{is_empty_value, short};
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
    /// The engine reads the field. The content is the JSON types of the value, and the description.
    Done(&'static [&'static str], &'static str),
    /// The engine reads the field under this name.
    Named(&'static str),
    /// [`values`] reads the field together with other fields. The text is the description.
    Together(&'static str),
    /// Ignored without a warning: the field would not change the content of an answer. The text is the reason.
    Harmless(&'static str),
    /// Ignored with an entry in `warnings` of the answer. The text is the reason.
    Ignored(&'static str),
    /// The request is refused, unless the value is empty or one of the listed values, which ask for nothing. The text is the advice.
    Refused(&'static [&'static str], &'static str),
}

/// A row of the table: a field, the set of dialects to which the row applies, and what happens to the field there.
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

/// Returns the row of a field in a dialect, or `None` if the table has no such row.
fn row(at: Dialect, name: &str) -> Option<&'static Row> {
    static BY_NAME: LazyLock<BTreeMap<&'static str, Vec<&'static Row>>> = LazyLock::new(|| {
        let mut by_name = BTreeMap::<_, Vec<_>>::new();
        table::ROWS.iter().for_each(|row| by_name.entry(row.name).or_default().push(row));
        by_name
    });
    BY_NAME.get(name)?.iter().find(|row| row.is_at(at)).copied()
}

/// Returns the names of the fields that the dialect's own body types declare, without the fields of the table.
fn own(at: Dialect) -> &'static BTreeSet<String> {
    static OWN: LazyLock<[BTreeSet<String>; Dialect::ALL.len()]> = LazyLock::new(|| {
        Dialect::ALL.map(|at| match at {
            Dialect::Chat => names::<ChatBody>(),
            Dialect::Text => names::<CompletionBody>(),
            Dialect::Responses => names::<ResponseBody>(),
            Dialect::Messages => names::<MessagesBody>(),
            Dialect::Llama => &names::<LlamaBody>() | &names::<InfillBody>(),
            Dialect::Ollama => &(&names::<OllamaChatBody>() | &names::<GenerateBody>()) | &names::<Settings>(),
            Dialect::Options => BTreeSet::new(),
        })
    });
    &OWN[at as usize]
}

/// Returns the names of a type's fields.
fn names<T: PartialSchema>() -> BTreeSet<String> {
    fn add(schema: &Value, all: &mut BTreeSet<String>) {
        all.extend(schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone()));
        schema["allOf"].as_array().into_iter().flatten().for_each(|part| add(part, all));
    }
    let mut all = BTreeSet::new();
    add(&json!(T::schema()), &mut all);
    all
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

    fn warn(&mut self, name: &str, reason: &str) {
        self.warnings.push(format!("{}: {reason}; ignored", short(name, 40)));
    }

    /// Renames the field `name` to the engine's name `ours`. Returns false if the body also has the field `ours`, with the same value.
    ///
    /// # Errors
    /// 400 if the body also has the field `ours`, with another value.
    fn rename(&mut self, fields: &mut Fields<'_>, name: &str, ours: &'static str) -> Answer<bool> {
        let (Some(before), Some(value)) = (fields.get(ours), fields.get(name)) else {
            fields.rename(name, ours);
            self.names.push((ours, name.into()));
            return Ok(true);
        };
        if values::same(before, value) {
            return Ok(false);
        }
        let theirs = self.names.iter().find(|(known, _)| *known == ours).map_or(ours, |(_, theirs)| theirs);
        let text = format!("expected the value of `{theirs}`, {}, found {}", short(before, 40), short(value, 40));
        Err(Error::input(text).field(name).hint("set only one of the two fields").into())
    }
}

/// Removes the fields that the engine does not read, and renames the remaining fields to the engine's names.
///
/// # Errors
/// 400 with the name of a field that is not supported, or that disagrees with another name of the same field.
pub fn settle(at: Dialect, fields: &mut Fields<'_>) -> Answer<Settled> {
    let mut settled = Settled::default();
    values::replace(fields)?;
    let sent: Vec<(String, &str)> = fields.iter().map(|(name, value)| (name.to_owned(), value)).collect();
    for (name, value) in &sent {
        match row(at, name).map(|row| row.fate) {
            Some(Fate::Done(..) | Fate::Together(_)) => continue,
            Some(Fate::Named(ours)) if !is_empty_value(value) && settled.rename(fields, name, ours)? => continue,
            Some(Fate::Named(_) | Fate::Harmless(_)) => {}
            Some(Fate::Ignored(reason)) => settled.warn(name, reason),
            Some(Fate::Refused(harmless, advice)) => {
                if !is_empty_value(value) && !harmless.iter().any(|harmless| values::same(harmless, value)) {
                    let e = Error::input(format!("this field is not supported, found {}", short(value, 40))).field(name);
                    return Err(e.hint(advice).into());
                }
            }
            None if own(at).contains(name) => {}
            None if Setting::named(name).is_err() => settled.warn(name, "unknown field"),
            None if at == Dialect::Ollama => settled.warn(name, "a field of `options`"),
            None => continue,
        }
        fields.take(name);
    }
    settled.warnings.truncate(MAX_WARNINGS);
    values::combine(at, fields).map_err(|e| settled.as_sent(e))?;
    Ok(settled)
}
