//! What output is to follow: a grammar, or a schema of JSON.

use super::{gbnf, lark, schema};
use crate::error::{Error, Result};
use llguidance::api::TopLevelGrammar;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// JSON on one line, spaced as Python writes it, which models have read most. With blanks where they like, those that know little JSON
/// go on with blanks for ever.
fn spacing() -> Value {
    json!({ "item_separator": ", ", "key_separator": ": ", "whitespace_flexible": false })
}

/// The schema in a wrapper. As a schema of its own a wrapper would allow any JSON: it has nothing that a schema knows.
fn unwrapped(schema: &Value) -> &Value {
    let is_wrapper = |all: &Map<String, Value>| all.keys().all(|key| ["name", "description", "strict", "schema"].contains(&key.as_str()));
    schema.as_object().filter(|all| is_wrapper(all)).and_then(|all| all.get("schema")).filter(|s| s.is_object()).unwrap_or(schema)
}

/// Rules that output is to follow, for any vocabulary: [`Pieces::follow`](super::Pieces::follow) holds a text to them.
#[derive(Debug, Clone)]
pub struct Grammar {
    /// In Lark; what the text follows is its rule `whole`.
    rules: String,
    /// Stands before what follows the rules.
    lead: String,
    /// The schema, where the rules are one.
    schema: Option<Arc<Value>>,
    /// Whether a text that runs out of tokens is closed.
    closes: bool,
}

impl Grammar {
    /// A grammar in GBNF, as llama.cpp reads them; the text has to follow its rule `root`. It means here what it means there: any text
    /// that the rules allow, however they are cut, left recursion included. Tokens in grammars (`<…>`) are refused.
    ///
    /// # Errors
    /// `Input`, with line, column, what was expected and what was found.
    pub fn gbnf(text: &str) -> Result<Grammar> {
        Ok(Grammar { rules: lark::write(&gbnf::parse(text)?)?, lead: String::new(), schema: None, closes: false })
    }

    /// JSON that a schema allows: properties in the order of the schema, all on one line, `, ` and `: ` between them. A schema may want
    /// other spacing under `x-guidance`, as llguidance documents it: `{"whitespace_flexible": true}` allows blanks anywhere. It may stand in
    /// the wrapper that OpenAI's interface wants: `{"name": …, "strict": …, "schema": …}`.
    ///
    /// # Errors
    /// `Input`, with the JSON pointer of the part that is wrong, unsupported or too large. Parts that contradict one another are found by
    /// [`Pieces::follow`](super::Pieces::follow).
    pub fn json_schema(schema: &Value) -> Result<Grammar> {
        let schema = unwrapped(schema);
        let mut schema = match schema {
            Value::Object(_) => schema.clone(),
            Value::Bool(true) => json!({}),
            Value::Bool(false) => return Err(Error::input("expected a schema that some JSON follows, found false, which allows none")),
            _ => return Err(Error::input("expected a JSON schema, which is an object, found another value")),
        };
        if schema.get("x-guidance").is_none() {
            schema["x-guidance"] = spacing();
        }
        schema::check(&schema)?;
        Ok(Grammar::schema(&schema))
    }

    /// Any JSON object, spaced as [`json_schema`](Self::json_schema) does.
    pub fn json_object() -> Grammar {
        Grammar::schema(&json!({ "type": "object", "x-guidance": spacing() }))
    }

    /// Any JSON value, spaced as [`json_schema`](Self::json_schema) does.
    pub fn json_value() -> Grammar {
        Grammar::schema(&json!({ "x-guidance": spacing() }))
    }

    /// Sets whether a text that runs out of tokens is closed: its last tokens are then taken so that the text ends whole, if as many tokens
    /// as it may have are enough for that. JSON is closed by default, a text under a grammar in GBNF is not.
    #[must_use]
    pub fn close(self, closes: bool) -> Grammar {
        Grammar { closes, ..self }
    }

    pub(super) fn closes(&self) -> bool {
        self.closes
    }

    /// The same behind a text that always comes first: the blank of a reply behind the name of who speaks, say.
    #[must_use]
    pub fn behind(&self, lead: &str) -> Grammar {
        Grammar { lead: format!("{lead}{}", self.lead), ..self.clone() }
    }

    pub(super) fn as_schema(&self) -> Option<&Value> {
        self.schema.as_deref()
    }

    pub(super) fn schema(schema: &Value) -> Grammar {
        let rules = format!("whole: %json {schema}\n");
        Grammar { rules, lead: String::new(), schema: Some(Arc::new(schema.clone())), closes: true }
    }

    /// As the crate takes it.
    pub(super) fn source(&self) -> TopLevelGrammar {
        let lead = if self.lead.is_empty() { String::new() } else { format!("{} ", lark::quoted(&self.lead)) };
        TopLevelGrammar::from_lark(format!("start: {lead}whole\n{}", self.rules))
    }
}
