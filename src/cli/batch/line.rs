//! A line of the input: its id, and the request of its other fields.

use crate::engine::{Fields, Request};
use crate::error::{Error, Result, short};
use serde::Deserialize;
use serde_json::{Number, Value};

/// The fields of a line, and its id.
///
/// # Errors
/// `Input`: it is no object, or has no id that tells it from others.
pub fn fields(line: &[u8]) -> Result<(Value, Fields<'_>)> {
    let mut fields = Fields::read(line).map_err(|e| e.hint(r#"such as {"id": 1, "prompt": "In the beginning"}"#))?;
    match fields.take("id") {
        Some(id) => match serde_json::from_str::<Id>(id) {
            Ok(Id::Text(text)) => Ok((text.into(), fields)),
            Ok(Id::Whole(number)) if number.is_u64() || number.is_i64() => Ok((number.into(), fields)),
            _ => Err(Error::input(format!("expected a text or a whole number as id, found {}", short(id, 40)))),
        },
        None => Err(Error::input("expected an id, found none").hint("give every line an id of its own: results come in another order")),
    }
}

/// What tells a line from others.
#[derive(Deserialize)]
#[serde(untagged)]
enum Id {
    Text(String),
    Whole(Number),
}

/// Fields that a request has and a line has not: all lines begin alike and wait their turn.
const NOT_IN_LINES: [&str; 4] = ["priority", "no_cache", "state", "save_state"];

/// The request of the other fields.
///
/// # Errors
/// `Input` and `Usage`, at the field.
pub fn request(fields: &Fields<'_>) -> Result<Request> {
    let (request, unknown) = Request::read(fields)?;
    let other = fields.iter().map(|(name, _)| name).find(|name| NOT_IN_LINES.contains(name) || unknown.iter().any(|other| other == name));
    match other {
        None => Ok(request),
        Some(name) => Err(Error::input(format!("expected a field that batch knows, found {:?}", short(name, 40))).hint(
            "id, prompt, messages, tokens, tools, format, thinking, n, logprobs, echo, max_tokens, stop, ignore_eos, grammar, json_schema, json_object, json_value, close, and settings of \
             the sampler as its flags are called, such as top_p",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(line: &str) -> Result<(Value, Request)> {
        let (id, fields) = fields(line.as_bytes())?;
        Ok((id, request(&fields)?))
    }

    #[test]
    fn a_line_is_an_id_and_a_request() {
        let (id, request) = read(r#"{"id":"a","prompt":"x","max_tokens":3}"#).unwrap();
        assert_eq!((id, request), (json!("a"), Request::text("x").max_tokens(3)));
        assert_eq!(read(r#"{"id":-7,"tokens":[1]}"#).unwrap().0, json!(-7));
        assert_eq!(read(r#"{"id":1,"id":2,"prompt":"x"}"#).unwrap().0, json!(2), "the second counts");
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        for (line, want) in [
            ("{", "expected an object of JSON, found \"{\""),
            (r#"{"prompt":"x"}"#, "expected an id, found none"),
            (r#"{"id":1.5,"prompt":"x"}"#, "expected a text or a whole number as id, found 1.5"),
            (r#"{"id":[[1]],"prompt":"x"}"#, "expected a text or a whole number as id, found [[1]]"),
            (r#"{"id":1}"#, "expected one of prompt, messages and tokens, found 0"),
            (r#"{"id":1,"prompt":7}"#, "prompt: expected a text"),
            (r#"{"id":1,"prompt":"x","temprature":1}"#, "expected a field that batch knows, found \"temprature\""),
            (r#"{"id":1,"prompt":"x","priority":2}"#, "expected a field that batch knows, found \"priority\""),
        ] {
            let said = read(line).unwrap_err().to_string();
            assert!(said.starts_with(want), "{line}: {said}");
        }
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert!(read(&format!("{{\"id\":{deep},\"prompt\":\"x\"}}")).is_err());
    }
}
