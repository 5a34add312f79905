//! What a caller asks for. Lines of `batch`, bodies of requests to a server, arguments of a binding: all are this one type.

mod read;
#[cfg(test)]
mod tests;

use super::rules::Rules;
use crate::chat::{Message, Thinking, Tool};
use crate::sample::Setting;

/// `max_tokens` without a limit: a text goes on until it ends, stops, fills its context or is cancelled.
pub const UNLIMITED: usize = usize::MAX;

/// Continuations of one prompt, at most.
pub(super) const MAX_N: usize = 128;

/// Likeliest tokens at a place, at most, as with OpenAI.
pub(super) const MAX_LOGPROBS: usize = 20;

/// What to continue.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A text.
    Text(String),
    /// Token ids.
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
    /// A grammar or a JSON schema.
    Rules(Rules),
    /// `json_object: false`: takes back a default of that kind.
    NoObject,
    /// `json_value: false`: takes back a default of that kind.
    NoValue,
}

/// A request. What it does not say is as the engine's defaults, the model and its format have it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// The input to continue.
    pub input: Input,
    /// At most so many tokens; [`UNLIMITED`] is no limit.
    pub max_tokens: Option<usize>,
    /// The text ends before any of these.
    pub stop: Option<Vec<String>>,
    /// Goes on after the ids that end a text.
    pub ignore_eos: Option<bool>,
    /// The grammar or JSON schema that the text must follow.
    pub follows: Option<Follows>,
    /// Whether a text under rules that runs out of tokens is closed.
    pub close: Option<bool>,
    /// How many continuations of one prompt, each with a seed of its own: the first has the request's, each next one the number after it.
    pub n: usize,
    /// Log-probabilities of each token and of so many likeliest ones, at most 20.
    pub logprobs: Option<usize>,
    /// The text begins with the prompt, and log-probabilities with those of the prompt's tokens.
    pub echo: bool,
    /// How messages are written, by the name of the format.
    pub format: Option<String>,
    /// Whether the model thinks before it answers messages, where its format leaves that open.
    pub thinking: Option<Thinking>,
    /// Tools that an answer to messages may call.
    pub tools: Vec<Tool>,
    /// The named state that the prompt is read after; without one, the text begins anew.
    pub state: Option<String>,
    /// Keeps the end of the text as a state of that name.
    pub save_state: Option<String>,
    /// Whose states and entries of the prefix cache the request uses and leaves. How fast a prompt is read shows whether an entry had it:
    /// give callers that must not learn of each other different namespaces.
    pub namespace: String,
    /// Requests with a higher one are taken from the queue first.
    pub priority: i32,
    /// The prefix cache neither serves the request nor keeps what it leaves.
    pub no_cache: bool,
    /// Settings of the sampler: by name (`top-p`), and values as text.
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

    /// Sets the largest number of tokens to generate.
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

    /// This request over defaults: what it does not say is as they have it. A preset of its own wins over every default that a preset
    /// could set. The input, `n`, `logprobs`, `echo`, states, namespace, priority and `no_cache` are its own.
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

    /// Whether the request itself sets a setting of the sampler.
    pub fn sets(&self, setting: &str) -> bool {
        self.sampling.iter().any(|(name, _)| name == setting)
    }
}
