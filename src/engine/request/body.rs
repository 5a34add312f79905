//! Reads any request from one JSON object, for language bindings.

use super::super::Fields;
use super::{Input, Request};
use crate::error::{Error, Result};
use serde_json::Value;

impl Request {
    /// Reads a request from a JSON object: its input (`prompt`, `tokens` or `messages` to continue, `input` for vectors, `query` with `documents` for
    /// scores) and its settings, with the names of [`read`](Self::read) or of OpenAI's API.
    ///
    /// # Errors
    /// `Input` or `Usage` if a field is wrong or unknown. The error names the field.
    pub fn of_body(json: &[u8]) -> Result<Request> {
        let mut fields = Fields::read(json)?;
        fields.of_openai()?;
        let (request, unknown) = match (fields.take("input"), fields.take("query"), fields.take("documents")) {
            (None, None, None) => Request::read(&fields)?,
            (Some(input), None, None) => Request::read_settings(Input::Vectors(texts(input)?), &fields)?,
            (None, Some(query), Some(documents)) => {
                let wrong = |name: &'static str| move |e: serde_json::Error| Error::input(format!("{e}")).field(name);
                let query = serde_json::from_str(query).map_err(wrong("query"))?;
                let documents = serde_json::from_str(documents).map_err(wrong("documents"))?;
                Request::read_settings(Input::Ranking { query, documents }, &fields)?
            }
            _ => return Err(Error::input("expected `input` for vectors, or `query` with `documents` for scores")),
        };
        match unknown.first() {
            None => Ok(request),
            Some(name) => Err(Error::input("unknown field").field(name).hint("leave the field out")),
        }
    }
}

/// Reads one text or several: each a string, or a list of token ids.
fn texts(json: &str) -> Result<Vec<Input>> {
    let wrong = |found: &str| Error::input(format!("expected a text or a list of texts or token ids, found {found}")).field("input");
    let one = |value: &Value| match value {
        Value::String(text) => Ok(Input::Text(text.clone())),
        Value::Array(_) => serde_json::from_value(value.clone()).map(Input::Tokens).map_err(|_| wrong("a list of other values")),
        _ => Err(wrong("another value")),
    };
    match serde_json::from_str(json).map_err(|e| wrong(&e.to_string()))? {
        Value::Array(all) if !all.is_empty() && all.iter().all(Value::is_number) => Ok(vec![one(&Value::Array(all))?]),
        Value::Array(all) => all.iter().map(one).collect(),
        value => Ok(vec![one(&value)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_is_read() {
        let input = |json: &str| Request::of_body(json.as_bytes()).map(|request| request.input).map_err(|e| e.to_string());
        let text = |text: &str| Input::Text(text.into());
        assert_eq!(input(r#"{"prompt":"a","stream":true}"#), Ok(text("a")));
        assert_eq!(input(r#"{"tokens":[1,2]}"#), Ok(Input::Tokens(vec![1, 2])));
        assert_eq!(input(r#"{"input":"a"}"#), Ok(Input::Vectors(vec![text("a")])));
        assert_eq!(input(r#"{"input":["a",[1]]}"#), Ok(Input::Vectors(vec![text("a"), Input::Tokens(vec![1])])));
        assert_eq!(input(r#"{"input":[1,2]}"#), Ok(Input::Vectors(vec![Input::Tokens(vec![1, 2])])));
        assert_eq!(input(r#"{"input":[]}"#), Ok(Input::Vectors(Vec::new())));
        let ranking = Input::Ranking { query: "q".into(), documents: vec!["d".into()] };
        assert_eq!(input(r#"{"query":"q","documents":["d"]}"#), Ok(ranking));
        assert_eq!(input(r#"{"query":"q"}"#), Err("expected `input` for vectors, or `query` with `documents` for scores".into()));
        assert_eq!(input(r#"{"prompt":"a","tempo":1}"#), Err("tempo: unknown field (leave the field out)".into()));
        assert_eq!(
            input(r#"{"input":[-1]}"#),
            Err("input: expected a text or a list of texts or token ids, found a list of other values".into())
        );
    }
}
