//! Reads a request from the fields of a JSON object.

use super::super::wire::{is_text, nested, of, plain, whole_number};
use super::super::{Fields, Rules};
use super::{Follows, Input, MAX_LOGPROBS, MAX_N, Request, ToolChoice, UNLIMITED};
use crate::chat::{Thinking, Tool};
use crate::error::{Error, Result, short};
use crate::sample::{Sampling, Setting};
use crate::session::{MAX_GUESSES, Pooling, Speculate};
use serde_json::Value;
use std::ops::RangeInclusive;

/// The maximum size of a sampler setting's value, in bytes. Even a list of all ids of a vocabulary is shorter.
pub(super) const MAX_SETTING_BYTES: usize = 2 << 20;

impl Request {
    /// Converts the fields of a JSON object to a request. Also returns the names of unknown fields. The caller decides whether unknown fields are
    /// an error.
    ///
    /// # Errors
    /// `Input` or `Usage`. If a single field is wrong, the error names this field.
    pub fn read(fields: &Fields<'_>) -> Result<(Request, Vec<String>)> {
        let mut inputs = Vec::new();
        let (mut request, unknown) = Self::read_into(&mut inputs, fields)?;
        if inputs.len() != 1 {
            let text = "expected exactly one of the fields prompt, messages and tokens, found";
            return Err(match (inputs.is_empty(), unknown.first()) {
                (true, Some(other)) => Error::input(format!("{text} none of them, but the unknown field {:?}", short(other, 40))),
                (true, None) => Error::input(format!("{text} none of them")),
                _ => Error::input(format!("{text} several of them")),
            });
        }
        request.input = inputs.remove(0);
        Ok((request, unknown))
    }

    /// Does what [`read`](Self::read) does, but takes the input as an argument. The fields must not contain `prompt`, `messages` or `tokens`.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    pub fn read_settings(input: Input, fields: &Fields<'_>) -> Result<(Request, Vec<String>)> {
        let mut inputs = Vec::new();
        let (request, unknown) = Self::read_into(&mut inputs, fields)?;
        match inputs.is_empty() {
            true => Ok((Request { input, ..request }, unknown)),
            false => Err(Error::input("expected settings without prompt, messages and tokens")),
        }
    }

    fn read_into(inputs: &mut Vec<Input>, fields: &Fields<'_>) -> Result<(Request, Vec<String>)> {
        let (mut follows, mut unknown) = (Vec::new(), Vec::new());
        let mut request = Request::text("");
        for (name, value) in fields.iter() {
            match name {
                "prompt" => inputs.push(Input::Text(of(name, value, "a string")?)),
                "tokens" => inputs.push(Input::Tokens(ids(name, value)?)),
                "messages" => {
                    let has_earlier = fields.get("state").is_some();
                    inputs.push(Input::Messages(super::messages::read(name, value, has_earlier)?));
                }
                "max_tokens" => request.max_tokens = Some(limit(name, value)?),
                "min_tokens" => request.min_tokens = count(name, value, 0..=usize::MAX)?,
                "bad_words" => request.bad_words = strings(name, value, "an array of strings")?,
                "allowed_token_ids" => request.allowed_token_ids = Some(ids(name, value)?),
                "stop" if is_text(value) => request.stop = Some(vec![of(name, value, "a string")?]),
                "stop" => request.stop = Some(strings(name, value, "a string or an array of strings")?),
                "stop_token_ids" => request.stop_token_ids = ids(name, value)?,
                "ignore_eos" => request.ignore_eos = Some(of(name, value, "true or false")?),
                "grammar" => follows.push(Follows::Rules(Rules::Gbnf(of(name, value, "a string with a GBNF grammar")?))),
                "json_schema" => {
                    let text = if is_text(value) { of(name, value, "a schema")? } else { value.to_owned() };
                    follows.push(Follows::Rules(Rules::Schema(text)));
                }
                "regex" => follows.push(Follows::Rules(Rules::Regex(of(name, value, "a string with a regular expression")?))),
                "choice" => follows.push(Follows::Rules(Rules::Choice(choice(name, value)?))),
                "json_object" => follows.push(match of(name, value, "true or false")? {
                    true => Follows::Rules(Rules::Object),
                    false => Follows::NoObject,
                }),
                "json_value" => follows.push(match of(name, value, "true or false")? {
                    true => Follows::Rules(Rules::Value),
                    false => Follows::NoValue,
                }),
                "close" => request.close = Some(of(name, value, "true or false")?),
                "echo" => request.echo = of(name, value, "true or false")?,
                "return_progress" => request.return_progress = of(name, value, "true or false")?,
                "format" => request.format = Some(of(name, value, "the name of a chat format")?),
                "thinking" => {
                    request.thinking = Some(of::<String>(name, value, Thinking::expected())?.parse().map_err(|e: Error| e.field(name))?)
                }
                "user_name" => request.user_name = Some(of(name, value, "a name")?),
                "assistant_name" => request.assistant_name = Some(of(name, value, "a name")?),
                "continue_final_message" => request.continue_final_message = Some(of(name, value, "true or false")?),
                "add_bos" => request.add_bos = Some(of(name, value, "true or false")?),
                "parse_special" => request.parse_special = Some(of(name, value, "true or false")?),
                "pooling" => {
                    request.pooling = Some(match of::<String>(name, value, "last or mean")?.as_str() {
                        "last" => Pooling::Last,
                        "mean" => Pooling::Mean,
                        other => return Err(Error::input(format!("expected last or mean, found {:?}", short(other, 40))).field(name)),
                    });
                }
                "tools" => request.tools = tools(name, value)?,
                "tool_choice" => request.tool_choice = Some(tool_choice(name, value)?),
                "speculate" => {
                    request.speculate = Some(of::<String>(name, value, Speculate::EXPECTED)?.parse().map_err(|e: Error| e.field(name))?);
                }
                "draft" => request.draft = Some(of(name, value, "the name of a draft model")?),
                "draft_tokens" => request.draft_tokens = Some(count(name, value, 1..=MAX_GUESSES)?),
                "state" => request.state = Some(of(name, value, "the name of a state")?),
                "save_state" => request.save_state = Some(of(name, value, "a name for the state")?),
                "n" => request.n = count(name, value, 1..=MAX_N)?,
                "logprobs" => request.logprobs = Some(count(name, value, 0..=MAX_LOGPROBS)?),
                "no_cache" => request.no_cache = of(name, value, "true or false")?,
                "priority" => request.priority = of(name, value, "a whole number")?,
                _ => match Setting::named(name) {
                    Ok(known) => request.sampling.push(setting(known, name, value)?),
                    Err(_) => unknown.push(name.to_owned()),
                },
            }
        }
        // A field with the value `false` removes default rules, so it does not conflict with a field that sets rules.
        if follows.len() > 1 {
            follows.retain(|f| matches!(f, Follows::Rules(_)));
        }
        if follows.len() > 1 {
            let text = format!(
                "expected at most one of the fields grammar, json_schema, regex, choice, json_object and json_value, found {} of them",
                follows.len()
            );
            return Err(Error::input(text));
        }
        request.follows = follows.pop();
        Ok((request, unknown))
    }
}

/// Reads an array of token ids. An error names the first wrong element, as in `tokens[3]`.
fn ids(name: &str, value: &str) -> Result<Vec<u32>> {
    let is_id = |found: &Value| found.as_u64().is_some_and(|n| u32::try_from(n).is_ok());
    of(name, value, "an array of token ids").map_err(|e| element(name, value, "a token id such as 261", is_id).unwrap_or(e))
}

/// Reads an array of strings. An error names the first wrong element, as in `stop[0]`.
fn strings(name: &str, value: &str, expected: &str) -> Result<Vec<String>> {
    of(name, value, expected).map_err(|e| element(name, value, "a string", Value::is_string).unwrap_or(e))
}

/// Reads an array of tools. An error names the first wrong element, as in `tools[0]`.
fn tools(name: &str, value: &str) -> Result<Vec<Tool>> {
    nested(name, value, "an array of tools").map_err(|e| {
        let all: Vec<Value> = serde_json::from_str(value).unwrap_or_default();
        let wrong = |(i, tool): (usize, &Value)| nested::<Tool>(&format!("{name}[{i}]"), &tool.to_string(), "a tool").err();
        all.iter().enumerate().find_map(wrong).unwrap_or(e)
    })
}

/// Returns the error for the first element of the array `value` that is not as expected. Returns `None` if `value` is not an array or if all elements
/// are right.
fn element(name: &str, value: &str, expected: &str, is_right: impl Fn(&Value) -> bool) -> Option<Error> {
    let all: Vec<Value> = serde_json::from_str(value).ok()?;
    let (i, found) = all.iter().enumerate().find(|(_, found)| !is_right(found))?;
    Some(Error::input(format!("expected {expected}, found {}", short(&found.to_string(), 40))).field(&format!("{name}[{i}]")))
}

/// Reads `"auto"`, `"none"`, `"required"`, the name of a tool, or `{"type": "function", "function": {"name": …}}`.
fn tool_choice(name: &str, value: &str) -> Result<ToolChoice> {
    let expected = "auto, none, required or the name of a tool";
    let found: Value = of(name, value, expected)?;
    match found.as_str().or_else(|| found.get("function")?.get("name")?.as_str()) {
        Some(text) => Ok(ToolChoice::from(text)),
        None => Err(Error::input(format!("expected {expected}, found {}", short(value, 40))).field(name)),
    }
}

/// Reads the list of texts from which the answer must be chosen.
fn choice(name: &str, value: &str) -> Result<Vec<String>> {
    let texts = strings(name, value, "an array of strings")?;
    match texts.iter().any(|text| !text.is_empty()) {
        true => Ok(texts),
        false => Err(Error::input("expected at least one text that is not empty, found none").field(name)),
    }
}

/// Reads the maximum number of tokens. Returns [`UNLIMITED`] for -1.
fn limit(name: &str, value: &str) -> Result<usize> {
    let number = whole_number(value);
    let parsed = number.as_deref().and_then(|text| if text == "-1" { Some(UNLIMITED) } else { text.parse().ok() });
    parsed.ok_or_else(|| {
        Error::input(format!("expected a whole number of at least 0, or -1 for no limit, found {}", short(value, 40))).field(name)
    })
}

/// Reads a whole number and checks that `range` contains it.
fn count(name: &str, value: &str, range: RangeInclusive<usize>) -> Result<usize> {
    let number = whole_number(value).and_then(|text| text.parse().ok()).filter(|n| range.contains(n));
    let expected = || format!("expected a whole number from {} to {}, found {}", range.start(), range.end(), short(value, 40));
    number.ok_or_else(|| Error::input(expected()).field(name))
}

/// Reads the value of a sampler setting. Returns the name of the setting and the texts that the setting's command-line flag would take.
fn setting(known: &Setting, name: &str, value: &str) -> Result<(String, Vec<String>)> {
    if value.len() > MAX_SETTING_BYTES {
        return Err(Error::input(format!("expected a value of at most {MAX_SETTING_BYTES} bytes, found {} bytes", value.len())).field(name));
    }
    let setting = known.name.to_owned();
    let value = &of::<Value>(name, value, "a number, a string or a list of these")?;
    let texts = match value {
        Value::Array(all) if all.is_empty() && known.is_list() => Some(vec!["none".into()]),
        // The breakers of the `dry` sampler may contain any character, so the array stays JSON.
        Value::Array(all) if setting == "dry-breaker" => all.iter().all(Value::is_string).then(|| vec![value.to_string()]),
        Value::Array(all) if setting == "logit-bias" && all.iter().all(Value::is_array) => all.iter().map(pair).collect(),
        Value::Array(all) if known.is_list() => all.iter().map(plain).collect(),
        Value::Object(all) if setting == "logit-bias" => all.iter().map(|(key, x)| biased(key, x)).collect(),
        one => plain(one).map(|text| vec![text]),
    };
    let is_bias = setting == "logit-bias";
    // A wrong bias is refused here, with an error that shows JSON. The sampler's own error would show the notation of the flag, ID=X.
    let texts = texts.filter(|texts| {
        // The engine tokenizes texts later, with the vocabulary.
        let texts: Vec<&str> = texts.iter().map(String::as_str).filter(|text| !is_text(text)).collect();
        !is_bias || Sampling::rwkv().set_each(&setting, &texts).is_ok()
    });
    let expected = if is_bias {
        "an object with a number for each token id or text, such as {\"261\": -1.5}"
    } else {
        "a number, a string or a list of these"
    };
    let refused = || Error::input(format!("expected {expected}, found {}", short(&value.to_string(), 40))).field(name);
    Ok((setting, texts.ok_or_else(refused)?))
}

/// Converts a pair `[token id or text, bias]` to the notation of the program's flag, `ID=X`. Returns `None` if the value is not such a pair.
fn pair(pair: &Value) -> Option<String> {
    match pair.as_array()?.as_slice() {
        [Value::String(text), x] => Some(format!("{}={}", Value::from(text.as_str()), bias(x)?)),
        [id, x] => Some(format!("{}={}", plain(id)?, bias(x)?)),
        _ => None,
    }
}

/// Converts one entry of a bias object to the notation of the program's flag. A key that is not a number is a text, whose tokens all get
/// the bias.
fn biased(key: &str, x: &Value) -> Option<String> {
    match key.parse::<u32>() {
        Ok(id) => Some(format!("{id}={}", bias(x)?)),
        Err(_) => Some(format!("{}={}", Value::from(key), bias(x)?)),
    }
}

/// Converts a bias to the notation of the program's flag. `false` bans the token, as in llama-server.
fn bias(x: &Value) -> Option<String> {
    if *x == Value::Bool(false) { Some("-inf".into()) } else { plain(x) }
}
