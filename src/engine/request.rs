//! What a caller asks for. Lines of `batch`, bodies of requests to a server, arguments of a binding: all are this one type.

use super::Fields;
use super::rules::Rules;
use super::wire::{is_text, of, plain, whole_number};
use crate::chat::Message;
use crate::error::{Error, Result, short};
use crate::sample::Setting;
use serde_json::Value;
use std::ops::RangeInclusive;

#[cfg(test)]
mod tests;

/// `max_tokens` without a limit: a text goes on until it ends, stops, fills its context or is cancelled.
pub const UNLIMITED: usize = usize::MAX;

/// The largest value of a setting: a list of every id of a vocabulary has less.
const MAX_SETTING_BYTES: usize = 2 << 20;

/// Continuations of one prompt, at most.
pub(super) const MAX_N: usize = 128;

/// Likeliest tokens at a place, at most, as with OpenAI.
pub(super) const MAX_LOGPROBS: usize = 20;

/// What to continue.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    Text(String),
    Tokens(Vec<u32>),
    /// A conversation, written in the model's own format up to where it answers.
    Messages(Vec<Message>),
}

impl Input {
    /// The field of a request that it is written in.
    pub fn field(&self) -> &'static str {
        match self {
            Input::Text(_) => "prompt",
            Input::Tokens(_) => "tokens",
            Input::Messages(_) => "messages",
        }
    }
}

/// What a text has to follow.
#[derive(Debug, Clone, PartialEq)]
pub enum Follows {
    Rules(Rules),
    /// `json_object: false`: takes back a default of that kind.
    NoObject,
    /// `json_value: false`: takes back a default of that kind.
    NoValue,
}

/// How a request uses the prefix cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cache {
    /// The request uses the entries of a namespace and adds its own. How fast a prompt is read shows whether an entry had it: give
    /// callers that must not learn of each other different namespaces.
    Shared { namespace: String },
    /// The request uses no entry and adds none.
    Off,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache::Shared { namespace: String::new() }
    }
}

/// A request. What it does not say is as the engine's defaults, the model and its format have it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Request {
    pub input: Input,
    /// At most so many tokens; [`UNLIMITED`] is no limit.
    pub max_tokens: Option<usize>,
    /// The text ends before any of these.
    pub stop: Option<Vec<String>>,
    /// Goes on after the ids that end a text.
    pub ignore_eos: Option<bool>,
    pub follows: Option<Follows>,
    /// Whether a text under rules that runs out of tokens is closed.
    pub close: Option<bool>,
    /// How many continuations of one prompt, each with a seed of its own: the first has the request's, each next one the number after it.
    pub n: usize,
    /// Log-probabilities of each token and of so many likeliest ones, at most 20.
    pub logprobs: Option<usize>,
    /// Requests with a higher one are taken from the queue first.
    pub priority: i32,
    /// Whether the prefix cache may serve it and keep it.
    pub cache: Cache,
    /// Settings of the sampler: by name (`top-p`), and values as text.
    pub sampling: Vec<(String, Vec<String>)>,
}

impl Request {
    pub fn new(input: Input) -> Request {
        let (max_tokens, stop, ignore_eos, follows, close) = (None, None, None, None, None);
        Request {
            input,
            max_tokens,
            stop,
            ignore_eos,
            follows,
            close,
            n: 1,
            logprobs: None,
            priority: 0,
            cache: Cache::default(),
            sampling: Vec::new(),
        }
    }

    /// Continues a text.
    pub fn text(text: impl Into<String>) -> Request {
        Request::new(Input::Text(text.into()))
    }

    /// Continues tokens.
    pub fn tokens(tokens: impl Into<Vec<u32>>) -> Request {
        Request::new(Input::Tokens(tokens.into()))
    }

    /// Answers messages.
    pub fn messages(messages: impl Into<Vec<Message>>) -> Request {
        Request::new(Input::Messages(messages.into()))
    }

    pub fn max_tokens(self, n: usize) -> Request {
        Request { max_tokens: Some(n), ..self }
    }

    /// Sets a setting of the sampler by name: `set("temperature", 0.5)`.
    pub fn set(mut self, name: &str, value: impl ToString) -> Request {
        let name = name.replace('_', "-");
        self.sampling.retain(|(known, _)| *known != name);
        self.sampling.push((name, vec![value.to_string()]));
        self
    }

    /// Reads the fields of a JSON object. Returns the request and the names of fields that no request has: the caller decides whether
    /// those are an error.
    ///
    /// # Errors
    /// `Input` and `Usage`, at the field.
    pub fn read(fields: &Fields<'_>) -> Result<(Request, Vec<String>)> {
        let (mut inputs, mut follows, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        let mut request = Request::text("");
        for (name, value) in fields.iter() {
            match name {
                "prompt" => inputs.push(Input::Text(of(name, value, "a text")?)),
                "tokens" => inputs.push(Input::Tokens(of(name, value, "an array of ids")?)),
                "messages" => inputs.push(Input::Messages(of(name, value, "messages with role and content")?)),
                "max_tokens" => request.max_tokens = Some(limit(name, value)?),
                "stop" if is_text(value) => request.stop = Some(vec![of(name, value, "a text")?]),
                "stop" => request.stop = Some(of(name, value, "a text or an array of texts")?),
                "ignore_eos" => request.ignore_eos = Some(of(name, value, "true or false")?),
                "grammar" => follows.push(Follows::Rules(Rules::Gbnf(of(name, value, "a grammar in GBNF as a text")?))),
                "json_schema" => {
                    let text = if is_text(value) { of(name, value, "a schema")? } else { value.to_owned() };
                    follows.push(Follows::Rules(Rules::Schema(text)));
                }
                "json_object" => follows.push(match of(name, value, "true or false")? {
                    true => Follows::Rules(Rules::Object),
                    false => Follows::NoObject,
                }),
                "json_value" => follows.push(match of(name, value, "true or false")? {
                    true => Follows::Rules(Rules::Value),
                    false => Follows::NoValue,
                }),
                "close" => request.close = Some(of(name, value, "true or false")?),
                "n" => request.n = count(name, value, 1..=MAX_N)?,
                "logprobs" => request.logprobs = Some(count(name, value, 0..=MAX_LOGPROBS)?),
                "no_cache" => {
                    if of(name, value, "true or false")? {
                        request.cache = Cache::Off;
                    }
                }
                "priority" => request.priority = of(name, value, "a whole number")?,
                _ => match Setting::named(name) {
                    Ok(known) => request.sampling.push(setting(known, name, value)?),
                    Err(_) => unknown.push(name.to_owned()),
                },
            }
        }
        if inputs.len() != 1 {
            return Err(Error::input(format!("expected one of prompt, messages and tokens, found {}", inputs.len())));
        }
        request.input = inputs.remove(0);
        // `false` is nothing to other rules.
        if follows.len() > 1 {
            follows.retain(|f| matches!(f, Follows::Rules(_)));
        }
        if follows.len() > 1 {
            let text = format!("expected at most one of grammar, json_schema, json_object and json_value, found {}", follows.len());
            return Err(Error::input(text));
        }
        request.follows = follows.pop();
        Ok((request, unknown))
    }

    /// This request over defaults: what it does not say is as they have it. A preset of its own wins over every default that a preset
    /// could set. The input, `n`, `logprobs`, `priority` and `cache` are its own.
    pub fn over(&self, defaults: &Request) -> Request {
        let has = |name: &str| self.sampling.iter().any(|(other, _)| other == name);
        let is_by_preset = |name: &str| has("preset") && Setting::named(name).is_ok_and(Setting::is_of_presets);
        let kept = defaults.sampling.iter().filter(|(name, _)| !has(name) && !is_by_preset(name));
        let is_taken_back = matches!(
            (&self.follows, &defaults.follows),
            (Some(Follows::NoObject), Some(Follows::Rules(Rules::Object))) | (Some(Follows::NoValue), Some(Follows::Rules(Rules::Value)))
        );
        let follows = match &self.follows {
            Some(Follows::Rules(rules)) => Some(Follows::Rules(rules.clone())),
            _ if is_taken_back => None,
            _ => defaults.follows.clone(),
        };
        Request {
            max_tokens: self.max_tokens.or(defaults.max_tokens),
            stop: self.stop.clone().or_else(|| defaults.stop.clone()),
            ignore_eos: self.ignore_eos.or(defaults.ignore_eos),
            follows,
            close: self.close.or(defaults.close),
            sampling: kept.chain(&self.sampling).cloned().collect(),
            ..self.clone()
        }
    }

    /// Whether the request itself sets a setting of the sampler.
    pub fn sets(&self, setting: &str) -> bool {
        self.sampling.iter().any(|(name, _)| name == setting)
    }
}

/// Returns the number of tokens that the field allows; -1 is no limit.
fn limit(name: &str, value: &str) -> Result<usize> {
    let number = whole_number(value);
    let parsed = number.as_deref().and_then(|text| if text == "-1" { Some(UNLIMITED) } else { text.parse().ok() });
    parsed.ok_or_else(|| Error::input(format!("expected a whole number, or -1 for no limit, found {}", short(value, 40))).field(name))
}

fn count(name: &str, value: &str, range: RangeInclusive<usize>) -> Result<usize> {
    let number = whole_number(value).and_then(|text| text.parse().ok()).filter(|n| range.contains(n));
    let expected = || format!("expected a whole number from {} to {}, found {}", range.start(), range.end(), short(value, 40));
    number.ok_or_else(|| Error::input(expected()).field(name))
}

/// A setting of the sampler as its flag would have it.
fn setting(known: &Setting, name: &str, value: &str) -> Result<(String, Vec<String>)> {
    if value.len() > MAX_SETTING_BYTES {
        return Err(Error::input(format!("expected a value of at most {MAX_SETTING_BYTES} bytes, found {}", value.len())).field(name));
    }
    let setting = known.name.to_owned();
    let value = &of::<Value>(name, value, "a number, a text or a list of these")?;
    let texts = match value {
        Value::Array(all) if all.is_empty() && known.is_list() => Some(vec!["none".into()]),
        // Texts that break a repetition may hold any character: in an array they arrive as they are.
        Value::Array(all) if setting == "dry-breaker" => all.iter().all(Value::is_string).then(|| vec![value.to_string()]),
        Value::Array(all) if known.is_list() => all.iter().map(plain).collect(),
        Value::Object(all) if setting == "logit-bias" => all.iter().map(|(id, x)| Some(format!("{id}={}", plain(x)?))).collect(),
        one => plain(one).map(|text| vec![text]),
    };
    let text =
        || Error::input(format!("expected a number, a text or a list of these, found {}", short(&value.to_string(), 40))).field(name);
    Ok((setting, texts.ok_or_else(text)?))
}
