//! The rules of a text: a grammar or a JSON schema.

#[cfg(feature = "grammar")]
use crate::{
    constrain::{Grammar, unwrapped},
    error::{Error, Result, with_place},
};

/// Rules that a text must satisfy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rules {
    /// A grammar in GBNF, the format of llama.cpp. The text must match the grammar's rule `root`.
    Gbnf(String),
    /// A JSON schema, as text. The model writes the properties of an object in the order of the schema. An object with named properties has no other
    /// properties, unless the schema itself decides, for example with `additionalProperties`.
    Schema(String),
    /// A regular expression that the whole text must match. Anchors, references and lookarounds are not supported.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// Any JSON object.
    Object,
    /// Any JSON value.
    Value,
    /// The rules of a demanded tool call. The text must match one entry of this list. An entry has three strings: a fixed text, the JSON schema
    /// of the JSON that follows this text, and a fixed text after the JSON.
    Calls(Vec<[String; 3]>),
}

/// Selects whether a text is closed before it reaches `max_tokens`: its last tokens are then chosen so that it satisfies all its rules. Otherwise, a
/// text that reaches `max_tokens` is cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Close {
    /// The default of the rules: a text with a GBNF grammar is cut at `max_tokens`, every other text is closed before.
    #[default]
    ByKind,
    /// Near `max_tokens`, only tokens that lead to the end of the text are allowed, so that the text is complete.
    Yes,
    /// A text that reaches `max_tokens` is cut.
    No,
}

impl Close {
    /// Returns this choice as text: `by default`, `yes` or `no`.
    pub fn name(self) -> &'static str {
        match self {
            Close::ByKind => "by default",
            Close::Yes => "yes",
            Close::No => "no",
        }
    }

    /// Converts an optional setting: `Some(true)` to `Yes`, `Some(false)` to `No` and `None` to `ByKind`.
    pub fn asked(asked: Option<bool>) -> Close {
        match asked {
            Some(true) => Close::Yes,
            Some(false) => Close::No,
            None => Close::ByKind,
        }
    }

    /// Returns `grammar` with this choice: [`ByKind`](Self::ByKind) keeps the grammar's default, `Yes` and `No` replace the default.
    #[cfg(feature = "grammar")]
    pub fn apply(self, grammar: Grammar) -> Grammar {
        match self {
            Close::ByKind => grammar,
            Close::Yes => grammar.close(true),
            Close::No => grammar.close(false),
        }
    }
}

impl Rules {
    /// Returns the name of the JSON field that contains these rules in a request.
    pub fn field(&self) -> &'static str {
        match self {
            Rules::Gbnf(_) => "grammar",
            Rules::Schema(_) => "json_schema",
            Rules::Regex(_) => "regex",
            Rules::Choice(_) => "choice",
            Rules::Object => "json_object",
            Rules::Value => "json_value",
            Rules::Calls(_) => "tools",
        }
    }

    /// Converts the rules to a grammar.
    ///
    /// # Errors
    /// `Input` if the rules are invalid. The error has the position of the mistake.
    #[cfg(feature = "grammar")]
    pub fn grammar(&self) -> Result<Grammar> {
        match self {
            Rules::Gbnf(text) => Grammar::gbnf(text),
            Rules::Schema(text) => Grammar::json_schema(&json(text)?),
            Rules::Regex(text) => Grammar::regex(text),
            Rules::Choice(texts) => Grammar::choice(texts),
            Rules::Calls(texts) => {
                let read = |[before, schema, after]: &[String; 3]| Ok((before.clone(), json(schema)?, after.clone()));
                Grammar::framed(&texts.iter().map(read).collect::<Result<Vec<_>>>()?)
            }
            Rules::Object => Ok(Grammar::json_object()),
            Rules::Value => Ok(Grammar::json_value()),
        }
    }
}

#[cfg(feature = "grammar")]
fn json(text: &str) -> Result<serde_json::Value> {
    let invalid = |e| Error::input(format!("the JSON schema is not valid JSON: {}", with_place(&e))).caused_by(e);
    let given: serde_json::Value = serde_json::from_str(text).map_err(invalid)?;
    let mut schema = unwrapped(&given).clone();
    match given.get("strict") == Some(&false.into()) && schema != given {
        true => super::closed::open(&mut schema),
        false => super::closed::close(&mut schema),
    }
    Ok(schema)
}
