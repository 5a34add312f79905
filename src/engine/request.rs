//! The type [`Request`]. The command line, the server and the language bindings convert their input to this type.

mod body;
mod messages;
mod openai;
mod read;
mod setters;
#[cfg(test)]
mod tests;

use super::rules::Rules;
use crate::chat::{Message, Thinking, Tool};
use crate::sample::{Sampling, Setting};
use crate::session::{Pooling, Speculate};

/// The value of `max_tokens` that sets no limit. A text then continues until the model ends the text, a stop text occurs, the context is full or
/// the request is cancelled.
pub const UNLIMITED: usize = usize::MAX;

/// The largest `n` in JSON: the maximum number of continuations of one request from a client.
pub(super) const MAX_N: usize = 128;

/// The largest value of `logprobs`. OpenAI's API has the same limit.
pub(super) const MAX_LOGPROBS: usize = 20;

/// The input of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A text.
    Text(String),
    /// Token ids.
    Tokens(Vec<u32>),
    /// The messages of a conversation. The chat format converts the messages to a prompt that ends where the model's answer begins.
    Messages(Vec<Message>),
    /// Texts and lists of token ids. The engine generates no text: it computes one vector per text, and sends each vector as
    /// [`Event::Vector`](super::Event).
    Vectors(Vec<Input>),
    /// Texts and lists of token ids for a classifier. The engine generates no text: it sends one [`Event::Vector`](super::Event) per text, with one logit
    /// per label.
    Classes(Vec<Input>),
    /// Documents to score for a query. The engine generates no text: it sends one [`Event::Score`](super::Event) per document. Needs
    /// [`EngineOptions::reranker`](super::EngineOptions).
    Ranking {
        /// The query that the documents should answer.
        query: String,
        /// The documents.
        documents: Vec<String>,
    },
}

impl Input {
    /// Returns the name of the JSON field that contains this input.
    pub fn field(&self) -> &'static str {
        match self {
            Input::Text(_) => "prompt",
            Input::Tokens(_) => "tokens",
            Input::Messages(_) => "messages",
            Input::Vectors(_) | Input::Classes(_) => "input",
            Input::Ranking { .. } => "documents",
        }
    }
}

/// The rules that a text must satisfy, or an instruction to drop the rules of `defaults` in [`Request::over`].
#[derive(Debug, Clone, PartialEq)]
pub enum Follows {
    /// A grammar or a JSON schema.
    Rules(Rules),
    /// `json_object: false` removes a default `json_object: true`.
    NoObject,
    /// `json_value: false` removes a default `json_value: true`.
    NoValue,
}

/// Selects whether an answer calls tools, and which.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// The tools are not declared, so the answer calls no tool.
    None,
    /// The answer is a call of one of the tools. A grammar ensures that the answer has the form of a call and matches the schema of the tool.
    Required,
    /// The answer is a call of the tool with this name.
    Tool(String),
}

impl From<&str> for ToolChoice {
    /// Reads `auto`, `none` or `required`. Any other text is the name of a tool.
    fn from(text: &str) -> ToolChoice {
        match text {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" => ToolChoice::Required,
            name => ToolChoice::Tool(name.into()),
        }
    }
}

/// A request to continue a text or to answer messages. Unset fields take the defaults of the engine, the model and its chat format.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// The input to continue.
    pub input: Input,
    /// The maximum number of tokens of each continuation. [`UNLIMITED`] sets no limit. `None` selects
    /// [`EngineOptions::max_tokens`](super::EngineOptions). For messages, `None` selects the limit in the model's `generation_config.json` if that
    /// limit is smaller.
    pub max_tokens: Option<usize>,
    /// The least number of tokens of each continuation. Before this number, neither a stop id nor a stop text ends the continuation.
    pub min_tokens: usize,
    /// Texts that never occur in a continuation, even if such a text is spread over several tokens.
    pub bad_words: Vec<String>,
    /// The only tokens that a continuation may have. Without rules, a stop id can end the text only if this list contains it. `None` allows all
    /// tokens.
    pub allowed_token_ids: Option<Vec<u32>>,
    /// Stop texts. A continuation ends just before the first occurrence of a stop text. `None` means no stop texts.
    pub stop: Option<Vec<String>>,
    /// Tokens that end a continuation, besides the model's stop ids. They are not part of the text.
    pub stop_token_ids: Vec<u32>,
    /// If true, the model's stop ids do not end a continuation. `None` means false.
    pub ignore_eos: Option<bool>,
    /// The rules that the text must follow: a grammar or a JSON schema. `None` sets no rules.
    pub follows: Option<Follows>,
    /// If true, the last tokens before `max_tokens` are chosen so that the text satisfies all its rules. If false, a text that
    /// reaches `max_tokens` is cut. `None` selects the default of the rules: see [`Close`](super::Close).
    pub close: Option<bool>,
    /// The number of continuations of the prompt: 1 to the number of slots, and at most 128 in JSON. The seed of continuation `i`, counted from 0, is
    /// the request's seed plus `i`.
    pub n: usize,
    /// The number of most likely tokens, 0 to 20, that are reported at each position with their log-probabilities. The sampled token is always
    /// reported, too. `None` reports no log-probabilities.
    pub logprobs: Option<usize>,
    /// If true, the returned text begins with the prompt. If `logprobs` is also set, the prompt's tokens get log-probabilities, too.
    pub echo: bool,
    /// If true, [`Event::Progress`](super::Event) reports how far the prompt is prefilled.
    pub return_progress: bool,
    /// If true, every token gets its own [`Event::Text`](super::Event) with the token's id. Only for a prompt, not for messages.
    pub return_tokens: bool,
    /// The name of the chat format that converts messages to a prompt. `None` selects the engine's format.
    pub format: Option<String>,
    /// Selects how the model thinks before it answers messages. `None` leaves the choice to the chat format.
    pub thinking: Option<Thinking>,
    /// The name of the user in a chat format of lines (`Name: text`), in place of the format's own. `None` keeps the format's own name.
    pub user_name: Option<String>,
    /// The name of the model in a chat format of lines. `None` keeps the format's own name.
    pub assistant_name: Option<String>,
    /// The model always continues an answer at the end of the messages. `Some(false)` refuses messages that end with an answer. `Some(true)` refuses
    /// messages that end with another role. `None` accepts both.
    pub continue_final_message: Option<bool>,
    /// If true, a prompt made from messages begins with token 0 (`<|endoftext|>`), for G1 models. `None` leaves the choice to the engine's format.
    pub add_bos: Option<bool>,
    /// If true, texts of special tokens in a text prompt, such as `<|user|>`, become these tokens. `None` means false.
    pub parse_special: Option<bool>,
    /// Requests a vector of the prompt: its hidden states after the last norm, pooled to one vector and scaled to the length 1. The request then
    /// generates no text, and [`Event::Vector`](super::Event) has the vector. `None` requests no vector of a prompt, and selects the pooling of
    /// [`EngineOptions::embed`](super::EngineOptions) for [`Input::Vectors`]. Must be `None` for an embedding model, which has its own pooling.
    pub pooling: Option<Pooling>,
    /// Tools that the answer to messages may call.
    pub tools: Vec<Tool>,
    /// Selects whether the answer calls tools. `None` means [`ToolChoice::Auto`].
    pub tool_choice: Option<ToolChoice>,
    /// Selects the guesses of the next tokens ([`Speculate`]). Guesses never change the text. `None` selects
    /// [`EngineOptions::speculation`](super::EngineOptions::speculation).
    pub speculate: Option<Speculate>,
    /// The name of the draft model, which must be the engine's ([`EngineOptions::draft`](super::EngineOptions::draft)). `None` uses the engine's draft
    /// model if `speculate` includes drafts.
    pub draft: Option<String>,
    /// The number of guesses per step, 1 to 32. `None` selects the number of [`EngineOptions::speculation`](super::EngineOptions::speculation).
    pub draft_tokens: Option<usize>,
    /// The name of the saved state that the prompt continues. `None` begins with an empty state.
    pub state: Option<String>,
    /// The name of the tuned initial state in which the text begins: a name of [`EngineOptions::initial`](super::EngineOptions::initial). `None` begins
    /// with an empty state. A named `state` takes precedence.
    pub initial: Option<String>,
    /// If true, the prompt is a whole conversation, and `state` may hold its beginning. If the prompt's text begins with the state's text, only the
    /// rest is prefilled, and [`Usage::cached_tokens`](super::Usage) counts the state's tokens. If the texts differ or the name is unknown, the
    /// request runs as if `state` were `None`.
    pub state_is_prefix: bool,
    /// The name under which the state after the text is saved. `None` saves no state.
    pub save_state: Option<String>,
    /// The owner of the named states and cache entries that the request uses and creates. Requests of other namespaces cannot use these states and
    /// entries. Give different namespaces to callers that must not learn about each other: a short prefill reveals that the cache had the prompt.
    pub namespace: String,
    /// Requests with a higher priority leave the queue first. The default is 0.
    pub priority: i32,
    /// If true, the request neither uses nor creates entries of the prefix cache.
    pub no_cache: bool,
    /// The sampler settings that `sampling` changes. `None` means the settings of the model or its chat format, with a random seed.
    pub base: Option<Sampling>,
    /// Sampler settings: pairs of a name, such as `top-p`, and the setting's values as text.
    pub sampling: Vec<(String, Vec<String>)>,
}

impl Request {
    /// Creates a request with all other fields unset.
    pub fn new(input: Input) -> Request {
        Request {
            input,
            max_tokens: None,
            min_tokens: 0,
            bad_words: Vec::new(),
            allowed_token_ids: None,
            stop: None,
            stop_token_ids: Vec::new(),
            ignore_eos: None,
            follows: None,
            close: None,
            n: 1,
            logprobs: None,
            echo: false,
            return_progress: false,
            return_tokens: false,
            format: None,
            thinking: None,
            user_name: None,
            assistant_name: None,
            continue_final_message: None,
            add_bos: None,
            parse_special: None,
            pooling: None,
            tools: Vec::new(),
            tool_choice: None,
            speculate: None,
            draft: None,
            draft_tokens: None,
            state: None,
            initial: None,
            state_is_prefix: false,
            save_state: None,
            namespace: String::new(),
            priority: 0,
            no_cache: false,
            base: None,
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
    pub fn chat(messages: impl Into<Vec<Message>>) -> Request {
        Request::new(Input::Messages(messages.into()))
    }

    /// Returns a request for the vectors of texts.
    pub fn vectors(texts: impl Into<Vec<Input>>) -> Request {
        Request::new(Input::Vectors(texts.into()))
    }

    /// Returns a request for the class logits of texts, `[n_labels]` each, in the order of [`Facts::labels`](crate::arch::Facts).
    pub fn classes(texts: impl Into<Vec<Input>>) -> Request {
        Request::new(Input::Classes(texts.into()))
    }

    /// Returns a request for the scores of documents.
    pub fn ranking(query: impl Into<String>, documents: impl Into<Vec<String>>) -> Request {
        Request::new(Input::Ranking { query: query.into(), documents: documents.into() })
    }

    /// Returns this request with its unset fields taken from `defaults`. If this request sets a preset, the sampler settings of `defaults` that
    /// belong to presets are left out. The input, `min_tokens`, `bad_words`, `allowed_token_ids`, `n`, `logprobs`, `echo`, `return_progress`,
    /// `return_tokens`, `pooling`, states, namespace, priority and `no_cache` never come from `defaults`.
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
            stop_token_ids: if self.stop_token_ids.is_empty() { defaults.stop_token_ids.clone() } else { self.stop_token_ids.clone() },
            ignore_eos: self.ignore_eos.or(defaults.ignore_eos),
            follows,
            close: self.close.or(defaults.close),
            format: self.format.clone().or_else(|| defaults.format.clone()),
            thinking: self.thinking.or(defaults.thinking),
            user_name: self.user_name.clone().or_else(|| defaults.user_name.clone()),
            assistant_name: self.assistant_name.clone().or_else(|| defaults.assistant_name.clone()),
            continue_final_message: self.continue_final_message.or(defaults.continue_final_message),
            add_bos: self.add_bos.or(defaults.add_bos),
            parse_special: self.parse_special.or(defaults.parse_special),
            tools: if self.tools.is_empty() { defaults.tools.clone() } else { self.tools.clone() },
            tool_choice: self.tool_choice.clone().or_else(|| defaults.tool_choice.clone()),
            speculate: self.speculate.or(defaults.speculate),
            draft: self.draft.clone().or_else(|| defaults.draft.clone()),
            draft_tokens: self.draft_tokens.or(defaults.draft_tokens),
            base: self.base.clone().or_else(|| defaults.base.clone()),
            sampling: kept.chain(&self.sampling).cloned().collect(),
            ..self.clone()
        }
    }

    /// Returns true if the request sets the sampler setting with the name `setting`. A request with `base` counts as setting the seed, because a
    /// request without a seed continues the random numbers of its saved state.
    pub fn sets(&self, setting: &str) -> bool {
        setting == "seed" && self.base.is_some() || self.sampling.iter().any(|(name, _)| name == setting)
    }
}
