//! A line of the input: what it asks for, checked but for what depends on the model.

use crate::chat::Message;
use crate::cli::followers::Rules;
use crate::cli::grammar_options::Asked;
use crate::error::{Error, Result, short};
use crate::sample::Setting;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// What to continue.
#[derive(Debug, PartialEq)]
pub enum Source {
    Text(String),
    Tokens(Vec<u32>),
    Messages(Vec<Message>),
}

/// What a line says beside its id. What it does not say is as the flags have it.
#[derive(Debug, PartialEq)]
pub struct Wanted {
    pub source: Source,
    pub max_tokens: Option<usize>,
    pub stop: Option<Vec<String>>,
    pub ignore_eos: Option<bool>,
    pub follows: Option<Follows>,
    /// Settings of the sampler, by the names that its flags have.
    pub sampling: Vec<(String, Vec<String>)>,
}

/// What a text has to follow, whatever the flags say.
#[derive(Debug, PartialEq)]
pub enum Follows {
    Rules(Asked),
    /// Not any JSON.
    NoJson,
}

/// The fields of a line, and its id where it has one.
///
/// # Errors
/// `Input`: it is no object, or has no id that tells it from others.
pub fn fields(line: &[u8]) -> Result<(Value, Map<String, Value>)> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let mut fields: Map<String, Value> = serde_json::from_slice(line).map_err(|e| {
        let text = format!("expected an object of JSON in one line, found {:?}: {e}", short(&String::from_utf8_lossy(line), 40));
        Error::input(text).hint(r#"such as {"id": 1, "prompt": "In the beginning"}"#)
    })?;
    match fields.shift_remove("id") {
        Some(id) if id.is_string() || id.is_u64() || id.is_i64() => Ok((id, fields)),
        Some(other) => Err(Error::input(format!("expected a text or a whole number as id, found {}", short(&other.to_string(), 40)))),
        None => Err(Error::input("expected an id, found none").hint("give every line an id of its own: results come in another order")),
    }
}

/// What the other fields say.
///
/// # Errors
/// `Input` and `Usage`, at the field.
pub fn wanted(fields: &Map<String, Value>) -> Result<Wanted> {
    let (mut sources, mut follows) = (Vec::new(), Vec::new());
    let (mut max_tokens, mut stop, mut ignore_eos, mut sampling) = (None, None, None, Vec::new());
    // As with OpenAI, null is as good as nothing.
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        match name.as_str() {
            "prompt" => sources.push(Source::Text(of(name, value, "a text")?)),
            "tokens" => sources.push(Source::Tokens(of(name, value, "an array of ids")?)),
            "messages" => sources.push(Source::Messages(of(name, value, "messages with role and content")?)),
            "max_tokens" => max_tokens = Some(of(name, &whole(value), "a whole number")?),
            "stop" if value.is_string() => stop = Some(vec![of(name, value, "a text")?]),
            "stop" => stop = Some(of(name, value, "a text or an array of texts")?),
            "ignore_eos" => ignore_eos = Some(of(name, value, "true or false")?),
            "grammar" => follows.push(Follows::Rules(Asked::of("grammar", Rules::Gbnf(of(name, value, "a grammar in GBNF as a text")?)))),
            "json_schema" => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                follows.push(Follows::Rules(Asked::of("json_schema", Rules::Schema(text))));
            }
            "json_object" => follows.push(match of(name, value, "true or false")? {
                true => Follows::Rules(Asked::of("json_object", Rules::Json)),
                false => Follows::NoJson,
            }),
            _ => sampling.push(setting(name, value)?),
        }
    }
    if sources.len() != 1 {
        return Err(Error::input(format!("expected one of prompt, messages and tokens, found {}", sources.len())));
    }
    // `false` is nothing to other rules.
    if follows.len() > 1 {
        follows.retain(|f| *f != Follows::NoJson);
    }
    if follows.len() > 1 {
        return Err(Error::input(format!("expected at most one of grammar, json_schema and json_object, found {}", follows.len())));
    }
    Ok(Wanted { source: sources.remove(0), max_tokens, stop, ignore_eos, follows: follows.pop(), sampling })
}

fn of<T: DeserializeOwned>(name: &str, value: &Value, expected: &str) -> Result<T> {
    T::deserialize(value).map_err(|e| Error::input(format!("expected {expected}: {e}")).at(name))
}

/// A setting of the sampler as its flag would have it.
fn setting(name: &str, value: &Value) -> Result<(String, Vec<String>)> {
    let known = Setting::named(name).map_err(|_| {
        Error::input(format!("expected a field that batch knows, found {:?}", short(name, 40))).hint(
            "id, prompt, messages, tokens, max_tokens, stop, ignore_eos, grammar, json_schema, json_object, and settings of the sampler as its \
             flags are called, such as top_p",
        )
    })?;
    let flag = known.name.to_owned();
    let texts = match value {
        Value::Array(all) if all.is_empty() && known.is_list() => Some(vec!["none".into()]),
        // Texts that break a repetition may hold any character: in an array they arrive as they are.
        Value::Array(all) if flag == "dry-breaker" => all.iter().all(Value::is_string).then(|| vec![value.to_string()]),
        Value::Array(all) if known.is_list() => all.iter().map(plain).collect(),
        Value::Object(all) if flag == "logit-bias" => all.iter().map(|(id, x)| Some(format!("{id}={}", plain(x)?))).collect(),
        one => plain(one).map(|text| vec![text]),
    };
    let text = || Error::input(format!("expected a number, a text or a list of these, found {}", short(&value.to_string(), 40))).at(name);
    Ok((flag, texts.ok_or_else(text)?))
}

/// A number or a text as text.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) => Some(whole(value).to_string()),
        _ => None,
    }
}

/// A number that is whole without its point: some write 40.0, and a count takes only 40. Beyond 2^53 nobody knows what was meant.
fn whole(value: &Value) -> Value {
    let number = value.as_f64().filter(|x| value.is_f64() && x.fract() == 0.0 && x.abs() < (1u64 << 53) as f64);
    number.map_or_else(|| value.clone(), |x| Value::from(x as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(line: &str) -> Result<(Value, Wanted)> {
        let (id, fields) = fields(line.as_bytes())?;
        Ok((id, wanted(&fields)?))
    }

    #[test]
    fn a_line_says_what_it_wants() {
        let line = r#"{"id":"a","prompt":"x","max_tokens":3,"stop":"\n","ignore_eos":true,"top_p":0.5,"temp":0,"ban":[1,2],"seed":null,
            "logit_bias":{"7":-1.5,"8":"-inf"},"dry_breaker":["\n","\\n"],"sampler_order":"hf"}"#;
        let (id, wanted) = read(line).unwrap();
        assert_eq!((id, wanted.source), (json!("a"), Source::Text("x".into())));
        assert_eq!((wanted.max_tokens, wanted.stop, wanted.ignore_eos), (Some(3), Some(vec!["\n".into()]), Some(true)));
        let settings: Vec<(&str, Vec<&str>)> =
            wanted.sampling.iter().map(|(name, values)| (name.as_str(), values.iter().map(String::as_str).collect())).collect();
        let expected: [(&str, Vec<&str>); 6] = [
            ("top-p", vec!["0.5"]),
            ("temperature", vec!["0"]),
            ("ban", vec!["1", "2"]),
            ("logit-bias", vec!["7=-1.5", "8=-inf"]),
            ("dry-breaker", vec![r#"["\n","\\n"]"#]),
            ("sampler-order", vec!["hf"]),
        ];
        assert_eq!(settings, expected);
        let (id, wanted) = read(r#"{"id":-7,"messages":[{"role":"user","content":"x"}],"stop":["a","b"]}"#).unwrap();
        assert_eq!((id, wanted.source), (json!(-7), Source::Messages(vec![Message::user("x")])));
        let line = r#"{"id":1,"prompt":"x","max_tokens":40.0,"seed":1.0,"top_k":5.0,"temperature":1.5,"dry_breaker":"none","ban":[]}"#;
        let wanted = read(line).unwrap().1;
        let settings: Vec<(&str, &str)> = wanted.sampling.iter().map(|(name, values)| (name.as_str(), values[0].as_str())).collect();
        let expected = [("seed", "1"), ("top-k", "5"), ("temperature", "1.5"), ("dry-breaker", "none"), ("ban", "none")];
        assert_eq!((wanted.max_tokens, settings.as_slice()), (Some(40), expected.as_slice()));
        assert_eq!(read(r#"{"id":1,"tokens":[1,2]}"#).unwrap().1.source, Source::Tokens(vec![1, 2]));
    }

    #[test]
    fn a_line_says_what_its_text_has_to_follow() {
        let schema = |text: &str| Some(Follows::Rules(Asked::of("json_schema", Rules::Schema(text.into()))));
        for (fields, want) in [
            (r#""grammar":null"#, None),
            (r#""grammar":"root ::= \"a\"""#, Some(Follows::Rules(Asked::of("grammar", Rules::Gbnf(r#"root ::= "a""#.into()))))),
            // Properties come in the order of the schema.
            (r#""json_schema":{"properties":{"b":1,"a":2}}"#, schema(r#"{"properties":{"b":1,"a":2}}"#)),
            (r#""json_schema":" {\"properties\": {}}","json_object":false"#, schema(r#" {"properties": {}}"#)),
            (r#""json_object":true"#, Some(Follows::Rules(Asked::of("json_object", Rules::Json)))),
            (r#""json_object":false"#, Some(Follows::NoJson)),
        ] {
            assert_eq!(read(&format!(r#"{{"id":1,"prompt":"x",{fields}}}"#)).unwrap().1.follows, want, "{fields}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        for (line, want) in [
            ("{", "expected an object of JSON in one line, found \"{\""),
            ("[1]", "expected an object of JSON"),
            (r#"{"prompt":"x"}"#, "expected an id, found none"),
            (r#"{"id":1.5,"prompt":"x"}"#, "expected a text or a whole number as id, found 1.5"),
            (r#"{"id":1}"#, "expected one of prompt, messages and tokens, found 0"),
            (r#"{"id":1,"prompt":"x","tokens":[1]}"#, "expected one of prompt, messages and tokens, found 2"),
            (r#"{"id":1,"prompt":7}"#, "prompt: expected a text"),
            (r#"{"id":1,"tokens":[-1]}"#, "tokens: expected an array of ids"),
            (r#"{"id":1,"messages":[{"role":"user","content":7}]}"#, "messages: expected messages with role and content"),
            (r#"{"id":1,"prompt":"x","max_tokens":-1}"#, "max_tokens: expected a whole number"),
            (r#"{"id":1,"prompt":"x","temprature":1}"#, "expected a field that batch knows, found \"temprature\""),
            (r#"{"id":1,"prompt":"x","max_tokens":1.5}"#, "max_tokens: expected a whole number"),
            (r#"{"id":1,"prompt":"x","dry_breaker":[1]}"#, "dry_breaker: expected a number, a text or a list of these, found [1]"),
            (r#"{"id":1,"prompt":"x","dry_breaker":[["a"]]}"#, "dry_breaker: expected a number"),
            (r#"{"id":1,"prompt":"x","top_p":true}"#, "top_p: expected a number, a text or a list of these, found true"),
            (r#"{"id":1,"prompt":"x","grammar":["a"]}"#, "grammar: expected a grammar in GBNF as a text"),
            (r#"{"id":1,"prompt":"x","json_object":"yes"}"#, "json_object: expected true or false"),
            (
                r#"{"id":1,"prompt":"x","grammar":"","json_schema":{}}"#,
                "expected at most one of grammar, json_schema and json_object, found 2",
            ),
            (r#"{"id":1,"prompt":"x","logit_bias":{"1":[]}}"#, "logit_bias: expected a number"),
        ] {
            let said = read(line).unwrap_err().to_string();
            assert!(said.starts_with(want), "{line}: {said}");
        }
    }
}
