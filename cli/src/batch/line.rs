//! Parses a line of the input: its id, and a request from its other fields.

use crate::resume::Id;
use wingbeat::engine::{Fields, Request};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::front_end::short;
use wingbeat::low_level::sample::Setting;

/// The form that all lines of an input have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Each line is an object.
    Objects,
    /// Each line is a prompt. Its id is its number.
    Prompts,
}

/// The content of an input line, without the id: the fields of an object, or a prompt.
pub enum InputLine<'a> {
    Fields(Fields<'a>),
    Prompt(&'a str),
}

impl Form {
    /// Returns the form of an input whose first line with text is `line`. A line that begins as JSON does (`{`, `[` or `"`) counts as an object.
    /// Otherwise broken JSON would silently become a prompt.
    pub fn of(line: &[u8]) -> Form {
        let first = line.trim_ascii().strip_prefix(b"\xef\xbb\xbf").unwrap_or(line.trim_ascii()).first();
        if first.is_some_and(|first| !b"{[\"".contains(first)) { Form::Prompts } else { Form::Objects }
    }

    /// Returns the id and the content of line number `number`.
    ///
    /// # Errors
    /// `Input` if the line does not have this form, or if its id is missing or wrong.
    pub fn read(self, line: &[u8], number: u64) -> Result<(Id, InputLine<'_>)> {
        match self {
            Form::Objects => fields(line).map(|(id, fields)| (id, InputLine::Fields(fields))),
            Form::Prompts => {
                let text = std::str::from_utf8(line).map_err(|_| Error::input("expected text in UTF-8, found other bytes"))?;
                Ok((Id::read(&number.to_string())?, InputLine::Prompt(text.trim_end_matches('\r'))))
            }
        }
    }
}

impl InputLine<'_> {
    /// Returns the request that the line describes.
    ///
    /// # Errors
    /// `Input` or `Usage` if a field is unknown or its value is wrong. The error names the field.
    pub fn request(&self) -> Result<Request> {
        match self {
            InputLine::Fields(fields) => request(fields),
            InputLine::Prompt(text) => Ok(Request::text(*text)),
        }
    }
}

/// Returns the id of a line and its other fields. The values of these fields stay JSON text. A line of OpenAI's batch files has its fields in
/// `body`.
///
/// # Errors
/// `Input` if the line is not an object, or if its id is missing or wrong.
pub fn fields(line: &[u8]) -> Result<(Id, Fields<'_>)> {
    let mut fields =
        Fields::read(line).map_err(|e| in_line(e).hint(r#"write one object per line, such as {"id": 1, "prompt": "Once upon a time"}"#))?;
    if let Some(id) = fields.take("custom_id") {
        return Ok((Id::read(id).map_err(|e| e.field("custom_id"))?, of_body(fields)?));
    }
    match fields.take("id") {
        Some(id) => Ok((Id::read(id).map_err(|e| e.field("id"))?, fields)),
        None => Err(Error::input("the field id is missing").field("id").hint("give every line a unique id, which names its result")),
    }
}

/// Returns an error about one line without the line number of this text, because the caller adds the number of the line in the file.
fn in_line(mut e: Error) -> Error {
    e.message = e.message.replace("(line 1, column ", "(column ");
    e
}

/// Returns the fields of the body in a line of OpenAI's batch files, with the names that wingbeat's lines have.
///
/// # Errors
/// `Input` if the line is not for chat or for completions, or if the body is missing or wrong.
fn of_body(mut line: Fields<'_>) -> Result<Fields<'_>> {
    if let Some(url) = line.take("url").filter(|url| !matches!(*url, r#""/v1/chat/completions""# | r#""/v1/completions""#)) {
        let text = format!("expected /v1/chat/completions or /v1/completions, found {}", short(url, 60));
        return Err(Error::input(text).field("url"));
    }
    let body = line.take("body").ok_or_else(|| Error::input("the field body is missing").field("body"))?;
    let mut fields = Fields::read(body.as_bytes()).map_err(|e| e.field("body"))?;
    fields.of_openai()?;
    Ok(fields)
}

/// Request fields that an input line must not contain. All lines have the same priority and begin with the state of `--state`. `pooling` would
/// request a vector instead of a text.
const NOT_IN_LINES: [&str; 5] = ["priority", "no_cache", "state", "save_state", "pooling"];

/// The fields of a line, besides sampling settings.
const KNOWN: [&str; 23] = [
    "id",
    "prompt",
    "messages",
    "tokens",
    "tools",
    "tool_choice",
    "format",
    "thinking",
    "add_bos",
    "n",
    "logprobs",
    "echo",
    "max_tokens",
    "stop",
    "ignore_eos",
    "grammar",
    "json_schema",
    "json_object",
    "json_value",
    "close",
    "speculate",
    "draft",
    "draft_tokens",
];

/// Returns the field whose name is most similar to `name`, or `None` if no name is similar enough.
fn similar(name: &str) -> Option<String> {
    let settings = Setting::all().iter().map(|setting| setting.name.replace('-', "_"));
    let all = KNOWN.iter().map(|known| (*known).to_owned()).chain(settings);
    let likeness = all.map(|known| (strsim::jaro_winkler(&known, name), known)).filter(|(likeness, _)| *likeness > 0.9);
    likeness.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, known)| known)
}

/// Returns the request that the fields of a line describe.
///
/// # Errors
/// `Input` or `Usage` if a field is unknown or its value is wrong. The error names the field.
pub fn request(fields: &Fields<'_>) -> Result<Request> {
    let (request, unknown) = Request::read(fields)?;
    let other = fields.iter().map(|(name, _)| name).find(|name| NOT_IN_LINES.contains(name) || unknown.iter().any(|other| other == name));
    match other {
        None => Ok(request),
        Some(name) => {
            let known = || format!("known fields: {}, and sampling settings such as top_p", KNOWN.join(", "));
            let hint = similar(name).map_or_else(known, |similar| format!("a similar field is {similar}"));
            Err(Error::input(format!("unknown field {:?}", short(name, 40))).hint(hint))
        }
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
    fn a_line_of_openai_is_its_body() {
        let line = r#"{"custom_id":"r-1","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o","messages":
            [{"role":"user","content":"hi"}],"max_completion_tokens":3,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"null"}}}}}"#;
        let (id, request) = read(line).unwrap();
        let want =
            read(r#"{"id":"r-1","messages":[{"role":"user","content":"hi"}],"max_tokens":3,"json_schema":{"type":"null"}}"#).unwrap();
        assert_eq!((id, request), want);
        for (line, want) in [
            (r#"{"custom_id":"a"}"#, "body: the field body is missing"),
            (r#"{"custom_id":"a","url":"/v1/embeddings","body":{}}"#, "url: expected /v1/chat/completions or"),
            (r#"{"custom_id":"a","body":{"prompt":"x","temprature":1}}"#, "unknown field \"temprature\""),
        ] {
            let said = read(line).unwrap_err().to_string();
            assert!(said.starts_with(want), "{line}: {said}");
        }
    }

    #[test]
    fn lines_of_plain_text_are_prompts() {
        assert_eq!(
            ["In the", " {\"id\":1}", "[1]", "\"a\"", "\u{feff}{", "7"].map(|line| Form::of(line.as_bytes()) == Form::Prompts),
            [true, false, false, false, false, true]
        );
        let (id, line) = Form::Prompts.read(b"Once upon a time\r", 4).unwrap();
        assert_eq!((id.to_string().as_str(), line.request().unwrap()), ("4", Request::text("Once upon a time")));
        assert!(Form::Prompts.read(b"\xff", 1).is_err());
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
