//! Setters of a request that can be chained.

use super::super::Rules;
use super::{Follows, Request, ToolChoice};
use crate::chat::{Thinking, Tool};
use crate::sample::Sampling;
use crate::session::{Pooling, Speculate};

impl Request {
    /// Sets the maximum number of tokens of each continuation.
    pub fn max_tokens(self, n: usize) -> Request {
        Request { max_tokens: Some(n), ..self }
    }

    /// Sets all sampler settings, the seed included, in place of the model's defaults. Settings by name ([`set`](Self::set)) still take precedence.
    pub fn sampling(self, sampling: Sampling) -> Request {
        Request { base: Some(sampling), ..self }
    }

    /// Sets a sampler setting by name: `set("temperature", 0.5)`. [`Engine::submit`](crate::engine::Engine::submit) checks the name and the value.
    pub fn set(mut self, name: &str, value: impl ToString) -> Request {
        let name = name.replace('_', "-");
        self.sampling.retain(|(known, _)| *known != name);
        self.sampling.push((name, vec![value.to_string()]));
        self
    }

    /// Sets the seed of the random numbers.
    pub fn seed(self, seed: u64) -> Request {
        self.set("seed", seed)
    }

    /// Sets the stop texts. A stop text ends a continuation and is not part of it.
    pub fn stop<T: Into<String>>(self, texts: impl IntoIterator<Item = T>) -> Request {
        Request { stop: Some(texts.into_iter().map(Into::into).collect()), ..self }
    }

    /// Sets whether the model's stop ids are ignored.
    pub fn ignore_eos(self, ignore: bool) -> Request {
        Request { ignore_eos: Some(ignore), ..self }
    }

    /// Sets the grammar or schema that the text must follow.
    pub fn follows(self, rules: Rules) -> Request {
        Request { follows: Some(Follows::Rules(rules)), ..self }
    }

    /// Sets the number of continuations.
    pub fn n(self, n: usize) -> Request {
        Request { n, ..self }
    }

    /// Requests log-probabilities: of each token, and of the `n` most likely tokens at the same position.
    pub fn logprobs(self, n: usize) -> Request {
        Request { logprobs: Some(n), ..self }
    }

    /// Sets whether the returned text begins with the prompt.
    pub fn echo(self, echo: bool) -> Request {
        Request { echo, ..self }
    }

    /// Sets the chat format by name.
    pub fn format(self, name: impl Into<String>) -> Request {
        Request { format: Some(name.into()), ..self }
    }

    /// Sets how the model thinks before it answers messages.
    pub fn thinking(self, thinking: Thinking) -> Request {
        Request { thinking: Some(thinking), ..self }
    }

    /// Sets the tools that the answer may call.
    pub fn tools(self, tools: impl Into<Vec<Tool>>) -> Request {
        Request { tools: tools.into(), ..self }
    }

    /// Sets whether the answer calls tools, and which.
    pub fn tool_choice(self, choice: ToolChoice) -> Request {
        Request { tool_choice: Some(choice), ..self }
    }

    /// Requests a vector of the prompt in place of a text.
    pub fn pooling(self, pooling: Pooling) -> Request {
        Request { pooling: Some(pooling), ..self }
    }

    /// Selects the source of guesses for the next tokens. Guesses never change the text.
    pub fn speculate(self, by: Speculate) -> Request {
        Request { speculate: Some(by), ..self }
    }

    /// Sets the number of guesses per step.
    pub fn draft_tokens(self, n: usize) -> Request {
        Request { draft_tokens: Some(n), ..self }
    }

    /// Continues from a saved state.
    pub fn state(self, name: impl Into<String>) -> Request {
        Request { state: Some(name.into()), ..self }
    }

    /// Saves the state after the text under a name.
    pub fn save_state(self, name: impl Into<String>) -> Request {
        Request { save_state: Some(name.into()), ..self }
    }

    /// Sets the owner of the named states and cache entries.
    pub fn namespace(self, name: impl Into<String>) -> Request {
        Request { namespace: name.into(), ..self }
    }

    /// Sets the priority in the queue.
    pub fn priority(self, priority: i32) -> Request {
        Request { priority, ..self }
    }
}
