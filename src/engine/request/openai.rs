//! Converts bodies of OpenAI's API, whose fields have other names or forms than the fields of a [`Request`](super::Request).

use super::super::Fields;
use crate::error::{Error, Result, in_words, short};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Fields of a body that are ignored, because they do not change the text.
const IGNORED: [&str; 8] = ["model", "stream", "stream_options", "user", "store", "metadata", "service_tier", "parallel_tool_calls"];

/// Values of `reasoning_effort`, each with the value of `thinking` that replaces it.
const EFFORTS: [(&str, &str); 6] = [
    (r#""none""#, r#""off""#),
    (r#""minimal""#, r#""off""#),
    (r#""low""#, r#""short""#),
    (r#""medium""#, r#""on""#),
    (r#""high""#, r#""long""#),
    (r#""xhigh""#, r#""long""#),
];

/// The field `response_format` of a body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResponseFormat<'a> {
    r#type: String,
    #[serde(borrow)]
    json_schema: Option<&'a RawValue>,
    /// The schema of a `json_object`.
    #[serde(borrow)]
    schema: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "known keys without an effect")]
struct NamedSchema<'a> {
    #[serde(borrow)]
    schema: Option<&'a RawValue>,
    name: Option<String>,
    description: Option<String>,
    strict: Option<bool>,
}

impl Fields<'_> {
    /// Gives the fields of a body of OpenAI's API the names and forms that [`Request::read`](super::Request::read) reads. Removes fields that do
    /// not change the text, such as `model` and `stream`. Other fields stay as they are.
    ///
    /// # Errors
    /// `Input` if a field that must be converted has a wrong value. The error names the field.
    pub fn of_openai(&mut self) -> Result<()> {
        for name in IGNORED {
            self.take(name);
        }
        self.rename("max_completion_tokens", "max_tokens");
        self.read_logprobs()?;
        if let Some(effort) = self.take("reasoning_effort").filter(|effort| *effort != "null") {
            let found = EFFORTS.iter().find(|(theirs, _)| *theirs == effort);
            let (_, ours) = found.ok_or_else(|| wrong("reasoning_effort", "none, minimal, low, medium, high or xhigh", effort))?;
            self.add("thinking", raw(ours));
        }
        self.read_format()
    }

    /// Converts `logprobs: true` and a number in `top_logprobs`, the fields of chat bodies, to this number in `logprobs`.
    fn read_logprobs(&mut self) -> Result<()> {
        let top = self.take("top_logprobs").filter(|top| *top != "null");
        let logprobs = self.get("logprobs");
        match (logprobs, top) {
            (Some("true"), top) => {
                self.take("logprobs");
                let number = serde_json::from_str(top.unwrap_or("0")).map_err(|e| Error::input(e.to_string()).field("top_logprobs"))?;
                self.add("logprobs", number);
            }
            (_, Some(_)) => return Err(Error::input("expected logprobs = true together with top_logprobs").field("top_logprobs")),
            (Some("false"), None) => _ = self.take("logprobs"),
            (_, None) => {}
        }
        Ok(())
    }

    fn read_format(&mut self) -> Result<()> {
        let Some(format) = self.take("response_format").filter(|format| *format != "null") else { return Ok(()) };
        let ResponseFormat { r#type, json_schema, schema } = serde_json::from_str(format).map_err(|e| match e.to_string() {
            said if said.starts_with("unknown field") => Error::input(in_words(&e)).field("response_format").caused_by(e),
            _ => wrong("response_format", "an object with type", format).caused_by(e),
        })?;
        let named: Option<NamedSchema<'_>> = match json_schema {
            Some(named) => serde_json::from_str(named.get())
                .map_err(|e| Error::input(in_words(&e)).field("response_format.json_schema").caused_by(e))?,
            None => None,
        };
        let is_open = named.as_ref().is_some_and(|named| named.strict == Some(false));
        match (r#type.as_str(), named.and_then(|named| named.schema).or(schema)) {
            // With `strict: false`, passes the whole object on, because `Rules` reads `strict` beside the schema.
            ("json_schema", Some(schema)) => self.add("json_schema", json_schema.filter(|_| is_open).unwrap_or(schema)),
            ("json_object", Some(schema)) => self.add("json_schema", schema),
            ("json_schema", None) => self.add("json_value", raw("true")),
            ("json_object", _) => self.add("json_object", raw("true")),
            ("text", _) => {}
            (other, _) => {
                return Err(wrong("response_format.type", "text, json_object or json_schema", other));
            }
        }
        Ok(())
    }
}

fn raw(json: &'static str) -> &'static RawValue {
    serde_json::from_str(json).expect("a constant")
}

fn wrong(field: &str, expected: &str, found: &str) -> Error {
    Error::input(format!("expected {expected}, found {}", short(found, 40))).field(field)
}

#[cfg(test)]
mod tests {
    use super::super::Request;
    use super::*;

    fn read(body: &str) -> Result<Request> {
        let mut fields = Fields::read(body.as_bytes())?;
        fields.of_openai()?;
        let (request, unknown) = Request::read(&fields)?;
        assert!(unknown.is_empty(), "{unknown:?}");
        Ok(request)
    }

    #[test]
    fn a_body_of_openai_is_a_request() {
        let pairs = [
            (r#"{"prompt":"a","model":"gpt-4o","stream":true,"user":"u","max_completion_tokens":3}"#, r#"{"prompt":"a","max_tokens":3}"#),
            (r#"{"prompt":"a","logprobs":true,"top_logprobs":2}"#, r#"{"prompt":"a","logprobs":2}"#),
            (r#"{"prompt":"a","logprobs":true}"#, r#"{"prompt":"a","logprobs":0}"#),
            (r#"{"prompt":"a","logprobs":false}"#, r#"{"prompt":"a"}"#),
            (r#"{"prompt":"a","logprobs":3}"#, r#"{"prompt":"a","logprobs":3}"#),
            (r#"{"prompt":"a","reasoning_effort":"low"}"#, r#"{"prompt":"a","thinking":"short"}"#),
            (r#"{"prompt":"a","response_format":{"type":"text"}}"#, r#"{"prompt":"a"}"#),
            (r#"{"prompt":"a","response_format":{"type":"json_object"}}"#, r#"{"prompt":"a","json_object":true}"#),
            (
                r#"{"prompt":"a","response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"integer"}}}}"#,
                r#"{"prompt":"a","json_schema":{"type":"integer"}}"#,
            ),
        ];
        for (theirs, ours) in pairs {
            assert_eq!(read(theirs).unwrap(), read(ours).unwrap(), "{theirs}");
        }
    }

    #[test]
    fn wrong_values_are_refused_with_their_field() {
        for (body, want) in [
            (r#"{"prompt":"a","top_logprobs":2}"#, "top_logprobs: expected logprobs = true"),
            (r#"{"prompt":"a","reasoning_effort":"much"}"#, "reasoning_effort: expected none, minimal"),
            (r#"{"prompt":"a","response_format":7}"#, "response_format: expected an object with type, found 7"),
            (
                r#"{"prompt":"a","response_format":{"type":"xml"}}"#,
                "response_format.type: expected text, json_object or json_schema, found xml",
            ),
        ] {
            let said = read(body).unwrap_err().to_string();
            assert!(said.starts_with(want), "{said}");
        }
    }
}
