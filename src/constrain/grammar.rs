//! Grammars and JSON schemas that an output text must follow.

use super::{gbnf, lark, schema};
use crate::error::{Error, Result, short};
use llguidance::api::TopLevelGrammar;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Returns the default spacing of JSON: one line, with spaces as Python writes them, because training data has mostly this form. If any white space
/// is allowed, weak models write white space without end.
fn spacing() -> Value {
    json!({ "item_separator": ", ", "key_separator": ": ", "whitespace_flexible": false })
}

/// Returns the schema inside OpenAI's wrapper `{"name": …, "schema": …}`, or `schema` itself if it is no wrapper. A wrapper that is read as a schema
/// would allow any JSON, because none of its keys is a keyword.
pub(crate) fn unwrapped(schema: &Value) -> &Value {
    let is_wrapper = |all: &Map<String, Value>| all.keys().all(|key| ["name", "description", "strict", "schema"].contains(&key.as_str()));
    schema.as_object().filter(|all| is_wrapper(all)).and_then(|all| all.get("schema")).filter(|s| s.is_object()).unwrap_or(schema)
}

/// Returns a schema without OpenAI's wrapper. Adds the default spacing if the schema sets no spacing. Fails with `Input` if the schema is invalid or
/// unsupported.
fn checked(schema: &Value) -> Result<Value> {
    let schema = unwrapped(schema);
    let mut schema = match schema {
        Value::Object(_) => schema.clone(),
        Value::Bool(true) => json!({}),
        Value::Bool(false) => {
            return Err(Error::input("the JSON schema is false, which allows no value").hint("write true, or an object with keywords"));
        }
        _ => {
            return Err(Error::input(format!(
                "expected a JSON schema, which is an object or true; found {}",
                short(&schema.to_string(), 40)
            )));
        }
    };
    if schema.get("x-guidance").is_none() {
        schema["x-guidance"] = spacing();
    }
    schema::check(&schema)?;
    Ok(schema)
}

/// The maximum number of texts in a choice.
const MAX_TEXTS: usize = 2000;

/// A grammar that an output text must follow, independent of any vocabulary. [`Pieces::follow`](super::Pieces::follow) applies the grammar to a
/// text.
#[derive(Debug, Clone)]
pub struct Grammar {
    /// The rules in the language Lark. The text must match the rule `whole`.
    rules: String,
    /// A fixed text with which the output must begin. The rules apply to the output after this text.
    lead: String,
    /// The JSON schema, which is searched for its faulty part after an error. `None` if the grammar was not made from one schema.
    schema: Option<Arc<Value>>,
    /// `true` if the last tokens before the token limit are chosen so that they complete the text.
    closes: bool,
}

impl Grammar {
    /// Reads a grammar in GBNF, the format of llama.cpp. The text must match the rule `root`.
    ///
    /// Every text that the rules allow is possible, even if the rules are ambiguous. Left recursion is allowed. A token in a grammar (`<…>`) is an
    /// error.
    ///
    /// # Errors
    /// `Input`, with line and column, if the syntax is invalid. `Input` if a rule can never match or if the grammar exceeds a limit.
    pub fn gbnf(text: &str) -> Result<Grammar> {
        Ok(Grammar { rules: lark::write(&gbnf::parse(text)?)?, lead: String::new(), schema: None, closes: false })
    }

    /// Returns the grammar of the JSON texts that a schema allows.
    ///
    /// The properties of an object have the order of the schema. The JSON is on one line, with `, ` and `: ` as separators. The key `x-guidance` in
    /// the schema changes the spacing, as llguidance documents: `{"whitespace_flexible": true}` allows white space anywhere. `schema` may also be
    /// the wrapper of OpenAI's interface: `{"name": …, "strict": …, "schema": …}`.
    ///
    /// # Errors
    /// `Input` if a part of the schema is invalid, unsupported or too large. The error has the JSON pointer of this part.
    /// [`Pieces::follow`](super::Pieces::follow) reports parts that contradict each other.
    pub fn json_schema(schema: &Value) -> Result<Grammar> {
        Ok(Grammar::schema(&checked(schema)?))
    }

    /// Returns a grammar that accepts any of several forms. Each form is `(prefix, schema, suffix)`: a fixed prefix, then JSON that matches the
    /// schema, then a fixed suffix.
    ///
    /// # Errors
    /// The errors of [`json_schema`](Self::json_schema); `Input` if `texts` is empty.
    pub fn framed(texts: &[(String, Value, String)]) -> Result<Grammar> {
        if texts.is_empty() {
            return Err(Error::input("expected at least one text around JSON, found none"));
        }
        let names: Vec<String> = (0..texts.len()).map(|i| format!("framed{i}")).collect();
        let mut rules = format!("whole: {}\n", names.join(" | "));
        for (name, (before, schema, after)) in names.iter().zip(texts) {
            let fixed = |text: &str| if text.is_empty() { String::new() } else { lark::quoted(text) };
            rules += &format!("{name}: {} %json {} {}\n", fixed(before), checked(schema)?, fixed(after));
        }
        Ok(Grammar { rules, lead: String::new(), schema: None, closes: true })
    }

    /// Returns the grammar of the texts that match a regular expression as a whole. A `^` at the beginning and a `$` at the end are
    /// dropped, because they change nothing.
    ///
    /// # Errors
    /// `Input` if the text is empty. [`Pieces::follow`](super::Pieces::follow) reports wrong expressions.
    pub fn regex(text: &str) -> Result<Grammar> {
        let text = text.strip_prefix('^').unwrap_or(text);
        let is_escaped = |rest: &&str| rest.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1;
        let text = text.strip_suffix('$').filter(|rest| !is_escaped(rest)).unwrap_or(text);
        if text.is_empty() {
            return Err(Error::input("expected a regular expression that matches some text, found an empty one"));
        }
        Ok(Grammar { rules: format!("whole: WHOLE\nWHOLE: {}\n", lark::regex(text)), lead: String::new(), schema: None, closes: true })
    }

    /// Returns the grammar that accepts each of `texts` and nothing else.
    ///
    /// # Errors
    /// `Input` if there are no texts, or more than 2000.
    pub fn choice(texts: &[String]) -> Result<Grammar> {
        if texts.is_empty() {
            return Err(Error::input("expected at least one text to choose from, found none"));
        }
        if texts.len() > MAX_TEXTS {
            return Err(Error::input(format!("expected at most {MAX_TEXTS} texts to choose from, found {}", texts.len())));
        }
        let quoted: Vec<String> = texts.iter().map(|text| lark::quoted(text)).collect();
        // All texts form one lexeme (`lexemes.rs`), because llguidance takes much longer with one lexeme per text.
        Ok(Grammar { rules: format!("whole: WHOLE\nWHOLE: {}\n", quoted.join(" | ")), lead: String::new(), schema: None, closes: true })
    }

    /// Returns the grammar of any JSON object, with the spacing of [`json_schema`](Self::json_schema).
    pub fn json_object() -> Grammar {
        Grammar::schema(&json!({ "type": "object", "x-guidance": spacing() }))
    }

    /// Returns the grammar of any JSON value, with the spacing of [`json_schema`](Self::json_schema).
    pub fn json_value() -> Grammar {
        Grammar::schema(&json!({ "x-guidance": spacing() }))
    }

    /// Sets whether a text is completed before its token limit. If `closes` is true, the last tokens are chosen so that the text matches the whole
    /// grammar. A limit that is too small for any complete text still cuts the text. The default is false for GBNF and true for other grammars.
    #[must_use]
    pub fn close(self, closes: bool) -> Grammar {
        Grammar { closes, ..self }
    }

    pub(super) fn closes(&self) -> bool {
        self.closes
    }

    /// Returns a grammar whose texts are the fixed text `lead` and then a text of this grammar. For example, `lead` is the space between a speaker's
    /// name and the reply.
    #[must_use]
    pub fn with_lead(&self, lead: &str) -> Grammar {
        Grammar { lead: format!("{lead}{}", self.lead), ..self.clone() }
    }

    pub(super) fn as_schema(&self) -> Option<&Value> {
        self.schema.as_deref()
    }

    pub(super) fn schema(schema: &Value) -> Grammar {
        let rules = format!("whole: %json {schema}\n");
        Grammar { rules, lead: String::new(), schema: Some(Arc::new(schema.clone())), closes: true }
    }

    /// Converts the grammar to the grammar type of llguidance.
    pub(super) fn source(&self) -> TopLevelGrammar {
        let lead = if self.lead.is_empty() { String::new() } else { format!("{} ", lark::quoted(&self.lead)) };
        TopLevelGrammar::from_lark(format!("start: {lead}whole\n{}", self.rules))
    }
}
