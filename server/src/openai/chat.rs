//! `POST /v1/chat/completions`: answers messages.

use super::answer::{ChatLogprobs, End, FinishSchema, Head, PromptProgress};
use super::extras::{ResponseFormat, StreamOptions, follow, read, session_states, think};
use super::messages::{self, WireMessage};
use super::stream::{ChunkStream, Lines, Out, collect, play, record, respond, whole};
use crate::abilities::keep_supported_thinking;
use crate::app::App;
use crate::body::{Body, Name};
use crate::failure::{Answer, Failure};
use crate::fields::Dialect;
use crate::guard::Caller;
use crate::ids::new_id;
use crate::recordings::{last_seen, unknown};
use crate::tickets::Ticket;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Instant;
use utoipa::ToSchema;
use wingbeat::engine::{Completion, Engine, Event, FinishReason, Input};
use wingbeat::low_level::session::Logprobs;
use wingbeat::low_level::template::ToolCall;

/// A request for a chat completion. Sampler settings, rules and names of states are further fields of the same object.
#[derive(Debug, Deserialize, ToSchema)]
pub struct ChatBody {
    pub messages: Vec<WireMessage>,
    /// The name of a saved state, which the messages follow.
    #[schema(value_type = Option<String>)]
    pub state: Option<Value>,
    /// The name of a model. By default, the server's first model. A server with only one model accepts any name.
    pub model: Option<String>,
    pub stream: Option<bool>,
    pub stream_options: Option<StreamOptions>,
    /// The maximum number of tokens of the answer, thoughts included. Has precedence over `max_tokens`.
    pub max_completion_tokens: Option<u32>,
    /// If true, the answer contains the log-probability of each of its tokens.
    pub logprobs: Option<bool>,
    /// How many of the most likely tokens are returned at each position, with log-probabilities: 0 to 20. Needs `logprobs`.
    #[schema(minimum = 0, maximum = 20)]
    pub top_logprobs: Option<u32>,
    pub response_format: Option<ResponseFormat>,
    /// If false, the answer has at most one tool call.
    pub parallel_tool_calls: Option<bool>,
    /// How much the model thinks: none, minimal, low, medium, high or xhigh.
    pub reasoning_effort: Option<String>,
    /// The key `enable_thinking` (true or false) turns thinking on or off. Has precedence over `reasoning_effort`.
    #[schema(value_type = Object)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
    /// The id of a session. The state after the answer is kept under this id. The next request with this id continues from that state if its
    /// messages begin with the same text.
    pub session_id: Option<String>,
    /// If true, the state after the answer is stored, and `state.name` in the answer is its name. The server chooses the name, unless `save_state`
    /// or `session_id` sets a name.
    pub return_state: Option<bool>,
    /// If true, a streamed answer goes on when its connection ends. Its events have numbers as ids, and
    /// `GET /v1/chat/completions/{id}/events?after=N` continues the stream after event N.
    pub resumable: Option<bool>,
}

pub async fn create(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, body: Body) -> Answer {
    let input = |asked: &mut ChatBody| Ok(Input::Messages(messages::read(&std::mem::take(&mut asked.messages), asked.state.is_some())?));
    let (asked, mut request, warnings, claim) = read(&app, &caller, body, Dialect::Chat, input).await?;
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
    let is_demanded = request.thinking.is_some();
    think(&mut request, "reasoning_effort", asked.reasoning_effort.as_deref(), asked.chat_template_kwargs.as_ref())?;
    if request.n > app.options.max_n {
        return Err(Failure::field("n", format!("expected at most {}, found {}", app.options.max_n, request.n)));
    }
    let states = session_states(&request, &caller, asked.session_id, asked.return_state == Some(true))?;
    let (model, n) = (app.model(asked.model.as_deref())?, request.n);
    if !is_demanded {
        keep_supported_thinking(&app.started(&model).await?.0, &mut request);
    }
    let ticket = Ticket::open(&app, &model, &caller, "/v1/chat/completions", request, &states, &claim)
        .await
        .map_err(|e| e.renamed(&["json_schema"], &schema))?;
    let head =
        Head::new("chatcmpl-", if asked.stream == Some(true) { "chat.completion.chunk" } else { "chat.completion" }, &ticket, warnings);
    let max_calls = if asked.parallel_tool_calls == Some(false) { 1 } else { usize::MAX };
    if asked.stream == Some(true) {
        let stream = ChunkStream::new(head, asked.stream_options);
        let choices = (0..n).map(|_| ChoiceProgress::default()).collect();
        let lines = |stream| Chunks { stream, choices, max_calls, began: Instant::now() };
        if asked.resumable == Some(true) {
            let recording = app.recordings.begin(&caller.namespace, stream.id(), app.budget.claim(&caller.namespace));
            record(&app, recording.clone(), vec![ticket], lines(stream), &caller.request_id);
            return Ok(play(recording, 0));
        }
        return Ok(respond(vec![ticket], lines(stream), &caller.request_id));
    }
    if asked.resumable == Some(true) {
        return Err(Failure::field("resumable", "expected stream = true together with resumable"));
    }
    let engine = ticket.engine.clone();
    let all = collect(vec![ticket]).await?;
    Ok(whole(head, &all, |_, done| ChatChoice::of(&engine, done, max_calls)))
}

/// `GET /v1/chat/completions/{id}/events`: continues the stream of a resumable answer.
pub async fn events(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Name(id): Name,
    headers: HeaderMap,
    uri: Uri,
) -> Answer {
    let n = last_seen(&headers, uri.query().unwrap_or_default())?;
    let recording = app.recordings.get(&caller.namespace, &id).ok_or_else(|| unknown(&id))?;
    Ok(play(recording, n))
}

/// The answer to the deletion of a chat completion.
#[derive(Serialize, ToSchema)]
pub struct DeletedCompletion {
    id: String,
    object: &'static str,
    deleted: bool,
}

/// `DELETE /v1/chat/completions/{id}`: stops a resumable answer and deletes its events.
pub async fn delete(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, Name(id): Name) -> Answer<Json<DeletedCompletion>> {
    match app.recordings.stop(&caller.namespace, &id) {
        true => Ok(Json(DeletedCompletion { id, object: "chat.completion.deleted", deleted: true })),
        false => Err(unknown(&id)),
    }
}

/// An answer of a chat completion.
#[derive(Serialize, ToSchema)]
pub struct ChatChoice {
    index: usize,
    message: ChatMessage,
    logprobs: Option<ChatLogprobs>,
    #[schema(value_type = FinishSchema)]
    finish_reason: FinishReason,
    seed: u64,
    /// True if the answer satisfies its grammar or schema, false if it was cut before. Present only if the request has rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    complete: Option<bool>,
}

/// The message of an answer.
#[derive(Serialize, ToSchema)]
pub struct ChatMessage {
    role: &'static str,
    content: Option<String>,
    /// Always `null`.
    refusal: Option<String>,
    /// The model's thought.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ChatCall>,
}

/// A call of a tool.
#[derive(Serialize, ToSchema)]
pub struct ChatCall {
    id: String,
    r#type: &'static str,
    function: ChatFunction,
}

#[derive(Serialize, ToSchema)]
pub struct ChatFunction {
    name: String,
    arguments: String,
}

impl ChatChoice {
    fn of(engine: &Engine, done: &Completion, max_calls: usize) -> ChatChoice {
        let call = |call: &ToolCall| {
            let function = ChatFunction { name: call.name.clone(), arguments: call.arguments.clone() };
            ChatCall { id: new_id("call_"), r#type: "function", function }
        };
        let message = ChatMessage {
            role: "assistant",
            content: (!done.text.is_empty() || done.calls.is_empty()).then(|| done.text.clone()),
            refusal: None,
            reasoning_content: done.thought.clone(),
            tool_calls: done.calls.iter().take(max_calls).map(call).collect(),
        };
        let logprobs = ChatLogprobs::of(engine, &done.logprobs);
        ChatChoice { index: done.index, message, logprobs, finish_reason: done.finish_reason(), seed: done.seed, complete: done.complete }
    }
}

/// A piece of an answer in a stream.
#[derive(Serialize, ToSchema)]
pub struct ChatPiece {
    index: usize,
    delta: Delta,
    logprobs: Option<ChatLogprobs>,
    /// `null` in all chunks of a choice but the last.
    #[schema(value_type = Option<FinishSchema>)]
    finish_reason: Option<FinishReason>,
    #[serde(flatten)]
    end: End,
}

/// The part that one chunk adds to the message of an answer.
#[derive(Default, Serialize, ToSchema)]
pub struct Delta {
    /// Present only in the first chunk of a choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[CallDelta; 1]>,
}

/// The part that one chunk adds to a tool call. `id`, `type` and the name of the function are in the first chunk of the call.
#[derive(Serialize, ToSchema)]
pub struct CallDelta {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
    function: FunctionDelta,
}

#[derive(Serialize, ToSchema)]
pub struct FunctionDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    arguments: String,
}

/// The progress of one choice of a streamed answer.
#[derive(Default)]
struct ChoiceProgress {
    has_begun: bool,
    /// Log-probabilities of tokens whose text has not been sent yet.
    logprobs: Vec<Logprobs>,
}

/// Writes the chunks of a streamed answer.
struct Chunks {
    stream: ChunkStream,
    choices: Vec<ChoiceProgress>,
    /// The maximum number of tool calls in a choice. Further calls are not returned.
    max_calls: usize,
    /// The time at which the prefill began.
    began: Instant,
}

impl Chunks {
    /// Sends a chunk with the `delta` of one choice. For the last chunk of the choice, `done` is the complete continuation.
    fn delta(&mut self, engine: &Engine, index: usize, mut delta: Delta, done: Option<&Completion>, out: &mut Out) {
        let Some(choice) = self.choices.get_mut(index) else { return };
        if !std::mem::replace(&mut choice.has_begun, true) {
            delta.role = Some("assistant");
        }
        let logprobs = ChatLogprobs::of(engine, &std::mem::take(&mut choice.logprobs));
        let end = done.map(End::of).unwrap_or_default();
        self.stream.send(ChatPiece { index, delta, logprobs, finish_reason: done.map(Completion::finish_reason), end }, out);
    }

    fn call(&mut self, engine: &Engine, index: usize, call: CallDelta, out: &mut Out) {
        if call.index < self.max_calls {
            self.delta(engine, index, Delta { tool_calls: Some([call]), ..Delta::default() }, None, out);
        }
    }
}

impl Lines for Chunks {
    fn event(&mut self, _: usize, event: &Event, engine: &Engine, out: &mut Out) {
        let content = |text: &str| Delta { content: Some(text.into()), ..Delta::default() };
        match event {
            Event::Started { .. } => {
                self.began = Instant::now();
                for index in 0..self.choices.len() {
                    self.delta(engine, index, content(""), None, out);
                }
            }
            Event::Progress { processed_tokens, prompt_tokens, cached_tokens } => {
                let time_ms = self.began.elapsed().as_millis() as u64;
                let progress = PromptProgress { total: *prompt_tokens, cache: *cached_tokens, processed: *processed_tokens, time_ms };
                self.stream.progress::<ChatPiece>(progress, out);
            }
            Event::Text { index, text, .. } => self.delta(engine, *index, content(text), None, out),
            Event::Thought { index, text } => {
                self.delta(engine, *index, Delta { reasoning_content: Some(text.clone()), ..Delta::default() }, None, out);
            }
            Event::Call { index, call, name } => {
                let function = FunctionDelta { name: Some(name.clone()), arguments: String::new() };
                let call = CallDelta { index: *call, id: Some(new_id("call_")), r#type: Some("function"), function };
                self.call(engine, *index, call, out);
            }
            Event::Arguments { index, call, text } => {
                let function = FunctionDelta { name: None, arguments: text.clone() };
                self.call(engine, *index, CallDelta { index: *call, id: None, r#type: None, function }, out);
            }
            Event::Logprobs { index, logprobs } => {
                self.choices.get_mut(*index).into_iter().for_each(|choice| choice.logprobs.push(logprobs.clone()));
            }
            Event::Done(done) => {
                self.stream.usage.add(done);
                self.delta(engine, done.index, Delta::default(), Some(done), out);
            }
            _ => {}
        }
    }

    fn end(&mut self, out: &mut Out) {
        self.stream.end::<ChatPiece>(out);
    }
}
