//! A line of the input: what it asks for, checked but for what depends on the model.

use crate::chat::Message;
use crate::cli::grammar_options::Asked;
use crate::cli::limit::max_tokens;
use crate::engine::Rules;
use crate::error::{Error, Result, short};
use crate::sample::Setting;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Number, Value};
use std::fmt;

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
    /// Whether a text that runs out of tokens is closed.
    pub close: Option<bool>,
    /// Settings of the sampler, by the names that its flags have.
    pub sampling: Vec<(String, Vec<String>)>,
}

/// What a text has to follow, whatever the flags say.
#[derive(Debug, PartialEq)]
pub enum Follows {
    Rules(Asked),
    /// No JSON object.
    NoObject,
    /// No JSON value.
    NoValue,
}

/// The largest value of a setting: a list of every id of a vocabulary has less.
const MAX_SETTING_BYTES: usize = 2 << 20;

/// Fields of a line, by name, as they were written. A field is read when its type is known: a tree of a hostile one would take many times its
/// size.
pub struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Fields<'de>, A::Error> {
                let mut found: Vec<(String, &RawValue)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    // Of two fields with one name the second counts, as for most readers of JSON.
                    found.retain(|(known, _)| *known != name);
                    found.push((name, value));
                    if found.len() > MAX_FIELDS {
                        return Err(serde::de::Error::custom(format_args!("more than {MAX_FIELDS} fields")));
                    }
                }
                Ok(Fields(found))
            }
        }
        from.deserialize_map(Object)
    }
}

/// Fields of a line, at most: there are fewer settings.
const MAX_FIELDS: usize = 100;

/// The fields of a line, and its id where it has one.
///
/// # Errors
/// `Input`: it is no object, or has no id that tells it from others.
pub fn fields(line: &[u8]) -> Result<(Value, Fields<'_>)> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let mut fields: Fields<'_> = serde_json::from_slice(line).map_err(|e| {
        let text = format!("expected an object of JSON in one line, found {:?}: {e}", short(&String::from_utf8_lossy(line), 40));
        Error::input(text).hint(r#"such as {"id": 1, "prompt": "In the beginning"}"#)
    })?;
    let at = fields.0.iter().position(|(name, _)| name == "id");
    match at.map(|at| fields.0.remove(at).1) {
        Some(id) => match serde_json::from_str::<Id>(id.get()) {
            Ok(Id::Text(text)) => Ok((text.into(), fields)),
            Ok(Id::Whole(number)) if number.is_u64() || number.is_i64() => Ok((number.into(), fields)),
            _ => Err(Error::input(format!("expected a text or a whole number as id, found {}", short(id.get(), 40)))),
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

/// What the other fields say.
///
/// # Errors
/// `Input` and `Usage`, at the field.
pub fn wanted(fields: &Fields<'_>) -> Result<Wanted> {
    let (mut sources, mut follows) = (Vec::new(), Vec::new());
    let (mut max_tokens, mut stop, mut ignore_eos, mut close, mut sampling) = (None, None, None, None, Vec::new());
    // As with OpenAI, null is as good as nothing.
    for (name, value) in fields.0.iter().map(|(name, value)| (name, value.get())).filter(|(_, value)| *value != "null") {
        match name.as_str() {
            "prompt" => sources.push(Source::Text(of(name, value, "a text")?)),
            "tokens" => sources.push(Source::Tokens(of(name, value, "an array of ids")?)),
            "messages" => sources.push(Source::Messages(of(name, value, "messages with role and content")?)),
            "max_tokens" => max_tokens = Some(limit(name, value)?),
            "stop" if is_text(value) => stop = Some(vec![of(name, value, "a text")?]),
            "stop" => stop = Some(of(name, value, "a text or an array of texts")?),
            "ignore_eos" => ignore_eos = Some(of(name, value, "true or false")?),
            "grammar" => follows.push(Follows::Rules(Asked::of("grammar", Rules::Gbnf(of(name, value, "a grammar in GBNF as a text")?)))),
            "json_schema" => {
                let text = if is_text(value) { of(name, value, "a schema")? } else { value.to_owned() };
                follows.push(Follows::Rules(Asked::of("json_schema", Rules::Schema(text))));
            }
            "json_object" => follows.push(match of(name, value, "true or false")? {
                true => Follows::Rules(Asked::of("json_object", Rules::Object)),
                false => Follows::NoObject,
            }),
            "json_value" => follows.push(match of(name, value, "true or false")? {
                true => Follows::Rules(Asked::of("json_value", Rules::Value)),
                false => Follows::NoValue,
            }),
            "close" => close = Some(of(name, value, "true or false")?),
            _ => sampling.push(setting(name, value)?),
        }
    }
    if sources.len() != 1 {
        return Err(Error::input(format!("expected one of prompt, messages and tokens, found {}", sources.len())));
    }
    // `false` is nothing to other rules.
    if follows.len() > 1 {
        follows.retain(|f| matches!(f, Follows::Rules(_)));
    }
    if follows.len() > 1 {
        let text = format!("expected at most one of grammar, json_schema, json_object and json_value, found {}", follows.len());
        return Err(Error::input(text));
    }
    Ok(Wanted { source: sources.remove(0), max_tokens, stop, ignore_eos, follows: follows.pop(), close, sampling })
}

fn of<T: DeserializeOwned>(name: &str, value: &str, expected: &str) -> Result<T> {
    serde_json::from_str(value).map_err(|e| {
        // The place in the value is not that in the line.
        let said = e.to_string();
        let said = said.rsplit_once(" at line ").map_or(said.as_str(), |(said, _)| said);
        Error::input(format!("expected {expected}: {said}")).at(name)
    })
}

fn is_text(value: &str) -> bool {
    value.starts_with('"')
}

/// Returns the number of tokens that the field allows; -1 is no limit.
fn limit(name: &str, value: &str) -> Result<usize> {
    let number = serde_json::from_str::<Number>(value).ok().map(|number| whole(&Value::Number(number)).to_string());
    let expected = || Error::input(format!("expected a whole number, or -1 for no limit, found {}", short(value, 40))).at(name);
    number.and_then(|number| max_tokens(&number).ok()).ok_or_else(expected)
}

/// A setting of the sampler as its flag would have it.
fn setting(name: &str, value: &str) -> Result<(String, Vec<String>)> {
    let known = Setting::named(name).map_err(|_| {
        Error::input(format!("expected a field that batch knows, found {:?}", short(name, 40))).hint(
            "id, prompt, messages, tokens, max_tokens, stop, ignore_eos, grammar, json_schema, json_object, json_value, close, and settings of \
             the sampler as its flags are called, such as top_p",
        )
    })?;
    if value.len() > MAX_SETTING_BYTES {
        return Err(Error::input(format!("expected a value of at most {MAX_SETTING_BYTES} bytes, found {}", value.len())).at(name));
    }
    let flag = known.name.to_owned();
    let value = &of::<Value>(name, value, "a number, a text or a list of these")?;
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
        let wanted = read(r#"{"id":1,"prompt":"x","max_tokens":-1,"seed":-1}"#).unwrap().1;
        assert_eq!((wanted.max_tokens, wanted.sampling), (Some(usize::MAX), vec![("seed".into(), vec!["-1".into()])]));
        assert_eq!(read(r#"{"id":1,"tokens":[1,2]}"#).unwrap().1.source, Source::Tokens(vec![1, 2]));
    }

    #[test]
    fn hostile_lines_are_refused() {
        let many: Vec<String> = (0..1000).map(|i| format!("\"f{i}\":0")).collect();
        let said = |line: &str| read(line).unwrap_err().to_string();
        assert!(said(&format!("{{\"id\":1,{}}}", many.join(","))).contains("more than 100 fields"));
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        for field in ["prompt", "messages", "tokens", "stop", "max_tokens", "top_p", "json_object", "id"] {
            said(&format!("{{\"id\":1,\"prompt\":\"x\",\"{field}\":{deep}}}"));
        }
        let long = format!("{{\"id\":1,\"prompt\":\"x\",\"ban\":[{}0]}}", "0,".repeat(MAX_SETTING_BYTES / 2));
        assert!(said(&long).contains("ban: expected a value of at most"));
        assert_eq!(read(r#"{"id":1,"id":2,"prompt":"x","max_tokens":9223372036854775808}"#).unwrap().0, json!(2));
        assert_eq!(read(r#"{"id":2,"prompt":"x","max_tokens":9223372036854775808}"#).unwrap().1.max_tokens, Some(1 << 63));
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
            (r#""json_object":true"#, Some(Follows::Rules(Asked::of("json_object", Rules::Object)))),
            (r#""json_object":false"#, Some(Follows::NoObject)),
            (r#""json_value":true,"json_object":false"#, Some(Follows::Rules(Asked::of("json_value", Rules::Value)))),
            (r#""json_value":false"#, Some(Follows::NoValue)),
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
            (r#"{"id":[[1]],"prompt":"x"}"#, "expected a text or a whole number as id, found [[1]]"),
            (r#"{"id":1,"prompt":"x","max_tokens":18446744073709551616}"#, "max_tokens: expected a whole number, or -1 for no limit"),
            (r#"{"id":1,"prompt":"x","max_tokens":"9"}"#, "max_tokens: expected a whole number, or -1 for no limit, found \"9\""),
            (r#"{"id":1,"prompt":"x\ud800"}"#, "prompt: expected a text: "),
            (r#"{"id":1}"#, "expected one of prompt, messages and tokens, found 0"),
            (r#"{"id":1,"prompt":"x","tokens":[1]}"#, "expected one of prompt, messages and tokens, found 2"),
            (r#"{"id":1,"prompt":7}"#, "prompt: expected a text"),
            (r#"{"id":1,"tokens":[-1]}"#, "tokens: expected an array of ids"),
            (r#"{"id":1,"messages":[{"role":"user","content":7}]}"#, "messages: expected messages with role and content"),
            (r#"{"id":1,"prompt":"x","max_tokens":-2}"#, "max_tokens: expected a whole number, or -1 for no limit, found -2"),
            (r#"{"id":1,"prompt":"x","max_tokens":"7"}"#, "max_tokens: expected a whole number"),
            (r#"{"id":1,"prompt":"x","temprature":1}"#, "expected a field that batch knows, found \"temprature\""),
            (r#"{"id":1,"prompt":"x","max_tokens":1.5}"#, "max_tokens: expected a whole number"),
            (r#"{"id":1,"prompt":"x","dry_breaker":[1]}"#, "dry_breaker: expected a number, a text or a list of these, found [1]"),
            (r#"{"id":1,"prompt":"x","dry_breaker":[["a"]]}"#, "dry_breaker: expected a number"),
            (r#"{"id":1,"prompt":"x","top_p":true}"#, "top_p: expected a number, a text or a list of these, found true"),
            (r#"{"id":1,"prompt":"x","grammar":["a"]}"#, "grammar: expected a grammar in GBNF as a text"),
            (r#"{"id":1,"prompt":"x","close":1}"#, "close: expected true or false"),
            (r#"{"id":1,"prompt":"x","json_object":"yes"}"#, "json_object: expected true or false"),
            (
                r#"{"id":1,"prompt":"x","grammar":"","json_schema":{}}"#,
                "expected at most one of grammar, json_schema, json_object and json_value, found 2",
            ),
            (r#"{"id":1,"prompt":"x","logit_bias":{"1":[]}}"#, "logit_bias: expected a number"),
        ] {
            let said = read(line).unwrap_err().to_string();
            assert!(said.starts_with(want), "{line}: {said}");
        }
    }
}
