//! `POST /v1/chat/completions`: answers messages.

use super::answer::{Sum, add_end, chat_logprobs, end_of_choice, finish_reason, merge, tool_call};
use super::extras::{ResponseFormat, StreamOptions, follow, kept, of_schema, read, think};
use super::messages::{self, WireMessage};
use super::stream::{Lines, Out, collect, respond};
use crate::engine::{Completion, Engine, Event, Input, Request};
use crate::serve::app::App;
use crate::serve::body::Body;
use crate::serve::failure::{Answer, Failure};
use crate::serve::guard::Caller;
use crate::serve::ids::{new_id, now};
use crate::serve::tickets::Ticket;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use utoipa::ToSchema;

/// A request for a chat completion. Sampler settings, rules and names of states are further fields of the same object.
#[derive(Debug, Deserialize, ToSchema)]
pub struct ChatBody {
    pub messages: Vec<WireMessage>,
    /// The name of a model. By default, the server's first model. A server with only one model accepts any name.
    #[serde(default)]
    pub model: Option<String>,
    #[serde(default)]
    pub stream: Option<bool>,
    #[serde(default)]
    pub stream_options: Option<StreamOptions>,
    /// The maximum number of tokens of the answer, thoughts included. Has precedence over `max_tokens`.
    #[serde(default)]
    pub max_completion_tokens: Option<u32>,
    /// If true, the answer contains the log-probability of each of its tokens.
    #[serde(default)]
    pub logprobs: Option<bool>,
    /// How many of the most likely tokens are returned at each position, with log-probabilities: 0 to 20. Needs `logprobs`.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 20)]
    pub top_logprobs: Option<u32>,
    #[serde(default)]
    pub response_format: Option<ResponseFormat>,
    /// If false, the answer has at most one tool call.
    #[serde(default)]
    pub parallel_tool_calls: Option<bool>,
    /// How much the model thinks: none, minimal, low, medium or high.
    #[serde(default)]
    pub reasoning_effort: Option<String>,
    /// The key `enable_thinking` (true or false) turns thinking on or off. Has precedence over `reasoning_effort`.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
    /// The id of a session. The state after the answer is kept under this id. The next request with this id continues from that state if its
    /// messages begin with the same text.
    #[serde(default)]
    pub session_id: Option<String>,
    /// If true, the state after the answer is stored, and `state.name` in the answer is its name. The server chooses the name, unless `save_state`
    /// or `session_id` sets a name.
    #[serde(default)]
    pub return_state: Option<bool>,
}

pub async fn create(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, body: Body) -> Answer {
    let (asked, mut request): (ChatBody, Request) = read(&app, &caller, &body, &[])?;
    request.input = Input::Messages(messages::read(&asked.messages));
    if let Some(n) = asked.max_completion_tokens {
        request.max_tokens = Some(n as usize);
    }
    if asked.top_logprobs.is_some() && asked.logprobs != Some(true) {
        return Err(Failure::field("top_logprobs", "expected logprobs = true together with top_logprobs"));
    }
    if let Some(n) = asked.top_logprobs.filter(|n| *n > 20) {
        return Err(Failure::field("top_logprobs", format!("expected a whole number from 0 to 20, found {n}")));
    }
    request.logprobs = (asked.logprobs == Some(true)).then(|| asked.top_logprobs.unwrap_or(0) as usize);
    let schema = follow(&mut request, asked.response_format.as_ref().and_then(ResponseFormat::rules), "response_format", "json_schema")?;
    think(&mut request, "reasoning_effort", asked.reasoning_effort.as_deref(), asked.chat_template_kwargs.as_ref())?;
    if request.n > app.options.max_n {
        return Err(Failure::field("n", format!("expected at most {}, found {}", app.options.max_n, request.n)));
    }
    let kept = kept(&request, &caller, asked.session_id, asked.return_state == Some(true))?;
    let (model, n) = (app.model(asked.model.as_deref())?, request.n);
    let ticket =
        Ticket::open(&app, &model, &caller, "/v1/chat/completions", request, &kept).await.map_err(|e| of_schema(e, schema.as_deref()))?;
    let head = Head {
        id: new_id("chatcmpl-"),
        created: now(),
        model: model.name.clone(),
        fingerprint: fingerprint(&ticket.engine),
        max_calls: if asked.parallel_tool_calls == Some(false) { 1 } else { usize::MAX },
    };
    if asked.stream == Some(true) {
        let usage = StreamOptions::has_usage(asked.stream_options.as_ref());
        return Ok(respond(
            vec![ticket],
            Chunks { head, usage, sum: Sum::default(), texts: (0..n).map(|_| Choice::default()).collect() },
            &caller.request_id,
        ));
    }
    let engine = ticket.engine.clone();
    let all = collect(vec![ticket]).await?.remove(0);
    Ok(head.completion(&engine, &all))
}

/// Fields that an answer and all its chunks have, and a limit.
struct Head {
    id: String,
    created: u64,
    model: String,
    fingerprint: String,
    /// The maximum number of tool calls in a choice. Further calls are not returned.
    max_calls: usize,
}

impl Head {
    fn completion(&self, engine: &Engine, all: &[Completion]) -> Response {
        let mut sum = Sum::default();
        let mut answer = json!({"id": self.id, "object": "chat.completion", "created": self.created, "model": self.model, "system_fingerprint": self.fingerprint});
        let choices = all.iter().map(|done| {
            sum.add(done);
            self.choice(engine, done)
        });
        answer["choices"] = choices.collect();
        answer["usage"] = sum.json();
        if let Some(done) = all.first() {
            add_end(&mut answer, done);
        }
        Json(answer).into_response()
    }

    fn choice(&self, engine: &Engine, done: &Completion) -> Value {
        let mut message = json!({"role": "assistant", "content": done.text, "refusal": null});
        if let Some(thought) = &done.thought {
            message["reasoning_content"] = thought.as_str().into();
        }
        if !done.calls.is_empty() {
            message["tool_calls"] = done.calls.iter().take(self.max_calls).map(|call| tool_call(&new_id("call_"), call)).collect();
            if done.text.is_empty() {
                message["content"] = Value::Null;
            }
        }
        let logprobs = (!done.logprobs.is_empty())
            .then(|| json!({"content": done.logprobs.iter().map(|at| chat_logprobs(engine, at)).collect::<Vec<_>>(), "refusal": null}));
        json!({"index": done.index, "message": message, "logprobs": logprobs, "finish_reason": finish_reason(done), "seed": done.seed})
    }
}

/// Returns the `system_fingerprint` of an answer: the version of the program and the beginning of the weights' hash.
pub fn fingerprint(engine: &Engine) -> String {
    let hash = engine.model().weights_hash();
    format!("wingbeat-{}-{}", env!("CARGO_PKG_VERSION"), &hash[..hash.len().min(16)])
}

/// One choice of a streamed answer: what has been sent, and what waits to be sent.
#[derive(Default)]
struct Choice {
    has_begun: bool,
    /// Log-probabilities of tokens whose text has not been sent yet.
    logprobs: Vec<Value>,
}

/// Writes the chunks of a streamed answer.
struct Chunks {
    head: Head,
    /// True if the stream ends with a chunk that contains the usage.
    usage: bool,
    sum: Sum,
    texts: Vec<Choice>,
}

impl Chunks {
    fn chunk(&self, choices: Value) -> Value {
        let Head { id, created, model, fingerprint, .. } = &self.head;
        let mut chunk = json!({"id": id, "object": "chat.completion.chunk", "created": created, "model": model, "system_fingerprint": fingerprint, "choices": choices});
        if self.usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    /// Sends a chunk with the `delta` of one choice. `more` contains further fields of the choice.
    fn delta(&mut self, index: usize, mut delta: Value, finish: Option<&str>, more: Value, out: &mut Out) {
        let Some(choice) = self.texts.get_mut(index) else { return };
        if !std::mem::replace(&mut choice.has_begun, true) {
            delta["role"] = "assistant".into();
        }
        let logprobs = std::mem::take(&mut choice.logprobs);
        let logprobs = if logprobs.is_empty() { Value::Null } else { json!({"content": logprobs, "refusal": null}) };
        let mut entry = json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish});
        merge(&mut entry, &more);
        out.json(&self.chunk(json!([entry])));
    }
}

impl Lines for Chunks {
    fn event(&mut self, _: usize, event: &Event, engine: &Engine, out: &mut Out) {
        let max_calls = self.head.max_calls;
        match event {
            Event::Started { .. } => {
                for index in 0..self.texts.len() {
                    self.delta(index, json!({"content": ""}), None, Value::Null, out);
                }
            }
            Event::Text { index, text } => self.delta(*index, json!({"content": text}), None, Value::Null, out),
            Event::Thought { index, text } => self.delta(*index, json!({"reasoning_content": text}), None, Value::Null, out),
            Event::Call { index, call, name } if *call < max_calls => {
                let begun = json!({"index": call, "id": new_id("call_"), "type": "function", "function": {"name": name, "arguments": ""}});
                self.delta(*index, json!({"tool_calls": [begun]}), None, Value::Null, out);
            }
            Event::Arguments { index, call, text } if *call < max_calls => {
                self.delta(*index, json!({"tool_calls": [{"index": call, "function": {"arguments": text}}]}), None, Value::Null, out);
            }
            Event::Logprobs { index, logprobs } => {
                let entry = chat_logprobs(engine, logprobs);
                self.texts.get_mut(*index).into_iter().for_each(|choice| choice.logprobs.push(entry.clone()));
            }
            Event::Done(done) => {
                self.sum.add(done);
                let more = end_of_choice(done);
                self.delta(done.index, json!({}), Some(finish_reason(done)), more, out);
            }
            _ => {}
        }
    }

    fn end(&mut self, out: &mut Out) {
        if self.usage {
            let mut chunk = self.chunk(json!([]));
            chunk["usage"] = self.sum.json();
            out.json(&chunk);
        }
        out.done();
    }
}
