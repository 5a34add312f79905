//! Answers of `/api/chat` and `/api/generate`: whole, or as a stream of JSON objects.

use super::OllamaError;
use super::settings::ParsedRequest;
use crate::app::App;
use crate::failure::{Answer, Failure};
use crate::guard::Caller;
use crate::openai::answer::{ChatLogprob, ChatLogprobs};
use crate::openai::stream::{Lines, Out, respond_in_json};
use axum::Json;
use axum::response::IntoResponse;
use serde::Serialize;
use serde_json::{Map, Value};
use std::marker::PhantomData;
use std::sync::Arc;
use utoipa::ToSchema;
use wingbeat::engine::{Completion, Engine, Event, FinishReason};
use wingbeat::low_level::session::Logprobs;

/// Fields of every object of an answer.
#[derive(Serialize, ToSchema)]
pub struct ObjectHead {
    model: String,
    created_at: String,
    /// True in the last object.
    done: bool,
    /// The log-probabilities of the tokens in this object. Present only if the request sets `logprobs`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logprobs: Vec<ChatLogprob>,
    #[serde(flatten)]
    ending: Ending,
}

/// Fields of the last object of an answer. Durations are in nanoseconds.
#[derive(Default, Serialize, ToSchema)]
pub struct Ending {
    /// stop, length, or load (the request had no input).
    #[serde(skip_serializing_if = "Option::is_none")]
    done_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_duration: Option<u64>,
    /// The time in the queue. The time to load the model is not included.
    #[serde(skip_serializing_if = "Option::is_none")]
    load_duration: Option<u64>,
    /// The number of tokens in the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_eval_count: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_eval_duration: Option<u64>,
    /// The number of generated tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    eval_count: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eval_duration: Option<u64>,
    /// One line for each field of the request that has no effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Returns the current time in the format of RFC 3339.
pub fn now() -> String {
    jiff::Timestamp::now().to_string()
}

/// Converts milliseconds to nanoseconds.
pub fn nanoseconds(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

impl ObjectHead {
    fn new(model: &str, done: bool, ending: Ending) -> ObjectHead {
        ObjectHead { model: model.into(), created_at: now(), done, logprobs: Vec::new(), ending }
    }

    fn last(model: &str, done: &Completion, warnings: Vec<String>) -> ObjectHead {
        let (t, usage) = (&done.timings, &done.usage);
        let ending = Ending {
            done_reason: Some(if done.finish_reason() == FinishReason::Length { "length" } else { "stop" }),
            total_duration: Some(nanoseconds(t.queue_ms + t.prefill_ms + t.decode_ms)),
            load_duration: Some(nanoseconds(t.queue_ms)),
            prompt_eval_count: Some(usage.prompt_tokens),
            prompt_eval_duration: Some(nanoseconds(t.prefill_ms)),
            eval_count: Some(usage.completion_tokens),
            eval_duration: Some(nanoseconds(t.decode_ms)),
            warnings,
        };
        ObjectHead::new(model, true, ending)
    }
}

/// The part of an answer that one object contains: the whole answer, or a piece of a stream.
#[derive(Default)]
pub struct ObjectPart {
    pub text: String,
    pub thought: Option<String>,
    pub calls: Vec<Call>,
}

/// A call of a tool. The arguments are an object.
#[derive(Serialize, ToSchema)]
pub struct Call {
    function: CalledFunction,
}

#[derive(Serialize, ToSchema)]
pub struct CalledFunction {
    /// The number of the call in the answer, from 0.
    index: usize,
    name: String,
    #[schema(value_type = Object)]
    arguments: Map<String, Value>,
}

/// Returns the calls of an answer. A call that was cut has no complete arguments, so it is left out.
fn calls(done: &Completion) -> Vec<Call> {
    let call = |(index, call): (usize, &wingbeat::low_level::template::ToolCall)| {
        let arguments = serde_json::from_str(&call.arguments).ok()?;
        Some(Call { function: CalledFunction { index, name: call.name.clone(), arguments } })
    };
    done.calls.iter().enumerate().filter_map(call).collect()
}

/// An object of an answer: the whole answer, or a piece of a stream.
pub trait AnswerObject: Serialize + Send + 'static {
    fn new(head: ObjectHead, part: ObjectPart) -> Self;
}

/// Runs a request for text and answers with objects of the type `O`. If the request has no input, the answer is empty: Ollama's clients send such
/// requests to load a model.
pub async fn answer<O: AnswerObject>(app: &Arc<App>, caller: &Caller, asked: ParsedRequest, endpoint: &'static str) -> Answer {
    let model = asked.settings.model(app)?;
    let name = asked.settings.name_of(&model);
    if !asked.has_input() {
        app.started(&model).await?;
        let ending = Ending { done_reason: Some("load"), ..Ending::default() };
        return Ok(Json(O::new(ObjectHead::new(&name, true, ending), ObjectPart::default())).into_response());
    }
    let is_streamed = asked.settings.stream != Some(false);
    let warnings = asked.warnings.clone();
    let ticket = asked.open(app, caller, &model, endpoint).await?;
    if is_streamed {
        return Ok(respond_in_json(
            vec![ticket],
            Objects::<O> { model: name, warnings, logprobs: Vec::new(), of: PhantomData },
            &caller.request_id,
        ));
    }
    let engine = ticket.engine.clone();
    let done = ticket.finish(|_| ()).await?;
    let part = ObjectPart { text: done.text.clone(), thought: done.thought.clone(), calls: calls(&done) };
    let logprobs = ChatLogprobs::of(&engine, &done.logprobs).map(|all| all.content).unwrap_or_default();
    Ok(Json(O::new(ObjectHead { logprobs, ..ObjectHead::last(&name, &done, warnings) }, part)).into_response())
}

/// Writes the objects of a streamed answer.
struct Objects<O> {
    model: String,
    warnings: Vec<String>,
    /// Log-probabilities of tokens whose text has not been sent yet.
    logprobs: Vec<Logprobs>,
    of: PhantomData<fn() -> O>,
}

impl<O: AnswerObject> Lines for Objects<O> {
    fn event(&mut self, _: usize, event: &Event, engine: &Engine, out: &mut Out) {
        let Objects { model, logprobs: held, .. } = self;
        let mut send = |part: ObjectPart| {
            let logprobs = ChatLogprobs::of(engine, &std::mem::take(held)).map(|all| all.content).unwrap_or_default();
            out.json(&O::new(ObjectHead { logprobs, ..ObjectHead::new(model, false, Ending::default()) }, part));
        };
        match event {
            Event::Logprobs { logprobs, .. } => held.push(logprobs.clone()),
            Event::Text { text, .. } => send(ObjectPart { text: text.clone(), ..ObjectPart::default() }),
            Event::Thought { text, .. } => send(ObjectPart { thought: Some(text.clone()), ..ObjectPart::default() }),
            Event::Done(done) => {
                let calls = calls(done);
                if !calls.is_empty() {
                    send(ObjectPart { calls, ..ObjectPart::default() });
                }
                // The remaining tokens, such as a blank at the end, have no event with text.
                let logprobs = ChatLogprobs::of(engine, &std::mem::take(&mut self.logprobs)).map(|all| all.content).unwrap_or_default();
                out.json(&O::new(
                    ObjectHead { logprobs, ..ObjectHead::last(&self.model, done, std::mem::take(&mut self.warnings)) },
                    ObjectPart::default(),
                ));
            }
            _ => {}
        }
    }

    fn end(&mut self, _: &mut Out) {}

    fn failed(&mut self, failure: &Failure, _: &str, out: &mut Out) {
        out.json(&OllamaError::of(failure));
    }
}
