//! Streams events of tickets, as server-sent events or as lines of JSON.

use super::answer::{Choices, End, Head, PromptProgress, Usage};
use super::extras::StreamOptions;
use crate::app::App;
use crate::failure::{Answer, Failure};
use crate::recordings::{Recording, StreamEvent};
use crate::tickets::Ticket;
use axum::Json;
use axum::body::Body;
use axum::http::header;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use serde::Serialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use wingbeat::engine::{Completion, Engine, Event};
use wingbeat::error::Error;

/// The media type of a stream of JSON objects, one per line.
pub const JSON_LINES: &str = "application/x-ndjson";
/// Proxies close a silent connection. So a stream of server-sent events sends a comment after this time without an event.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Converts events to the lines of a stream.
pub trait Lines: Send + 'static {
    /// Converts an event of the ticket number `ticket`, counted from 0. Adds the lines to `out`.
    fn event(&mut self, ticket: usize, event: &Event, engine: &Engine, out: &mut Out);
    /// Does the last work before [`end`](Self::end): for example, stores the answer.
    fn before_end(&mut self) -> BoxFuture<'_, Answer<()>> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// Adds the lines that end the stream. Called after the last event of all tickets.
    fn end(&mut self, out: &mut Out);
    /// Adds the lines that report an error. These are the last lines of the stream.
    fn failed(&mut self, failure: &Failure, request_id: &str, out: &mut Out) {
        out.json(&failure.body(request_id));
    }
    /// Returns the event that keeps a silent connection open. By default, the event is a comment.
    fn keep_alive(&self) -> KeepAlive {
        KeepAlive::new()
    }
}

/// Lines that wait to be sent.
#[derive(Default)]
pub struct Out(VecDeque<StreamEvent>);

impl Out {
    /// Adds a line with JSON.
    pub fn json(&mut self, data: &impl Serialize) {
        self.add(None, data);
    }

    /// Adds a line with the name of an event and JSON.
    pub fn named(&mut self, name: &str, data: &impl Serialize) {
        self.add(Some(name.into()), data);
    }

    fn add(&mut self, name: Option<String>, data: &impl Serialize) {
        // An error is ignored: only a map whose keys are not text cannot become JSON, and no answer has such a map.
        self.0.extend(serde_json::to_string(data).map(|data| StreamEvent { name, data }));
    }

    /// Adds the line that ends a stream.
    pub fn done(&mut self) {
        self.0.push_back(StreamEvent { name: None, data: "[DONE]".into() });
    }
}

/// Writes chunks of `/v1/chat/completions` and `/v1/completions`.
pub struct ChunkStream {
    head: Head,
    wants_usage: bool,
    pub usage: Usage,
}

impl ChunkStream {
    pub fn new(head: Head, options: Option<StreamOptions>) -> ChunkStream {
        let wants_usage = options.and_then(|options| options.include_usage).unwrap_or(false);
        ChunkStream { head, wants_usage, usage: Usage::default() }
    }

    pub fn id(&self) -> &str {
        self.head.id()
    }

    /// Adds a chunk with a piece of one choice.
    pub fn send<C: Serialize>(&mut self, choice: C, out: &mut Out) {
        out.json(&self.chunk(vec![choice], None));
    }

    /// Adds the lines that end the stream: the chunk with the usage if the request asks for it, and `[DONE]`.
    pub fn end<C: Serialize>(&mut self, out: &mut Out) {
        if self.wants_usage {
            let usage = self.usage;
            out.json(&self.chunk::<C>(Vec::new(), Some(usage)));
        }
        out.done();
    }

    /// Adds a chunk without choices that reports how far the prompt is prefilled.
    pub fn progress<C: Serialize>(&mut self, prompt_progress: PromptProgress, out: &mut Out) {
        out.json(&Choices { prompt_progress: Some(prompt_progress), ..self.chunk::<C>(Vec::new(), None) });
    }

    fn chunk<C>(&mut self, choices: Vec<C>, usage: Option<Usage>) -> Choices<C> {
        Choices {
            head: self.head.with_warnings_once(),
            choices,
            usage: self.wants_usage.then_some(usage),
            prompt_progress: None,
            end: End::default(),
        }
    }
}

/// Returns an answer that is not streamed. `all` has a list of continuations for each ticket. `choice(i, continuation)` makes the choice for a
/// continuation of ticket number `i`.
pub fn whole<C: Serialize>(head: Head, all: &[Vec<Completion>], choice: impl Fn(usize, &Completion) -> C) -> Response {
    let mut usage = Usage::default();
    all.iter().flatten().for_each(|done| usage.add(done));
    let choices = all.iter().enumerate().flat_map(|(ticket, all)| all.iter().map(move |done| (ticket, done)));
    let choices = choices.map(|(ticket, done)| choice(ticket, done)).collect();
    let end = all.iter().flatten().next().map(|done| End { seed: None, complete: None, ..End::of(done) }).unwrap_or_default();
    Json(Choices { head, choices, usage: Some(Some(usage)), prompt_progress: None, end }).into_response()
}

/// The events of several tickets, each with the index and the engine of its ticket.
type Events = BoxStream<'static, (usize, wingbeat::error::Result<Event>, Engine)>;

fn events(tickets: Vec<Ticket>) -> Events {
    let of_ticket = |(i, ticket): (usize, Ticket)| {
        let next = move |mut ticket: Ticket| async move {
            let event = ticket.next().await?;
            Some(((i, event, ticket.engine.clone()), ticket))
        };
        stream::unfold(ticket, next).boxed()
    };
    stream::select_all(tickets.into_iter().enumerate().map(of_ticket)).boxed()
}

struct Streaming<L> {
    events: Option<Events>,
    lines: L,
    out: Out,
    request_id: String,
}

/// Returns a response that streams the events of tickets as server-sent events. When the client leaves, the response and its tickets are dropped, which
/// cancels the requests.
pub fn respond<L: Lines>(tickets: Vec<Ticket>, lines: L, request_id: &str) -> Response {
    let keep_alive = lines.keep_alive().interval(KEEP_ALIVE);
    let lines = all_lines(tickets, lines, request_id).map(|line| Ok::<_, Infallible>(sse_event(line)));
    Sse::new(lines).keep_alive(keep_alive).into_response()
}

fn sse_event(StreamEvent { name, data }: StreamEvent) -> SseEvent {
    name.iter().fold(SseEvent::default(), |event, name| event.event(name)).data(data)
}

/// Ends a recording when dropped, also after a panic.
struct EndOnDrop(Arc<Recording>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Reads the events of tickets into a recording, whether or not a client reads the recording. Returns at once.
pub fn record<L: Lines>(app: &Arc<App>, recording: Arc<Recording>, tickets: Vec<Ticket>, lines: L, request_id: &str) {
    let lines = all_lines(tickets, lines, request_id);
    let (app, request_id) = (app.clone(), request_id.to_owned());
    tokio::spawn(async move {
        {
            let ending = EndOnDrop(recording);
            let mut lines = std::pin::pin!(lines);
            loop {
                let next = tokio::select! {
                    biased;
                    () = ending.0.stopped() => None,
                    line = lines.next() => line,
                };
                let Some(line) = next else { break };
                if !ending.0.push(line) {
                    let e = Error::input("the answer was stopped, because nobody read it for five minutes");
                    ending.0.push(StreamEvent { name: None, data: serde_json::json!(Failure::from(e).body(&request_id)).to_string() });
                    break;
                }
            }
        }
        app.recordings.forget().await;
    });
}

/// Returns a response that streams a recording after its first `n` events. Each event has its number as its id.
pub fn play(recording: Arc<Recording>, n: usize) -> Response {
    let lines = recording.read(n).map(|(number, line)| Ok::<_, Infallible>(sse_event(line).id(number.to_string())));
    Sse::new(lines).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// Returns a streamed response like [`respond`], but with one JSON object per line.
pub fn respond_in_json<L: Lines>(tickets: Vec<Ticket>, lines: L, request_id: &str) -> Response {
    let line = |line: StreamEvent| Ok::<_, Infallible>(line.data + "\n");
    let body = Body::from_stream(all_lines(tickets, lines, request_id).map(line));
    ([(header::CONTENT_TYPE, JSON_LINES)], body).into_response()
}

fn all_lines<L: Lines>(tickets: Vec<Ticket>, lines: L, request_id: &str) -> impl Stream<Item = StreamEvent> + use<L> {
    let streaming = Streaming { events: Some(events(tickets)), lines, out: Out::default(), request_id: request_id.into() };
    let next = |mut streaming: Streaming<L>| async move {
        loop {
            if let Some(line) = streaming.out.0.pop_front() {
                return Some((line, streaming));
            }
            let Streaming { events, lines, out, request_id } = &mut streaming;
            match events.as_mut()?.next().await {
                Some((_, Err(e), _)) => {
                    fail(lines, &e.into(), request_id, out);
                    // Dropping the events cancels the other tickets.
                    *events = None;
                }
                Some((ticket, Ok(event), engine)) => lines.event(ticket, &event, &engine, out),
                None => {
                    match lines.before_end().await {
                        Ok(()) => lines.end(out),
                        Err(failure) => fail(lines, &failure, request_id, out),
                    }
                    *events = None;
                }
            }
            if streaming.events.is_none() && streaming.out.0.is_empty() {
                return None;
            }
        }
    };
    stream::unfold(streaming, next)
}

/// Ends a stream with an error, and logs the error. The usual log line of the response cannot have the error: it was written when the stream began.
fn fail(lines: &mut impl Lines, failure: &Failure, request_id: &str, out: &mut Out) {
    log::warn!("{request_id}: the stream ended with an error: {}", failure.in_log());
    lines.failed(failure, request_id, out);
}

/// Waits until all tickets are complete. Returns the list of continuations for each ticket, in the order of their indices.
///
/// # Errors
/// The error of the first request that failed. The other requests are cancelled.
pub async fn collect(tickets: Vec<Ticket>) -> Answer<Vec<Vec<Completion>>> {
    let mut all: Vec<Vec<Completion>> = tickets.iter().map(|_| Vec::new()).collect();
    let mut events = events(tickets);
    while let Some((ticket, event, _)) = events.next().await {
        if let Event::Done(done) = event? {
            all[ticket].push(*done);
        }
    }
    all.iter_mut().for_each(|done| done.sort_by_key(|completion| completion.index));
    Ok(all)
}
