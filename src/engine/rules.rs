//! Rules of a text, and the end of a text that reaches `max_tokens`.

#[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
use crate::{
    constrain::Grammar,
    error::{Error, Result},
};

/// Rules that a text must satisfy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rules {
    /// A grammar in GBNF; the text matches its rule `root`.
    Gbnf(String),
    /// A JSON schema, as text: schemas that differ in the order of their properties are different.
    Schema(String),
    /// Any JSON object.
    Object,
    /// Any JSON value.
    Value,
}

/// Decides if a text that reaches `max_tokens` is closed: completed by the fewest tokens that satisfy its rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Close {
    /// The default of the rules: JSON is closed, a text under a GBNF grammar is not.
    #[default]
    ByKind,
    /// Texts are completed when their tokens run out.
    Yes,
    /// Texts are not completed.
    No,
}

impl Close {
    /// Returns the name in the record of a run.
    pub fn name(self) -> &'static str {
        match self {
            Close::ByKind => "by default",
            Close::Yes => "yes",
            Close::No => "no",
        }
    }

    /// Returns the choice of a flag or a field; `None` is the default of the rules.
    pub fn asked(asked: Option<bool>) -> Close {
        match asked {
            Some(true) => Close::Yes,
            Some(false) => Close::No,
            None => Close::ByKind,
        }
    }

    /// Applies the choice to a grammar.
    #[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
    pub fn apply(self, grammar: Grammar) -> Grammar {
        match self {
            Close::ByKind => grammar,
            Close::Yes => grammar.close(true),
            Close::No => grammar.close(false),
        }
    }
}

impl Rules {
    /// Returns the request's field that contains these rules.
    pub fn field(&self) -> &'static str {
        match self {
            Rules::Gbnf(_) => "grammar",
            Rules::Schema(_) => "json_schema",
            Rules::Object => "json_object",
            Rules::Value => "json_value",
        }
    }

    /// Parses the rules.
    ///
    /// # Errors
    /// `Input` with the place of the mistake.
    #[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
    pub fn grammar(&self) -> Result<Grammar> {
        match self {
            Rules::Gbnf(text) => Grammar::gbnf(text),
            Rules::Schema(text) => {
                let schema = serde_json::from_str(text).map_err(|e| Error::input(format!("expected JSON: {e}")).caused_by(e))?;
                Grammar::json_schema(&schema)
            }
            Rules::Object => Ok(Grammar::json_object()),
            Rules::Value => Ok(Grammar::json_value()),
        }
    }
}
