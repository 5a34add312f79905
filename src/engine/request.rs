//! Requests. Lines of `batch`, request bodies of a server and arguments of a binding all become this type.

mod read;
#[cfg(test)]
mod tests;

use super::rules::Rules;
use crate::chat::{Message, Thinking, Tool};
use crate::sample::Setting;

/// `max_tokens` without a limit: a text continues until it ends, stops, fills its context or is cancelled.
pub const UNLIMITED: usize = usize::MAX;

/// Continuations of one request, at most.
pub(super) const MAX_N: usize = 128;

/// Likeliest tokens per position, at most, as with OpenAI.
pub(super) const MAX_LOGPROBS: usize = 20;

/// The input of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A text.
    Text(String),
    /// Token ids.
    Tokens(Vec<u32>),
    /// A conversation. The chat format turns it into a prompt that ends where the model's answer begins.
    Messages(Vec<Message>),
}

impl Input {
    /// Returns the request's field that contains the input.
    pub fn field(&self) -> &'static str {
        match self {
            Input::Text(_) => "prompt",
            Input::Tokens(_) => "tokens",
            Input::Messages(_) => "messages",
        }
    }
}

/// Rules of a text, or the removal of default rules.
#[derive(Debug, Clone, PartialEq)]
pub enum Follows {
    /// A grammar or a JSON schema.
    Rules(Rules),
    /// `json_object: false` removes a default `json_object: true`.
    NoObject,
    /// `json_value: false` removes a default `json_value: true`.
    NoValue,
}

/// A request. Fields that are not set have the defaults of the engine, the model and its chat format.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// The input to continue.
    pub input: Input,
    /// Tokens of each continuation, at most. [`UNLIMITED`] is no limit; `None` is [`EngineOptions::max_tokens`](super::EngineOptions).
    pub max_tokens: Option<usize>,
    /// Stop texts: the text ends before the first one. `None` is none.
    pub stop: Option<Vec<String>>,
    /// Continues after the model's stop ids. `None` is false.
    pub ignore_eos: Option<bool>,
    /// The grammar or JSON schema that the text must follow.
    pub follows: Option<Follows>,
    /// Closes a text with rules that reaches `max_tokens`. `None` is the default of the rules: see [`Close`](super::Close).
    pub close: Option<bool>,
    /// Continuations of the prompt, 1 to 128. The first has the request's seed, each further one the next number.
    pub n: usize,
    /// Reports log-probabilities of each token and of this many likeliest tokens, 0 to 20. `None` reports none.
    pub logprobs: Option<usize>,
    /// Begins the text with the prompt, and reports log-probabilities of the prompt's tokens if `logprobs` is set.
    pub echo: bool,
    /// The name of the chat format of messages. `None` is the engine's format.
    pub format: Option<String>,
    /// The model's thought before an answer to messages. `None` is the choice of the chat format.
    pub thinking: Option<Thinking>,
    /// Tools that the answer to messages may call.
    pub tools: Vec<Tool>,
    /// The named state that the prompt follows. `None` begins with an empty state.
    pub state: Option<String>,
    /// Keeps the state after the text under this name.
    pub save_state: Option<String>,
    /// The namespace of the named states and cache entries that the request uses and leaves. The time of a prefill reveals if the cache had the
    /// prompt: give different namespaces to callers that must not learn about each other.
    pub namespace: String,
    /// The queue serves requests with a higher priority first.
    pub priority: i32,
    /// Neither uses nor leaves entries of the prefix cache.
    pub no_cache: bool,
    /// Sampler settings: names (`top-p`) and values as text.
    pub sampling: Vec<(String, Vec<String>)>,
}

impl Request {
    /// Creates a request with all other fields unset.
    pub fn new(input: Input) -> Request {
        Request {
            input,
            max_tokens: None,
            stop: None,
            ignore_eos: None,
            follows: None,
            close: None,
            n: 1,
            logprobs: None,
            echo: false,
            format: None,
            thinking: None,
            tools: Vec::new(),
            state: None,
            save_state: None,
            namespace: String::new(),
            priority: 0,
            no_cache: false,
            sampling: Vec::new(),
        }
    }

    /// Returns a request to continue a text.
    pub fn text(text: impl Into<String>) -> Request {
        Request::new(Input::Text(text.into()))
    }

    /// Returns a request to continue tokens.
    pub fn tokens(tokens: impl Into<Vec<u32>>) -> Request {
        Request::new(Input::Tokens(tokens.into()))
    }

    /// Returns a request to answer messages.
    pub fn messages(messages: impl Into<Vec<Message>>) -> Request {
        Request::new(Input::Messages(messages.into()))
    }

    /// Sets the largest number of tokens to generate.
    pub fn max_tokens(self, n: usize) -> Request {
        Request { max_tokens: Some(n), ..self }
    }

    /// Sets a sampler setting by name: `set("temperature", 0.5)`. `submit` checks the name and the value.
    pub fn set(mut self, name: &str, value: impl ToString) -> Request {
        let name = name.replace('_', "-");
        self.sampling.retain(|(known, _)| *known != name);
        self.sampling.push((name, vec![value.to_string()]));
        self
    }

    /// Returns this request with the unset fields of `defaults`. A preset of this request replaces every default setting that presets have. The
    /// input, `n`, `logprobs`, `echo`, states, namespace, priority and `no_cache` never come from `defaults`.
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
            format: self.format.clone().or_else(|| defaults.format.clone()),
            thinking: self.thinking.or(defaults.thinking),
            tools: if self.tools.is_empty() { defaults.tools.clone() } else { self.tools.clone() },
            sampling: kept.chain(&self.sampling).cloned().collect(),
            ..self.clone()
        }
    }

    /// Returns true if the request sets this sampler setting.
    pub fn sets(&self, setting: &str) -> bool {
        self.sampling.iter().any(|(name, _)| name == setting)
    }
}
