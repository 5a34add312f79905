//! What a text has to follow, and what becomes of it where its tokens run out.

#[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
use crate::{
    constrain::Grammar,
    error::{Error, Result},
};

/// What a text has to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rules {
    /// The rule root of a grammar in GBNF.
    Gbnf(String),
    /// A JSON schema. As text: two that differ in the order of their properties are two.
    Schema(String),
    /// A JSON object, whatever it says.
    Object,
    /// A JSON value, whatever it says.
    Value,
}

/// Whether a text that runs out of tokens is closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Close {
    /// As the kind of rules has it: JSON is closed, a text under a grammar in GBNF is not.
    #[default]
    ByKind,
    /// Texts are completed when their tokens run out.
    Yes,
    /// Texts are not completed.
    No,
}

impl Close {
    /// Returns the word for it in the record of a run.
    pub fn name(self) -> &'static str {
        match self {
            Close::ByKind => "by default",
            Close::Yes => "yes",
            Close::No => "no",
        }
    }

    /// Of a flag or a field, if there is one.
    pub fn asked(asked: Option<bool>) -> Close {
        match asked {
            Some(true) => Close::Yes,
            Some(false) => Close::No,
            None => Close::ByKind,
        }
    }

    /// Applies the choice to a grammar.
    #[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
    pub fn on(self, grammar: Grammar) -> Grammar {
        match self {
            Close::ByKind => grammar,
            Close::Yes => grammar.close(true),
            Close::No => grammar.close(false),
        }
    }
}

impl Rules {
    /// The field of a request that these rules are written in.
    pub fn field(&self) -> &'static str {
        match self {
            Rules::Gbnf(_) => "grammar",
            Rules::Schema(_) => "json_schema",
            Rules::Object => "json_object",
            Rules::Value => "json_value",
        }
    }

    /// Reads the rules.
    ///
    /// # Errors
    /// `Input`: where they are wrong, and how.
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
