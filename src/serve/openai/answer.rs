//! Parts of answers that several endpoints share: usage, timings, log-probabilities, finish reasons.

use crate::engine::{Completion, Engine, StateInfo};
use crate::error::Result;
use crate::serve::failure::Failure;
use crate::session::{Finish, Logprobs};
use crate::template::ToolCall;
use serde_json::{Value, json};

/// Returns OpenAI's name of the reason why a continuation ended.
pub fn finish_reason(done: &Completion) -> &'static str {
    match done.finish {
        // A call that was cut has incomplete arguments, which no client can use.
        Finish::Length | Finish::Context | Finish::Interrupted if done.calls.is_empty() || done.complete != Some(true) => "length",
        _ if !done.calls.is_empty() => "tool_calls",
        _ => "stop",
    }
}

/// Sums the tokens of all continuations. A prompt counts once, however many continuations it has.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum {
    pub prompt: usize,
    pub cached: usize,
    pub completion: usize,
    pub reasoning: usize,
}

impl Sum {
    pub fn add(&mut self, done: &Completion) {
        if done.index == 0 {
            self.prompt += done.usage.prompt_tokens;
            self.cached += done.usage.cached_tokens;
        }
        self.completion += done.usage.completion_tokens;
        self.reasoning += done.usage.reasoning_tokens;
    }

    /// Returns the object `usage` of chat completions and completions.
    pub fn json(&self) -> Value {
        let Sum { prompt, cached, completion, reasoning } = *self;
        json!({
            "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached}, "completion_tokens_details": {"reasoning_tokens": reasoning},
        })
    }
}

/// Returns the object `timings` of a continuation.
fn timings(done: &Completion) -> Value {
    let round = |ms: f64| (ms * 1e3).round() / 1e3;
    let t = &done.timings;
    json!({"queue_ms": round(t.queue_ms), "prefill_ms": round(t.prefill_ms), "decode_ms": round(t.decode_ms)})
}

/// Returns the object `state` of an answer: the state that was stored, or the error because of which no state was stored. `None` if the request
/// stores no state.
fn state(saved: Option<&Result<StateInfo>>) -> Option<Value> {
    Some(match saved? {
        Ok(info) => json!({"name": info.name, "tokens": info.n_tokens, "bytes": info.bytes}),
        Err(e) => json!({"error": {"message": Failure::from(e.clone()).message()}}),
    })
}

/// Returns the text of a token. Bytes that are not UTF-8 become U+FFFD.
pub fn token_text(engine: &Engine, token: u32) -> String {
    String::from_utf8_lossy(token_bytes(engine, token)).into_owned()
}

fn token_bytes(engine: &Engine, token: u32) -> &[u8] {
    engine.model().vocab().map_or(&[], |vocab| vocab.token(token))
}

/// Returns an entry of `logprobs.content` of a chat completion.
pub fn chat_logprobs(engine: &Engine, at: &Logprobs) -> Value {
    let one = |token: u32, logprob: f32| json!({"token": token_text(engine, token), "logprob": finite(logprob), "bytes": token_bytes(engine, token)});
    let mut entry = one(at.token, at.logprob);
    entry["top_logprobs"] = at.top.iter().map(|(token, logprob)| one(*token, *logprob)).collect();
    entry
}

/// Returns the log-probability, but at least -9999, because JSON has no infinity.
pub fn finite(logprob: f32) -> f32 {
    logprob.max(-9999.0)
}

/// Returns the object of a tool call.
pub fn tool_call(id: &str, call: &ToolCall) -> Value {
    json!({"id": id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
}

/// Adds the fields of `more` to an object.
pub fn merge(object: &mut Value, more: &Value) {
    more.as_object().into_iter().flatten().for_each(|(name, value)| object[name] = value.clone());
}

/// Adds `timings`, and `state` if the request stores a state, to an object.
pub fn add_end(object: &mut Value, done: &Completion) {
    object["timings"] = timings(done);
    state(done.state.as_ref()).into_iter().for_each(|state| object["state"] = state);
}

/// Returns the fields that the last chunk of a choice has beyond OpenAI's: `seed`, `timings` and `state`.
pub fn end_of_choice(done: &Completion) -> Value {
    let mut more = json!({"seed": done.seed});
    add_end(&mut more, done);
    more
}
