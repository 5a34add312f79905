//! Parses a line of the input: its id, and a request from its other fields.

use crate::cli::resume::Id;
use crate::engine::{Fields, Request};
use crate::error::{Error, Result, short};

/// Returns the id of a line and its other fields. The values of these fields stay JSON text.
///
/// # Errors
/// `Input` if the line is not an object, or if its id is missing or wrong.
pub fn fields(line: &[u8]) -> Result<(Id, Fields<'_>)> {
    let mut fields =
        Fields::read(line).map_err(|e| e.hint(r#"write one object per line, such as {"id": 1, "prompt": "In the beginning"}"#))?;
    match fields.take("id") {
        Some(id) => Ok((Id::read(id).map_err(|e| e.field("id"))?, fields)),
        None => Err(Error::input("the field id is missing").field("id").hint("give every line a unique id, which names its result")),
    }
}

/// Fields of a request that an input line must not contain. All lines have the same priority and begin with the state that `--state` names.
const NOT_IN_LINES: [&str; 5] = ["priority", "no_cache", "state", "save_state", "pooling"];

/// Returns the request that the fields of a line describe.
///
/// # Errors
/// `Input` or `Usage` if a field is unknown or its value is wrong. The error names the field.
pub fn request(fields: &Fields<'_>) -> Result<Request> {
    let (request, unknown) = Request::read(fields)?;
    let other = fields.iter().map(|(name, _)| name).find(|name| NOT_IN_LINES.contains(name) || unknown.iter().any(|other| other == name));
    match other {
        None => Ok(request),
        Some(name) => Err(Error::input(format!("unknown field {:?}", short(name, 40))).hint(
            "known fields: id, prompt, messages, tokens, tools, tool_choice, format, thinking, add_bos, n, logprobs, echo, max_tokens, stop, ignore_eos, \
             grammar, json_schema, json_object, json_value, close, and sampling settings such as top_p",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<(String, Request)> {
        let (id, fields) = fields(line.as_bytes())?;
        Ok((id.to_string(), request(&fields)?))
    }

    #[test]
    fn a_line_is_an_id_and_a_request() {
        let (id, request) = read(r#"{"id":"a","prompt":"x","max_tokens":3}"#).unwrap();
        assert_eq!((id, request), ("\"a\"".into(), Request::text("x").max_tokens(3)));
        assert_eq!(read(r#"{"id":-7,"tokens":[1]}"#).unwrap().0, "-7");
    }

    #[test]
    fn a_wrong_line_is_refused_with_its_error() {
        for (line, want) in [
            ("{", "invalid JSON, found \"{\""),
            (r#"{"prompt":"x"}"#, "id: the field id is missing"),
            (r#"{"id":1,"id":2,"prompt":"x"}"#, "the field \"id\" is given twice"),
            (r#"{"id":1.5,"prompt":"x"}"#, "id: expected a string or a whole number, found 1.5"),
            (r#"{"id":1}"#, "expected exactly one of the fields prompt, messages and tokens, found none of them"),
            (r#"{"id":1,"prompt":7}"#, "prompt: expected a string, found 7"),
            (r#"{"id":1,"prompt":"x","temprature":1}"#, "unknown field \"temprature\""),
            (r#"{"id":1,"prompt":"x","priority":2}"#, "unknown field \"priority\""),
        ] {
            let said = read(line).unwrap_err().to_string();
            assert!(said.starts_with(want), "{line}: {said}");
        }
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert!(read(&format!("{{\"id\":{deep},\"prompt\":\"x\"}}")).is_err());
    }
}
